package paging

import (
	"context"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// CloseCursor ends a cursor: a call that works on it is told to stop, and it is killed on its
// server before this returns, unless ctx ends first. Any of the cursor's tokens will do, at any
// replica. If the cursor is not here, the error is a call.Elsewhere.
func (p *Pager) CloseCursor(ctx context.Context, a Asking) error {
	l, err := p.lookup(a, forClose)
	switch {
	case err != nil:
		return err
	case l.owned():
		return l.away(l.c.holder)
	}
	p.table.Lock()
	h := p.getLocked(l.c.id)
	to, moved := page.Replica{}, false
	if h == nil {
		var d decision
		d, err = l.unknownLocked()
		to, moved = d.to, true
	} else {
		to, moved = h.ledger.Moved()
	}
	if err != nil || moved {
		p.table.Unlock()
		if err != nil {
			return err
		}
		return l.away(to)
	}
	w := p.table.RemoveLocked(h, ErrCursorNotFound)
	p.table.Unlock()
	return handle.EndRemoved(ctx, h, w)
}
