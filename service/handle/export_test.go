package handle

// What the tests of the pure decisions need.
type (
	Position = position
	Phase    = phase
	Outcome  = outcome
)

const (
	PhaseIdle, PhaseBusy, PhaseLost, PhaseEnded, PhaseTaken            = phaseIdle, phaseBusy, phaseLost, phaseEnded, phaseTaken
	PhaseMoved, PhaseAway                                              = phaseMoved, phaseAway
	OutcomePage, OutcomeLast, OutcomeNotSent, OutcomeLost, OutcomeDead = outcomePage, outcomeLast, outcomeNotSent, outcomeLost, outcomeDead
)

// NewPosition makes one.
func NewPosition(next uint64, p Phase, held bool) Position {
	return position{next: next, phase: p, held: held}
}

// Same is the position for the replica that a moved cursor was granted to.
func (p Position) Same() Position {
	p.same = true
	return p
}

// After is the position after so many moves.
func (p Position) After(moves uint64) Position {
	p.moves = moves
	return p
}

// Moves is moves.
func (p Position) Moves() uint64 { return p.moves }

// Forked is forked.
func (p Position) Forked(seq uint64) Position { return p.forked(seq) }

// Newer is newer.
func (p Position) Newer(o Position) bool { return p.newer(o) }

// Ask is ask, as text.
func (p Position) Ask(seq uint64, allowGap bool) string { return p.ask(seq, allowGap).String() }

// Fetched is fetched.
func (p Position) Fetched(o Outcome, before Position) Position { return p.fetched(o, before) }

// Seal and Open are a ring's.
func (r *KeyRing) Seal(principal string, plain []byte) string { return r.seal(principal, plain) }

// Open is open.
func (r *KeyRing) Open(principal, token string) ([]byte, error) { return r.open(principal, token) }

// DecodeClaim reports whether b is a claim, and what it encodes to.
func DecodeClaim(b []byte) (again []byte, err error) {
	c, err := decodeClaim(b)
	if err != nil {
		return nil, err
	}
	return c.append(nil, c.state.Comment), nil
}

// TokenOf is the token with which a cursor is continued at page seq.
func (r *Registry) TokenOf(cur Cursor, ns Namespace, chosen int32, seq uint64) (string, error) {
	e := newEntry(CursorID{}, "", ns)
	e.cur, e.chosen = cur, chosen
	return r.token(e, seq)
}

// Held is the memory of remembered pages and of rests.
func (r *Registry) Held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memory.pages.cost + r.memory.rests.cost + r.memory.grants.cost
}

// Known are the cursors of which something is known.
func (r *Registry) Known() map[CursorID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := map[CursorID]bool{}
	for id := range r.entries {
		known[id] = true
	}
	return known
}

// Holds are the server's ids of the cursors that are held and on which nobody works.
func (r *Registry) Holds() map[int64]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[int64]bool{}
	for _, e := range r.entries {
		if e.fetch == nil && e.cur != nil && e.cur.State().ID != 0 {
			ids[e.cur.State().ID] = true
		}
	}
	return ids
}
