// Package debugging shows the gateway's internals over HTTP: profiles, memory, connection pools.
// It is for a listener that clients cannot reach. It does not show the command line, which may
// contain a connection string.
package debugging

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"runtime"
	"strings"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/topology"
)

// Handler serves /debug/pprof/ and /debug/vars. It calls pools for each request. It refuses
// requests whose Host is not localhost or a loopback address: a page of another site could have
// pointed a name of its own at this machine (DNS rebinding).
func Handler(pools func() []topology.PoolStats) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/vars", func(w http.ResponseWriter, _ *http.Request) {
		serveVars(w, pools())
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "the debugging port answers only for localhost and loopback addresses",
				http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a Host names this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// vars holds the answer of /debug/vars, with the names of package expvar where it has them.
type vars struct {
	MemStats   runtime.MemStats         `json:"memstats"`
	Goroutines int                      `json:"goroutines"`
	Pools      map[address.Address]pool `json:"mooring_pools"`
}

// pool counts the connections of one server's pool.
type pool struct {
	Total      int `json:"total"`
	CheckedOut int `json:"checked_out"`
	Pinned     int `json:"pinned"`  // of those checked out, by cursors and transactions
	Waiting    int `json:"waiting"` // check-outs that wait for a connection
}

func serveVars(w http.ResponseWriter, pools []topology.PoolStats) {
	v := vars{Goroutines: runtime.NumGoroutine(), Pools: make(map[address.Address]pool, len(pools))}
	for _, p := range pools {
		v.Pools[p.Address] = pool{
			Total: p.Total, CheckedOut: p.InUse, Pinned: p.Cursors + p.Transactions,
			Waiting: p.Waiting,
		}
	}
	runtime.ReadMemStats(&v.MemStats)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}
