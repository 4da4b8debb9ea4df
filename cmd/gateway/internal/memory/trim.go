package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// trimInterval is how often a Trimmer looks.
	trimInterval = 10 * time.Second
	// quiet is the most that is allocated between two looks at a gateway that has little to do.
	quiet = 4 << 20
	// worthwhile is what must have been allocated since the last time before memory is returned
	// again.
	worthwhile = 16 << 20
)

// Trimmer returns memory to the operating system after a burst. The runtime alone does so late: the
// heap may grow to five times what is in use before it is collected, and keeps that room then.
type Trimmer struct {
	done    chan struct{}
	running sync.WaitGroup
}

// StartTrimming starts a Trimmer, which runs until Stop.
func StartTrimming() *Trimmer { return startTrimming(read, release) }

// release returns what is not in use. It collects twice, since what lies in pools, such as the
// buffers of closed connections, outlives one collection.
func release() {
	runtime.GC()
	debug.FreeOSMemory()
}

func startTrimming(read func() usage, release func()) *Trimmer {
	t := &Trimmer{done: make(chan struct{})}
	t.running.Go(func() { t.run(read, release) })
	return t
}

// Stop ends the Trimmer, and blocks until it has ended.
func (t *Trimmer) Stop() {
	close(t.done)
	t.running.Wait()
}

func (t *Trimmer) run(read func() usage, release func()) {
	ticker := time.NewTicker(trimInterval)
	defer ticker.Stop()
	previous, trimmed := usage{}, usage{}
	for {
		select {
		case <-t.done:
			return
		case <-ticker.C:
		}
		now := read()
		if trims(trimmed, previous, now) {
			release()
			trimmed = now
		}
		previous = now
	}
}

// usage holds what a Trimmer decides on.
type usage struct {
	allocated  uint64 // bytes, since the start of the process
	goroutines uint64
}

// trims reports whether memory is returned, given the usage at the last time, at the previous look,
// and now: the gateway is quiet, and much has been allocated since, or a fifth of the goroutines,
// and with them the connections that they served, are gone.
func trims(trimmed, previous, now usage) bool {
	if now.allocated-previous.allocated > quiet {
		return false
	}
	return now.allocated-trimmed.allocated >= worthwhile ||
		now.goroutines < trimmed.goroutines/5*4
}

func read() usage {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/sched/goroutines:goroutines"},
	}
	metrics.Read(samples)
	return usage{samples[0].Value.Uint64(), samples[1].Value.Uint64()}
}
