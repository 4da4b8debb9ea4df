package lossy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mooringdb/mooring/lab/internal/lossy"
)

func TestLosses(t *testing.T) {
	var seen atomic.Int64
	slow := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		body, _ := io.ReadAll(r.Body)
		if string(body) == "slow" {
			select {
			case <-r.Context().Done():
			case <-slow:
			}
		}
		if r.Header.Get(lossy.Target) != "" {
			t.Error("the proxy's header was passed on")
		}
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append([]byte(r.URL.Path+" "), body...))
	}))
	defer server.Close()
	defer close(slow)
	p := lossy.Start(t, "http://127.0.0.1:1", server.URL)
	for _, tt := range []struct {
		target     int
		loss, body string
		answered   bool
		seen       int64
	}{
		{1, lossy.Nothing, "hello", true, 1},
		{1, lossy.Request, "hello", false, 0},
		{1, lossy.Reply, "hello", false, 1},
		{1, lossy.HangsUp, "slow", false, 1},
		{0, lossy.Nothing, "hello", false, 0}, // the server is gone
	} {
		before := seen.Load()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/path",
			strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = lossy.Header(tt.target, tt.loss)
		resp, err := http.DefaultClient.Do(req)
		if (err == nil) != tt.answered || seen.Load()-before > tt.seen {
			t.Errorf("%+v: %v, the server saw %d", tt, err, seen.Load()-before)
		}
		if err != nil {
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusTeapot || string(body) != "/path hello" {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
}
