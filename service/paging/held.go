package paging

import (
	"context"
	"net/netip"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/seal"
)

// Cursor lists the methods of *cursor.Cursor that a pager needs. One goroutine at a time uses it.
type Cursor interface {
	NextLent(ctx context.Context) (cursor.Batch, error)
	Done() bool
	// State is what another process continues the cursor with. Its session is not used again.
	State() cursor.State
	Server() address.Address
	Kept() int
	SetBatchSize(n int32)
	SetMaxAwaitTimeMS(ms *int64)
	// SetRunOn sets whether a getMore that was sent goes on when the client goes away: it does for
	// pages, not for streams.
	SetRunOn(on bool)
	// Pinned reports whether it holds a connection: only this process can continue it then.
	Pinned() bool
	Close(ctx context.Context) error
}

var _ Cursor = (*cursor.Cursor)(nil)

// Namespace names what a cursor was opened on.
type Namespace struct{ Database, Collection string }

// held holds what is known of one cursor. The table's lock guards its fields, except those of
// the call that works on it.
type held struct {
	handle.Handle
	pager     *Pager
	namespace Namespace
	server    address.Address
	pinned    bool
	// transaction is the transaction that the cursor belongs to; zero: none. It does not change.
	transaction handle.ID
	// taken is what the policy has allowed the cursor by. It does not change.
	taken  string
	pages  uint64     // delivered so far
	casual bool       // see Opening
	waits  bool       // the server waits for documents, or may: see Opening
	asked  bool       // for the second page, or for a later one
	sealer seal.KeyID // of the newest token
	ledger page.Ledger
	fetch  *fetch // nil if no page is fetched, and no stream runs
	last   remembered
	source batch.Source

	// account is the principal's. It is charged with what the cursor keeps between two calls.
	account      admission.Account
	leftoverCost int // of the leftover, where it is charged
	stateCost    int // of what the cursor keeps of its request; see stateSize
	// payer is the account of the call that works on the cursor, which has charged the reply: the
	// cursor's account gets the charge for what the cursor keeps. nil: there is none.
	payer *admission.Account

	// The call that works on the cursor, or has removed it, owns the fields below.
	cur      Cursor // nil once it is elsewhere
	leftover leftover
	sizer    batch.Sizer
	chosen   int32 // the client's batch size, which is then the largest; 0: it has none
}

var _ handle.Thing = (*held)(nil)

// remembered holds the page that was delivered last, if it is in the list of pages.
type remembered struct {
	page Page
	// unsent: no call has sent the page yet, so its client asks again.
	unsent bool
	place
}

// newHeld returns a new cursor. client is the address of a principal without a name.
func (p *Pager) newHeld(h handle.Handle, ns Namespace, client netip.Addr) *held {
	h.Kind, h.Owner = handle.KindCursor, admission.PrincipalOf(h.Principal, client)
	made := &held{Handle: h, pager: p, namespace: ns}
	p.cfg.Admission.Open(&made.account, h.Owner)
	return made
}

// cursorOf returns what is known of a cursor; nil: nothing.
func cursorOf(t *handle.Locked, id handle.ID) *held {
	h, _ := t.Get(id).(*held)
	return h
}

// Describe completes what lists show.
func (h *held) Describe(i *handle.Info) {
	i.Database, i.Collection, i.Server = h.namespace.Database, h.namespace.Collection, h.server
	i.Pages, i.Pinned, i.Replica = h.pages, h.pinned, h.pager.cfg.Replica
}

// Removed frees the memory of a cursor that leaves the table.
func (h *held) Removed() {
	m := &h.pager.memory
	m.forget(h)
	m.release(h)
	m.countState(h, 0)
	if !h.Working() {
		h.leftover.drop()
	}
	h.unbind()
}

// End closes the cursor on its server.
func (h *held) End(ctx context.Context) {
	h.leftover.drop()
	if h.cur == nil {
		return
	}
	_ = h.cur.Close(ctx) // never fails, and does not end with ctx
	h.cur = nil
}

// largeState is the size from which it is counted what a cursor keeps of its request.
const largeState = 1 << 10

// stateSize returns how many bytes the cursor keeps of its request: its comment, which goes with
// each getMore, and names. It returns 0 if they are few, or the cursor is not here.
func (h *held) stateSize() int {
	if h.cur == nil {
		return 0
	}
	n := h.cur.Kept() + len(h.namespace.Database) + len(h.namespace.Collection) + len(h.taken)
	if n < largeState {
		return 0
	}
	return n
}

// isOpen reports whether the cursor is here and has more documents.
func (h *held) isOpen() bool { return h.cur != nil && !h.cur.Done() }

// settle puts a cursor back among those that wait for their clients. No call works on it any
// more, and it was not removed. If there is too little room, other cursors end.
func (h *held) settle(t *handle.Locked) {
	p := h.pager
	h.fetch = nil
	p.memory.keep(h)
	h.payer = nil
	open := h.isOpen()
	h.pinned = open && h.isPinned()
	s := handle.Settled{Open: open, Continues: h.ledger.Continues(), Pinned: h.pinned}
	if h.isUnread() {
		s.Idle = p.cfg.UnreadIdle
	}
	p.memory.trim()
	t.Settle(h, s)
}

// hasMoved reports whether another replica has the cursor.
func (h *held) hasMoved() bool {
	_, moved := h.ledger.Moved()
	return moved
}

// isPinned reports whether only this replica can continue an open cursor: it holds a connection, or
// belongs to a transaction.
func (h *held) isPinned() bool { return h.cur.Pinned() || h.transaction != (handle.ID{}) }

// isUnread reports whether the cursor's client may need only the first page.
func (h *held) isUnread() bool { return h.casual && h.pages <= 1 }

// begin begins a call's work on a cursor.
func (h *held) begin(ctx context.Context, t *handle.Locked, stream bool) grant {
	ctx, w := t.Begin(ctx, h, stream)
	h.fetch, h.payer = &fetch{Work: w}, admission.From(ctx)
	g := grant{h: h, ctx: ctx, fetch: h.fetch}
	if stream {
		g.charge = h.pager.memory.lend(h)
	} else {
		h.pager.memory.release(h)
	}
	return g
}

// drop forgets a cursor without closing it, because another replica has it. The ledger says
// which.
func (h *held) drop(t *handle.Locked) {
	h.pager.memory.forget(h)
	h.pager.memory.release(h)
	h.leftover.drop()
	h.cur = nil
	h.settle(t)
}
