package attack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/issuertest"
)

const jsonBody = "application/json"

// clientAttacks are those of clients that may call the gateway.
var clientAttacks = []attack{
	{"import lines", func(t *testing.T, g *target) string {
		n, size := of(60, 8), of(64<<20, 16<<20)
		var sending sync.WaitGroup
		var conns []net.Conn
		for range n {
			c := post(t, g, "orders_1/documents:import", "application/x-ndjson",
				fmt.Sprintf("Content-Length: %d\r\n\r\n", size))
			defer func() { _ = c.Close() }()
			conns = append(conns, c)
			sending.Go(func() {
				_ = c.SetWriteDeadline(time.Now().Add(seconds(30, 5)))
				piece := []byte(strings.Repeat("x", 64<<10))
				_, err := io.WriteString(c, `{"a":"`)
				for left := size - 7; err == nil && left > 0; left -= len(piece) {
					_, err = c.Write(piece[:min(left, len(piece))])
				}
			})
		}
		sending.Wait()
		return tally(soon(conns))
	}},
	{"streams read slowly", func(t *testing.T, g *target) string {
		n, until := of(60, 8), time.Now().Add(seconds(25, 8))
		var reading sync.WaitGroup
		states := make([]string, n)
		for i := range states {
			c := post(t, g, "docs_100_15500000/documents:streamFind", jsonBody,
				"Accept: application/x-ndjson\r\nContent-Length: 2\r\n\r\n{}")
			defer func() { _ = c.Close() }()
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(4 << 10)
			}
			reading.Go(func() { states[i] = readSlowly(c, until) })
		}
		reading.Wait()
		answers := map[string]int{}
		for _, s := range states {
			answers[s]++
		}
		return tally(answers)
	}},
	{"one ticket", func(t *testing.T, g *target) string {
		url, status := g.ticket(t.Context(), "slow_60000")
		if url == "" {
			t.Fatalf("no ticket: %s", status)
		}
		ctx, cancel := context.WithTimeout(t.Context(), seconds(10, 1))
		defer cancel()
		return tally(repeat(of(500, 50), ctx, func() string {
			return g.send(ctx, http.MethodGet, url, nil)
		}))
	}},
	{"nested stages under a policy", func(t *testing.T, g *target) string {
		ctx, cancel := context.WithTimeout(t.Context(), seconds(10, 1))
		defer cancel()
		bodies := [][]byte{
			facets(2300, 1), facets(900, of(100, 10)), facets(6, of(40_000, 4_000)),
		}
		var mu sync.Mutex
		next := 0
		return tally(repeat(8, ctx, func() string {
			mu.Lock()
			body := bodies[next%len(bodies)]
			next++
			mu.Unlock()
			return g.send(ctx, http.MethodPost, collections+"orders_1/documents:aggregate", body)
		}))
	}},
}

// setup is how a gateway is started: more flags, and what kind of server is behind it.
type setup struct {
	args            []string
	server          string
	key, hostileKey string // of the client that is measured, and of the attacker
	issuer          string // of tokens
}

// setups lists those of the attacks that need one.
var setups = map[string]func(t *testing.T) setup{
	"nested stages under a policy": func(t *testing.T) setup {
		const rules = `
@filter("{'tenant': 1}")
@hidden("salary")
permit (principal, action, resource in Database::"d");
`
		return setup{args: []string{"--policy-file", file(t, rules)}}
	},
	"tokens of strangers": func(t *testing.T) setup {
		server := httptest.NewUnstartedServer(nil)
		url := "http://" + server.Listener.Addr().String()
		server.Config.Handler = issuertest.New(t, url)
		server.Start()
		t.Cleanup(server.Close)
		key, line := suite.Key(t, "quiet")
		return setup{key: key, issuer: url, args: []string{
			"--auth-api-keys-file", file(t, line), "--auth-jwt-issuer", url,
			"--auth-jwt-audience", issuertest.Audience,
		}}
	},
}

// file returns the path of a file with secrets.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// facets returns a request with a pipeline of $facet: keys, each with so many stages.
func facets(keys, stages int) []byte {
	b := []byte(`{"pipeline": [{"$facet": {`)
	stage := `{"$match": {"x": {"$gt": 1}, "y": {"$in": [1, 2, 3]}}}`
	pipeline := "[" + strings.TrimSuffix(strings.Repeat(stage+",", stages), ",") + "]"
	for i := range keys {
		b = append(fmt.Appendf(b, `"f%d":`, i), pipeline...)
		b = append(b, ',')
	}
	return append(bytes.TrimSuffix(b, []byte{','}), "}}]}"...)
}

// readSlowly reads a kilobyte every tenth of a second, and returns the status, or what has become
// of the connection.
func readSlowly(c net.Conn, until time.Time) string {
	status, buf := "no answer", make([]byte, 1<<10)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(until) {
		_ = c.SetReadDeadline(until)
		n, err := c.Read(buf)
		const head = "HTTP/1.1 "
		if status == "no answer" && n > len(head)+3 {
			status = string(buf[len(head) : len(head)+3])
		}
		if err != nil {
			return status + " and cut"
		}
		<-tick.C
	}
	return status
}

// soon returns the statuses of connections that have an answer within a second.
func soon(conns []net.Conn) map[string]int {
	answers := map[string]int{}
	deadline := time.Now().Add(time.Second)
	for _, c := range conns {
		_ = c.SetReadDeadline(deadline)
		head := make([]byte, len("HTTP/1.1 408"))
		_, err := io.ReadFull(c, head)
		switch {
		case err == nil:
			answers[strings.TrimPrefix(string(head), "HTTP/1.1 ")]++
		case os.IsTimeout(err):
			answers["waits"]++
		default:
			answers["cut"]++
		}
	}
	return answers
}

// repeat calls n times at once, again and again until ctx ends, and counts the answers.
func repeat(n int, ctx context.Context, call func() string) map[string]int {
	var mu sync.Mutex
	answers := map[string]int{}
	together(n, 0, func() {
		for ctx.Err() == nil {
			answer := call()
			mu.Lock()
			answers[answer]++
			mu.Unlock()
		}
	})
	return answers
}

// send makes a call, with more headers, and returns the status, "waits" if ctx ends before the end
// of the answer, or "cut".
func (g *target) send(
	ctx context.Context, method, path string, body []byte, headers ...string,
) string {
	status, _ := g.call(ctx, method, path, body, io.Discard, headers...)
	return status
}

// call is send, and copies the answer.
func (g *target) call(
	ctx context.Context, method, path string, body []byte, answer io.Writer, headers ...string,
) (status string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, g.REST+path, bytes.NewReader(body))
	if err != nil {
		return err.Error(), err
	}
	r.Header.Set("Content-Type", jsonBody)
	if g.hostileKey != "" {
		r.Header.Set("Api-Key", g.hostileKey)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := g.http.Do(r)
	if err == nil {
		_, err = io.Copy(answer, resp.Body)
		_ = resp.Body.Close()
	}
	switch {
	case ctx.Err() != nil:
		return "waits", ctx.Err()
	case err != nil:
		return "cut", err
	}
	return strconv.Itoa(resp.StatusCode), nil
}

// ticket returns the path of a change stream, or why there is none.
func (g *target) ticket(ctx context.Context, collection string) (url, status string) {
	var answer bytes.Buffer
	status, _ = g.call(ctx, http.MethodPost, "/v1/changeStreams:ticket", []byte(
		`{"watch": {"database": "d", "collection": "`+collection+`"}}`), &answer)
	var ticket struct{ URL string }
	_ = json.Unmarshal(answer.Bytes(), &ticket)
	return ticket.URL, status
}

// keep begins requests on n connections, and leaves them as they are until ctx ends.
func (g *target) keep(
	t *testing.T, ctx context.Context, n int, head, body string,
) map[string]int {
	t.Helper()
	var conns []net.Conn
	var sending sync.WaitGroup
	for range n {
		c, err := attacker.DialContext(ctx, "tcp", strings.TrimPrefix(g.REST, "http://"))
		// A dial may end before the timer of its context has.
		if end, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(end) &&
			len(conns) > 0 {
			break // a busy machine opens fewer in the time
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		conns = append(conns, c)
		sending.Go(func() {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(c,
				head+"Host: localhost\r\nContent-Type: "+jsonBody+"\r\nApi-Key: "+
					g.hostileKey+"\r\n\r\n"+body)
		})
	}
	sending.Wait()
	<-ctx.Done()
	return soon(conns)
}
