package paging

import (
	"context"
	"slices"

	"github.com/mooringdb/mooring/service/handle"
)

// unbind forgets that a cursor belongs to its transaction.
func (h *held) unbind() {
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
	var ended []*held
	p.table.Do(func(t *handle.Locked) {
		for _, h := range slices.Clone(p.bound[transaction]) {
			if t.Remove(h, ErrCursorNotFound) == nil {
				ended = append(ended, h)
			}
		}
	})
	for _, h := range ended { // their commands are of one session, so they come one by one
		h.End(ctx)
	}
}
