package paging

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/seal"
)

// fetch holds the work of a call that fetches a page or streams.
type fetch struct {
	*handle.Work
	// The page with that number, for the calls that wait for it; ok: there is one. They do not
	// change once the work is done.
	seq uint64
	got Page
	ok  bool
	// awaited says that another call waits for the page. The table's lock guards it.
	awaited bool
}

// result waits for the work of another call to end. Neither a page nor an error: ask again.
func (f *fetch) result(ctx context.Context, seq uint64) (*Page, error) {
	switch err := f.Wait(ctx); {
	case err != nil:
		return nil, err
	case f.ok && f.seq == seq: // although it may not be remembered
		return &f.got, nil
	default:
		return nil, nil
	}
}

// grant gives the cursor to the call that was granted a page, until the call runs finish.
type grant struct {
	h     *held
	seq   uint64
	ctx   context.Context //nolint:containedctx // of the fetch, and no longer lived than this value
	fetch *fetch
	// charge is what the call of a stream is charged for the leftover.
	charge int64
}

// deliver fetches the page that was granted.
func (g grant) deliver(a Asking) (Page, error) {
	h := g.h
	if a.MaxAwaitTimeMS != nil {
		h.cur.SetMaxAwaitTimeMS(a.MaxAwaitTimeMS)
	}
	if a.BatchSize != nil {
		h.chosen = *a.BatchSize
	}
	returned := false
	defer func() {
		if !returned { // a panic: others must not wait for ever
			_, _ = g.finish(page.NoReply, Page{}, 0, errPanic)
		}
	}()
	got, cost, err := h.read(g.ctx, g.seq+1, g.h.pager.cfg.limits(int(h.chosen), a.Inflation))
	returned = true
	return g.finish(outcomeOf(got, err), got, cost, err)
}

// sending lets a page give way to other calls when the call of ctx has sent it to its client.
func (l *lookup) sending(ctx context.Context, sent Page) {
	if ctx.Err() != nil { // the client has gone, or its call was refused
		return
	}
	p, id := l.p, l.c.id
	admission.From(ctx).AtEnd(func(wasSent bool) {
		p.table.Do(func(t *handle.Locked) {
			h := cursorOf(t, id)
			if h != nil && wasSent && h.last.page.Token == sent.Token {
				h.last.unsent = false
				p.memory.trim()
			}
		})
	})
}

// finish ends a grant. It records how the fetch went. Calls that wait get the page, or ask again.
func (g grant) finish(o page.Outcome, got Page, cost int, err error) (Page, error) {
	h := g.h
	if o == page.NoReply { // no call can continue it
		h.End(g.ctx)
	}
	end := false
	h.pager.table.Do(func(t *handle.Locked) {
		if h.pinned && (o == page.NoReply || broken(err)) {
			// No getMore can use its connection again: the cursor ends, and the connection is
			// returned.
			o = page.Refused
		}
		var effect page.Effect
		h.ledger, effect = h.ledger.Fetched(o)
		end = h.carryOut(t, effect, got, cost)
		if h.IsRemoved() && effect != page.Close {
			got.lent.release()
			got, err = Page{}, removedCause(g.ctx)
		}
		if g.fetch.awaited { // it is not known for how long
			got.lent.keep()
			got.lent = nil
		}
	})
	if end {
		h.End(g.ctx)
	}
	g.fetch.seq, g.fetch.got, g.fetch.ok = g.seq, got, err == nil
	g.fetch.Finish()
	return got, err
}

// carryOut does what a fetch has led to, and settles the cursor. end reports that the
// caller is to end it.
func (h *held) carryOut(
	t *handle.Locked, effect page.Effect, got Page, cost int,
) (end bool) {
	p := h.pager
	switch {
	case h.IsRemoved():
		t.EndWork(h)
		return true
	case effect == page.Close:
		t.EndWork(h)
		t.Remove(h, nil)
		return true
	case effect == page.Remember:
		h.pages++
		p.memory.hold(h, got, cost)
	case effect == page.Forget:
		p.memory.forget(h)
	}
	h.settle(t)
	return false
}

// removedCause returns the error of a call whose cursor was removed while the call worked.
func removedCause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, handle.ErrKilled) {
		return err
	}
	return ErrCursorNotFound
}

// limits returns the limits of a page. most is the maximum number of documents; 0 means any number.
func (c *Config) limits(most, inflation int) batch.Limits {
	return batch.Limits{
		Bytes: c.PageBytes / max(inflation, 1), Documents: most, Text: inflation > 0,
	}
}

// read takes the next page from the rest of the last batch, or from a new batch. The page's token
// asks for page seq.
func (h *held) read(
	ctx context.Context, seq uint64, limits batch.Limits,
) (got Page, cost int, err error) {
	if len(h.leftover.documents) == 0 && !h.cur.Done() {
		if err := h.more(ctx, h.size(limits), limits); err != nil {
			return Page{}, 0, err
		}
	}
	got, cost = h.cut(seq, limits)
	return got, cost, nil
}

// cut takes the next page from the last batch.
func (h *held) cut(seq uint64, limits batch.Limits) (got Page, cost int) {
	got, cost = h.leftover.cut(batch.Cut(h.leftover.documents, limits))
	if len(h.leftover.documents) > 0 || !h.cur.Done() {
		got.Token = h.token(seq)
	}
	return got, cost
}

// token seals what continues the cursor with page seq.
func (h *held) token(seq uint64) string {
	p := h.pager
	idle := p.table.Idle()
	if h.casual && seq == 1 {
		idle = p.cfg.UnreadIdle
	}
	c := claim{id: h.ID, holder: p.Self(), seq: seq, pinned: h.isPinned()}
	h.sealer = p.cfg.Keys.SealerID()
	return p.cfg.Keys.Seal(h.Principal, seal.Claim{
		Kind: seal.KindCursor, Deployment: p.deployment, Expires: time.Now().Add(idle),
		Body: c.append(nil),
	})
}

// outcomeOf says what the end of a fetch means for the ledger. What is not known to have stayed
// here counts as sent.
func outcomeOf(got Page, err error) page.Outcome {
	_, refused := errors.AsType[*mongoerr.CommandError](err)
	network, isNetwork := errors.AsType[*mongoerr.NetworkError](err)
	switch {
	case err == nil && got.Token != "":
		return page.GotPage
	case err == nil:
		return page.GotLast
	case refused && mongoerr.Judge(err).Delivery == mongoerr.Refused: // it is overloaded, or stops
		return page.NotSent
	case refused:
		return page.Refused
	case isNetwork:
		if network.Sent {
			return page.NoReply
		}
		return page.NotSent
	case neverSent(err):
		return page.NotSent
	default:
		return page.NoReply
	}
}

// broken reports that the connection of the getMore broke, before the command was sent or after it.
func broken(err error) bool {
	_, ok := errors.AsType[*mongoerr.NetworkError](err)
	return ok
}

// neverSent reports that nothing of the command was sent: the error says so, or it ended a wait
// before the exchange. An exchange that began would have failed with a NetworkError.
func neverSent(err error) bool {
	if mongoerr.Judge(err).Delivery == mongoerr.Unsent {
		return true
	}
	if _, ok := errors.AsType[*admission.Error](err); ok { // of Reserve
		return true
	}
	return slices.ContainsFunc([]error{
		context.Canceled, context.DeadlineExceeded,
		handle.ErrClosing, handle.ErrKilled, ErrCursorNotFound,
	}, func(end error) bool { return errors.Is(err, end) })
}
