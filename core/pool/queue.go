package pool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/event"
)

// waiter holds a check-out that could not be served at once. It stays in the queue until it is
// given a connection or a connection is being established for it. The pool's mu guards it. Once
// conn or err is set, the check-out owns it.
type waiter[C Resource] struct {
	// ctx is that of the call; a connection made for it gets its values.
	ctx   context.Context //nolint:containedctx // lasts as long as the call
	start time.Time
	// served gets one value when conn or err is set; capacity 1, so that sending never blocks.
	served     chan struct{}
	conn       *Conn[C]
	err        error
	pending    *Conn[C] // being established for this waiter
	prev, next *waiter[C]
	queued     bool
	line       *line[C] // in which it waits
}

// waiting holds the check-outs of a pool that wait. The pool's mu guards it.
type waiting[C Resource] struct {
	// queued has those that have no connection of their own that is being established, and
	// connecting, in the order in which they left queued, those that have one.
	queued     waitQueue[C]
	connecting queue[C]
	// handed has those with a connection that have not been woken; Pool.unlock wakes them.
	handed queue[C]
}

// some reports whether check-outs wait for a connection.
func (q *waiting[C]) some() bool { return q.queued.len+q.connecting.len > 0 }

// next removes and returns the first waiter. If a connection is being established for it, that is
// now for the first waiter without one, or for none.
func (q *waiting[C]) next() *waiter[C] {
	w := q.connecting.head
	if w == nil {
		return q.queued.pop()
	}
	c := w.pending
	q.disown(c)
	if heir := q.queued.pop(); heir != nil {
		q.assign(c, heir)
	}
	return w
}

// assign makes c, which is being established, the connection of w. If w has had another one, it
// keeps its place.
func (q *waiting[C]) assign(c *Conn[C], w *waiter[C]) {
	c.owner, w.pending = w, c
	if !w.queued {
		q.connecting.push(w)
	}
}

// disown ends what assign began. It returns the waiter, nil if c is for none.
func (q *waiting[C]) disown(c *Conn[C]) *waiter[C] {
	w := c.owner
	if w != nil {
		c.owner, w.pending = nil, nil
		q.connecting.remove(w)
	}
	return w
}

// refuse ends the wait of w with an error.
func (w *waiter[C]) refuse(to *facts, err error, reason event.CheckOutFailedReason) {
	to.emit(fact{kind: checkOutFailed, reason: string(reason), err: err, since: w.start})
	w.err = err
	w.served <- struct{}{}
}

// retired holds waiters that are out of use.
type retired[C Resource] struct{ waiters sync.Pool }

// get returns a new waiter, or one that is out of use.
func (r *retired[C]) get(ctx context.Context, start time.Time) *waiter[C] {
	w, ok := r.waiters.Get().(*waiter[C])
	if !ok {
		w = &waiter[C]{served: make(chan struct{}, 1)}
	}
	w.ctx, w.start = ctx, start
	return w
}

// put takes w for reuse. Neither the queues nor a pending connection may refer to it.
func (r *retired[C]) put(w *waiter[C]) {
	*w = waiter[C]{served: w.served}
	r.waiters.Put(w)
}

// waitQueue holds the waiters that no connection is being established for. The turn goes round
// between callers, and within one caller the order is that of arrival.
type waitQueue[C Resource] struct {
	// turns holds the lines with waiters in the order of their turns.
	turns []*line[C]
	spare *line[C] // one empty line, which saves an allocation for each wait of a lone caller
	len   int
}

// line holds the waiters of one caller.
type line[C Resource] struct {
	caller  any
	waiters queue[C]
}

func (q *waitQueue[C]) push(caller any, w *waiter[C]) {
	i := slices.IndexFunc(q.turns, func(l *line[C]) bool { return l.caller == caller })
	if i < 0 {
		i = len(q.turns)
		q.turns = append(q.turns, q.newLine(caller))
	}
	w.line = q.turns[i]
	w.line.waiters.push(w)
	q.len++
}

// pop removes the next waiter, and passes the turn on.
func (q *waitQueue[C]) pop() *waiter[C] {
	if q.len == 0 {
		return nil
	}
	l := q.turns[0]
	w := l.waiters.head
	q.remove(w)
	if l.waiters.len > 0 {
		q.turns = append(slices.Delete(q.turns, 0, 1), l)
	}
	return w
}

func (q *waitQueue[C]) remove(w *waiter[C]) {
	l := w.line
	l.waiters.remove(w)
	w.line = nil
	q.len--
	if l.waiters.len == 0 {
		i := slices.Index(q.turns, l)
		q.turns = slices.Delete(q.turns, i, i+1)
		l.caller = nil
		q.spare = l
	}
}

func (q *waitQueue[C]) newLine(caller any) *line[C] {
	l := q.spare
	if l == nil {
		l = &line[C]{}
	}
	q.spare = nil
	l.caller = caller
	return l
}

// queue holds waiters: a linked list, since a waiter may leave from its middle.
type queue[C Resource] struct {
	head, tail *waiter[C]
	len        int
}

func (q *queue[C]) push(w *waiter[C]) {
	w.prev, w.queued = q.tail, true
	if q.tail == nil {
		q.head = w
	} else {
		q.tail.next = w
	}
	q.tail = w
	q.len++
}

func (q *queue[C]) pop() *waiter[C] {
	w := q.head
	if w != nil {
		q.remove(w)
	}
	return w
}

func (q *queue[C]) remove(w *waiter[C]) {
	if !w.queued {
		panic(fmt.Sprintf("bug: waiter is not in the queue (%d are)", q.len))
	}
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	q.len--
}
