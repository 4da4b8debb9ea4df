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
	c, err := p.claim(a.Principal, a.Token)
	switch {
	case err != nil:
		return err
	case p.owned(c, a):
		return p.away(c, a, forClose, c.holder)
	}
	p.table.Lock()
	h := p.getLocked(c.id)
	to, moved := page.Replica{}, false
	if h == nil {
		var d decision
		d, err = p.unknown(a)(c)
		to, moved = d.to, true
	} else {
		to, moved = h.ledger.Moved()
	}
	if err != nil || moved {
		p.table.Unlock()
		if err != nil {
			return err
		}
		return p.away(c, a, forClose, to)
	}
	w := p.table.RemoveLocked(h, ErrCursorNotFound)
	p.table.Unlock()
	return handle.EndRemoved(ctx, h, w)
}
