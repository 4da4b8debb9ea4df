package handle

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/service/batch"
)

// Opening is a page call that opens a cursor.
type Opening struct {
	Principal string
	Namespace Namespace
	// BatchSize is the client's own; nil lets the registry choose that of the following batches.
	BatchSize *int32
	// Inflation is how many times larger than BSON the client's form of documents may be; 0 is 1.
	Inflation int
	// Run sends the command, with RunOn.
	Run func(ctx context.Context) (Cursor, error)
}

// Open runs a command and delivers its first page. If more is to come, the cursor stays here and the page has a token.
// A client that went away meanwhile knows no token, so its cursor is killed.
func (r *Registry) Open(ctx context.Context, o Opening) (Page, error) {
	cur, err := o.Run(ctx)
	if err != nil {
		return Page{}, err
	}
	cur.SetRunOn(true)
	var id cursorID
	_, _ = rand.Read(id[:]) // never fails
	e := newEntry(id, o.Principal, o.Namespace)
	e.cur = cur
	if o.BatchSize != nil {
		e.chosen = *o.BatchSize
	}
	page, _, err := r.read(ctx, e, 1, 0, r.pageBytes(o.Inflation))
	if err == nil && page.Token == "" {
		return page, nil
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = r.add(e)
	}
	if err != nil {
		e.kill(ctx)
		return Page{}, err
	}
	return page, nil
}

// add puts a new cursor whose page 0 was delivered into the registry.
func (r *Registry) add(e *entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosing
	}
	e.pos = position{next: 1}
	r.entries[e.id] = e
	r.settleLocked(e)
	return nil
}

// Asking is a call for the page that a token stands for.
type Asking struct {
	Principal string
	Token     string
	// AllowGap continues even if a page may be missing.
	AllowGap bool
	// BatchSize and MaxAwaitTimeMS are for this batch and the following ones; nil changes nothing.
	BatchSize      *int32
	MaxAwaitTimeMS *int64
	// Inflation is how many times larger than BSON the client's form of documents may be; 0 is 1.
	Inflation int
}

// Next delivers the page that a token asks for. The same token again brings the same page again while it is held, and
// ErrCursorTokenReused afterwards.
func (r *Registry) Next(ctx context.Context, a Asking) (Page, error) {
	for {
		g, v, err := r.ask(ctx, a, phaseBusy)
		if err != nil {
			return Page{}, err
		}
		switch v {
		case verdictWait:
			if err := g.fetch.wait(ctx); err != nil {
				return Page{}, err
			}
			if g.fetch.ok {
				return g.fetch.page, nil // although it may not be remembered
			}
		case verdictRepeat:
			return g.page, nil
		default:
			return r.fetch(g, a)
		}
	}
}

// grant is what an asker gets. With verdictGrant and verdictGap the cursor is his until he calls finish.
type grant struct {
	e     *entry
	seq   uint64
	ctx   context.Context //nolint:containedctx // of the fetch, and no longer lived than this value
	fetch *fetch          // with verdictWait somebody else's
	page  Page            // with verdictRepeat
}

// claim opens a token. Whatever is wrong with it is ErrCursorNotFound.
func (r *Registry) claim(principal, token string) (claim, error) {
	plain, err := r.cfg.Keys.open(principal, token)
	if err != nil {
		return claim{}, ErrCursorNotFound
	}
	c, err := decodeClaim(plain)
	if err != nil || c.deployment != r.cfg.Deployment || !time.Now().Before(c.expires) {
		return claim{}, ErrCursorNotFound
	}
	return c, nil
}

// ask decides about a token. The verdict is one of grant, gap, repeat and wait; the others are errors. With a grant the page, or
// with phaseTaken all pages from it on, are the caller's to deliver.
func (r *Registry) ask(ctx context.Context, a Asking, as phase) (grant, verdict, error) {
	c, err := r.claim(a.Principal, a.Token)
	if err != nil {
		return grant{}, 0, err
	}
	if ctx.Err() != nil {
		return grant{}, 0, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(c, a)
	if err != nil {
		return grant{}, 0, err
	}
	e.pos.held = e.inPages.in
	switch v := e.pos.ask(c.seq, a.AllowGap); v {
	case verdictRepeat:
		return grant{page: e.page}, v, nil
	case verdictWait:
		return grant{fetch: e.fetch}, v, nil
	case verdictReused:
		return grant{}, 0, ErrCursorTokenReused
	case verdictUnknown:
		return grant{}, 0, ErrCursorPositionUnknown
	case verdictGap: // what this gateway has is from before the gap
		e.cur, e.rest = r.cfg.Continue(c.state), rest{}
		e.cur.SetRunOn(true)
		return r.grantLocked(ctx, e, c.seq, as), v, nil
	default:
		return r.grantLocked(ctx, e, c.seq, as), v, nil
	}
}

func (r *Registry) grantLocked(ctx context.Context, e *entry, seq uint64, as phase) grant {
	ctx, cancel := context.WithCancelCause(ctx)
	e.before, e.pos = e.pos, position{next: seq + 1, phase: as}
	e.fetch = &fetch{cancel: cancel, done: make(chan struct{})}
	r.unsettleLocked(e)
	if as == phaseTaken {
		r.memory.forget(e) // nobody can ask for it any more
	}
	return grant{e: e, seq: seq, ctx: ctx, fetch: e.fetch}
}

// findLocked finds the cursor of a claim, or takes over one that another gateway served last. Asking that gateway what it
// delivered would stand here; alone, this one cannot know.
func (r *Registry) findLocked(c claim, a Asking) (*entry, error) {
	switch e := r.entries[c.id]; {
	case r.closed:
		return nil, ErrClosing
	case e != nil:
		return e, nil
	case c.instance == r.instance: // closed or expired here
		return nil, ErrCursorNotFound
	case !a.AllowGap:
		return nil, ErrCursorPositionUnknown
	case c.state.ID == 0: // all that was left of it was with the other gateway
		return nil, ErrCursorNotFound
	}
	e := newEntry(c.id, a.Principal, c.namespace)
	e.chosen, e.pos = c.state.BatchSize, position{next: c.seq + 1, phase: phaseLost}
	r.entries[c.id] = e
	r.settleLocked(e)
	return e, nil
}

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
	g.fetch.page, g.fetch.ok = page, err == nil
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
		deployment: r.cfg.Deployment, replica: r.cfg.Replica, instance: r.instance, id: e.id, seq: seq,
		expires: time.Now().Add(r.cfg.Idle), namespace: e.namespace, state: e.cur.State(),
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
	case errors.As(err, &command), errors.Is(err, errTooLong):
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
