package handle

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
)

// Taken is a cursor that has left the registry for a stream. The stream owns it: it closes the cursor, then calls Release.
type Taken struct {
	Cursor Cursor
	// Documents are what was left of the last batch; they come before the next one.
	Documents []bson.Raw

	r *Registry
	g grant
}

// Take hands the page of a token, and all that follow, to a stream. Its context ends with ctx, and when somebody closes the
// cursor. The token is used up: asking with it again is ErrCursorTokenReused.
func (r *Registry) Take(ctx context.Context, a Asking) (context.Context, *Taken, error) {
	for {
		g, v, err := r.ask(ctx, a, phaseTaken)
		switch {
		case err != nil:
			return nil, nil, err
		case v == verdictWait:
			if err := g.fetch.wait(ctx); err != nil {
				return nil, nil, err
			}
		case v == verdictRepeat: // its page was delivered; a stream would have to begin behind it
			return nil, nil, ErrCursorTokenReused
		default:
			return g.ctx, g.e.take(r, g, a), nil
		}
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

// CloseCursor ends a cursor: whoever works on it is told to stop, and it is killed on its server before this returns, unless
// ctx ends first. Any of the cursor's tokens will do.
func (r *Registry) CloseCursor(ctx context.Context, principal, token string) error {
	c, err := r.claim(principal, token)
	if err != nil {
		return err
	}
	r.mu.Lock()
	e := r.entries[c.id]
	var f *fetch
	if e != nil {
		f = r.removeLocked(e, ErrCursorNotFound)
	}
	r.mu.Unlock()
	switch {
	case f != nil:
		return f.wait(ctx)
	case e != nil:
		e.kill(ctx)
		return nil
	case c.instance == r.instance || c.state.ID == 0:
		return ErrCursorNotFound
	default: // another gateway's
		(&entry{cur: r.cfg.Continue(c.state)}).kill(ctx)
		return nil
	}
}
