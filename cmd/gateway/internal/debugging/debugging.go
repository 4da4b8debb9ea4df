// Package debugging shows the gateway's own workings over HTTP: profiles, memory, connection pools. It is for a
// listener that clients cannot reach. It does not show the command line, which may hold a connection string.
package debugging

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"runtime"
	"sync"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/event"
)

// Handler serves /debug/pprof/ and /debug/vars.
func Handler(pools *Pools) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/vars", func(w http.ResponseWriter, _ *http.Request) { serveVars(w, pools) })
	return mux
}

// vars is the answer of /debug/vars, in the names of package expvar where it has them.
type vars struct {
	MemStats   runtime.MemStats         `json:"memstats"`
	Goroutines int                      `json:"goroutines"`
	Pools      map[address.Address]Pool `json:"mooring_pools"`
}

func serveVars(w http.ResponseWriter, pools *Pools) {
	v := vars{Goroutines: runtime.NumGoroutine(), Pools: pools.Snapshot()}
	runtime.ReadMemStats(&v.MemStats)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that is gone needs no answer
}

// Pool is how many connections one server's pool has.
type Pool struct {
	Total      int `json:"total"`
	CheckedOut int `json:"checked_out"`
	Waiting    int `json:"waiting"` // check-outs that have no connection yet
}

// Pools counts the connections of all pools. The zero value is ready.
type Pools struct {
	// mu guards the field below.
	mu    sync.Mutex
	pools map[address.Address]Pool
}

// Snapshot returns the counts of now.
func (p *Pools) Snapshot() map[address.Address]Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[address.Address]Pool, len(p.pools))
	for addr, pool := range p.pools {
		all[addr] = pool
	}
	return all
}

// Sink returns what counts.
func (p *Pools) Sink() *event.Sink {
	return &event.Sink{
		ConnectionCreated:         func(e event.ConnectionCreated) { p.add(e.Address, Pool{Total: 1}) },
		ConnectionClosed:          func(e event.ConnectionClosed) { p.add(e.Address, Pool{Total: -1}) },
		ConnectionCheckOutStarted: func(e event.ConnectionCheckOutStarted) { p.add(e.Address, Pool{Waiting: 1}) },
		ConnectionCheckOutFailed:  func(e event.ConnectionCheckOutFailed) { p.add(e.Address, Pool{Waiting: -1}) },
		ConnectionCheckedOut: func(e event.ConnectionCheckedOut) {
			p.add(e.Address, Pool{Waiting: -1, CheckedOut: 1})
		},
		ConnectionCheckedIn: func(e event.ConnectionCheckedIn) { p.add(e.Address, Pool{CheckedOut: -1}) },
	}
}

func (p *Pools) add(addr address.Address, d Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pools == nil {
		p.pools = map[address.Address]Pool{}
	}
	now := p.pools[addr]
	now = Pool{now.Total + d.Total, now.CheckedOut + d.CheckedOut, now.Waiting + d.Waiting}
	if now == (Pool{}) {
		delete(p.pools, addr) // servers come and go under ever new names
		return
	}
	p.pools[addr] = now
}
