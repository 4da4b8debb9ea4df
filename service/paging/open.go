package paging

import (
	"context"
	"crypto/rand"

	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/call"
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
	// Texts, if it is set, makes the JSON of the page.
	Texts batch.Texts
	// Pipeline: the documents are results of a pipeline, and not those of the namespace.
	Pipeline bool
	// Sized: Run uses the size that it is given for the first batch. Otherwise the command decides.
	Sized bool
	// Waits: the server waits for documents that are not there yet, so the first page is not
	// filled.
	Waits bool
	// Whole: the command's first batch is the whole result, so no cursor stays open, unless a page
	// is too small for it.
	Whole bool
	// Casual: the client may need only the first page, for example because it sent a plain GET.
	// Unless it asks for the second page, the cursor expires after Config.UnreadIdle.
	Casual bool
	// Run sends the command, with RunOn. first is the size of the first batch if Sized is set.
	Run func(ctx context.Context, first int32) (Cursor, error)
}

// Open runs a command and delivers its first page. If more is to come, the cursor stays here and
// the page has a token. If the client went away meanwhile, it knows no token, and the cursor is
// killed. If the principal has as many cursors as it may, or what is left of batches fills the
// memory for it, Open runs nothing and returns a *handle.LimitError or an *admission.Error.
func (p *Pager) Open(ctx context.Context, o Opening) (Page, error) {
	h := p.newHeld(
		handle.Handle{Principal: o.Principal, Opened: handle.Now()}, o.Namespace,
		admission.AddressFrom(ctx))
	h.payer = admission.From(ctx)
	h.payer.OpenFor(&h.account)
	if !o.Whole {
		if err := h.hasRoom(); err != nil {
			return Page{}, err
		}
	}
	_, _ = rand.Read(h.ID[:]) // never fails
	h.casual, h.waits, h.ledger, h.transaction = o.Casual, o.Waits || !o.Sized, page.Opened(),
		o.Transaction
	h.taken = call.Taken(ctx)
	if o.BatchSize != nil {
		h.chosen = *o.BatchSize
	}
	got, err := h.first(ctx, o)
	got.lent.lend(ctx)
	if err == nil && got.Token == "" {
		return got, nil
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = h.add()
	}
	if err != nil {
		h.End(ctx)
		return Page{}, err
	}
	return got, nil
}

// hasRoom returns the error of a principal that may not open another cursor now.
func (h *held) hasRoom() (err error) {
	p := h.pager
	p.table.Do(func(t *handle.Locked) {
		if err = t.HasRoom(h.Owner, p.cfg.isUnopenable); err == nil {
			err = p.memory.opens(h.account.Principal())
		}
	})
	return err
}

// first runs the command of a new cursor and returns the first page.
func (h *held) first(ctx context.Context, o Opening) (Page, error) {
	limits := h.pager.cfg.limits(int(h.chosen), o.Inflation)
	limits.Texts = o.Texts
	most, asked := int32(batch.First), int32(0)
	if h.chosen > 0 {
		most = h.chosen
	}
	if o.Sized {
		h.source = batch.Source{
			Database: o.Namespace.Database, Collection: o.Namespace.Collection,
			Pipeline: o.Pipeline,
		}
		mean := h.pager.cfg.Sizes.Mean(h.source)
		h.sizer = batch.Resume(mean, 0)
		asked = batch.Start(limits.Bytes, mean, most)
		if err := reserve(ctx, int(asked)*mean, limits); err != nil {
			return Page{}, err
		}
	}
	cur, err := o.Run(ctx, asked)
	if err != nil {
		return Page{}, err
	}
	cur.SetRunOn(true)
	h.cur = cur
	if err := h.take(ctx); err != nil {
		return Page{}, err
	}
	if o.Sized && !o.Waits {
		if err := h.fill(ctx, asked, most, limits); err != nil {
			return Page{}, err
		}
	}
	got, _ := h.cut(1, limits)
	return got, nil
}

// Adopt counts a cursor that a client's own command has left on its server, and ends it as one
// whose second page is not asked for. If there is no room for it, Adopt ends it at once.
func (p *Pager) Adopt(
	ctx context.Context, principal string, transaction handle.ID, state cursor.State,
) {
	h := p.newHeld(
		handle.Handle{Principal: principal, Opened: handle.Now()},
		Namespace{Database: state.Database, Collection: state.Collection},
		admission.AddressFrom(ctx))
	_, _ = rand.Read(h.ID[:]) // never fails
	h.casual, h.waits, h.ledger, h.transaction = true, true, page.Opened(), transaction
	h.cur, h.sealer = p.cfg.Continue(state), p.cfg.Keys.SealerID()
	err := h.hasRoom()
	if err == nil {
		err = h.add()
	}
	if err != nil {
		h.End(ctx)
	}
}

// add puts a new cursor whose page 0 was delivered into the table.
func (h *held) add() (err error) {
	p := h.pager
	p.table.Do(func(t *handle.Locked) {
		if t.Refusing() {
			err = handle.ErrClosing
			return
		}
		t.Evict(h.Owner)
		h.pages, h.server = 1, h.cur.Server()
		if h.transaction != (handle.ID{}) {
			p.bound[h.transaction] = append(p.bound[h.transaction], h)
		}
		h.settle(t)
	})
	return err
}

// isUnopenable reports whether the key that sealed the newest token of a cursor is gone.
func (c *Config) isUnopenable(t handle.Thing) bool {
	h, ok := t.(*held)
	return ok && !c.Keys.Has(h.sealer)
}

// IsEvictable reports whether the second page was not asked for.
func (h *held) IsEvictable() bool {
	return !h.asked && h.pages <= 1 && h.transaction == (handle.ID{})
}

// Evict takes the cursor away. What remains tells the client.
func (h *held) Evict(t *handle.Locked) handle.Thing {
	ending := &held{Handle: handle.Handle{ID: h.ID}, pager: h.pager, cur: h.cur}
	h.ledger = h.ledger.Evicted()
	h.drop(t)
	return ending
}
