// Package outbox queues facts in the order of the changes that caused them, even under the lock of
// those changes. It delivers them outside of the lock, in order and one at a time. It has no
// goroutine: the callers of Flush and Deliver do the work.
package outbox

import "sync"

// Outbox queues facts. Make one with New.
type Outbox[F any] struct {
	tell func(F)

	// mu guards the fields below. Nothing is called while it is held.
	mu         sync.Mutex
	queue      []F      // what is not delivered; its first head facts are
	head       int      // of queue
	added      uint64   // facts, ever
	delivered  uint64   // of them
	holds      []uint64 // how many facts were added before each hold
	wanted     uint64   // the facts that the delivering goroutine delivers at least
	delivering bool
	progress   sync.Cond // delivering has ended
}

// New returns an empty Outbox that delivers by tell, which must not panic and must not call Flush.
func New[F any](tell func(F)) *Outbox[F] {
	o := &Outbox[F]{tell: tell}
	o.progress.L = &o.mu
	return o
}

// Add queues a fact; the caller calls Flush or Deliver afterwards. It does not block.
func (o *Outbox[F]) Add(fact F) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.head > 0 && len(o.queue) == cap(o.queue) {
		n := copy(o.queue, o.queue[o.head:])
		clear(o.queue[n:])
		o.queue, o.head = o.queue[:n], 0
	}
	o.queue = append(o.queue, fact)
	o.added++
}

// Hold holds back the facts that are added later, until Release.
func (o *Outbox[F]) Hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds = append(o.holds, o.added)
}

// Release releases the facts that the first Hold holds back, up to the next one. The caller calls
// Flush or Deliver afterwards. It does nothing if nothing is held.
func (o *Outbox[F]) Release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.holds) > 0 {
		o.holds = append(o.holds[:0], o.holds[1:]...)
	}
}

// Deliver delivers queued facts that are not held. If another goroutine is delivering, that
// goroutine delivers them, and Deliver returns at once.
func (o *Outbox[F]) Deliver() {
	o.mu.Lock()
	o.wanted = o.readyLocked()
	o.mu.Unlock()
	o.deliver()
}

// Flush delivers queued facts that are not held. It blocks until they are delivered, here or by
// another goroutine.
func (o *Outbox[F]) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for until := o.readyLocked(); o.delivered < until; {
		if o.delivering {
			o.progress.Wait()
			continue
		}
		o.mu.Unlock()
		o.deliver()
		o.mu.Lock()
	}
}

// readyLocked returns how many facts were added before the first hold.
func (o *Outbox[F]) readyLocked() uint64 {
	if len(o.holds) > 0 {
		return o.holds[0]
	}
	return o.added
}

// deliver delivers what is ready now, and what Deliver asks for meanwhile. Facts that other
// goroutines add and flush are left to them, so that deliver ends.
func (o *Outbox[F]) deliver() {
	o.mu.Lock()
	until := o.readyLocked()
	o.mu.Unlock()
	for fact, ok := o.next(until, false); ok; fact, ok = o.next(until, true) {
		o.tell(fact)
	}
}

// next takes the next fact to deliver, if the caller is to deliver one. told says that the caller
// has delivered the fact before.
func (o *Outbox[F]) next(until uint64, told bool) (fact F, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if told {
		o.delivering = false
		o.delivered++
	}
	if o.delivering || o.delivered >= max(until, o.wanted) {
		o.progress.Broadcast()
		return fact, false
	}
	o.delivering = true
	fact, o.queue[o.head] = o.queue[o.head], fact
	if o.head++; o.head == len(o.queue) {
		o.queue, o.head = o.queue[:0], 0
	}
	return fact, true
}
