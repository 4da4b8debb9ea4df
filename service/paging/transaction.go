package paging

import (
	"context"
	"slices"

	"github.com/mooringdb/mooring/service/handle"
)

// unbindLocked forgets that a cursor belongs to its transaction.
func (h *held) unbindLocked() {
	p := h.pager
	rest := slices.DeleteFunc(p.bound[h.transaction], func(b *held) bool { return b == h })
	if len(rest) > 0 {
		p.bound[h.transaction] = rest
		return
	}
	delete(p.bound, h.transaction)
}

// EndTransaction ends the cursors of a transaction that has ended, all of them although ctx may
// have ended, too. No call works on them.
func (p *Pager) EndTransaction(ctx context.Context, transaction handle.ID) {
	p.table.Lock()
	var ended []*held
	for _, h := range slices.Clone(p.bound[transaction]) {
		if p.table.RemoveLocked(h, ErrCursorNotFound) == nil {
			ended = append(ended, h)
		}
	}
	p.table.Unlock()
	for _, h := range ended { // their commands are of one session, so they come one by one
		h.End(ctx)
	}
}
