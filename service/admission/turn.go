package admission

import (
	"runtime"
	"time"
)

// Heavy work, such as the JSON of a large response, would take the processors from small calls: Go
// runs each goroutine for up to 10 ms, so that a small call waits for every large one each time
// that it waits for anything. Therefore heavy work has turns, and at least one processor is left.
// If there is only one, work rests between turns: Go looks at the network only then.
const (
	turnTime = 2 * time.Millisecond
	restTime = time.Millisecond
)

// Turn lets a call do heavy work. Its zero value lets it work at any time. A goroutine owns it.
type Turn struct {
	of     *Admission
	taken  bool
	begun  time.Time
	worked time.Duration // since the last rest
}

// Turn returns the turn of a call. If a is nil, work is not limited.
func (a *Admission) Turn() Turn { return Turn{of: a} }

// Take blocks until the call may work. It does nothing if it may already.
func (t *Turn) Take() {
	if t.of == nil || t.taken {
		return
	}
	t.of.turns <- struct{}{}
	t.taken, t.begun = true, time.Now()
}

// Yield lets others work if the call has worked for long. It blocks until the call may go on.
func (t *Turn) Yield() {
	if t.taken && time.Since(t.begun) >= turnTime {
		t.Leave()
		t.Take()
	}
}

// Leave ends the work, before the call waits for something or ends. It reports whether the call
// was at work.
func (t *Turn) Leave() bool {
	if !t.taken {
		return false
	}
	t.taken = false
	if t.worked += time.Since(t.begun); t.worked >= turnTime {
		t.worked = 0
		rest()
	}
	<-t.of.turns
	return true
}

// rest leaves the processor to others, if there is only one.
func rest() {
	if runtime.GOMAXPROCS(0) > 1 {
		return
	}
	timer := time.NewTimer(restTime)
	<-timer.C
}

// newTurns returns how much heavy work there may be at once.
func newTurns() chan struct{} {
	return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))
}
