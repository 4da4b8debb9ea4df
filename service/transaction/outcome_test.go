package transaction

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/mooringdb/mooring/service/handle"
)

// TestOutcomes checks for how long the ends of transactions are remembered, and of how many.
func TestOutcomes(t *testing.T) {
	var m outcomes
	start := time.Unix(1000, 0)
	id := func(n int) (id handle.ID) {
		binary.BigEndian.PutUint64(id[:], uint64(n))
		return id
	}
	expect := func(n int, now time.Time, want bool) {
		t.Helper()
		if got, ok := m.get(id(n), now); ok != want || ok && got.kind != outcomeCommitted {
			t.Errorf("the end of %d is %+v, %v, want it remembered: %v", n, got, ok, want)
		}
	}
	m.put(id(0), outcome{kind: outcomeAborted}, start)
	m.put(id(0), outcome{kind: outcomeCommitted}, start) // the last one counts
	expect(0, start.Add(remembered-1), true)
	expect(0, start.Add(remembered), false)
	m.put(id(1), outcome{kind: outcomeCommitted}, start.Add(remembered))
	if len(m.of) != 1 || len(m.order) != 1 {
		t.Errorf("%d ends are in memory, %d in order, want the last one", len(m.of), len(m.order))
	}
	for n := range maxOutcomes {
		m.put(id(n+2), outcome{kind: outcomeCommitted}, start.Add(remembered))
	}
	expect(1, start.Add(remembered), false)
	expect(2, start.Add(remembered), true)
	if len(m.of) != maxOutcomes || len(m.order) != maxOutcomes {
		t.Errorf("%d ends are in memory, %d in order, want %d", len(m.of), len(m.order),
			maxOutcomes)
	}
}
