package operation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// RunOnLimit bounds how long an operation with RunOn goes on after its context was canceled.
const RunOnLimit = 30 * time.Second

// errRunOnOver is the cause of an exchange that RunOnLimit ended.
var errRunOnOver = errors.New("the caller went away, and the operation did not end in time")

// RunOns limits the operations that go on without their callers. It is safe for concurrent use.
type RunOns struct {
	most int64
	now  atomic.Int64
}

// NewRunOns returns a limit of that many operations.
func NewRunOns(most uint64) *RunOns { return &RunOns{most: int64(most)} }

// enter counts an operation, or returns false if there are too many. A nil limit admits all.
func (n *RunOns) enter() bool {
	if n == nil {
		return true
	}
	if n.now.Add(1) <= n.most {
		return true
	}
	n.now.Add(-1)
	return false
}

// leave takes back what enter has counted.
func (n *RunOns) leave() {
	if n != nil {
		n.now.Add(-1)
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
	r := &runOn{Context: inner, caller: ctx, cancel: cancel, most: most}
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
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped:
	case r.most.enter():
		r.timer = time.AfterFunc(limit, func() { r.cancel(end) })
	default:
		r.cancel(cause)
	}
}

func (r *runOn) stop() {
	r.mu.Lock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
		r.most.leave()
	}
	r.mu.Unlock()
	r.cancel(context.Canceled)
}
