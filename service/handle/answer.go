package handle

import "context"

// maxRestBytes is the most that goes with a cursor to another replica: no batch of a server is larger.
const maxRestBytes = 16 << 20

// Answer answers another replica. What it asks for is answered from what is here, and never asked of others. A page of a pinned cursor is fetched
// with ctx, and runs on like one that a client has asked for.
func (r *Registry) Answer(ctx context.Context, q Question) (Answer, error) {
	c, err := r.claim(q.Principal, q.Token)
	if err != nil {
		return Answer{}, err
	}
	if q.Purpose == ForClose {
		return r.answerClose(ctx, c, q)
	}
	a := q.asking()
	for {
		g, v, ans, err := r.answer(ctx, c, q)
		if err != nil {
			return Answer{}, err
		}
		switch v {
		case verdictGrant: // it cannot leave
			page, err := r.fetch(g, a)
			if err != nil {
				return Answer{}, err
			}
			return Answer{Page: &page}, nil
		case verdictWait:
			page, err := g.fetch.result(ctx, c.seq, a)
			switch {
			case err != nil:
				return Answer{}, err
			case page != nil && q.Purpose == ForStream:
				return Answer{}, ErrCursorTokenReused
			case page != nil:
				return Answer{Page: page}, nil
			}
		default:
			return ans, nil
		}
	}
}

func (q Question) asking() Asking {
	return Asking{
		Principal: q.Principal, Token: q.Token, AllowGap: q.AllowGap, BatchSize: q.BatchSize,
		MaxAwaitTimeMS: q.MaxAwaitTimeMS, Inflation: q.Inflation,
	}
}

// answer decides about another replica's question. With verdictGrant the page is to be fetched here, with verdictWait somebody is at work;
// anything else is the answer.
func (r *Registry) answer(ctx context.Context, c claim, q Question) (grant, verdict, Answer, error) {
	if ctx.Err() != nil {
		return grant{}, 0, Answer{}, context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.knownLocked(c, q)
	if err != nil {
		return grant{}, 0, Answer{}, err
	}
	v, pos := r.judgeLocked(e, c.seq, q)
	switch v {
	case verdictGrant:
		return r.giveLocked(ctx, e, c, q)
	case verdictGap:
		r.skipLocked(e, c)
		return r.giveLocked(ctx, e, c, q)
	case verdictRepeat:
		if q.Purpose == ForStream {
			return grant{}, 0, Answer{}, ErrCursorTokenReused
		}
		page := e.page
		return grant{}, v, Answer{Page: &page}, nil
	case verdictWait:
		return grant{fetch: e.fetch}, v, Answer{}, nil
	case verdictAgain:
		return grant{}, v, Answer{Grant: e.granted}, nil
	case verdictElsewhere, verdictBehind:
		if pos.phase == phaseMoved {
			return grant{}, v, Answer{Moved: e.moved()}, nil
		}
		if v == verdictBehind && !e.pinned {
			r.renounceLocked(e)
		}
		return grant{}, 0, Answer{}, ErrNotHere
	case verdictReused:
		return grant{}, 0, Answer{}, ErrCursorTokenReused
	default:
		return grant{}, 0, Answer{}, ErrCursorPositionUnknown
	}
}

// giveLocked hands a cursor over, or grants its page here if it cannot leave.
func (r *Registry) giveLocked(ctx context.Context, e *entry, c claim, q Question) (grant, verdict, Answer, error) {
	switch {
	case !e.pinned && !c.pinned:
		return r.handOverLocked(e, c.seq, q)
	case r.draining, q.Purpose == ForStream:
		return grant{}, 0, Answer{}, ErrClosing
	default:
		return r.grantLocked(ctx, e, c.seq, phaseBusy), verdictGrant, Answer{}, nil
	}
}

// knownLocked finds what is known here of the cursor of a claim.
func (r *Registry) knownLocked(c claim, q Question) (*entry, error) {
	switch e := r.entries[c.id]; {
	case e != nil:
		return e, nil
	case r.closed:
		return nil, ErrClosing
	case c.pinned && r.draining: // its connection is closed, or about to be
		return nil, ErrOwnerGone
	case (c.instance == r.instance || q.Owner == r.instance) && !r.forgetfulLocked(): // closed or expired here
		return nil, ErrCursorNotFound
	default:
		return nil, ErrNotHere
	}
}

// judgeLocked is the verdict on another replica's question.
func (r *Registry) judgeLocked(e *entry, seq uint64, q Question) (verdict, position) {
	pos := e.pos
	pos.held = e.inPages.in
	if pos.phase == phaseMoved {
		pos.held, pos.same = e.granted != nil, q.Asker == e.to && q.Attempt == e.attempt
	}
	v := pos.ask(seq, q.AllowGap)
	switch {
	case e.fetch == nil || !v.takes():
		return v, pos
	case v == verdictElsewhere && (q.Owner != r.instance || pos.phase == phaseMoved && seq < pos.next), v == verdictAgain:
		// The record is an answer whatever goes on here. And whoever asks everybody is not to wait for somebody who does the same.
		return v, pos
	default:
		return verdictWait, pos
	}
}

// handOverLocked hands a cursor to another replica, from page seq on. What went stays known, as long as there is room, for the case that the
// answer is lost.
func (r *Registry) handOverLocked(e *entry, seq uint64, q Question) (grant, verdict, Answer, error) {
	if e.rest.bytes > maxRestBytes {
		r.unsettleLocked(e)
		e.rest, e.pos = rest{}, e.pos.lost()
		r.settleLocked(e)
		return grant{}, 0, Answer{}, ErrCursorPositionUnknown
	}
	to := e.pos.granted(seq)
	h := e.holding(to.moves)
	cost := e.rest.cost()
	r.moveLocked(e, to, q.Asker)
	e.attempt, e.granted = q.Attempt, h
	if len(h.Rest) > 0 {
		r.memory.grants.push(&e.inGrants, cost)
		r.memory.trim(e)
	}
	return grant{}, verdictAgain, Answer{Grant: h}, nil
}

// moveLocked leaves of an entry on which nobody works what says where its cursor went.
func (r *Registry) moveLocked(e *entry, pos position, to Replica) {
	r.unsettleLocked(e)
	r.memory.forget(e)
	r.memory.drop(e)
	e.pos, e.to, e.attempt = pos, to, 0
	e.cur, e.rest = nil, rest{}
	r.settleLocked(e)
}

// renounceLocked forgets a cursor that somebody went on with, without this replica: to kill it here would end it there.
func (r *Registry) renounceLocked(e *entry) {
	e.cur = nil
	r.removeLocked(e, nil)
	r.forgotLocked()
}

// holding is what goes to another replica with the cursor.
func (e *entry) holding(moves uint64) *Holding {
	mean, count := e.sizer.Seen()
	return &Holding{
		State: e.cur.State(), Rest: e.rest.documents, Chosen: e.chosen, Mean: mean, Count: count, Opened: e.opened, Pages: e.pages,
		Moves: moves,
	}
}

// moved says where the cursor of an entry with phaseMoved went.
func (e *entry) moved() *Moved { return &Moved{To: e.to, Next: e.pos.next, Moves: e.pos.moves} }

// answerClose closes a cursor for another replica.
func (r *Registry) answerClose(ctx context.Context, c claim, q Question) (Answer, error) {
	r.mu.Lock()
	e, err := r.knownLocked(c, q)
	if err != nil {
		r.mu.Unlock()
		return Answer{}, err
	}
	if e.pos.phase == phaseAway {
		r.mu.Unlock()
		return Answer{}, ErrNotHere
	}
	if e.pos.phase == phaseMoved {
		moved := e.moved()
		r.mu.Unlock()
		return Answer{Moved: moved}, nil
	}
	f := r.removeLocked(e, ErrCursorNotFound)
	r.mu.Unlock()
	return Answer{Closed: true}, e.end(ctx, f)
}

// end kills a removed cursor, or waits until whoever works on it has.
func (e *entry) end(ctx context.Context, f *fetch) error {
	if f != nil {
		return f.wait(ctx)
	}
	e.kill(ctx)
	return nil
}
