// Package scale simulates how many connections a deployment of MongoDB gets from many replicas of
// the gateway that share one load, and draws the result. It knows pools by their rule only: an
// operation takes an idle connection, else a new one up to the limit, else it waits. It does no
// I/O.
package scale

import (
	"container/heap"
	"math/rand/v2"
)

// Load describes the requests of all clients together.
type Load struct {
	Rate    float64 // requests a second, as a Poisson process
	Service float64 // mean seconds that a request holds a connection, exponentially distributed
	Seconds float64 // length of the run
	MaxPool int     // maxPoolSize of each replica
}

// Monitors is the number of connections that a replica keeps to each server to watch it: one that
// waits for changes, and one that measures the round trip.
const Monitors = 2

// Result holds what a run gives.
type Result struct {
	Replicas int
	Held     int     // connections for operations that all replicas hold at the end
	Waited   float64 // share of requests that waited for a connection
	Bound    int     // largest number of connections: Replicas × (MaxPool + Monitors)
}

// Total returns the connections to the server, monitors included.
func (r Result) Total() int { return r.Held + r.Replicas*Monitors }

// Simulate runs a load on replicas of the gateway before one server. The balancer gives each
// request to a replica at random. Equal seeds give equal results.
func Simulate(l Load, replicas int, seed uint64) Result {
	random := rand.New(rand.NewPCG(seed, uint64(replicas)))
	pools := make([]pool, replicas)
	result := Result{Replicas: replicas, Bound: replicas * (l.MaxPool + Monitors)}
	requests, waited := 0, 0
	for now := random.ExpFloat64() / l.Rate; now < l.Seconds; now += random.ExpFloat64() / l.Rate {
		requests++
		if pools[random.IntN(replicas)].take(now, random.ExpFloat64()*l.Service, l.MaxPool) {
			waited++
		}
	}
	for i := range pools {
		result.Held += pools[i].total
	}
	result.Waited = float64(waited) / float64(max(requests, 1))
	return result
}

// pool holds the times at which the connections in use are free again. A connection stays, since
// maxIdleTimeMS is not set.
type pool struct {
	ends  ends
	total int
}

// take uses a connection from now on, or from when the first one is free again if all are in use.
// It reports whether the request waited.
func (p *pool) take(now, service float64, limit int) (waited bool) {
	for len(p.ends) > 0 && p.ends[0] <= now {
		heap.Pop(&p.ends)
	}
	if len(p.ends) >= limit {
		now = heap.Pop(&p.ends).(float64) //nolint:forcetypeassert // ends has nothing else
		waited = true
	}
	heap.Push(&p.ends, now+service)
	p.total = max(p.total, len(p.ends))
	return waited
}

// ends holds a heap of times, the earliest first.
type ends []float64

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i] < e[j] }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push adds a time; container/heap calls it.
func (e *ends) Push(v any) { *e = append(*e, v.(float64)) } //nolint:forcetypeassert // see take

// Pop removes the last time; container/heap calls it.
func (e *ends) Pop() any {
	last := len(*e) - 1
	v := (*e)[last]
	*e = (*e)[:last]
	return v
}
