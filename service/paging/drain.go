package paging

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// announceTime is how long the other replicas have to hear where the cursors went.
const announceTime = time.Second

// Fate says what became of the open cursors of a pager that has closed.
type Fate struct {
	HandedOver int // another replica has taken them over, or may have
	Ended      int // they were closed on their servers, since no replica can continue them
	Left       int // they stay open on their servers until they expire there
}

// Fate returns what has become of the open cursors. It is final once Close has returned.
func (p *Pager) Fate() Fate {
	p.drain.mu.Lock()
	defer p.drain.mu.Unlock()
	return p.drain.fate
}

// drain holds how far the end of a pager is. The mutex guards the fields of the last group; it may
// be taken under the table's lock, and nothing blocks while it is held.
type drain struct {
	p       *Pager
	ended   chan struct{} // closed when Drain has ended
	err     error         // what it returned
	leaving *handle.Work  // ends when the first drain has pushed the cursors

	mu     sync.Mutex
	fate   Fate // of the cursors that were open when Drain began
	left   bool // leaving has ended
	closed bool // only records of where cursors went are left
}

func newDrain(p *Pager) *drain {
	return &drain{p: p, ended: make(chan struct{}), leaving: handle.NewWork()}
}

// Drain refuses the calls of clients from now on, waits for those that run, and pushes what is
// here to another replica; pinned cursors are killed. Questions of other replicas are answered
// still, but no page is fetched for them until the cursors were pushed. If some calls do not end in
// three quarters of the time that ctx leaves, only the rest is pushed, and that is an error. Close
// drains too, if Drain was not called.
func (p *Pager) Drain(ctx context.Context) error {
	if p.table.Refuse() {
		select {
		case <-p.drain.ended:
			return p.drain.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer close(p.drain.ended)
	p.drain.err = p.drain.run(ctx)
	return p.drain.err
}

func (d *drain) run(ctx context.Context) error {
	limited, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		limited, cancel = context.WithTimeout(ctx, time.Until(deadline)*3/4)
	}
	defer cancel()
	err := d.p.table.Quiet(limited)
	defer d.killPinned(ctx)() // meanwhile: their servers may not answer
	var to *page.Replica
	var others []string
	if !d.p.alone() {
		to, others = d.push(ctx)
	}
	d.leave()
	if to != nil && to.Instance != (page.Instance{}) {
		d.announce(ctx, others, *to)
	}
	return err
}

// leave ends leaving. It may be called again.
func (d *drain) leave() {
	d.mu.Lock()
	before := d.left
	d.left = true
	d.mu.Unlock()
	if !before {
		d.leaving.Finish()
	}
}

// isLeaving reports whether this replica is about to hand its cursors over, once it refuses calls.
// No page is granted then: with the questions of other replicas, the cursors might never all be
// idle, and one that is not idle cannot move.
func (d *drain) isLeaving() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.left
}

// close records that only records of where cursors went are left; isClosed reports it.
func (d *drain) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

func (d *drain) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// count adds to the fate of the cursors.
func (d *drain) count(more Fate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fate.HandedOver += more.HandedOver
	d.fate.Ended += more.Ended
	d.fate.Left += more.Left
}

// killPinned begins to end the cursors that cannot move. wait blocks until they are ended.
func (d *drain) killPinned(ctx context.Context) (wait func()) {
	pinned, _ := handle.RemoveAll(d.p.table, nil, func(h *held) bool {
		return h.pinned && !h.Working()
	})
	var kills sync.WaitGroup
	kills.Go(func() { d.endAll(ctx, pinned) })
	return kills.Wait
}

// endAll ends cursors that were open, and counts those for which there was time.
func (d *drain) endAll(ctx context.Context, open []*held) {
	rest := handle.EndAll(ctx, open)
	d.count(Fate{Ended: len(open) - len(rest), Left: len(rest)})
}

// awaitEnds waits until calls have ended the removed cursors on which they work, and counts those
// for which there was time.
func (d *drain) awaitEnds(ctx context.Context, works []*handle.Work) {
	for _, w := range works {
		if w.Wait(ctx) == nil {
			d.count(Fate{Ended: 1})
		} else {
			d.count(Fate{Left: 1})
		}
	}
}

// push hands all that is known here to the first of the other replicas that accepts it. It returns
// that replica, or nil if there is none or nothing to hand over, and the others. If it is not known
// whether a replica has accepted, no other one is asked, and nothing of it is granted here any
// more, as if it had: of two that held a cursor, one would skip a page of the other's.
func (d *drain) push(ctx context.Context) (to *page.Replica, others []string) {
	all, w := d.holdAll()
	if len(all) == 0 {
		return nil, nil
	}
	others = d.p.replicas.Others(ctx, false)
	for _, address := range others {
		if address == d.p.cfg.Replica {
			continue
		}
		receiver, sure, err := d.pushTo(ctx, address, all)
		if err != nil && !sure {
			receiver = page.Replica{Address: address} // in whichever life
		}
		if err == nil || !sure {
			to = &receiver
			break
		}
	}
	d.release(ctx, all, to)
	w.Finish()
	return to, others
}

// announce tells the other replicas where the cursors went, so that they need not look for them
// when this one is gone.
func (d *drain) announce(ctx context.Context, others []string, to page.Replica) {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	d.p.Succeeded(d.p.instance, to)
	eachOf(others, func(address string) {
		if address != to.Address && address != d.p.cfg.Replica {
			_ = d.p.replicas.Announce(ctx, address, to) // a replica that misses it asks the others
		}
	})
}

// holdAll begins the caller's work on all cursors, the most recently used first.
func (d *drain) holdAll() (all []*held, w *handle.Work) {
	w = handle.NewWork()
	d.p.table.Do(func(t *handle.Locked) {
		for h := range handle.All[*held](t) {
			if !h.hasMoved() && !h.Working() {
				t.Hold(h, w)
				all = append(all, h)
			}
		}
		slices.SortFunc(all, func(a, b *held) int { return b.LastUse().Compare(a.LastUse()) })
	})
	return all, w
}

// pushTo pushes to one replica, twice if need be: what has arrived before does no harm. sure: if
// there is an error, nothing has arrived.
func (d *drain) pushTo(
	ctx context.Context, address string, all []*held,
) (receiver page.Replica, sure bool, err error) {
	sure = true
	for range 2 {
		receiver, err = d.p.replicas.Push(ctx, address, records(all))
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
	return page.Replica{}, sure, err
}

// records yields the records of cursors that the caller holds.
func records(all []*held) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, h := range all {
			if !yield(h.record()) {
				return
			}
		}
	}
}

// record returns what another replica is told of the cursor. Some of it calls may change although
// another one works on the cursor: a call sends a page after its work has ended.
func (h *held) record() Record {
	rec := Record{
		ID: h.ID, Principal: h.Principal, Client: h.Owner.Address,
		Namespace: h.namespace, Opened: h.Opened, Taken: h.taken,
	}
	h.pager.table.Do(func(*handle.Locked) {
		rec.Ledger, rec.Pages, rec.Asked = h.ledger.Record(), h.pages, h.asked
		if h.last.unsent {
			last := h.last.page
			last.lent.keep() // it may be forgotten before it is sent
			rec.Undelivered = &last
		}
	})
	if h.cur != nil {
		h.leftover.lent.keep()
		mean, count := h.sizer.Seen()
		rec.Holding = &Holding{
			State: h.cur.State(), Leftover: h.leftover.documents,
			Chosen: h.chosen, Mean: mean, Count: count,
		}
	}
	return rec
}

// release ends the work on all cursors: they are where the records are, or still here.
func (d *drain) release(ctx context.Context, all []*held, to *page.Replica) {
	var removed []*held
	d.p.table.Do(func(t *handle.Locked) {
		for _, h := range all {
			drop := false
			if to != nil && !h.IsRemoved() {
				h.ledger, drop = h.ledger.Pushed(*to)
				if h.isOpen() {
					d.count(Fate{HandedOver: 1})
				}
			}
			switch {
			case h.IsRemoved():
				t.EndWork(h)
				removed = append(removed, h)
			case drop:
				h.drop(t)
			default:
				h.settle(t)
			}
		}
	})
	handle.EndAll(ctx, removed)
	if to == nil {
		return
	}
	for _, h := range removed { // its record would be listed there until its time is up
		_ = d.p.replicas.Kill(ctx, to.Address, h.ID.String())
	}
}

// Accept takes over what a draining replica knows of a cursor, unless more is known here. Only
// handle.ErrClosing refuses.
func (p *Pager) Accept(rec Record) (err error) {
	p.table.Do(func(t *handle.Locked) {
		if t.Refusing() {
			err = handle.ErrClosing
		} else {
			p.accept(t, &rec)
		}
	})
	return err
}

func (p *Pager) accept(t *handle.Locked, rec *Record) {
	h := cursorOf(t, rec.ID)
	var ledger page.Ledger
	if h != nil {
		ledger = h.ledger
	}
	ledger, ok := ledger.Accept(rec.Ledger, rec.Holding != nil, h != nil && h.Working())
	if !ok {
		return
	}
	if h == nil {
		h = p.newHeld(
			handle.Handle{ID: rec.ID, Principal: rec.Principal, Opened: rec.Opened}, rec.Namespace,
			rec.Client)
		h.taken, h.waits = rec.Taken, true // it is not in the record
	}
	h.ledger, h.pages, h.sealer = ledger, rec.Pages, p.cfg.Keys.SealerID()
	h.asked = rec.Asked
	p.memory.forget(h)
	if last := rec.Undelivered; last != nil {
		kept := leftoverOf(last.Documents)
		p.memory.hold(h, *last, kept.cost())
	}
	p.memory.release(h)
	h.leftover.drop()
	h.cur = nil
	if g := rec.Holding; g != nil {
		h.cur = p.cfg.Continue(g.State)
		h.cur.SetRunOn(true)
		h.leftover, h.chosen = leftoverOf(g.Leftover), g.Chosen
		h.sizer = batch.Resume(g.Mean, g.Count)
		h.server = g.State.Server
	}
	h.settle(t)
}

// Close refuses all calls, drains, waits for what still runs, and ends the cursors that no replica
// has taken over. It waits, and ends them, until ctx ends; those for which there is no time then
// are counted as left.
func (p *Pager) Close(ctx context.Context) error {
	err := p.Drain(ctx)
	if err != nil { // it may have had less time
		if err = p.table.Quiet(ctx); err == nil {
			err = p.drain.run(ctx)
		}
	}
	left := p.table.Stop()
	p.drain.close()
	idle, works := handle.RemoveAll(p.table, handle.ErrClosing, func(h *held) bool {
		return !h.hasMoved() // else it answers until the process ends
	})
	handle.EndAll(ctx, left)
	open := slices.DeleteFunc(idle, func(h *held) bool { return !h.isOpen() })
	p.drain.endAll(ctx, open)
	p.drain.awaitEnds(ctx, works)
	return err
}
