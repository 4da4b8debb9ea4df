package memory

import (
	"math"
	"runtime"
	"testing"
)

func TestCollects(t *testing.T) {
	for _, row := range []struct {
		used, n, since, limit int64
		want                  bool
	}{
		{0, 75, 75, 100, false},
		{0, 76, 76, 100, true},
		{60, 15, 15, 100, false},
		{60, 16, 16, 100, true},
		{90, 1, 11, 100, false},
		{90, 1, 12, 100, true},
		{1 << 40, 1 << 20, 1 << 40, math.MaxInt64, false},
	} {
		if got := collects(row.used, row.n, row.since, row.limit); got != row.want {
			t.Errorf("collects(%d, %d, %d, %d) = %t", row.used, row.n, row.since, row.limit, got)
		}
	}
}

// TestMakeRoom checks that the runtime collects when a buffer would lead beyond the limit, and only
// then.
func TestMakeRoom(t *testing.T) {
	h := NewHeap()
	cycles := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	for _, row := range []struct {
		limit int64
		want  uint32
	}{{math.MaxInt64, 0}, {1 << 40, 0}, {1 << 20, 1}} {
		h.limit = row.limit
		before := cycles()
		h.MakeRoom(1 << 20)
		if got := cycles() - before; got != row.want {
			t.Errorf("with a limit of %d bytes: %d collections, want %d", row.limit, got, row.want)
		}
	}
}
