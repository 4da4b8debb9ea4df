package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/caller"
)

// TestLogs reads the log of two gateways as an operator does, from their start to their end, and
// checks what docs/operations.md says of it: the version and the options at the start, changes of
// the deployment, replicas that join and leave, one debug line for a request with who sent it, the
// shape of a slow filter without its values, summaries of refusals and of 5xx, what was handed
// over, and a level that changes while the gateway runs. All lines have one vocabulary. Other
// tests check the text format (TestFormat in package logging), errors of one server that alternate
// (TestRepeats there), and streams that a stop ends (TestChangeStreamsEndWithTheGateway in package
// app).
func TestLogs(t *testing.T) {
	const secret = "hunter2"
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", fakemongo.Numbered(0, 50, 10)...)
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	key, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	configuration := write("mooring.yaml", "log: {level: info}\n")
	uri := strings.Replace(mongo.URI(), "mongodb://", "mongodb://app:"+secret+"@", 1) +
		"&serverSelectionTimeoutMS=50"
	mongo.RequireAuth(&fakemongo.Auth{Users: []fakemongo.User{{Name: "app", Password: secret}}})
	args := []string{
		"--uri", uri, "--auth-api-keys", line, "--replica-address", "127.0.0.1:0",
		"--handle-keys-file", write("keys", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"),
		"--idempotency-key", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
	}
	g := startIn(t, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
	}, append([]string{
		"--config", configuration, "--admin-address=127.0.0.1:0", "--log-slow-request=1s",
	}, args...)...)
	g.eventually(t, http.StatusOK)
	find := func(g *gateway, id, body string, key string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+g.REST+"/v1/databases/db/collections/c/documents:find", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mooring-Request-Id", id)
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}

	// At the start: the version and the options, and what was found.
	starting := g.line(t, "starting", nil)
	options, _ := json.Marshal(starting["options"])
	if starting["version"] == "" || !strings.Contains(string(options), "log.slowRequest") {
		t.Errorf("starting %v", starting)
	}
	g.line(t, "server changed", record{"server": string(mongo.Address()), "is": "Standalone"})

	// One line for a request, at debug only. The level changes by SIGHUP and by a call.
	if code, body := find(g, "quiet", "{}", key); code != http.StatusOK {
		t.Fatalf("find = %d %s", code, body)
	}
	write("mooring.yaml", "log: {level: debug}\n")
	g.send(t, syscall.SIGHUP)
	g.line(t, "option changed", record{"option": "log.level", "from": "info", "to": "debug"})
	find(g, "loud", "{}", key)
	request := g.line(t, "request", record{
		"level": "DEBUG", "request_id": "loud", "principal": "key:shop", "client": "127.0.0.1",
		"method": "/mooring.v1.DocumentService/Find", "code": "OK",
	})
	if id, _ := request["trace_id"].(string); len(id) != 32 {
		t.Errorf("no trace in %v", request)
	}
	admin, _ := g.line(t, "listening", nil)["admin"].(string)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+admin+"/log/level",
		strings.NewReader("info"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("PUT /log/level: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	find(g, "quiet", "{}", key)

	// A slow call, with the shape of its filter.
	mongo.Handle("find", func(c *fakemongo.Command) fakemongo.Reply {
		return mongo.Default(c).After(1100 * time.Millisecond)
	})
	find(g, "slow", `{"filter": {"status": "`+secret+`", "total": {"$gt": 471147114711}}}`, key)
	g.line(t, "slow request", record{
		"level": "WARN", "request_id": "slow", "namespace": "db.c",
		"filter": "{status: ?, total: {$gt: ?}}",
	})
	mongo.Handle("find", nil)

	// A replica comes, goes, and hands a cursor over.
	address, _ := g.line(t, "listening", nil)["replica"].(string)
	other := start(t, append([]string{"--replica-peers", address}, args...)...)
	other.eventually(t, http.StatusOK)
	replica, _ := other.line(t, "listening", nil)["replica"].(string)
	g.line(t, "replica joined", record{"replica": replica})
	if code, body := find(other, "cursor", `{"batchSize": 2}`, key); !strings.Contains(body,
		`"cursor"`) {
		t.Errorf("find = %d %s", code, body)
	}
	other.signal(t)
	if code := other.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	g.line(t, "replica left", record{"replica": replica})
	other.line(t, "stopping", nil)
	other.line(t, "drained", record{
		"cursors_handed_over": 1.0, "cursors_ended": 0.0, "calls_cut": 0.0,
		"change_streams_ended": 0.0,
	})

	// Refusals and failures are summaries: of each kind one line, and one that counts the others.
	const many = 10
	for range many {
		find(g, "refused", `{"no": "field"}`, "")
	}
	mongo.Handle("find",
		fakemongo.Always(fakemongo.Error(11600, "InterruptedAtShutdown", "going down")))
	for range many {
		if code, body := find(g, "failed", "{}", key); code < 500 {
			t.Errorf("find = %d %s, want 5xx", code, body)
		}
	}
	mongo.SetDown(true)
	g.line(t, "server unavailable", record{"server": string(mongo.Address())})
	g.signal(t)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	g.line(t, "drained", nil)
	g.line(t, "stopped", nil)
	for id, level := range map[string]string{"refused": "INFO", "failed": "WARN"} {
		lines, counted := 0, 0
		for _, r := range g.lines(t) {
			if r["msg"] == "request "+id {
				lines++
				n, _ := r["repeated"].(float64)
				counted += max(1, int(n))
				if r["level"] != level || r["reason"] == nil ||
					r["repeated"] == nil && r["client"] != "127.0.0.1" {
					t.Errorf("%v, want level %s and the client", r, level)
				}
			}
		}
		if counted != many || lines >= many {
			t.Errorf("%d lines count %d requests that were %s, want %d", lines, counted, id, many)
		}
	}
	for _, r := range g.lines(t) {
		if r["msg"] == "request" && r["request_id"] == "quiet" {
			t.Errorf("a line at info: %v", r)
		}
	}
	checkVocabulary(t, append(g.lines(t), other.lines(t)...))
	if text := g.said() + other.said(); strings.Contains(text, secret) ||
		strings.Contains(text, "471147114711") {
		t.Error("the log shows a secret or a value")
	}
}

// checkVocabulary checks that messages begin with a lower-case letter, that attributes are in
// snake case, and that durations are texts such as 1.5s.
func checkVocabulary(t *testing.T, all []record) {
	t.Helper()
	name := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	for _, r := range all {
		msg, _ := r["msg"].(string)
		if msg == "" || msg[0] < 'a' || msg[0] > 'z' {
			t.Errorf("the message %q", msg)
		}
		for key, value := range r {
			if !name.MatchString(key) {
				t.Errorf("%s: the attribute %q", msg, key)
			}
			if key == "duration" || strings.HasSuffix(key, "_timeout") {
				text, _ := value.(string)
				if _, err := time.ParseDuration(text); err != nil {
					t.Errorf("%s: %s is %v", msg, key, value)
				}
			}
		}
	}
}

// record is one line of a log.
type record map[string]any

// lines returns what the gateway has logged.
func (g *gateway) lines(t *testing.T) (all []record) {
	t.Helper()
	for line := range strings.Lines(g.said()) {
		if line[0] != '{' {
			continue // of the runtime: where a build with coverage would write its data
		}
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// line waits until the log has a line with a message and these attributes, and returns it. There
// must be no second one with the same.
func (g *gateway) line(t *testing.T, msg string, want record) record {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	late := time.After(30 * time.Second)
	for {
		var found []record
		for _, r := range g.lines(t) {
			matches := r["msg"] == msg
			for key, value := range want {
				matches = matches && r[key] == value
			}
			if matches {
				found = append(found, r)
			}
		}
		switch {
		case len(found) == 1:
			return found[0]
		case len(found) > 1:
			t.Fatalf("%d lines %q with %v", len(found), msg, want)
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("the log has no %q with %v after 30 s", msg, want)
		}
	}
}
