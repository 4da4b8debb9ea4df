package handle

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// Opening is a page call that opens a cursor.
type Opening struct {
	Principal string
	Namespace Namespace
	// BatchSize is the client's own; nil lets the registry choose that of the following batches.
	BatchSize *int32
	// Inflation is how many times larger than BSON the client's form of documents may be; 0 is 1.
	Inflation int
	// Whole: the command's first batch is the whole result, so no cursor stays open, unless a page is too small for it.
	Whole bool
	// Run sends the command, with RunOn.
	Run func(ctx context.Context) (Cursor, error)
}

// Open runs a command and delivers its first page. If more is to come, the cursor stays here and the page has a token.
// A client that went away meanwhile knows no token, so its cursor is killed.
func (r *Registry) Open(ctx context.Context, o Opening) (Page, error) {
	if err := r.hasRoom(o); err != nil {
		return Page{}, err
	}
	cur, err := o.Run(ctx)
	if err != nil {
		return Page{}, err
	}
	cur.SetRunOn(true)
	var id CursorID
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

// hasRoom refuses a call that may leave a cursor open to a principal who has as many as he may. It is asked before the command is run,
// and calls that run at the same time do not count each other: together they may exceed the limit by their number. Without authentication
// there is no principal, and no limit.
func (r *Registry) hasRoom(o Opening) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.cfg.MaxPerPrincipal; n > 0 && o.Principal != "" && !o.Whole && r.open[o.Principal] >= n {
		return &PrincipalLimitError{Principal: o.Principal, Max: n}
	}
	return nil
}

// add puts a new cursor whose page 0 was delivered into the registry.
func (r *Registry) add(e *entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return ErrClosing
	}
	e.pos, e.pages, e.opened, e.server = position{next: 1}, 1, now(), e.cur.State().Server
	r.entries[e.id] = e
	r.settleLocked(e)
	return nil
}

// now is the time as lists have it: it goes with a cursor from replica to replica.
func now() time.Time { return time.Now().Truncate(time.Millisecond) }

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
// ErrCursorTokenReused afterwards, whichever replica is asked.
func (r *Registry) Next(ctx context.Context, a Asking) (Page, error) {
	c, err := r.claim(a.Principal, a.Token)
	if err != nil {
		return Page{}, err
	}
	if r.owned(c) {
		return r.askOwner(ctx, c, a)
	}
	g, page, err := r.acquire(ctx, c, a, phaseBusy)
	switch {
	case err != nil:
		return Page{}, err
	case page != nil:
		return *page, nil
	default:
		return r.fetch(g, a)
	}
}

// grant is what an asker gets. With verdictGrant and verdictGap the cursor is his until he calls finish; with verdictElsewhere it is he who
// asks other replicas, until he calls found.
type grant struct {
	e     *entry
	seq   uint64
	ctx   context.Context //nolint:containedctx // of the fetch, and no longer lived than this value
	fetch *fetch          // with verdictWait somebody else's
	page  Page            // with verdictRepeat
	// With verdictElsewhere: where the cursor went from here, and in which attempt it is looked for.
	from    *Moved
	attempt uint64
	sought  position // what was known here when the asking began
}

// claim opens a token. Whatever is wrong with it is ErrCursorNotFound.
func (r *Registry) claim(principal, token string) (claim, error) {
	plain, err := r.cfg.Keys.open(principal, token)
	if err != nil {
		return claim{}, ErrCursorNotFound
	}
	c, err := decodeClaim(plain)
	if err != nil || c.deployment != r.deployment || r.expired(c) {
		return claim{}, ErrCursorNotFound
	}
	return c, nil
}

// maxSkew is how much the clocks of replicas may differ.
const maxSkew = time.Minute

// expired says whether a token's time is up. It is this replica's clock that counts for what was sealed here, and for what is here.
func (r *Registry) expired(c claim) bool {
	switch now := time.Now(); {
	case now.Before(c.expires):
		return false
	case c.instance == r.instance:
		return true
	case now.Before(c.expires.Add(maxSkew)):
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[c.id]
	return e == nil || e.fetch == nil && !time.Now().Before(e.expires)
}

// acquire gets the page that a token asks for: the page itself, or the grant to fetch it, or with phaseTaken all pages from it on. Whoever
// holds the cursor hands it over.
func (r *Registry) acquire(ctx context.Context, c claim, a Asking, as phase) (grant, *Page, error) {
	for asked := 0; ; {
		g, v, err := r.ask(ctx, c, a, as)
		if err != nil {
			return grant{}, nil, err
		}
		switch v {
		case verdictGrant, verdictGap:
			return g, nil, nil
		case verdictRepeat:
			return grant{}, &g.page, nil
		case verdictElsewhere:
			g, page, err := r.fetchCursor(g, c, a, as) //nolint:contextcheck // the grant's, which is made of ctx
			if !errors.Is(err, errHere) {
				return g, page, err
			}
			if asked++; asked == maxHops {
				return grant{}, nil, ErrCursorPositionUnknown
			}
		default:
			page, err := g.fetch.result(ctx, c.seq, a)
			if page != nil || err != nil {
				return grant{}, page, err
			}
		}
	}
}

// result waits for somebody else's work to end. Neither a page nor an error: ask again.
func (f *fetch) result(ctx context.Context, seq uint64, a Asking) (*Page, error) {
	switch err := f.wait(ctx); {
	case err != nil:
		return nil, err
	case f.ok && f.seq == seq: // although it may not be remembered
		return &f.page, nil
	case f.seq == seq && !a.AllowGap:
		return nil, f.err
	default:
		return nil, nil
	}
}

// ask decides about a client's token, from what is known here. The verdict is one of grant, gap, repeat, wait and elsewhere; the others are
// errors.
func (r *Registry) ask(ctx context.Context, c claim, a Asking, as phase) (grant, verdict, error) {
	if ctx.Err() != nil {
		return grant{}, 0, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(c, a)
	if err != nil {
		return grant{}, 0, err
	}
	pos := e.pos
	pos.held = e.inPages.in
	v := pos.ask(c.seq, a.AllowGap)
	if v == verdictBehind && c.instance != r.instance && !r.alone() {
		v = verdictElsewhere
	} else if v == verdictBehind {
		v = pos.gap(a.AllowGap)
	}
	if v.takes() && e.fetch != nil {
		v = verdictWait
	}
	switch v {
	case verdictGrant:
		return r.grantLocked(ctx, e, c.seq, as), v, nil
	case verdictGap:
		r.skipLocked(e, c)
		return r.grantLocked(ctx, e, c.seq, as), v, nil
	case verdictRepeat:
		return grant{page: e.page}, v, nil
	case verdictWait:
		return grant{fetch: e.fetch}, v, nil
	case verdictElsewhere:
		return r.seekLocked(ctx, e, c.seq), v, nil
	case verdictReused:
		return grant{}, 0, ErrCursorTokenReused
	default:
		return grant{}, 0, ErrCursorPositionUnknown
	}
}

// grantLocked gives a page to a caller, and the cursor with it.
func (r *Registry) grantLocked(ctx context.Context, e *entry, seq uint64, as phase) grant {
	g := r.workLocked(ctx, e, seq)
	r.advanceLocked(e, seq, as)
	return g
}

// advanceLocked notes that page seq was granted here.
func (r *Registry) advanceLocked(e *entry, seq uint64, as phase) {
	e.before, e.pos = e.pos, position{next: seq + 1, phase: as, moves: e.pos.moves}
	if as == phaseTaken {
		r.memory.forget(e) // nobody can ask for it any more
	}
}

// workLocked makes a caller the only one who is at work on an entry.
func (r *Registry) workLocked(ctx context.Context, e *entry, seq uint64) grant {
	ctx, cancel := context.WithCancelCause(ctx)
	e.fetch = &fetch{cancel: cancel, done: make(chan struct{})}
	e.lastUse = time.Now()
	r.unsettleLocked(e)
	return grant{e: e, seq: seq, ctx: ctx, fetch: e.fetch}
}

// skipLocked makes an entry ready to go on behind a gap: what this replica has is from before it. A pinned cursor is the only one that can
// go on.
func (r *Registry) skipLocked(e *entry, c claim) {
	if e.pinned {
		return
	}
	r.unsettleLocked(e)
	e.cur, e.rest = r.cfg.Continue(c.state), rest{}
	e.cur.SetRunOn(true)
}

// findLocked finds what is known of the cursor of a claim, or makes an entry of which nothing is known yet. Alone, there is nobody who could
// know more.
func (r *Registry) findLocked(c claim, a Asking) (*entry, error) {
	switch e := r.entries[c.id]; {
	case r.draining:
		return nil, ErrClosing
	case e != nil:
		return e, nil
	case c.instance == r.instance && !r.forgetfulLocked(): // closed or expired here
		return nil, ErrCursorNotFound
	case !r.alone():
		return r.newLocked(c, a.Principal, position{phase: phaseAway}), nil
	case !a.AllowGap:
		return nil, ErrCursorPositionUnknown
	case c.state.ID == 0: // all that was left of it was with the other gateway
		return nil, ErrCursorNotFound
	}
	return r.newLocked(c, a.Principal, position{}.forked(c.seq)), nil
}

func (r *Registry) newLocked(c claim, principal string, pos position) *entry {
	e := newEntry(c.id, principal, c.namespace)
	e.server, e.chosen, e.pos, e.opened = c.state.Server, c.state.BatchSize, pos, now()
	r.entries[c.id] = e
	r.settleLocked(e)
	return e
}
