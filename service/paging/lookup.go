package paging

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/seal"
)

// purpose is what is asked of a cursor.
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
func (p *Pager) lookup(a Asking, what purpose) (*lookup, error) {
	sealed, err := p.cfg.Keys.Open(a.Principal, a.Token, seal.KindCursor, p.deployment)
	expired := errors.Is(err, seal.ErrExpired)
	switch {
	case errors.Is(err, seal.ErrVersion):
		return nil, ErrTokenVersion
	case err != nil && !expired:
		return nil, ErrCursorNotFound
	}
	c, err := decodeClaim(sealed.Body)
	l := &lookup{p, c, a, what}
	if err != nil || l.ended(sealed.Expires, expired) {
		return nil, ErrCursorNotFound
	}
	return l, nil
}

// ended reports whether the token does not count any more. This replica's clock decides about
// tokens that were sealed here. Others count until they have expired, and longer if their cursor
// is here.
func (l *lookup) ended(expires time.Time, expired bool) bool {
	p := l.p
	if l.c.holder.Instance == p.instance {
		return !time.Now().Before(expires)
	}
	if !expired {
		return false
	}
	p.table.Lock()
	defer p.table.Unlock()
	h := p.getLocked(l.c.id)
	return h == nil || h.Expired(time.Now())
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
	return &elsewhere{lookup: l, to: to}
}

// decide decides about a page by what is known here, and waits for other calls that work on the
// cursor. The verdict that it returns is Fetch, Repeat or Elsewhere; the others are errors.
func (l *lookup) decide(ctx context.Context) (decision, error) {
	if !l.belongs() {
		return decision{}, ErrOtherTransaction
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

// belongs reports whether the call's transaction, or its having none, may continue the cursor. It
// knows only of cursors that are here.
func (l *lookup) belongs() bool {
	l.p.table.Lock()
	defer l.p.table.Unlock()
	none := handle.ID{}
	h := l.p.getLocked(l.c.id)
	return h == nil && l.a.Transaction == none || h != nil && h.transaction == l.a.Transaction
}

func (l *lookup) decideOnce(ctx context.Context, q page.Question) (decision, error) {
	l.p.table.Lock()
	defer l.p.table.Unlock()
	if h := l.p.getLocked(l.c.id); h != nil {
		return h.decideLocked(ctx, q), nil
	}
	return l.unknownLocked()
}

// decideLocked asks the ledger, and carries out what it says.
func (h *held) decideLocked(ctx context.Context, q page.Question) (d decision) {
	q.Remembered, q.Working = h.inPages.isIn(), h.Working()
	ledger, v := h.ledger.Ask(q)
	if d := h.pager.drain; v == page.Fetch && h.pager.table.RefusingLocked() && d.isLeaving() {
		return decision{Verdict: page.Wait, work: d.leaving} // the cursor goes elsewhere
	}
	h.ledger, d.Verdict = ledger, v
	d.to, _ = h.ledger.Moved()
	switch d.Verdict {
	case page.Fetch:
		d.grant = h.grantLocked(ctx, q)
	case page.Repeat:
		last := h.last
		d.page = &last
	case page.Wait:
		d.work, d.fetch = h.Work(), h.fetch
	default: // the verdict is the whole answer
	}
	return d
}

// grantLocked begins the caller's work on the cursor, for page q.Seq.
func (h *held) grantLocked(ctx context.Context, q page.Question) grant {
	g := h.beginLocked(ctx, q.Stream)
	g.seq, h.asked = q.Seq, true
	if q.Stream {
		h.pager.memory.forget(h) // it cannot be asked for any more
	}
	return g
}

// unknownLocked decides about a cursor of which nothing is known here.
func (l *lookup) unknownLocked() (decision, error) {
	p, holder := l.p, l.c.holder
	switch {
	case l.a.Forwarded:
		return l.unknownToLocked()
	case holder.Instance == p.instance: // closed or expired here
		return decision{}, ErrCursorNotFound
	default:
		return decision{Verdict: page.Elsewhere, to: holder}, nil
	}
}

// unknownToLocked is unknownLocked for a question of another replica.
func (l *lookup) unknownToLocked() (decision, error) {
	p, holder := l.p, l.c.holder
	heir := p.successions.of(holder)
	switch {
	case p.drain.isClosed():
		return decision{}, handle.ErrClosing
	case l.c.pinned && p.table.RefusingLocked(): // its connection is closed, or about to be
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
func (l *lookup) isLost() error {
	p := l.p
	p.table.Lock()
	defer p.table.Unlock()
	if p.table.RefusingLocked() {
		return handle.ErrClosing
	}
	if h := p.getLocked(l.c.id); h != nil {
		if _, moved := h.ledger.Moved(); !moved {
			return nil
		}
	}
	return ErrCursorPositionUnknown
}
