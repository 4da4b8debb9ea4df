package hub

import (
	"cmp"
	"slices"
	"time"
)

const (
	// atOnce is how many subscribers of a feed take events and send them at a time. The next ones
	// are woken when all of these are back: between two such lots, the process looks whether its
	// connections have data for other calls. Larger lots let those calls wait for longer; smaller
	// ones put fewer messages into one write of a connection.
	atOnce = 64
	// stuckAfter is how long others wait for subscribers whose clients do not read.
	stuckAfter = 2 * time.Millisecond
)

// turns has the subscribers of a feed take events in turns. A subscriber has a turn from when it is
// woken until it comes back for more, or others have waited for too long. It is guarded by feed.mu,
// and its methods do not block.
type turns struct {
	// given counts the turns, of this round. A new round forgets the turns of those that do not
	// come back soon.
	given int
	round uint64
	// due has the subscribers that wait for a turn, from head on, and those that have gone.
	due  []*Subscription
	head int
	// since counts the turns that were given since the last look at whether any was.
	since   int
	looking bool
}

// turn holds what a subscriber has of turns.
type turn struct {
	wake chan struct{} // has room for one
	// round is that of the turn; 0: there is none.
	round uint64
	// fresh says that the subscriber has not come for its events since it was woken.
	fresh bool
	// queued says that the subscriber is in due, and idle, at the place of the group's, that it
	// waits for events.
	queued, idle bool
	place        int
	// near is a number that subscribers have in common who share a connection; 0: not known.
	near uint64
}

// isAtOnce takes a turn for a subscriber if no other waits for one, and reports whether it has.
func (t *turns) isAtOnce(s *Subscription) bool {
	if t.given >= atOnce || len(t.due) > 0 {
		return false
	}
	t.give(s)
	return true
}

func (t *turns) give(s *Subscription) {
	t.given++
	t.since++
	s.turn.round = t.round
}

// end ends the turn of a subscriber, if it has one.
func (t *turns) end(s *Subscription) {
	if s.turn.round == t.round {
		t.given--
	}
	s.turn.round, s.turn.fresh = 0, false
}

// queue has a subscriber wait for a turn.
func (t *turns) queue(s *Subscription) {
	if !s.turn.queued {
		s.turn.queued = true
		t.due = append(t.due, s)
	}
}

// pass gives turns to those that are due.
func (t *turns) pass() {
	if t.given > 0 {
		return
	}
	for t.given < atOnce && t.head < len(t.due) {
		s := t.due[t.head]
		t.due[t.head] = nil
		t.head++
		if !s.turn.queued { // it has gone
			continue
		}
		s.turn.queued = false
		t.give(s)
		s.turn.fresh = true
		select {
		case s.turn.wake <- struct{}{}:
		default: // it was woken, and was not waiting
		}
	}
	if 2*t.head > len(t.due) || t.head == len(t.due) {
		n := copy(t.due, t.due[t.head:])
		clear(t.due[n:])
		t.due, t.head = t.due[:n], 0
	}
}

// passLocked gives turns to those that are due, now and whenever the others are stuck.
func (f *feed) passLocked() {
	f.turns.pass()
	if len(f.turns.due) > 0 && !f.turns.looking {
		f.turns.looking, f.turns.since = true, 0
		time.AfterFunc(stuckAfter, f.look)
	}
}

// look begins another round if no turn was given since the last look.
func (f *feed) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turns.looking = false
	if f.turns.since == 0 {
		f.turns.round++
		f.turns.given = 0
	}
	f.passLocked()
}

// idleLocked has a subscriber wait for events.
func (g *group) idleLocked(s *Subscription) {
	if !s.turn.idle {
		s.turn.idle, s.turn.place = true, len(g.idle)
		g.idle = append(g.idle, s)
	}
}

// wakeLocked has the subscribers of some groups that wait for events take turns. Those that share a
// connection follow each other, so that one write of the connection has what many of them send.
func (f *feed) wakeLocked(wakes func(*group) bool) {
	from := len(f.turns.due)
	for _, g := range f.groups {
		if !wakes(g) {
			continue
		}
		for i, s := range g.idle {
			s.turn.idle, g.idle[i] = false, nil
			f.turns.queue(s)
		}
		g.idle = g.idle[:0]
	}
	slices.SortStableFunc(f.turns.due[from:], func(a, b *Subscription) int {
		return cmp.Compare(a.turn.near, b.turn.near)
	})
	f.passLocked()
}

// goLocked takes a subscriber out of its group's idle ones and of those that are due.
func (f *feed) goLocked(s *Subscription) {
	f.turns.end(s)
	s.turn.queued = false
	if g := s.group; s.turn.idle && g != nil {
		last := g.idle[len(g.idle)-1]
		g.idle[s.turn.place], last.turn.place = last, s.turn.place
		g.idle[len(g.idle)-1] = nil
		g.idle = g.idle[:len(g.idle)-1]
		s.turn.idle = false
	}
	f.passLocked()
}
