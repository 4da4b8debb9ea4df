package paging

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// Answer answers another replica from what is here; it never searches. A page is fetched with
// ctx, and runs on like one that a client has asked for.
func (p *Pager) Answer(ctx context.Context, q Question) (Answer, error) {
	c, err := p.claim(q.Principal, q.Token)
	if err != nil {
		return Answer{}, err
	}
	switch q.Purpose {
	case ForClose:
		return p.answerClose(ctx, c, q)
	case ForStream:
		return p.answerLocate(c, q)
	default:
		return p.answerPage(ctx, c, q)
	}
}

// answerPage fetches a page for another replica, or says where the cursor is.
func (p *Pager) answerPage(ctx context.Context, c claim, q Question) (Answer, error) {
	d, err := p.decide(ctx, c, q.asking(), false, p.unknownTo(q))
	switch {
	case err != nil:
		return Answer{}, err
	case d.Verdict == page.Elsewhere:
		return Answer{Moved: &d.to}, nil
	}
	got, err := p.send(ctx, c, q.asking(), d)
	if err != nil {
		return Answer{}, err
	}
	return Answer{Page: &got}, nil
}

// unknownTo decides about another replica's token of a cursor of which nothing is known here.
func (p *Pager) unknownTo(q Question) func(claim) (decision, error) {
	return func(c claim) (decision, error) {
		heir := p.successions.of(c.holder)
		switch {
		case p.drain.isClosed():
			return decision{}, handle.ErrClosing
		case c.pinned && p.table.RefusingLocked(): // its connection is closed, or about to be
			return decision{}, ErrOwnerGone
		case c.holder.Instance == p.instance || q.Holder == p.instance: // closed or expired here
			return decision{}, ErrCursorNotFound
		case heir != c.holder && heir.Address != p.cfg.Replica:
			return decision{Verdict: page.Elsewhere, to: heir}, nil
		default:
			return decision{}, ErrNotHere
		}
	}
}

// answerLocate says whether a stream could be had here.
func (p *Pager) answerLocate(c claim, q Question) (Answer, error) {
	p.table.Lock()
	defer p.table.Unlock()
	h := p.getLocked(c.id)
	if h == nil {
		d, err := p.unknownTo(q)(c)
		if err != nil {
			return Answer{}, err
		}
		return Answer{Moved: &d.to}, nil
	}
	if to, moved := h.ledger.Moved(); moved {
		return Answer{Moved: &to}, nil
	}
	return Answer{Streams: true}, nil
}

// answerClose closes a cursor for another replica.
func (p *Pager) answerClose(ctx context.Context, c claim, q Question) (Answer, error) {
	p.table.Lock()
	h := p.getLocked(c.id)
	if h == nil {
		d, err := p.unknownTo(q)(c)
		p.table.Unlock()
		if err != nil {
			return Answer{}, err
		}
		return Answer{Moved: &d.to}, nil
	}
	if to, moved := h.ledger.Moved(); moved {
		p.table.Unlock()
		return Answer{Moved: &to}, nil
	}
	w := p.table.RemoveLocked(h, ErrCursorNotFound)
	p.table.Unlock()
	return Answer{Closed: true}, handle.EndRemoved(ctx, h, w)
}

// CloseCursor ends a cursor: a call that works on it is told to stop, and it is killed on its
// server before this returns, unless ctx ends first. Any of the cursor's tokens will do, at any
// replica.
func (p *Pager) CloseCursor(ctx context.Context, principal, token string) error {
	c, err := p.claim(principal, token)
	if err != nil {
		return err
	}
	a := Asking{Principal: principal, Token: token}
	if c.isOwnedBeside(p.instance) {
		_, err := p.putOwner(ctx, c, p.question(c, a, ForClose))
		return err
	}
	p.table.Lock()
	to := c.holder
	h := p.getLocked(c.id)
	if h != nil {
		moved, elsewhere := h.ledger.Moved()
		if !elsewhere {
			w := p.table.RemoveLocked(h, ErrCursorNotFound)
			p.table.Unlock()
			return handle.EndRemoved(ctx, h, w)
		}
		to = moved
	}
	p.table.Unlock()
	if h == nil && to.Instance == p.instance {
		return ErrCursorNotFound
	}
	return p.closeElsewhere(ctx, c, a, to)
}

// closeElsewhere has another replica close a cursor.
func (p *Pager) closeElsewhere(ctx context.Context, c claim, a Asking, to page.Replica) error {
	s := search{p: p, q: p.question(c, a, ForClose)}
	_, err := s.run(ctx, to)
	if errors.Is(err, errHere) || errors.Is(err, errNowhere) { // it has ended
		return ErrCursorNotFound
	}
	return err
}
