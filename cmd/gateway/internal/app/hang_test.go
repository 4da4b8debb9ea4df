package app_test

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestHangingCalls holds all connections with calls that hang on the server and have no time limit,
// where more calls may be in flight than there are connections.
// Another client's call is refused after requests.queueTime and told to try again. /readyz stays
// 200: the deployment is slow for all replicas, and a load balancer without replicas would make a
// slow service one that is down. After the calls have ended, others run.
func TestHangingCalls(t *testing.T) {
	const connections = 4
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(1, 10)...)
	release, hanging := make(chan struct{}), make(chan struct{}, connections)
	mongo.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "ping" {
			hanging <- struct{}{}
			<-release
		}
		return next(cmd)
	})
	flood, floodLine := newKey(t, "flood", time.Time{})
	other, otherLine := newKey(t, "other", time.Time{})
	g := start(t, mongo.URI(), "--mongodb-options=maxPoolSize=4",
		"--requests-queue-time=100ms", "--requests-max-in-flight=8", "--requests-timeout=0s",
		"--auth-api-keys-file",
		secretFile(t, "keys", floodLine+"\n"+otherLine+"\n"))
	g.ready()
	post := func(key, path, body string) (int, string, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+g.Addresses().REST+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Api-Key", key)
		resp, err := g.http.Do(r)
		if err != nil {
			t.Error(err)
			return 0, "", ""
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text), resp.Header.Get("Retry-After")
	}
	find := func() (int, string, string) {
		return post(other, "/v1/databases/db/collections/c/documents:findOne", "{}")
	}
	var calls sync.WaitGroup
	for range connections {
		calls.Go(func() {
			code, text, _ := post(flood, "/v1/databases/db:runCommand", `{"command":{"ping":1}}`)
			if code != http.StatusOK {
				t.Errorf("a call that hung for a while: %d %s", code, text)
			}
		})
	}
	for range connections {
		<-hanging
	}
	code, text, after := find()
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "ConnectionPoolFull") ||
		after == "" {
		t.Errorf("another client's call: %d %s, Retry-After %q", code, text, after)
	}
	if code := g.status("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz is %d, want 200", code)
	}
	close(release)
	calls.Wait()
	if code, text, _ := find(); code != http.StatusOK {
		t.Errorf("after the calls have ended: %d %s", code, text)
	}
	g.stop()
}

// TestQueueTimeChanges lowers requests.queueTime while a call holds the only connection: another
// call waits for the new time.
func TestQueueTimeChanges(t *testing.T) {
	mongo := fakemongo.NewTCPServer(t, nil)
	mongo.SetDocuments("db.c", documents(1, 10)...)
	release, hanging := make(chan struct{}), make(chan struct{}, 1)
	mongo.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
		if cmd.Name == "ping" {
			hanging <- struct{}{}
			<-release
		}
		return next(cmd)
	})
	file := filepath.Join(t.TempDir(), "mooring.yaml")
	write := func(queueTime string) {
		t.Helper()
		text := settings{"requests.queueTime": queueTime}.text(t)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1h")
	g := startWith(t, func(g *gateway) *slog.Logger {
		return slog.New(slog.NewTextHandler(&g.log, nil))
	}, mongo.URI(), "--config", file, "--mongodb-options=maxPoolSize=1",
		"--requests-max-in-flight=8")
	g.ready()
	var call sync.WaitGroup
	call.Go(func() {
		r := g.send("/v1/databases/db:runCommand", `{"command":{"ping":1}}`)
		if r.code != http.StatusOK {
			t.Errorf("a call that hung for a while: %+v", r)
		}
	})
	<-hanging
	write("1ms")
	g.Reload()
	g.logs(`msg="configuration read"`, 1)
	r := g.send("/v1/databases/db/collections/c/documents:findOne", "{}")
	if r.code != http.StatusServiceUnavailable || !strings.Contains(r.body, "ConnectionPoolFull") {
		t.Errorf("a call without a connection: %+v", r)
	}
	close(release)
	call.Wait()
	g.stop()
}
