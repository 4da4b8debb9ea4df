package operation

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

// RunOnLimit bounds how long an operation with RunOn goes on after its context was canceled.
const RunOnLimit = 30 * time.Second

// errRunOnOver is the cause of an exchange that RunOnLimit ended.
var errRunOnOver = errors.New("the caller went away, and the operation did not end in time")

// RunOns limits the operations that go on without their callers. Reads give way to operations that
// may change data. It is safe for concurrent use.
type RunOns struct {
	most int

	mu     sync.Mutex // guards what follows; nothing blocks while it is held
	writes int
	reads  []*runOn // the oldest first
}

// NewRunOns returns a limit of that many operations.
func NewRunOns(most uint64) *RunOns { return &RunOns{most: int(min(most, math.MaxInt32))} }

// enter counts an operation, or returns false if there are too many. instead is a read that has to
// end for it; nil: none. A nil limit admits all.
func (n *RunOns) enter(r *runOn) (ok bool, instead *runOn) {
	if n == nil {
		return true, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writes+len(n.reads) >= n.most {
		if r.reads || len(n.reads) == 0 {
			return false, nil
		}
		instead = n.reads[0]
		n.reads = slices.Delete(n.reads, 0, 1)
	}
	if r.reads {
		n.reads = append(n.reads, r)
	} else {
		n.writes++
	}
	return true, instead
}

// leave takes back what enter has counted.
func (n *RunOns) leave(r *runOn) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !r.reads {
		n.writes--
	} else if i := slices.Index(n.reads, r); i >= 0 { // else it has given way
		n.reads = slices.Delete(n.reads, i, i+1)
	}
}

func nothing() {}

// exchangeContext returns the context of the exchange with the server. done must be called at its
// end.
func (op *Operation) exchangeContext(
	ctx context.Context, most *RunOns,
) (_ context.Context, done func()) {
	if !op.RunOn || ctx.Done() == nil {
		return ctx, nothing
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &runOn{
		Context: inner, caller: ctx, cancel: cancel, most: most, reads: op.Kind == Read,
	}
	stop := context.AfterFunc(ctx, r.callerEnded)
	return r, func() {
		stop()
		r.stop()
	}
}

// runOn implements a context that goes on after its caller's was canceled, for RunOnLimit or until
// the caller's deadline, if the cause is context.Canceled and most admits it. Every other end of
// the caller's context ends it. It needs no goroutine.
type runOn struct {
	context.Context                 //nolint:containedctx // it is one; ends with cancel only
	caller          context.Context //nolint:containedctx // the context that it continues
	cancel          context.CancelCauseFunc
	most            *RunOns
	reads           bool // the operation changes nothing

	mu      sync.Mutex  // guards what follows
	timer   *time.Timer // nil: most does not count the operation
	stopped bool
}

func (r *runOn) Deadline() (time.Time, bool) { return r.caller.Deadline() }

func (r *runOn) Err() error {
	err := r.Context.Err()
	if err != nil && errors.Is(context.Cause(r.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

func (r *runOn) callerEnded() {
	cause := context.Cause(r.caller)
	if !errors.Is(cause, context.Canceled) {
		r.cancel(cause)
		return
	}
	limit, end := RunOnLimit, errRunOnOver
	if deadline, ok := r.caller.Deadline(); ok && time.Until(deadline) < limit {
		limit, end = time.Until(deadline), context.DeadlineExceeded
	}
	if ends := r.enter(limit, end); ends != nil {
		ends.cancel(context.Cause(ends.caller))
	}
}

// enter has the operation go on until limit has passed and end is its cause. It returns the
// operation that must end now: this one if there are too many, or a read that gives way; nil: none.
func (r *runOn) enter(limit time.Duration, end error) (ends *runOn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil
	}
	ok, instead := r.most.enter(r)
	if !ok {
		return r
	}
	r.timer = time.AfterFunc(limit, func() { r.cancel(end) })
	return instead
}

func (r *runOn) stop() {
	r.mu.Lock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
		r.most.leave(r)
	}
	r.mu.Unlock()
	r.cancel(context.Canceled)
}
