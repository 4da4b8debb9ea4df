// Package load keeps a gateway busy with the same request from a number of callers, each of which
// sends the next one when it has the answer to the last. It checks that every answer is a good
// one, and measures nothing but the time.
package load

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Database is the name of the database that every job uses.
const Database = "bench"

// Operation names what the requests of a Job do.
type Operation string

// The operations, by the names of their RPCs.
const (
	FindOne    Operation = "FindOne"
	Find       Operation = "Find"
	StreamFind Operation = "StreamFind"
	InsertOne  Operation = "InsertOne"
	InsertMany Operation = "InsertMany"
)

// Job says what to send, to whom, and how often. It travels between processes as JSON.
type Job struct {
	REST string `json:",omitempty"` // http://host:port of a gateway, with the prefix of its paths, or
	GRPC string `json:",omitempty"` // host:port of one

	Operation  Operation
	Collection string
	Documents  int    // that a Find, a StreamFind or an InsertMany has
	Key        string `json:",omitempty"` // the API key, as a bearer's token

	Callers  int
	Requests int           // how many requests are sent, or, if 0,
	Time     time.Duration // how long callers begin new ones; each sends one at least
}

// Result holds the outcome of a Job.
type Result struct {
	Elapsed time.Duration
	Bytes   int64 // of all documents or bodies that came back
	// Requests is how many were answered. A stream counts for the part of its documents that came.
	Requests float64
	// P50 and P99 are the times until a request was answered: a stream with its first document,
	// others as a whole.
	P50, P99 time.Duration
}

// answer holds what one request brought.
type answer struct {
	bytes     int
	documents int           // of a stream
	first     time.Duration // until its first document
}

// call sends one request.
type call func(context.Context) (answer, error)

// Run does the job. The first failure ends it.
func Run(ctx context.Context, j Job) (Result, error) {
	one, stop, err := j.call()
	if err != nil {
		return Result{}, err
	}
	defer stop()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{}) // closed when the time is over
	if j.Requests == 0 {
		defer time.AfterFunc(j.Time, func() { close(over) }).Stop()
	}
	var sent atomic.Int64
	more := func(c *caller) bool {
		if ctx.Err() != nil {
			return false
		}
		if j.Requests > 0 {
			return sent.Add(1) <= int64(j.Requests)
		}
		select {
		case <-over:
			return len(c.latencies) == 0 // each caller sends one at least
		default:
			return true
		}
	}
	callers := make([]caller, j.Callers)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range callers {
		wg.Go(func() {
			c := &callers[i]
			for more(c) {
				if err := c.send(ctx, j, one); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}
	return sum(callers, time.Since(start)), nil
}

// caller holds what one caller has seen.
type caller struct {
	bytes     int64
	requests  float64
	latencies []time.Duration
}

// send sends one request.
func (c *caller) send(ctx context.Context, j Job, one call) error {
	start := time.Now()
	a, err := one(ctx)
	if err != nil {
		return err
	}
	c.bytes += int64(a.bytes)
	if j.Operation == StreamFind {
		c.requests += float64(a.documents) / float64(j.Documents)
		c.latencies = append(c.latencies, a.first)
		return nil
	}
	c.requests++
	c.latencies = append(c.latencies, time.Since(start))
	return nil
}

// sum adds up what all callers have seen.
func sum(callers []caller, elapsed time.Duration) Result {
	r := Result{Elapsed: elapsed}
	var latencies []time.Duration
	for _, c := range callers {
		r.Bytes += c.bytes
		r.Requests += c.requests
		latencies = append(latencies, c.latencies...)
	}
	if n := len(latencies); n > 0 {
		slices.Sort(latencies)
		r.P50, r.P99 = latencies[n/2], latencies[n*99/100]
	}
	return r
}

func (j Job) call() (_ call, stop func(), _ error) {
	if j.GRPC != "" {
		return j.grpc()
	}
	one, stop := j.rest()
	return one, stop, nil
}
