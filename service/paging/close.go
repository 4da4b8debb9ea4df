package paging

import (
	"context"

	"github.com/mooringdb/mooring/service/handle"
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
	var h *held
	var w *handle.Work
	p.table.Do(func(t *handle.Locked) {
		if h = cursorOf(t, l.c.id); h == nil {
			var d decision
			if d, err = l.unknown(t); err == nil {
				err = l.away(d.to)
			}
		} else if to, moved := h.ledger.Moved(); moved {
			err = l.away(to)
		} else {
			w = t.Remove(h, ErrCursorNotFound)
		}
	})
	if err != nil {
		return err
	}
	return handle.EndRemoved(ctx, h, w)
}
