package paging

import (
	"context"
	"errors"
	"io"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// Taken holds a cursor that a stream reads. The stream owns it: it closes the cursor, then calls
// Release.
type Taken struct {
	Cursor Cursor
	// Documents are what was left of the last batch; they come before the next one.
	Documents []bson.Raw
	// Sizer is what is known of the documents' sizes.
	Sizer batch.Sizer

	p *Pager // nil: the cursor is another replica's
	g grant
}

// IsRelayed reports whether another replica reads the cursor.
func (t *Taken) IsRelayed() bool { return t.p == nil }

// Take hands the page of a token, and all pages after it, to a stream. The context that it returns
// ends with ctx, and when the cursor is closed. The token is used up: later calls with it get
// ErrCursorTokenReused. If another replica holds the cursor, the stream comes from there.
func (p *Pager) Take(ctx context.Context, a Asking) (context.Context, *Taken, error) {
	c, err := p.claim(a.Principal, a.Token)
	switch {
	case err != nil:
		return nil, nil, err
	case c.isOwnedBeside(p.instance):
		return p.relayOwned(ctx, c, a)
	}
	d, ans, err := p.find(ctx, c, a, true)
	switch {
	case err != nil:
		return nil, nil, err
	case ans.Streams:
		return p.relay(ctx, c, a, *ans.Moved)
	default:
		return d.grant.ctx, d.grant.take(p, a), nil
	}
}

func (g grant) take(p *Pager, a Asking) *Taken {
	t := &Taken{Cursor: g.h.cur, Documents: g.h.leftover.documents, Sizer: g.h.sizer, p: p, g: g}
	g.h.cur, g.h.leftover = nil, leftover{}
	t.Cursor.SetRunOn(false)
	if a.BatchSize != nil {
		t.Cursor.SetBatchSize(*a.BatchSize)
	}
	if a.MaxAwaitTimeMS != nil {
		t.Cursor.SetMaxAwaitTimeMS(a.MaxAwaitTimeMS)
	}
	return t
}

// Release ends the stream. What remains here remembers that the token was used.
func (t *Taken) Release() {
	if t.p == nil {
		return
	}
	h := t.g.h
	t.p.table.Lock()
	if h.IsRemoved() {
		t.p.table.EndWorkLocked(h)
	} else {
		h.settleLocked()
	}
	t.p.table.Unlock()
	t.g.fetch.Finish()
}

// AnswerStream hands the pages of a cursor that is here, from the one asked for on, to a stream
// to another replica; see Take.
func (p *Pager) AnswerStream(ctx context.Context, q Question) (context.Context, *Taken, error) {
	c, err := p.claim(q.Principal, q.Token)
	switch {
	case err != nil:
		return nil, nil, err
	case c.isOwnedBeside(p.instance): // an earlier life's
		return nil, nil, ErrNotHere
	case p.table.Refusing():
		return nil, nil, handle.ErrClosing
	}
	d, err := p.decide(ctx, c, q.asking(), true, p.unknownTo(q))
	switch {
	case err != nil:
		return nil, nil, err
	case d.Verdict == page.Elsewhere:
		return nil, nil, ErrNotHere
	default:
		return d.grant.ctx, d.grant.take(p, q.asking()), nil
	}
}

// relay hands a stream at the replica that holds the cursor to a stream here.
func (p *Pager) relay(
	ctx context.Context, c claim, a Asking, to page.Replica,
) (context.Context, *Taken, error) {
	s, err := p.replicas.Stream(ctx, to.Address, p.question(c, a, ForStream))
	if err != nil {
		return nil, nil, err
	}
	return ctx, &Taken{Cursor: &relayed{stream: s}}, nil
}

// relayOwned relays the stream of a cursor that is pinned to another replica.
func (p *Pager) relayOwned(
	ctx context.Context, c claim, a Asking,
) (context.Context, *Taken, error) {
	if p.alone() || c.holder.Address == "" || c.holder.Address == p.cfg.Replica {
		return nil, nil, ErrOwnerGone
	}
	ctx, taken, err := p.relay(ctx, c, a, c.holder)
	return ctx, taken, p.OwnerError(ctx, c.holder, err)
}

// relayed implements Cursor with batches that another replica reads, and sizes.
type relayed struct {
	stream PageStream
	done   bool
}

var _ Cursor = (*relayed)(nil)

func (c *relayed) Next(context.Context) (cursor.Batch, error) {
	if c.done {
		return cursor.Batch{}, io.EOF
	}
	docs, err := c.stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		c.done = true
		return cursor.Batch{}, nil
	case err != nil:
		_, gone := errors.AsType[*UnreachableError](err)
		if gone || errors.Is(err, handle.ErrClosing) {
			// Also if the owner is still there: it kills the cursor of a stream that broke.
			err = ErrOwnerGone
		}
		return cursor.Batch{}, err
	}
	got := leftoverOf(docs)
	return cursor.Batch{Documents: docs, Bytes: got.bytes, Buffer: got.buffer}, nil
}

func (c *relayed) Close(context.Context) error {
	c.done = true
	c.stream.Close()
	return nil
}

func (c *relayed) Done() bool               { return c.done }
func (c *relayed) State() cursor.State      { return cursor.State{} }
func (c *relayed) Pinned() bool             { return true }
func (c *relayed) SetBatchSize(int32)       {}
func (c *relayed) SetMaxAwaitTimeMS(*int64) {}
func (c *relayed) SetRunOn(bool)            {}
