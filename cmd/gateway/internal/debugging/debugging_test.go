package debugging_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/debugging"
	"github.com/mooringdb/mooring/core/event"
)

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestVars(t *testing.T) {
	var pools debugging.Pools
	s := pools.Sink()
	const addr = "db:27017"
	for range 3 {
		s.ConnectionCheckOutStarted(event.ConnectionCheckOutStarted{Address: addr})
		s.ConnectionCreated(event.ConnectionCreated{Address: addr})
	}
	s.ConnectionCheckedOut(event.ConnectionCheckedOut{Address: addr})
	s.ConnectionCheckedOut(event.ConnectionCheckedOut{Address: addr})
	s.ConnectionCheckedIn(event.ConnectionCheckedIn{Address: addr})
	s.ConnectionClosed(event.ConnectionClosed{Address: addr})

	w := get(t, debugging.Handler(&pools), "/debug/vars")
	var got struct {
		MemStats   struct{ Mallocs uint64 }
		Goroutines int
		Pools      map[string]debugging.Pool `json:"mooring_pools"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("/debug/vars is no JSON: %v", err)
	}
	if want := (debugging.Pool{Total: 2, CheckedOut: 1, Waiting: 1}); got.Pools[addr] != want {
		t.Errorf("pool = %+v, want %+v", got.Pools[addr], want)
	}
	if got.MemStats.Mallocs == 0 || got.Goroutines == 0 {
		t.Errorf("/debug/vars = %+v, want numbers", got)
	}
}

// TestServersThatAreGone: a pool without a connection leaves nothing behind.
func TestServersThatAreGone(t *testing.T) {
	var pools debugging.Pools
	s := pools.Sink()
	s.ConnectionCreated(event.ConnectionCreated{Address: "pod-1:27017"})
	s.ConnectionClosed(event.ConnectionClosed{Address: "pod-1:27017"})
	if got := pools.Snapshot(); len(got) != 0 {
		t.Errorf("pools = %v, want none", got)
	}
}

// TestNoCommandLine: the command line may hold a connection string with a password.
func TestNoCommandLine(t *testing.T) {
	if w := get(t, debugging.Handler(&debugging.Pools{}), "/debug/pprof/cmdline"); w.Code != http.StatusNotFound {
		t.Errorf("/debug/pprof/cmdline answers %d, want 404", w.Code)
	}
	if w := get(t, debugging.Handler(&debugging.Pools{}), "/debug/pprof/heap?debug=1"); w.Code != http.StatusOK {
		t.Errorf("/debug/pprof/heap answers %d, want 200", w.Code)
	}
}
