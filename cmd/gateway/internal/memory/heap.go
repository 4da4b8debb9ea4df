package memory

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Heap keeps the process near the limit of the Go runtime while large buffers are allocated. The
// runtime collects when the heap has grown to the limit; what is allocated until it has collected
// goes beyond, which for buffers of 48 MB can be a half of the limit.
type Heap struct {
	// mu guards the fields below. It is held while garbage is collected: others wait for that, too.
	mu    sync.Mutex
	used  [1]metrics.Sample
	since int64 // bytes that room was asked for since the last collection

	limit int64
}

// NewHeap returns a Heap for the limit that the runtime has now.
func NewHeap() *Heap {
	h := &Heap{limit: debug.SetMemoryLimit(-1)} // changes nothing
	h.used[0].Name = "/memory/classes/heap/objects:bytes"
	return h
}

// MakeRoom collects garbage if n more bytes could lead beyond the limit. It blocks for as long as
// that takes: some milliseconds. The caller allocates the bytes afterwards.
func (h *Heap) MakeRoom(n int64) {
	if h.limit == math.MaxInt64 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since += n
	metrics.Read(h.used[:])
	if collects(int64(h.used[0].Value.Uint64()), n, h.since, h.limit) {
		runtime.GC()
		h.since = 0
	}
}

// collects reports whether garbage is collected before n bytes are allocated on a heap that uses so
// many. A quarter of the limit is left for others that are about to allocate, too. An eighth must
// have been asked for since the last time: what is in use may fill the heap for long.
func collects(used, n, since, limit int64) bool {
	return used+n > limit/4*3 && since >= limit/8
}
