package debugging_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/debugging"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/topology"
)

func none() []topology.PoolStats { return nil }

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost:6060"
	h.ServeHTTP(w, r)
	return w
}

// TestVars checks that the pools are the present ones. A removed server leaves nothing.
func TestVars(t *testing.T) {
	now := []topology.PoolStats{
		{Address: "a:1", Stats: pool.Stats{Total: 5, Available: 1, InUse: 4, Waiting: 2, Cursors: 2, Transactions: 1}},
		{Address: "b:1"},
	}
	h := debugging.Handler(func() []topology.PoolStats { return now })
	type counts = map[string]int
	for _, want := range []map[string]counts{
		{"a:1": {"total": 5, "checked_out": 4, "pinned": 3, "waiting": 2}, "b:1": {"total": 0, "checked_out": 0, "pinned": 0, "waiting": 0}},
		{},
	} {
		var got struct {
			MemStats   struct{ Mallocs uint64 }
			Goroutines int
			Pools      map[string]counts `json:"mooring_pools"`
		}
		w := get(t, h, "/debug/vars")
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("Content-Type of /debug/vars = %q, want application/json", got)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("/debug/vars is not JSON: %v", err)
		}
		if !maps.EqualFunc(got.Pools, want, maps.Equal) {
			t.Errorf("pools = %+v, want %+v", got.Pools, want)
		}
		if got.MemStats.Mallocs == 0 || got.Goroutines == 0 {
			t.Errorf("/debug/vars = %+v, want numbers", got)
		}
		now = nil
	}
}

// TestNoCommandLine checks that the command line is not shown, which may have a connection string
// with a password.
func TestNoCommandLine(t *testing.T) {
	if w := get(t, debugging.Handler(none), "/debug/pprof/cmdline"); w.Code != http.StatusNotFound {
		t.Errorf("/debug/pprof/cmdline answers %d, want 404", w.Code)
	}
	if w := get(t, debugging.Handler(none), "/debug/pprof/heap?debug=1"); w.Code != http.StatusOK {
		t.Errorf("/debug/pprof/heap answers %d, want 200", w.Code)
	}
}

// TestHost checks that the port answers only for names of this machine.
func TestHost(t *testing.T) {
	h := debugging.Handler(none)
	for host, want := range map[string]int{
		"localhost": 200, "LocalHost:80": 200, "127.0.0.1:6060": 200, "127.1.2.3": 200, "[::1]:6060": 200, "[::1]": 200,
		"": 421, "rebind.example": 421, "rebind.example:6060": 421, "10.0.0.1:6060": 421, "localhost.example": 421,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/debug/vars", nil)
		r.Host = host
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("Host %q: %d, want %d", host, w.Code, want)
		}
	}
}
