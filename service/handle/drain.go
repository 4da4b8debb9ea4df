package handle

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"
)

const (
	// drainGrace is how long Drain waits for pages that are being fetched before it ends them; half of its time if that is less.
	drainGrace = 5 * time.Second
	// maxPushedRests is what all the rests may have that go to another replica at once. It is far more than a replica remembers by default.
	maxPushedRests = 128 << 20
)

// Drain refuses the calls of clients from now on, waits for those that run, and hands over what is here to another replica; pinned
// cursors are killed. Questions of other replicas are answered still. If some do not end in three quarters of the time that ctx leaves,
// only the rest is handed over, and that is an error. Close drains too, if nobody has before.
func (r *Registry) Drain(ctx context.Context) error {
	r.mu.Lock()
	if r.draining {
		drained := r.drained
		r.mu.Unlock()
		select {
		case <-drained:
			return r.drainsErr
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.draining, r.drained = true, make(chan struct{})
	r.mu.Unlock()
	defer close(r.drained)
	r.drainsErr = r.drain(ctx)
	return r.drainsErr
}

func (r *Registry) drain(ctx context.Context) error {
	limited, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		limited, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
	}
	defer cancel()
	err := r.quiet(limited)
	r.killPinned(ctx)
	if !r.alone() {
		r.push(ctx)
	}
	return err
}

// quiet waits until nobody works on any cursor. Streams are ended at once, fetches after a while.
func (r *Registry) quiet(ctx context.Context) error {
	grace := drainGrace
	if deadline, ok := ctx.Deadline(); ok {
		grace = min(grace, time.Until(deadline)*2/3)
	}
	patient, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for {
		streams, fetches := r.busy()
		if len(streams)+len(fetches) == 0 {
			return nil
		}
		for _, f := range streams {
			f.cancel(ErrClosing)
		}
		for _, f := range append(fetches, streams...) {
			if f.wait(patient) == nil {
				continue
			}
			f.cancel(ErrClosing)
			if err := f.wait(ctx); err != nil {
				return err
			}
		}
	}
}

func (r *Registry) busy() (streams, fetches []*fetch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		switch {
		case e.fetch == nil:
		case e.pos.phase == phaseTaken:
			streams = append(streams, e.fetch)
		default:
			fetches = append(fetches, e.fetch)
		}
	}
	return streams, fetches
}

// killPinned ends the cursors that cannot move.
func (r *Registry) killPinned(ctx context.Context) {
	r.mu.Lock()
	var pinned []*entry
	for _, e := range r.entries {
		if e.pinned && e.fetch == nil {
			r.removeLocked(e, nil)
			pinned = append(pinned, e)
		}
	}
	r.mu.Unlock()
	killAll(ctx, pinned)
}

// push hands all that is known here to the first replica that accepts it. If it is not known whether one has, nobody else is asked, and nothing
// of it is granted here any more, as if it had: of two that held a cursor, one would skip a page of the other's.
func (r *Registry) push(ctx context.Context) {
	entries, f := r.takeAll()
	if len(entries) == 0 {
		return
	}
	var to *Replica
	for _, address := range r.peers.Others(ctx) {
		if address == r.cfg.Replica {
			continue
		}
		receiver, sure, err := r.pushTo(ctx, address, entries)
		if err != nil && !sure {
			receiver = Replica{Address: address} // in whichever life
		}
		if err == nil || !sure {
			to = &receiver
			break
		}
	}
	r.release(ctx, entries, to)
	close(f.done)
}

// takeAll makes the caller the one who works on all entries, those first that were used last.
func (r *Registry) takeAll() ([]*entry, *fetch) {
	f := &fetch{cancel: func(error) {}, done: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	var entries []*entry
	for _, e := range r.entries {
		if e.fetch == nil && e.pos.phase != phaseAway {
			r.unsettleLocked(e)
			e.fetch = f
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return b.lastUse.Compare(a.lastUse) })
	return entries, f
}

// pushTo pushes to one replica, twice if need be: what has arrived before does no harm. sure: if there is an error, nothing has arrived.
func (r *Registry) pushTo(ctx context.Context, address string, entries []*entry) (receiver Replica, sure bool, err error) {
	sure = true
	for range 2 {
		receiver, err = r.peers.Push(ctx, address, records(entries))
		lost, ok := errors.AsType[*UnreachableError](err)
		if !ok && ctx.Err() == nil {
			return receiver, sure, err
		}
		if ctx.Err() != nil || lost.Sent {
			sure = false
		}
		if ctx.Err() != nil || !lost.Sent {
			break
		}
	}
	return Replica{}, sure, err
}

// records are what is known of entries on which the caller works. Of what is left of their batches the last ones' goes along, as much as may.
func records(entries []*entry) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		room := maxPushedRests
		for _, e := range entries {
			fits := e.rest.bytes <= min(room, maxRestBytes)
			if fits {
				room -= e.rest.bytes
			}
			if !yield(e.record(fits)) {
				return
			}
		}
	}
}

// record is what another replica is told. Without the rest, if there is one, its page is lost.
func (e *entry) record(withRest bool) Record {
	rec := Record{ID: e.id, Principal: e.principal, Namespace: e.namespace}
	pos := e.pos
	if pos.phase == phaseMoved {
		to := e.to
		rec.To = &to
	} else {
		pos.moves++
	}
	if e.cur != nil {
		rec.Holding = e.holding(pos.moves)
		if !withRest {
			rec.Holding.Rest, pos = nil, pos.lost()
		}
	}
	rec.Next, rec.Phase, rec.Moves = pos.next, uint8(pos.phase), pos.moves
	return rec
}

// release ends the work on all entries: they are where the records are, or still here. What is at its end stays: its page may be asked for again
// if the receiver is not known to have taken over.
func (r *Registry) release(ctx context.Context, entries []*entry, to *Replica) {
	r.mu.Lock()
	var removed []*entry
	for _, e := range entries {
		e.fetch = nil
		switch {
		case e.removed:
			removed = append(removed, e)
		case to != nil && e.pos.phase != phaseMoved && (e.pos.phase != phaseEnded || to.Instance != InstanceID{}):
			r.moveLocked(e, e.pos.pushed(), *to)
		default:
			r.settleLocked(e)
		}
	}
	r.mu.Unlock()
	killAll(ctx, removed)
	if to == nil {
		return
	}
	for _, e := range removed { // lest it be counted there, and listed, until its time is up
		_ = r.peers.Kill(ctx, to.Address, e.handleID())
	}
}

// Accept takes over what a draining replica knows of a cursor, unless more is known here. Only ErrClosing refuses.
func (r *Registry) Accept(rec Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return ErrClosing
	}
	pos := rec.position()
	e := r.entries[rec.ID]
	switch {
	case rec.To != nil && rec.To.Instance == r.instance: // what was granted to this replica is here, or has gone
		return nil
	case e == nil:
		e = newEntry(rec.ID, rec.Principal, rec.Namespace)
		r.entries[rec.ID] = e
	case !e.pos.newer(pos) || e.fetch != nil && e.pos.phase != phaseAway && e.pos.phase != phaseMoved:
		return nil
	}
	r.installLocked(e, pos, rec)
	return nil
}

// position is what the record says of the cursor's pages. What it does not say is lost.
func (rec *Record) position() position {
	pos := position{next: rec.Next, phase: phase(rec.Phase), moves: rec.Moves}
	switch {
	case rec.To != nil:
		pos.phase = phaseMoved
	case pos.phase == phaseEnded, pos.phase == phaseTaken:
	case pos.phase == phaseIdle && rec.Holding != nil:
	default:
		pos.phase = phaseLost
	}
	return pos
}

// installLocked makes an entry what a record says. Somebody may be asking other replicas for it, who then finds it here.
func (r *Registry) installLocked(e *entry, pos position, rec Record) {
	r.unsettleLocked(e)
	if rec.Holding != nil {
		r.adoptLocked(e, rec.Holding)
	}
	e.pos = pos
	if rec.To != nil {
		e.to, e.attempt = *rec.To, 0
		r.memory.drop(e)
	}
	if e.fetch == nil {
		r.settleLocked(e)
	}
}

// Close refuses all calls, drains, and waits for what still runs. What nobody has taken over stays on its server, where it ends with its own
// timeout: a client may continue it at another replica, or here after a restart. With a key that nobody configured it is killed, as nobody can
// continue it. Close waits, and kills, until ctx ends.
func (r *Registry) Close(ctx context.Context) error {
	err := r.Drain(ctx)
	if err != nil { // it may have had less time
		if err = r.quiet(ctx); err == nil {
			err = r.drain(ctx)
		}
	}
	r.stop()
	r.janitor.Wait()
	if err != nil {
		return err
	}
	left := append(r.plain.take(), r.pinned.take()...)
	r.mu.Lock()
	r.closed = true
	for _, e := range r.entries {
		if e.pos.phase == phaseMoved { // it answers until the process ends
			continue
		}
		if r.removeLocked(e, ErrClosing) == nil && r.cfg.Keys.Ephemeral() {
			left = append(left, e)
		}
	}
	r.mu.Unlock()
	killAll(ctx, left)
	return nil
}
