package injections

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// longest bounds one call, so that a call that hangs fails and not the test's time.
const longest = 15 * time.Second

const (
	// share is which part of its values a place gets: one in so many. The next place gets the next
	// ones. With LAB_INJECTIONS=all, which takes minutes, it gets all.
	share = 36
	// perPart is how many of the values a part of a call of gRPC gets.
	perPart = 3
	// between is how many requests there are, about, between two looks at what others own.
	between = 800
)

// run is what an attack has come to.
type run struct {
	*world
	mu       sync.Mutex // guards the fields below
	sent, ok int
	mistakes []string
	looked   int // how many had been sent at the last look
}

// found remembers what is wrong with an answer, if anything is, and counts it.
func (r *run) found(wrong, place, value, answer string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	if ok {
		r.ok++
	}
	if wrong != "" {
		r.mistakes = append(r.mistakes, fmt.Sprintf("%s with %s: the answer %s: %s",
			place, short(value), wrong, short(answer)))
	}
}

func short(text string) string { return fmt.Sprintf("%.300s", text) }

// look compares what is there outside the attackers' own with what was there, if that was not done
// for a while or this is the end, and gives them back what they had.
func (r *run) look(t *testing.T, after string, end bool) {
	t.Helper()
	if r.sent < r.looked+between && !end {
		return
	}
	r.looked = r.sent
	if now := r.outside(t); now != r.before {
		r.mistakes = append(r.mistakes,
			fmt.Sprintf("up to %s: what others own has changed:\n%s\nwas\n%s",
				after, now, r.before))
		r.before = now
	}
	r.fill(t)
}

// each calls f with each number below n, some of them at the same time.
func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < n; i += 4 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// fields puts each value in each place of REST and of the Data API.
func (r *run) fields(t *testing.T, every int) {
	for i, p := range places() {
		values := p.values()
		each(len(values), func(j int) {
			if (i+j)%every == 0 {
				r.ask(t, p, values[j], []attacker{r.ann, r.cal}[(i+j)/every%2])
			}
		})
		r.look(t, p.String(), false)
	}
}

// ask puts one value in one place.
func (r *run) ask(t *testing.T, p place, value string, a attacker) {
	texts := r.texts(a)
	p.path, p.body = texts.Replace(p.path), texts.Replace(p.body)
	path, body, header := p.fill(texts.Replace(value))
	ctx, cancel := request(t)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, p.method, r.REST+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", p.contentType())
	if p.header != "" {
		req.Header.Set(p.header, header)
	}
	req.Header.Set("Api-Key", a.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.found("is missing: "+err.Error(), p.String(), value, "", false)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := read(resp, strings.Contains(path, ":watch") || strings.Contains(path, ":live"))
	wrong := judge(resp.StatusCode, resp.Header, answer)
	if err != nil && wrong == "" {
		wrong = "ends early: " + err.Error()
	}
	r.found(wrong, a.name+" "+p.String(), value, resp.Status+" "+string(answer),
		resp.StatusCode < 300)
}

// read returns the body, of a stream that does not end its first line.
func read(resp *http.Response, endless bool) ([]byte, error) {
	if endless && resp.StatusCode == http.StatusOK {
		return bufio.NewReader(resp.Body).ReadBytes('\n')
	}
	return io.ReadAll(resp.Body)
}

// segments writes each text into each path as it is, past what a client would clean.
func (r *run) segments(t *testing.T) {
	for _, p := range paths {
		method, path, _ := strings.Cut(p, " ")
		each(len(segments), func(i int) {
			a := []attacker{r.ann, r.cal}[i%2]
			target := r.texts(a).Replace(strings.ReplaceAll(path, "@v", segments[i]))
			r.raw(t, a, method+" "+target+" HTTP/1.1\r\n", p, segments[i])
		})
		r.look(t, p, false)
	}
}

// splits sends headers as they are, past what a client would refuse.
func (r *run) splits(t *testing.T) {
	for _, p := range []string{
		"GET " + collectionPath + "/documents/1001", "PUT " + collectionPath + "/documents/1001",
		"POST " + collectionPath + "/documents:find", "POST /action/find",
	} {
		each(len(splits), func(i int) {
			texts := r.texts(r.cal)
			line := texts.Replace(p + " HTTP/1.1\r\n" + splits[i] + "\r\n")
			r.raw(t, r.cal, line, p, splits[i])
		})
	}
	r.look(t, "the headers", true)
}

// raw sends a request on a connection of its own, and reads what comes until its end.
func (r *run) raw(t *testing.T, a attacker, head, place, value string) {
	ctx, cancel := request(t)
	defer cancel()
	address := strings.TrimPrefix(r.REST, "http://")
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(longest)) // reading says what is wrong
	body := `{"filter": {}, "documents": [{}], "document": {}, "dataSource": "lab"}`
	if strings.HasPrefix(head, "GET ") {
		body = ""
	}
	chunks := ""
	if strings.Contains(head, "Transfer-Encoding") {
		chunks = "0\r\n\r\n" // else the gateway would wait for them
	}
	_, err = fmt.Fprintf(c, "%sHost: %s\r\nApi-Key: %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s%s", head, address, a.key, len(body),
		chunks, body)
	var answer []byte
	if err == nil {
		answer, err = io.ReadAll(c)
	}
	if err != nil && len(answer) == 0 {
		r.found("is missing: "+err.Error(), place, value, "", false)
		return
	}
	wrong, code := judgeRaw(answer)
	r.found(wrong, a.name+" "+place, value, string(answer), code < 300)
}

// judgeRaw returns what is wrong with the answers on a connection, and the last status.
func judgeRaw(answer []byte) (wrong string, code int) {
	in := bufio.NewReader(bytes.NewReader(answer))
	for code = 0; ; {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			if code == 0 {
				return "is none: " + err.Error(), code
			}
			return "", code
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		code = resp.StatusCode
		if wrong = judge(code, resp.Header, body); wrong != "" || err != nil {
			return wrong, code
		}
	}
}

// TestInjections sends the lists to every place, and compares the counts with the table in
// docs/conformance.md.
func TestInjections(t *testing.T) {
	r := &run{world: start(t, rules)}
	r.open(t)
	every, each := share, perPart
	if os.Getenv("LAB_INJECTIONS") == "all" {
		every, each = 1, 200
	}
	r.fields(t, every)
	r.segments(t)
	r.splits(t)
	calls := r.calls(t, each)
	r.report(t)
	if r.ok < r.sent/20 {
		t.Errorf("only %d of %d requests succeed", r.ok, r.sent)
	}
	lists := len(operators) + len(scripts) + len(stages) + len(commands) + len(wrappers) +
		len(texts) +
		len(names) + len(segments) + len(tokens) + len(splits) + len(documents)
	row := fmt.Sprintf("%d texts in %s places: %s requests", lists,
		thousands(len(places())+len(paths)+4+calls), thousands(r.sent))
	if every == share {
		compare(t, row)
	}
}

// TestInjectionsAreFound checks that the judge finds what rules without their limits let through.
func TestInjectionsAreFound(t *testing.T) {
	r := &run{world: start(t, `permit (principal, action, resource);`)}
	p := place{method: "POST", path: collectionPath + "/documents:find", body: `{"filter": @v}`}
	r.ask(t, p, `{}`, r.cal)
	p = place{
		method: "POST", path: collectionPath + "/documents:deleteMany", body: `{"filter": @v}`,
	}
	r.ask(t, p, `{"tenant": {"$ne": "a"}}`, r.cal)
	if now := r.outside(t); len(r.mistakes) != 1 || now == r.before {
		t.Errorf("%q is found, and it is %t that nothing has changed", r.mistakes, now == r.before)
	}
}

// TestJudge has answers that are right, and answers that are not.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		code         int
		header, body string
		wrong        string
	}{
		{200, "X", `{}`, ""},
		{200, "X", `{"s": "` + marker + `"}`, "shows what the other tenant owns"},
		{400, "Injected", `{}`, "has a header of the request's making"},
		{501, "X", `{"error": {"reason": "Unimplemented"}}`, ""},
		{500, "X", `{"error": {"reason": "Internal"}}`, "is 500 Internal"},
		{503, "X", `{"error": {"reason": "NetworkError"}}`, "is 503 NetworkError"},
		{504, "X", `{"error": "late", "error_code": "DeadlineExceeded"}`, ""},
		{502, "X", `bad`, "is 502 "},
	} {
		if got := judge(c.code, http.Header{c.header: {"1"}}, []byte(c.body)); got != c.wrong {
			t.Errorf("judge(%d, %s, %s) = %q, want %q", c.code, c.header, c.body, got, c.wrong)
		}
	}
	for code, want := range map[codes.Code]string{
		codes.OK: "", codes.NotFound: "", codes.Internal: "is Internal ", codes.Unknown: "is Unknown ",
		codes.Unavailable: "is Unavailable ",
	} {
		if got := judgeCall(status.Error(code, "x"), ""); got != want {
			t.Errorf("judgeCall(%s) = %q, want %q", code, got, want)
		}
	}
	if got := judgeCall(nil, marker); got == "" {
		t.Error("a message with the marker is right")
	}
}

// report reports some of what is wrong.
func (r *run) report(t *testing.T) {
	t.Helper()
	for i, mistake := range r.mistakes {
		if i < 40 {
			t.Error(mistake)
		}
	}
	select {
	case <-r.Done():
		t.Error("the gateway has ended")
	default:
	}
	t.Logf("%d requests, of which %d succeed, %d mistakes", r.sent, r.ok, len(r.mistakes))
}

// compare checks that the table of suites has the counts.
func compare(t *testing.T, counts string) {
	t.Helper()
	root, err := gatewaytest.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), counts) {
		t.Errorf("docs/conformance.md has no %q", counts)
	}
}

// thousands writes a number as the table does.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// newKey returns a key for what mooring key new is for.
func newKey(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), suite.Gateway(t), "key",
		"new").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
