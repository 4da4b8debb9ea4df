package paging

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/seal"
)

// Asking describes a call for the page that a token stands for.
type Asking struct {
	Principal string
	Token     string
	// Transaction is the transaction that the call runs in; zero: none.
	Transaction handle.ID
	// BatchSize and MaxAwaitTimeMS are for this batch and the following ones; nil changes nothing.
	BatchSize      *int32
	MaxAwaitTimeMS *int64
	// Inflation is 0 if the client gets the documents as BSON. Otherwise it gets them as JSON, for
	// which a page holds so many times fewer bytes of BSON, and ends before a document that JSON
	// cannot carry.
	Inflation int
	// Forwarded says that another replica asks for its client: the answer is what is here, or a
	// *MovedError. Holder is the life of the replica that should hold the cursor; zero: unknown.
	Forwarded bool
	Holder    page.Instance
}

// Next delivers the page that a token asks for. The same token again brings the same page again
// while it is held, and ErrCursorTokenReused afterwards, whichever replica is asked. If the cursor
// is not here, the error is a call.Elsewhere.
func (p *Pager) Next(ctx context.Context, a Asking) (Page, error) {
	c, err := p.claim(a.Principal, a.Token)
	if err != nil {
		return Page{}, err
	}
	d, err := p.find(ctx, c, a, forPage)
	if err != nil {
		return Page{}, err
	}
	return p.send(ctx, c, a, d)
}

// send returns the page that a decision has or grants, for the call of ctx to send it.
func (p *Pager) send(ctx context.Context, c claim, a Asking, d decision) (Page, error) {
	got := d.page
	if got == nil {
		fetched, err := d.grant.deliver(a)
		if err != nil {
			return Page{}, err
		}
		got = &fetched
	}
	p.sending(ctx, c.id, *got)
	return *got, nil
}

// claim opens a token. For a token that it refuses, it returns ErrCursorNotFound or
// ErrTokenVersion.
func (p *Pager) claim(principal, token string) (claim, error) {
	sealed, err := p.cfg.Keys.Open(principal, token, seal.KindCursor, p.deployment)
	expired := errors.Is(err, seal.ErrExpired)
	switch {
	case errors.Is(err, seal.ErrVersion):
		return claim{}, ErrTokenVersion
	case err != nil && !expired:
		return claim{}, ErrCursorNotFound
	}
	c, err := decodeClaim(sealed.Body)
	if err != nil || p.ended(c, sealed.Expires, expired) {
		return claim{}, ErrCursorNotFound
	}
	return c, nil
}

// ended reports whether a token does not count any more. This replica's clock decides about tokens
// that were sealed here. Others count until they have expired, and longer if their cursor is here.
func (p *Pager) ended(c claim, expires time.Time, expired bool) bool {
	if c.holder.Instance == p.instance {
		return !time.Now().Before(expires)
	}
	if !expired {
		return false
	}
	p.table.Lock()
	defer p.table.Unlock()
	h := p.getLocked(c.id)
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

// find finds the page that a token asks for. It is here: the decision's verdict is Fetch or Repeat.
func (p *Pager) find(ctx context.Context, c claim, a Asking, what purpose) (decision, error) {
	switch {
	case p.owned(c, a) && a.Transaction != (handle.ID{}): // the transaction is here
		return decision{}, ErrOtherTransaction
	case p.owned(c, a):
		return decision{}, p.away(c, a, what, c.holder)
	case !a.Forwarded && p.table.Refusing():
		return decision{}, handle.ErrClosing
	}
	d, err := p.decide(ctx, c, a, what == forStream, p.unknown(a))
	if err == nil && d.Verdict == page.Elsewhere {
		return d, p.away(c, a, what, d.to)
	}
	return d, err
}

// decide decides about a page by what is known here, and waits for other calls that work on the
// cursor. The verdict that it returns is Fetch, Repeat or Elsewhere; the others are errors.
// unknown decides where nothing is known.
func (p *Pager) decide(
	ctx context.Context, c claim, a Asking, stream bool,
	unknown func(claim) (decision, error),
) (decision, error) {
	if !p.belongs(c, a.Transaction) {
		return decision{}, ErrOtherTransaction
	}
	q := page.Question{Seq: c.seq, Stream: stream}
	for {
		if ctx.Err() != nil {
			return decision{}, context.Cause(ctx)
		}
		d, err := p.decideOnce(ctx, c, q, unknown)
		if err != nil {
			return d, err
		}
		switch d.Verdict {
		case page.Wait:
			got, err := d.waitFor(ctx, c.seq)
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

func (p *Pager) decideOnce(
	ctx context.Context, c claim, q page.Question,
	unknown func(claim) (decision, error),
) (decision, error) {
	p.table.Lock()
	defer p.table.Unlock()
	if h := p.getLocked(c.id); h != nil {
		return h.decideLocked(ctx, q), nil
	}
	return unknown(c)
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

// unknown returns what decides about a token of a cursor of which nothing is known here.
func (p *Pager) unknown(a Asking) func(claim) (decision, error) {
	if a.Forwarded {
		return p.unknownTo(a)
	}
	return p.unknownHere
}

// unknownHere decides about a client's token of a cursor of which nothing is known here.
func (p *Pager) unknownHere(c claim) (decision, error) {
	if c.holder.Instance == p.instance { // closed or expired here
		return decision{}, ErrCursorNotFound
	}
	return decision{Verdict: page.Elsewhere, to: c.holder}, nil
}

// unknownTo decides about another replica's token of a cursor of which nothing is known here.
func (p *Pager) unknownTo(a Asking) func(claim) (decision, error) {
	return func(c claim) (decision, error) {
		heir := p.successions.of(c.holder)
		switch {
		case p.drain.isClosed():
			return decision{}, handle.ErrClosing
		case c.pinned && p.table.RefusingLocked(): // its connection is closed, or about to be
			return decision{}, ErrOwnerGone
		case c.holder.Instance == p.instance || a.Holder == p.instance: // closed or expired here
			return decision{}, ErrCursorNotFound
		case heir != c.holder && heir.Address != p.cfg.Replica:
			return decision{Verdict: page.Elsewhere, to: heir}, nil
		default:
			return decision{}, ErrNotHere
		}
	}
}

// isLost returns the error of a cursor that no replica is found to hold, nil if it has come here
// meanwhile.
func (p *Pager) isLost(c claim) error {
	p.table.Lock()
	defer p.table.Unlock()
	if p.table.RefusingLocked() {
		return handle.ErrClosing
	}
	if h := p.getLocked(c.id); h != nil {
		if _, moved := h.ledger.Moved(); !moved {
			return nil
		}
	}
	return ErrCursorPositionUnknown
}
