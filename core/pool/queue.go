package pool

import (
	"context"
	"fmt"
	"time"
)

// waiter is a check-out that could not be served at once. It stands in the queue until it is given a connection, or
// until a connection is being established for it. The pool's mu guards it; once conn or err is set, it is the
// check-out's own again.
type waiter[C Resource] struct {
	ctx        context.Context //nolint:containedctx // a call's, for as long as the call lasts: a connection made for it gets its values
	start      time.Time
	served     chan struct{} // gets one value when conn or err is set; capacity 1, so that sending never blocks
	conn       *Conn[C]
	err        error
	pending    *Conn[C] // being established for this waiter
	prev, next *waiter[C]
	queued     bool
}

// queue is the wait queue: a linked list, so that a waiter can leave from its middle.
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
