package handle

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/bson"
)

// Taken is a cursor that has left the registry for a stream. The stream owns it: it closes the cursor, then calls Release.
type Taken struct {
	Cursor Cursor
	// Documents are what was left of the last batch; they come before the next one.
	Documents []bson.Raw

	r *Registry // nil: the cursor is another replica's
	g grant
}

// Take hands the page of a token, and all that follow, to a stream. Its context ends with ctx, and when somebody closes the
// cursor. The token is used up: asking with it again is ErrCursorTokenReused. Of a cursor that is pinned to another replica, the stream comes
// from there.
func (r *Registry) Take(ctx context.Context, a Asking) (context.Context, *Taken, error) {
	c, err := r.claim(a.Principal, a.Token)
	if err != nil {
		return nil, nil, err
	}
	if r.owned(c) {
		return r.relay(ctx, c, a)
	}
	g, page, err := r.acquire(ctx, c, a, phaseTaken)
	switch {
	case err != nil:
		return nil, nil, err
	case page != nil: // it was delivered; a stream would have to begin behind it
		return nil, nil, ErrCursorTokenReused
	default:
		return g.ctx, g.e.take(r, g, a), nil
	}
}

func (e *entry) take(r *Registry, g grant, a Asking) *Taken {
	t := &Taken{Cursor: e.cur, Documents: e.rest.documents, r: r, g: g}
	e.cur, e.rest = nil, rest{}
	t.Cursor.SetRunOn(false)
	if a.BatchSize != nil {
		t.Cursor.SetBatchSize(*a.BatchSize)
	}
	if a.MaxAwaitTimeMS != nil {
		t.Cursor.SetMaxAwaitTimeMS(a.MaxAwaitTimeMS)
	}
	return t
}

// Release says that the stream is over. What remains here remembers that the token was used.
func (t *Taken) Release() {
	if t.r == nil {
		return
	}
	r, e := t.r, t.g.e
	r.mu.Lock()
	e.fetch = nil
	if !e.removed {
		r.settleLocked(e)
	}
	r.mu.Unlock()
	close(t.g.fetch.done)
	t.g.fetch.cancel(nil)
}

// AnswerStream hands the pages of a cursor that is pinned here, from the one asked for on, to a stream to another replica; see Take.
func (r *Registry) AnswerStream(ctx context.Context, q Question) (context.Context, *Taken, error) {
	c, err := r.claim(q.Principal, q.Token)
	switch {
	case err != nil:
		return nil, nil, err
	case c.instance != r.instance: // an earlier life's
		return nil, nil, ErrNotHere
	}
	return r.Take(ctx, q.asking())
}

// CloseCursor ends a cursor: whoever works on it is told to stop, and it is killed on its server before this returns, unless
// ctx ends first. Any of the cursor's tokens will do, at any replica.
func (r *Registry) CloseCursor(ctx context.Context, principal, token string) error {
	c, err := r.claim(principal, token)
	if err != nil {
		return err
	}
	a := Asking{Principal: principal, Token: token}
	if r.owned(c) {
		return r.closeAtOwner(ctx, c, a)
	}
	for range maxHops {
		r.mu.Lock()
		e := r.entries[c.id]
		if e != nil && e.pos.phase != phaseAway && e.pos.phase != phaseMoved {
			f := r.removeLocked(e, ErrCursorNotFound)
			r.mu.Unlock()
			return e.end(ctx, f)
		}
		if e != nil && e.fetch != nil { // it may be on its way here
			f := e.fetch
			r.mu.Unlock()
			if err := f.wait(ctx); err != nil {
				return err
			}
			continue
		}
		var own *Moved
		if e != nil && e.pos.phase == phaseMoved {
			own = e.moved()
		}
		forgetful := r.forgetfulLocked()
		r.mu.Unlock()
		if own == nil && c.instance == r.instance && !forgetful {
			return ErrCursorNotFound
		}
		if err := r.closeElsewhere(ctx, c, a, own); !errors.Is(err, errHere) {
			return err
		}
	}
	return ErrCursorNotFound
}

// closeElsewhere has another replica close a cursor, or kills it with what the token says if none knows it.
func (r *Registry) closeElsewhere(ctx context.Context, c claim, a Asking, own *Moved) error {
	ans, err := Answer{}, error(errNobody)
	if !r.alone() {
		find := search{r: r, seq: c.seq, q: r.question(c, a, ForClose)}
		ans, err = find.from(ctx, c, own)
	}
	switch {
	case err == nil && ans.Closed:
		return nil
	case err != nil && !errors.Is(err, errNobody):
		return err
	case c.state.ID == 0:
		return ErrCursorNotFound
	default:
		(&entry{cur: r.cfg.Continue(c.state)}).kill(ctx)
		return nil
	}
}
