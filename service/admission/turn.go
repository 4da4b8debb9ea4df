package admission

import (
	"context"
	"runtime"
	"time"
)

// Heavy work, such as the JSON of a large response, would take the processors from small calls: Go
// runs each goroutine for up to 10 ms, so that a small call waits for every large one each time
// that it waits for anything. Therefore heavy work has turns, and at least one of GOMAXPROCS is
// left, of which there should be two also on one processor: Go looks at the network only when one
// of them has nothing to do.
const (
	turnTime = 2 * time.Millisecond
	// ownTurnTime is how long a turn lasts if only calls of the same principal wait. In short turns
	// all of these would hold memory at once, and wait for more.
	ownTurnTime = 20 * time.Millisecond
)

// Turn lets a call do heavy work on a processor. There are GOMAXPROCS-1 turns, at least one, and
// they go round between principals. One goroutine owns a Turn. Between Take and Leave it must not
// wait for anything, neither for memory nor for another Turn: there may be only one. The zero value
// lets the call work at any time.
type Turn struct {
	of        *Admission
	principal Principal
	taken     bool
	begun     time.Time
}

// Turn returns a Turn for work that belongs to no call. If a is nil, work is not limited.
func (a *Admission) Turn() Turn { return Turn{of: a} }

// Turn returns a Turn for work of the principal of c. If c is nil, work is not limited.
func (c *Account) Turn() Turn {
	if c == nil {
		return Turn{}
	}
	return Turn{of: c.admission, principal: c.principal}
}

// endless is the context of waiting for a turn, which is short whatever becomes of the call.
var endless = context.Background()

// Take blocks until the call may work. It does nothing if it may already.
func (t *Turn) Take() {
	if t.of == nil || t.taken {
		return
	}
	// It cannot fail: nothing is refused, and this context does not end.
	_, _ = t.of.turns.await(endless, t.principal, 1, false, nil)
	t.taken, t.begun = true, time.Now()
}

// Yield lets small calls work and, if the call has worked for long, others that wait for a turn. It
// blocks until the call may go on. It does nothing without a turn.
func (t *Turn) Yield() {
	if !t.taken {
		return
	}
	lasts := time.Since(t.begun)
	if lasts >= ownTurnTime || lasts >= turnTime && t.of.turns.othersWait(t.principal) {
		t.Leave()
		t.Take()
	}
	yieldThread()
}

// Leave gives the turn back, before the call waits for something or ends. It reports whether the
// call had a turn.
func (t *Turn) Leave() bool {
	if !t.taken {
		return false
	}
	t.taken = false
	t.of.turns.give(t.principal, 1)
	return true
}

// newTurns returns the turns, as many as there may be at once.
func newTurns() *resource {
	most := max(1, runtime.GOMAXPROCS(0)-1)
	return newResource("turns of heavy work", Limits{Total: int64(most)}, forever)
}
