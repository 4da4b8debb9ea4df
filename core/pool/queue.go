package pool

import (
	"context"
	"fmt"
	"time"
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
}

// queue holds the waiters: a linked list, since a waiter may leave from its middle.
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
