package paging

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/seal"
)

// purpose says what is asked of a cursor.
type purpose uint8

const (
	forPage purpose = iota
	forStream
	forClose
)

// lookup looks for the cursor of a claim at this replica, for one call.
type lookup struct {
	p    *Pager
	c    claim
	a    Asking
	what purpose
}

// lookup opens the token of a call. For a token that it refuses, it returns ErrCursorNotFound or
// ErrTokenVersion.
func (p *Pager) lookup(a Asking, what purpose) (lookup, error) {
	sealed, err := p.cfg.Keys.Open(a.Principal, a.Token, seal.KindCursor, p.deployment)
	expired := errors.Is(err, seal.ErrExpired)
	switch {
	case errors.Is(err, seal.ErrVersion):
		return lookup{}, ErrTokenVersion
	case err != nil && !expired:
		return lookup{}, ErrCursorNotFound
	}
	c, err := decodeClaim(sealed.Body)
	l := lookup{p, c, a, what}
	if err != nil || l.ended(sealed.Expires, expired) {
		return lookup{}, ErrCursorNotFound
	}
	return l, nil
}

// ended reports whether the token does not count any more. This replica's clock decides about
// tokens that were sealed here. Others count until they have expired, and longer if their cursor
// is here.
func (l *lookup) ended(expires time.Time, expired bool) bool {
	if l.c.holder.Instance == l.p.instance {
		return !time.Now().Before(expires)
	}
	return expired && l.p.table.Expired(l.c.id)
}

// decision holds what the ledger here says of a page, with what belongs to it.
type decision struct {
	page.Verdict
	grant grant        // with Fetch
	page  *Page        // with Repeat
	work  *handle.Work // with Wait
	fetch *fetch       // with Wait, if a page is fetched
	to    page.Replica // with Elsewhere: which replica to ask
}

// find finds the page that the token asks for. It is here: the decision's verdict is Fetch or
// Repeat.
func (l *lookup) find(ctx context.Context) (decision, error) {
	switch {
	case l.owned() && l.a.Transaction != (handle.ID{}): // the transaction is here
		return decision{}, ErrOtherTransaction
	case l.owned():
		return decision{}, l.away(l.c.holder)
	case !l.a.Forwarded && l.p.table.Refusing():
		return decision{}, handle.ErrClosing
	}
	d, err := l.decide(ctx)
	if err == nil && d.Verdict == page.Elsewhere {
		return d, l.away(d.to)
	}
	return d, err
}

// owned reports whether only another replica can continue the cursor of a client.
func (l *lookup) owned() bool {
	return !l.a.Forwarded && l.c.pinned && l.c.holder.Instance != l.p.instance
}

// away returns the error of a call about a cursor that another replica has. A call that is
// forwarded goes no further: the replica that has forwarded it asks that one.
func (l *lookup) away(to page.Replica) error {
	if l.a.Forwarded {
		return &MovedError{to}
	}
	return &elsewhere{lookup: *l, to: to}
}

// decide decides about a page by what is known here, and waits for other calls that work on the
// cursor. The verdict that it returns is Fetch, Repeat or Elsewhere; the others are errors.
func (l *lookup) decide(ctx context.Context) (decision, error) {
	if err := l.belongs(ctx); err != nil {
		return decision{}, err
	}
	stream := l.what == forStream
	q := page.Question{Seq: l.c.seq, Stream: stream}
	for {
		if ctx.Err() != nil {
			return decision{}, context.Cause(ctx)
		}
		d, err := l.decideOnce(ctx, q)
		if err != nil {
			return d, err
		}
		switch d.Verdict {
		case page.Wait:
			got, err := d.waitFor(ctx, l.c.seq)
			switch {
			case err != nil:
				return decision{}, err
			case got != nil && stream:
				return decision{}, ErrCursorTokenReused
			case got != nil:
				return decision{Verdict: page.Repeat, page: got}, nil
			}
		case page.Reused:
			return decision{}, ErrCursorTokenReused
		case page.Unknown:
			return decision{}, ErrCursorPositionUnknown
		case page.Ended:
			return decision{}, ErrCursorEvicted
		default:
			return d, nil
		}
	}
}

// waitFor waits for the call that works on the cursor, and returns that call's page if it is page
// seq.
func (d *decision) waitFor(ctx context.Context, seq uint64) (*Page, error) {
	if d.fetch == nil {
		return nil, d.work.Wait(ctx)
	}
	return d.fetch.result(ctx, seq)
}

// belongs returns an error if the call's transaction, or its having none, may not continue the
// cursor, or if the policy does not allow its client any more what the cursor reads. It knows only
// of cursors that are here. Every client may close a cursor of its own.
func (l *lookup) belongs(ctx context.Context) error {
	var owner handle.ID // none
	var taken string
	ended := false
	l.p.table.Do(func(t *handle.Locked) {
		if h := cursorOf(t, l.c.id); h != nil {
			owner, taken = h.transaction, h.taken
		} else { // those of a transaction cannot leave
			ended = l.c.pinned && l.c.holder.Instance == l.p.instance
		}
	})
	switch {
	case owner != l.a.Transaction && ended:
		return ErrCursorNotFound
	case owner != l.a.Transaction:
		return ErrOtherTransaction
	case l.what == forClose:
		return nil
	}
	return call.CheckTaken(ctx, taken)
}

func (l *lookup) decideOnce(ctx context.Context, q page.Question) (d decision, err error) {
	l.p.table.Do(func(t *handle.Locked) {
		if h := cursorOf(t, l.c.id); h != nil {
			d = h.decide(ctx, t, q)
		} else {
			d, err = l.unknown(t)
		}
	})
	return d, err
}

// decide asks the ledger, and carries out what it says.
func (h *held) decide(ctx context.Context, t *handle.Locked, q page.Question) (d decision) {
	q.Remembered, q.Working = h.last.isIn(), h.Working()
	ledger, v := h.ledger.Ask(q)
	if d := h.pager.drain; v == page.Fetch && t.Refusing() && d.isLeaving() {
		return decision{Verdict: page.Wait, work: d.leaving} // the cursor goes elsewhere
	}
	h.ledger, d.Verdict = ledger, v
	d.to, _ = h.ledger.Moved()
	switch d.Verdict {
	case page.Fetch:
		d.grant = h.grant(ctx, t, q)
	case page.Repeat:
		last := h.last.page
		last.lent.retain()
		d.page = &last
	case page.Wait:
		d.work, d.fetch = h.Work(), h.fetch
		if h.fetch != nil {
			h.fetch.awaited = true
		}
	default: // the verdict is the whole answer
	}
	return d
}

// grant begins the caller's work on the cursor, for page q.Seq.
func (h *held) grant(ctx context.Context, t *handle.Locked, q page.Question) grant {
	g := h.begin(ctx, t, q.Stream)
	g.seq, h.asked = q.Seq, true
	if q.Stream {
		h.pager.memory.forget(h) // it cannot be asked for any more
	}
	return g
}

// unknown decides about a cursor of which nothing is known here.
func (l *lookup) unknown(t *handle.Locked) (decision, error) {
	p, holder := l.p, l.c.holder
	switch {
	case l.a.Forwarded:
		return l.unknownTo(t)
	case holder.Instance == p.instance: // closed or expired here
		return decision{}, ErrCursorNotFound
	default:
		return decision{Verdict: page.Elsewhere, to: holder}, nil
	}
}

// unknownTo does what unknown does, for a question of another replica.
func (l *lookup) unknownTo(t *handle.Locked) (decision, error) {
	p, holder := l.p, l.c.holder
	heir := p.successions.of(holder)
	switch {
	case p.drain.isClosed():
		return decision{}, handle.ErrClosing
	case l.c.pinned && t.Refusing(): // its connection is closed, or about to be
		return decision{}, ErrOwnerGone
	case holder.Instance == p.instance || l.a.Holder == p.instance: // closed or expired here
		return decision{}, ErrCursorNotFound
	case heir != holder && heir.Address != p.cfg.Replica:
		return decision{Verdict: page.Elsewhere, to: heir}, nil
	default:
		return decision{}, ErrNotHere
	}
}

// isLost returns the error of a cursor that no replica is found to hold, nil if it has come here
// meanwhile.
func (l *lookup) isLost() (err error) {
	l.p.table.Do(func(t *handle.Locked) {
		h := cursorOf(t, l.c.id)
		switch {
		case t.Refusing():
			err = handle.ErrClosing
		case h == nil || h.hasMoved():
			err = ErrCursorPositionUnknown
		}
	})
	return err
}
