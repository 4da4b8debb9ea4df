package handle

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/service/batch"
)

// fetch delivers the page that was granted.
func (r *Registry) fetch(g grant, a Asking) (Page, error) {
	defer g.fetch.cancel(nil)
	e, most := g.e, 0
	if a.MaxAwaitTimeMS != nil {
		e.cur.SetMaxAwaitTimeMS(a.MaxAwaitTimeMS)
	}
	if a.BatchSize != nil {
		e.chosen, most = *a.BatchSize, int(*a.BatchSize)
	}
	returned := false
	defer func() {
		if !returned { // a panic: nobody must wait for ever
			_, _ = r.finish(g, outcomeLost, Page{}, 0, errPanic)
		}
	}()
	page, cost, err := r.read(g.ctx, e, g.seq+1, most, r.pageBytes(a.Inflation))
	returned = true
	return r.finish(g, outcomeOf(page, err), page, cost, err)
}

var errPanic = errors.New("panic")

// finish ends a grant: it notes how it went, and lets those who wait have the page, or ask again.
func (r *Registry) finish(g grant, o outcome, page Page, cost int, err error) (Page, error) {
	e := g.e
	r.mu.Lock()
	if o == outcomeLost && e.pinned {
		o = outcomeDead // its connection is not good for another getMore: that it goes back is all that can be done
	}
	e.pos, e.fetch = e.pos.fetched(o, e.before), nil
	if o == outcomeDead && !e.removed {
		r.removeLocked(e, nil)
	} else if e.removed {
		page, err = Page{}, context.Cause(g.ctx)
	}
	removed := e.removed
	if !removed {
		switch {
		case err == nil:
			e.pages++
			r.memory.hold(e, page, cost)
		case o == outcomeLost:
			r.memory.forget(e) // its page was the one before
		}
		r.settleLocked(e)
	}
	r.mu.Unlock()
	if removed {
		e.kill(g.ctx)
	}
	g.fetch.seq, g.fetch.page, g.fetch.ok = g.seq, page, err == nil
	close(g.fetch.done)
	return page, err
}

// pageBytes is how much BSON a page may hold.
func (r *Registry) pageBytes(inflation int) int { return r.cfg.PageBytes / max(inflation, 1) }

// read takes the next page of what is left of the last batch, or of a new one: so many bytes, and at most so many documents, if most is not
// 0. The page's token asks for page seq.
func (r *Registry) read(ctx context.Context, e *entry, seq uint64, most, maxBytes int) (page Page, cost int, err error) {
	if len(e.rest.documents) == 0 {
		if err := r.refill(ctx, e, seq > 1, maxBytes); err != nil {
			return Page{}, 0, err
		}
	}
	page.Documents, cost = e.rest.cut(batch.Cut(e.rest.documents, maxBytes, most))
	if len(e.rest.documents) == 0 && e.cur.Done() {
		return page, cost, nil
	}
	page.Token, err = r.token(e, seq)
	return page, cost, err
}

// refill gets the next batch of the cursor: the first one is there already, the others are asked for in a size that suits a page, so that
// little is left of them. The client's own size is the largest, as it is for pages.
func (r *Registry) refill(ctx context.Context, e *entry, more bool, target int) error {
	if e.cur.Done() {
		return nil
	}
	if more {
		n := e.sizer.Next(target)
		if e.chosen > 0 {
			n = min(n, e.chosen)
		}
		e.cur.SetBatchSize(n)
	}
	b, err := e.cur.Next(ctx)
	if err != nil {
		return err // never io.EOF alone, which follows only Done
	}
	e.rest = rest{documents: b.Documents, bytes: b.Bytes, buffer: max(b.Bytes, b.Buffer)}
	e.sizer.Saw(len(b.Documents), b.Bytes)
	return nil
}

// token seals what continues the cursor with page seq.
func (r *Registry) token(e *entry, seq uint64) (string, error) {
	c := claim{
		deployment: r.deployment, replica: r.cfg.Replica, instance: r.instance, id: e.id, seq: seq,
		pinned: e.cur.Pinned(), expires: time.Now().Add(r.cfg.Idle), namespace: e.namespace, state: e.cur.State(),
	}
	c.state.BatchSize = e.chosen // what it was for the last batch says little about the next
	plain, err := c.encode()
	if err != nil {
		return "", err
	}
	return r.cfg.Keys.seal(e.principal, plain), nil
}

// outcomeOf says what the end of a fetch means for the cursor's position. What is not known to have stayed here counts as lost.
func outcomeOf(page Page, err error) outcome {
	var command *mongoerr.CommandError
	var network *mongoerr.NetworkError
	switch {
	case err == nil && page.Token != "":
		return outcomePage
	case err == nil:
		return outcomeLast
	case errors.As(err, &command), errors.Is(err, ErrTokenTooLong):
		return outcomeDead
	case errors.As(err, &network):
		if network.Sent {
			return outcomeLost
		}
		return outcomeNotSent
	case neverSent(err):
		return outcomeNotSent
	default:
		return outcomeLost
	}
}

// neverSent: there was no server or no connection, or the wait for one ended. An exchange that began would be a NetworkError.
func neverSent(err error) bool {
	var selection *mongoerr.SelectionError
	var cleared *pool.PoolClearedError
	var full *pool.WaitQueueTimeoutError
	return errors.As(err, &selection) || errors.As(err, &cleared) && !cleared.Interrupted || errors.As(err, &full) || errors.Is(err, pool.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, ErrClosing) || errors.Is(err, ErrCursorNotFound)
}
