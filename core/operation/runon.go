package operation

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/ctxwatch"
)

// RunOnLimit bounds how long an operation with RunOn goes on after its context was canceled.
const RunOnLimit = 30 * time.Second

// errRunOnOver is the cause of an exchange that RunOnLimit ended.
var errRunOnOver = errors.New("the caller disconnected, and the operation did not end in time")

// RunOns limits the operations that go on without their callers. Reads give way to operations that
// may change data. If callers are told apart, one of them has a share only: four times what is
// left, which is 80 % if it is alone. It is safe for concurrent use.
type RunOns struct {
	most   int
	caller func(context.Context) any // nil: there is one caller

	mu     sync.Mutex // guards what follows; nothing blocks while it is held
	writes int
	reads  []*runOn // the oldest first
	held   map[any]int
	cut    [2]uint64
}

// RunOnUsage says how many operations go on without their callers, how many may, and how many ended
// with their callers: since those had their shares, and since there was no room.
type RunOnUsage struct {
	Held, Most    int
	Shares, Fulls uint64
}

// NewRunOns returns a limit of that many operations. caller returns whose operation it is, by its
// context; the result must be comparable. If it is nil, there is one caller.
func NewRunOns(most uint64, caller func(context.Context) any) *RunOns {
	return &RunOns{
		most: int(min(most, math.MaxInt32)), caller: caller, held: map[any]int{},
	}
}

// Usage returns how the limit is used. A nil limit has none.
func (n *RunOns) Usage() RunOnUsage {
	if n == nil {
		return RunOnUsage{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return RunOnUsage{n.writes + len(n.reads), n.most, n.cut[0], n.cut[1]}
}

// shareOfFree is how many times as much as is left a caller may have.
const shareOfFree = 4

// isShare reports whether a caller with mine of the used operations may have one more.
func isShare(most, used, mine int) bool { return mine < shareOfFree*(most-used) }

// of returns whose operation it is.
func (n *RunOns) of(r *runOn) any {
	if n.caller == nil {
		return nil
	}
	return n.caller(r.caller)
}

// enter counts an operation, or returns false if there are too many. instead is a read that has to
// end for it; nil: none. A nil limit admits all.
func (n *RunOns) enter(r *runOn) (ok bool, instead *runOn) {
	if n == nil {
		return true, nil
	}
	of := n.of(r)
	n.mu.Lock()
	defer n.mu.Unlock()
	used, gives := n.writes+len(n.reads), -1
	switch {
	case n.caller != nil && used < n.most && !isShare(n.most, used, n.held[of]):
		gives = slices.IndexFunc(n.reads, func(read *runOn) bool { return n.of(read) == of })
		ok = n.replaces(r, gives, 0)
	case used >= n.most:
		gives = min(len(n.reads), 1) - 1 // the oldest
		ok = n.replaces(r, gives, 1)
	default:
		ok = true
	}
	if !ok {
		return false, nil
	}
	if gives >= 0 {
		instead = n.reads[gives]
		n.removeRead(gives)
	}
	if r.reads {
		n.reads = append(n.reads, r)
	} else {
		n.writes++
	}
	n.held[of]++
	return true, instead
}

// replaces reports whether an operation takes the place of the read at an index; below 0: there is
// none. One of the two is cut for a reason.
func (n *RunOns) replaces(r *runOn, read, reason int) bool {
	n.cut[reason]++
	return !r.reads && read >= 0
}

// leave takes back what enter has counted.
func (n *RunOns) leave(r *runOn) {
	if n == nil {
		return
	}
	of := n.of(r)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !r.reads {
		n.writes--
		n.release(of)
	} else if i := slices.Index(n.reads, r); i >= 0 { // else it has given way
		n.removeRead(i)
	}
}

func (n *RunOns) removeRead(i int) {
	of := n.of(n.reads[i])
	n.reads = slices.Delete(n.reads, i, i+1)
	n.release(of)
}

func (n *RunOns) release(of any) {
	if n.held[of]--; n.held[of] == 0 {
		delete(n.held, of)
	}
}

func nothing() {}

// exchangeContext returns the context of the exchange with the server. done must be called at its
// end.
func (op *Operation) exchangeContext(
	ctx context.Context, most *RunOns,
) (_ context.Context, done func()) {
	// With a context that has ended the connection sends nothing, so that the outcome is known.
	if !op.RunOn || ctx.Err() != nil {
		return ctx, nothing
	}
	if _, ok := ctx.(ctxwatch.Watchable); !ok && ctx.Done() == nil {
		return ctx, nothing
	}
	r := newRunOn(ctx, most, op.Kind == Read)
	return r, r.stop
}

// RunOn returns a context for what runs on as an operation does that has RunOn set, without a limit
// of their number. done must be called at its end.
func RunOn(ctx context.Context) (_ context.Context, done func()) {
	r := newRunOn(ctx, nil, true)
	r.follow()
	return r, r.stop
}

func newRunOn(ctx context.Context, most *RunOns, reads bool) *runOn {
	r := &runOn{caller: ctx, most: most, reads: reads}
	r.Init(context.WithoutCancel(ctx))
	return r
}

// runOn implements a context that goes on after its caller's was canceled, for RunOnLimit or until
// the caller's deadline, if the cause is context.Canceled and most admits it. Every other end of
// the caller's context ends it, and so does, while it goes on, a later Cancel of a ctxwatch.Child
// above with another cause. It needs no goroutine.
type runOn struct {
	ctxwatch.Child // it has the values of the caller's context, and ends with stop

	caller context.Context //nolint:containedctx // the context that it continues
	most   *RunOns
	reads  bool // the operation changes nothing

	mu        sync.Mutex // guards what follows; nothing blocks while it is held
	follows   ctxwatch.Watch
	following bool        // follows is set
	timer     *time.Timer // nil: most does not count the operation
	unhear    func()      // with timer: ends that orders are heard
	stopped   bool
}

var (
	_ context.Context    = (*runOn)(nil)
	_ ctxwatch.Watchable = (*runOn)(nil)
)

func (r *runOn) Deadline() (time.Time, bool) { return r.caller.Deadline() }

func (r *runOn) Done() <-chan struct{} {
	r.follow()
	return r.Child.Done()
}

func (r *runOn) Err() error {
	err := r.Child.Err()
	if err != nil && errors.Is(context.Cause(&r.Child), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// Watch has interrupt called when the context ends.
func (r *runOn) Watch(interrupt func()) bool {
	r.follow()
	return r.Child.Watch(interrupt)
}

// follow has callerEnded called when the caller's context ends.
func (r *runOn) follow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.following && !r.stopped {
		r.following, r.follows = true, ctxwatch.Call(r.caller, r.callerEnded)
	}
}

func (r *runOn) callerEnded() {
	cause := context.Cause(r.caller)
	if !errors.Is(cause, context.Canceled) {
		r.Cancel(cause)
		return
	}
	limit, end := RunOnLimit, errRunOnOver
	if deadline, ok := r.caller.Deadline(); ok && time.Until(deadline) < limit {
		limit, end = time.Until(deadline), context.DeadlineExceeded
	}
	if ends := r.enter(limit, end); ends != nil {
		ends.Cancel(context.Cause(ends.caller))
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
	r.timer = time.AfterFunc(limit, func() { r.Cancel(end) })
	r.unhear = ctxwatch.Orders(r.caller, func(cause error) {
		if !errors.Is(cause, context.Canceled) {
			r.Cancel(cause)
		}
	})
	return instead
}

func (r *runOn) stop() {
	r.mu.Lock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
		r.unhear()
		r.most.leave(r)
	}
	follows := r.follows
	r.mu.Unlock()
	follows.Cease()
	r.End()
}
