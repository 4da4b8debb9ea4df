package handle

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/service/admission"
)

// ID identifies a handle in the table.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// parseID reads what String writes.
func parseID(text string) (id ID, ok bool) {
	if len(text) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

// Kind says what a handle stands for.
type Kind string

// The kinds of handles.
const (
	// KindCursor is a cursor that is read in pages.
	KindCursor Kind = "cursor"
	// KindTransaction is a transaction whose calls come one after the other.
	KindTransaction Kind = "transaction"
)

// Thing implements what a handle stands for. It embeds a Handle.
type Thing interface {
	handle() *Handle
	// Describe completes what lists show. It is called with the lock held.
	Describe(*Info)
	// IsEvictable reports whether the thing gives way to another one of its principal, because its
	// client may not come back to it. Evict settles such a thing without what it stood for, which
	// the table ends: it is in the thing that Evict returns. Both are called with the lock held,
	// while no call works on the thing.
	IsEvictable() bool
	Evict(*Locked) Thing
	// Removed is called with the lock held when the handle leaves the table.
	Removed()
	// End ends the thing, on its server too. It is called once the handle has left the table and
	// no call works on it.
	End(ctx context.Context)
}

// Handle holds the table's part of a thing. Its exported fields do not change while it is in a
// table.
type Handle struct {
	ID        ID
	Kind      Kind
	Principal string
	// Owner is for whom the handle counts: Principal, or the address of a client without a name.
	Owner  admission.Principal
	Opened time.Time // in whole milliseconds: it goes with the thing to other replicas

	thing   Thing
	lastUse time.Time
	expires time.Time
	settled Settled
	work    *Work  // nil: no call works on it
	queue   *queue // in which it waits; nil: a call works on it, or it was removed
	index   int    // in the queue
	// settlement counts the table's settlements, for handles that expire at the same time.
	settlement uint64
	counted    bool // among the open ones of its owner
	place      int  // among those
	removed    bool
}

func (h *Handle) handle() *Handle { return h } //nolint:unused // of Thing, for kinds that embed it

// Now returns the time as Opened has it.
func Now() time.Time { return time.Now().Truncate(time.Millisecond) }

// Working reports whether a call works on the thing.
func (h *Handle) Working() bool { return h.work != nil }

// Work returns the work on the thing; nil: there is none.
func (h *Handle) Work() *Work { return h.work }

// IsRemoved reports whether the handle has left the table.
func (h *Handle) IsRemoved() bool { return h.removed }

// Expired reports whether the handle's time is up. While a call works on the thing it is not.
func (h *Handle) Expired(now time.Time) bool { return h.work == nil && !now.Before(h.expires) }

// LastUse returns when the work on the thing last began or ended.
func (h *Handle) LastUse() time.Time { return h.lastUse }

// Settled describes a thing on which no call works.
type Settled struct {
	// Open: there is something to end, so it is listed and counts for its principal.
	Open bool
	// Continues: its client can go on with it. If the table is full, the others end first.
	Continues bool
	// Pinned: it holds a connection. Ending such things never waits behind others.
	Pinned bool
	// Idle is how long it waits for its client; 0 means the table's time.
	Idle time.Duration
}

// Work represents a call that works on a thing. One call at a time does.
type Work struct {
	// Endless: it ends only if it is canceled, as a stream does.
	Endless bool

	isCall bool           // it has ctx
	ctx    ctxwatch.Child // that of the call, while it works
	done   chan struct{}
}

// newWork returns the work of a call.
func newWork(ctx context.Context, endless bool) *Work {
	w := &Work{Endless: endless, isCall: true, done: make(chan struct{})}
	w.ctx.Init(ctx)
	return w
}

// Cancel tells the call that works to stop.
func (w *Work) Cancel(cause error) {
	if w.isCall {
		w.ctx.Cancel(cause)
	}
}

// Wait blocks until the work has ended, or until ctx ends: then it returns the cause.
func (w *Work) Wait(ctx context.Context) error {
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	select { // both may be
	case <-w.done:
		return nil
	default:
		return context.Cause(ctx)
	}
}

// Finish ends all calls of Wait. It is called once, without the lock, after EndWork.
func (w *Work) Finish() {
	close(w.done)
	w.ctx.End()
}
