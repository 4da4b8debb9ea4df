package paging

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/handle"
)

// Taken holds a cursor that a stream reads. The stream owns it: it closes the cursor, then calls
// Release.
type Taken struct {
	Cursor Cursor
	// Documents are what was left of the last batch; they come before the next one.
	Documents []bson.Raw
	// Lent is the memory of Documents, of which the stream has the references.
	Lent []*buffer.Buffer
	// Charge is what the call of the stream is charged for Documents.
	Charge int64
	// Waits: the server may wait for documents, or only one command at a time may run.
	Waits bool
	// Sizer is what is known of the documents' sizes.
	Sizer batch.Sizer

	g grant
}

// Take hands the page of a token, and all pages after it, to a stream. The context that it returns
// ends with ctx, and when the cursor is closed. The token is used up: later calls with it get
// ErrCursorTokenReused. If the cursor is not here, the error is a call.Elsewhere.
func (p *Pager) Take(ctx context.Context, a Asking) (context.Context, *Taken, error) {
	l, err := p.lookup(a, forStream)
	if err != nil {
		return nil, nil, err
	}
	d, err := l.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	return d.grant.ctx, d.grant.take(a), nil
}

func (g grant) take(a Asking) *Taken {
	h := g.h
	t := &Taken{
		Cursor: h.cur, Documents: h.leftover.documents, Lent: h.leftover.lent, Charge: g.charge,
		Waits: h.waits || h.isPinned(), Sizer: h.sizer, g: g,
	}
	h.cur, h.leftover = nil, leftover{}
	t.Cursor.SetRunOn(false)
	if a.BatchSize != nil {
		t.Cursor.SetBatchSize(*a.BatchSize)
	}
	if a.MaxAwaitTimeMS != nil {
		t.Cursor.SetMaxAwaitTimeMS(a.MaxAwaitTimeMS)
	}
	return t
}

// Drop returns the memory of Documents, which the caller does not use.
func (t *Taken) Drop() {
	lent(t.Lent).release()
	t.Documents, t.Lent = nil, nil
}

// Release ends the stream. What remains here remembers that the token was used.
func (t *Taken) Release() {
	h := t.g.h
	h.pager.table.Do(func(t *handle.Locked) {
		if h.IsRemoved() {
			t.EndWork(h)
		} else {
			h.settle(t)
		}
	})
	t.g.fetch.Finish()
}
