package paging

import (
	"context"
	"crypto/rand"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// Opening describes a page call that opens a cursor.
type Opening struct {
	Principal string
	Namespace Namespace
	// Transaction is the transaction that the call runs in; zero: none. The cursor belongs to it,
	// stays with this replica, and ends with EndTransaction.
	Transaction handle.ID
	// BatchSize is the client's own; nil lets the pager choose that of the following batches.
	BatchSize *int32
	// Inflation is 0 if the client gets the documents as BSON. Otherwise it gets them as JSON, for
	// which a page holds so many times fewer bytes of BSON, and ends before a document that JSON
	// cannot carry.
	Inflation int
	// Whole: the command's first batch is the whole result, so no cursor stays open, unless a page
	// is too small for it.
	Whole bool
	// Casual: the client may need only the first page, for example because it sent a plain GET.
	// Unless it asks for the second page, the cursor expires after Config.UnreadIdle.
	Casual bool
	// Run sends the command, with RunOn.
	Run func(ctx context.Context) (Cursor, error)
}

// Open runs a command and delivers its first page. If more is to come, the cursor stays here and
// the page has a token. If the client went away meanwhile, it knows no token, and the cursor is
// killed. If the principal has as many cursors as it may, Open runs nothing and returns a
// *handle.LimitError.
func (p *Pager) Open(ctx context.Context, o Opening) (Page, error) {
	if !o.Whole {
		if err := p.table.HasRoom(o.Principal, p.unopenable); err != nil {
			return Page{}, err
		}
	}
	cur, err := o.Run(ctx)
	if err != nil {
		return Page{}, err
	}
	cur.SetRunOn(true)
	h := p.newHeld(handle.Handle{Principal: o.Principal, Opened: handle.Now()}, o.Namespace)
	admission.From(ctx).OpenFor(&h.account) // a client without a name is known by its address
	_, _ = rand.Read(h.ID[:])               // never fails
	h.cur, h.casual, h.ledger = cur, o.Casual, page.Opened()
	h.transaction = o.Transaction
	if o.BatchSize != nil {
		h.chosen = *o.BatchSize
	}
	got, _, err := p.read(ctx, h, 1, p.limits(int(h.chosen), o.Inflation))
	if err == nil && got.Token == "" {
		return got, nil
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = p.add(h)
	}
	if err != nil {
		h.End(ctx)
		return Page{}, err
	}
	return got, nil
}

// add puts a new cursor whose page 0 was delivered into the table.
func (p *Pager) add(h *held) error {
	p.table.Lock()
	defer p.table.Unlock()
	if p.table.RefusingLocked() {
		return handle.ErrClosing
	}
	h.pages, h.server = 1, h.cur.State().Server
	if h.transaction != (handle.ID{}) {
		p.bound[h.transaction] = append(p.bound[h.transaction], h)
	}
	p.settleLocked(h)
	return nil
}

// unopenable reports whether the key that sealed the newest token of a cursor is gone.
func (p *Pager) unopenable(t handle.Thing) bool {
	h, ok := t.(*held)
	return ok && !p.cfg.Keys.Has(h.sealer)
}
