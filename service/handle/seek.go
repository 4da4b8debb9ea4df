package handle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/batch"
)

const (
	// maxHops is how often an asker follows a cursor that has moved.
	maxHops = 8
	// maxAsked is how many replicas are asked at a time for a cursor whose holder is gone, and othersTimeout how long they may take.
	maxAsked      = 16
	othersTimeout = 10 * time.Second
)

var (
	// errHere: the cursor has moved to this replica while it was looked for.
	errHere = errors.New("the cursor is here")
	// errNobody: no replica that answers knows anything of the cursor.
	errNobody = errors.New("no replica knows the cursor")
)

// seekLocked makes a caller the only one who asks other replicas for a cursor.
func (r *Registry) seekLocked(ctx context.Context, e *entry, seq uint64) grant {
	g := r.workLocked(ctx, e, seq)
	g.attempt, g.sought = e.asking, e.pos
	if e.pos.phase == phaseMoved {
		g.from = e.moved()
	}
	return g
}

// fetchCursor asks other replicas for the page that a token asks for, and brings the cursor here if that is what they answer. It returns
// errHere if the token is to be asked for again, here.
func (r *Registry) fetchCursor(g grant, c claim, a Asking, as phase) (grant, *Page, error) {
	q := r.question(c, a, ForPage)
	q.Attempt = g.attempt
	if as == phaseTaken {
		q.Purpose = ForStream
	}
	find := search{r: r, seq: c.seq, q: q}
	ans, err := Answer{}, errPanic
	defer func() {
		if errors.Is(err, errPanic) { // nobody must wait for ever
			_, _, _ = r.found(g, c, a, as, &find, ans, err)
		}
	}()
	ctx, cancel := runOn(g.ctx)
	defer cancel()
	ans, err = find.from(ctx, c, g.from)
	return r.found(g, c, a, as, &find, ans, err)
}

func (r *Registry) question(c claim, a Asking, p Purpose) Question {
	return Question{
		Asker: r.Self(), Owner: c.instance, Purpose: p, Principal: a.Principal, Token: a.Token, AllowGap: a.AllowGap,
		BatchSize: a.BatchSize, MaxAwaitTimeMS: a.MaxAwaitTimeMS, Inflation: a.Inflation,
	}
}

// found makes of the others' answer what the caller gets. Without a grant his work on the entry is over.
func (r *Registry) found(g grant, c claim, a Asking, as phase, find *search, ans Answer, err error) (grant, *Page, error) {
	if err == nil && ans.Grant == nil && ans.Page == nil {
		err = errNobody // a cursor that moves faster than it can be followed
	}
	e := g.e
	r.mu.Lock()
	e.unsure = e.unsure || find.unsure
	err = r.hereLocked(g, a, ans, err)
	switch {
	case e.removed: // closed meanwhile, here
		if ans.Grant != nil {
			r.adoptLocked(e, ans.Grant)
		}
		err = context.Cause(g.ctx)
	case errors.Is(err, errNobody) && c.state.ID == 0:
		err = ErrCursorNotFound // all that was left of it was with the one that is gone
	case errors.Is(err, errNobody):
		r.skipLocked(e, c)
		e.pos.moves = max(e.pos.moves, find.best.Moves)
		e.pos, e.asking, e.unsure, err = e.pos.forked(c.seq), newAttempt(), false, nil // which it stays, if nothing is sent
	case err == nil && ans.Grant != nil:
		r.adoptLocked(e, ans.Grant)
		e.pos = position{next: c.seq, moves: ans.Grant.Moves} // which it stays, if nothing is sent
	}
	if err == nil && ans.Page == nil && r.draining {
		err = ErrClosing
	}
	if err == nil && ans.Page == nil {
		r.advanceLocked(e, c.seq, as)
		r.mu.Unlock()
		return g, nil, nil
	}
	e.fetch = nil
	switch {
	case e.removed:
	case e.pos.phase == phaseAway && !e.unsure:
		r.removeLocked(e, nil) // there is nothing to remember
	default:
		r.settleLocked(e)
	}
	removed := e.removed
	r.mu.Unlock()
	if removed {
		e.kill(g.ctx)
	}
	g.fetch.gaveUp(g, ans.Page, err)
	return grant{}, ans.Page, err
}

// hereLocked looks at what the others say in the light of what is here. Meanwhile more may have become known here: errHere.
func (r *Registry) hereLocked(g grant, a Asking, ans Answer, err error) error {
	e := g.e
	absent := e.pos.phase == phaseAway || e.pos.phase == phaseMoved
	switch nowhere := errors.Is(err, errNobody) || errors.Is(err, errHere); {
	case nowhere && e.pos != g.sought, ans.Grant != nil && !e.pos.newer(position{moves: ans.Grant.Moves}):
		return errHere // it was pushed to this replica
	case errors.Is(err, errHere) && absent && !e.unsure && !r.forgetfulLocked():
		return ErrCursorNotFound // it was here, and was closed, or has expired
	case nowhere && !a.AllowGap: // it was granted to this replica, which never got it; or it went on without this replica
		return ErrCursorPositionUnknown
	case nowhere:
		return errNobody
	default:
		return err
	}
}

// gaveUp ends the asking of others. Those who wait have the page, or the error if it is not of this caller alone.
func (f *fetch) gaveUp(g grant, page *Page, err error) {
	f.seq = g.seq
	switch {
	case err == nil:
		f.page, f.ok = *page, true
	case g.ctx.Err() == nil && !errors.Is(err, errHere) && !errors.Is(err, errPanic):
		f.err = err
	}
	close(f.done)
	f.cancel(nil)
}

// adoptLocked makes a cursor that was elsewhere this replica's.
func (r *Registry) adoptLocked(e *entry, h *Holding) {
	r.memory.forget(e)
	r.memory.drop(e)
	e.to, e.attempt, e.asking, e.unsure = Replica{}, 0, newAttempt(), false
	e.cur = r.cfg.Continue(h.State)
	e.cur.SetRunOn(true)
	e.rest, e.chosen, e.sizer = restOf(h.Rest), h.Chosen, batch.Resume(h.Mean, h.Count)
	e.server, e.opened, e.pages = h.State.Server, h.Opened, h.Pages
}

func restOf(docs []bson.Raw) rest {
	r := rest{documents: docs}
	for _, doc := range docs {
		r.bytes += len(doc)
	}
	r.buffer = r.bytes
	return r
}

// search follows a cursor from replica to replica.
type search struct {
	r    *Registry
	q    Question
	seq  uint64
	best Moved // the newest record that was seen
	all  bool  // everybody was asked
	// unsure: there may be a grant for this replica that has not arrived.
	unsure bool
}

// from asks the replica that the token names, or the one that the own record names, if that is newer.
func (s *search) from(ctx context.Context, c claim, own *Moved) (Answer, error) {
	s.best = Moved{To: Replica{Address: c.replica, Instance: c.instance}, Next: c.seq}
	if own != nil && (own.Next > c.seq || c.instance == s.r.instance) {
		s.best = *own
	}
	ans, err := s.ask(ctx, s.best.To)
	for range maxHops {
		if err != nil || ans.Moved == nil {
			return ans, err
		}
		ans, err = s.follow(ctx, *ans.Moved)
	}
	return s.others(ctx)
}

// follow asks the replica that a record names, unless the record is older than the token, or not newer than what led to it.
func (s *search) follow(ctx context.Context, m Moved) (Answer, error) {
	if m.Next <= s.seq || m.Moves <= s.best.Moves {
		return s.others(ctx)
	}
	s.best = m
	switch {
	case m.To.Instance != s.r.instance:
		return s.ask(ctx, m.To)
	case s.r.forgetful(): // what led on from here may have been forgotten
		ans, err := s.others(ctx)
		if errors.Is(err, errNobody) {
			err = errHere
		}
		return ans, err
	default:
		return Answer{}, errHere
	}
}

// ask asks one replica, and all others if that one is gone.
func (s *search) ask(ctx context.Context, to Replica) (Answer, error) {
	if to.Address == "" || to.Address == s.r.cfg.Replica { // an earlier life of this one
		return s.others(ctx)
	}
	q := s.q
	q.Owner = to.Instance
	ans, unsure, err := s.r.put(ctx, to.Address, q)
	s.unsure = s.unsure || unsure || errors.Is(err, ErrCursorPositionUnknown)
	if _, gone := errors.AsType[*UnreachableError](err); gone || errors.Is(err, ErrNotHere) || errors.Is(err, ErrClosing) {
		return s.others(ctx)
	}
	return ans, err
}

// put asks a question, and once more if its answer may have been lost: whoever has granted the page will do so again. unsure: an
// answer may have been lost. The second one may be another life's, which does not know of the first.
func (r *Registry) put(ctx context.Context, address string, q Question) (ans Answer, unsure bool, err error) {
	for range 2 {
		ans, err = r.peers.Ask(ctx, address, q)
		if err != nil && ctx.Err() != nil {
			return Answer{}, true, context.Cause(ctx)
		}
		if lost, ok := errors.AsType[*UnreachableError](err); !ok || !lost.Sent {
			return ans, unsure, err
		}
		unsure = true
	}
	return Answer{}, true, err
}

// others asks all other replicas, once: there may be one that the cursor was pushed to.
func (s *search) others(ctx context.Context) (Answer, error) {
	if s.all {
		return Answer{}, errNobody
	}
	s.all = true
	q := s.q
	q.Owner = InstanceID{}
	limited, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	var mu sync.Mutex
	best, bestErr := Answer{}, error(errNobody)
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxAsked)
	for _, address := range s.r.peers.Others(ctx) {
		if address == s.r.cfg.Replica {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ans, unsure, err := s.r.put(limited, address, q)
			mu.Lock()
			defer mu.Unlock()
			s.unsure = s.unsure || unsure || errors.Is(err, ErrCursorPositionUnknown)
			best, bestErr = better(best, bestErr, ans, err)
			if bestErr == nil && best.Moved == nil {
				cancel() // there is only one holder
			}
		})
	}
	wg.Wait()
	if bestErr != nil && ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	return best, bestErr
}

// better chooses between two replicas' answers: the holder's, then that the page was delivered, then the newest record of where the cursor went,
// then that nothing is known of the page, then nothing.
func better(a Answer, aErr error, b Answer, bErr error) (Answer, error) {
	switch {
	case bErr == nil && b.Moved == nil:
		return b, nil
	case aErr == nil && a.Moved == nil:
		return a, nil
	case errors.Is(aErr, ErrCursorTokenReused), errors.Is(bErr, ErrCursorTokenReused):
		return Answer{}, ErrCursorTokenReused
	case bErr == nil && (aErr != nil || b.Moved.Moves > a.Moved.Moves):
		return b, nil
	case aErr != nil && errors.Is(bErr, ErrCursorPositionUnknown):
		return Answer{}, bErr
	default:
		return a, aErr
	}
}
