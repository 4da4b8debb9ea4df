package admission

import (
	"runtime"
	"time"
)

// Heavy work, such as the JSON of a large response, would take the processors from small calls: Go
// runs each goroutine for up to 10 ms, so that a small call waits for every large one each time
// that it waits for anything. Therefore heavy work has turns, and at least one of GOMAXPROCS is
// left, of which there should be two also on one processor: Go looks at the network only when one
// of them has nothing to do.
const turnTime = 2 * time.Millisecond

// Turn lets a call do heavy work. Its zero value lets it work at any time. A goroutine owns it.
type Turn struct {
	of    *Admission
	taken bool
	begun time.Time
}

// Turn returns the turn of a call. If a is nil, work is not limited.
func (a *Admission) Turn() Turn { return Turn{of: a} }

// Turn returns the turn of the call of an account. If c is nil, work is not limited.
func (c *Account) Turn() Turn {
	if c == nil {
		return Turn{}
	}
	return c.admission.Turn()
}

// Take blocks until the call may work. It does nothing if it may already.
func (t *Turn) Take() {
	if t.of == nil || t.taken {
		return
	}
	t.of.turns <- struct{}{}
	t.taken, t.begun = true, time.Now()
}

// Yield lets small calls work, and others that wait for a turn if the call has worked for long. It
// blocks until the call may go on.
func (t *Turn) Yield() {
	if !t.taken {
		return
	}
	if time.Since(t.begun) >= turnTime {
		t.Leave()
		t.Take()
	}
	yieldThread()
}

// Leave ends the work, before the call waits for something or ends. It reports whether the call
// was at work.
func (t *Turn) Leave() bool {
	if !t.taken {
		return false
	}
	t.taken = false
	<-t.of.turns
	return true
}

// newTurns returns how much heavy work there may be at once.
func newTurns() chan struct{} {
	return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))
}
