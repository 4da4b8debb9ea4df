package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	// defaultBatch is how many events a subscription takes at a time.
	defaultBatch = 100
	// takeBytes is how many bytes of events a subscription takes at a time, or one event.
	takeBytes = 256 << 10
)

// Subscription reads the events that one subscriber gets, at its own pace. It is for one goroutine
// at a time, and has the methods of a change stream.
type Subscription struct {
	hub    *Hub
	feed   *feed
	filter Filter
	open   Open
	by     Reader

	// taken holds events that were read and not returned.
	taken []*entry
	// token is that of the last event that was returned, or a newer one that has been shown.
	token bson.Raw
	// scanned is the last token that has been looked at, and met the last of an event or of the
	// ring. Nothing between them is an event.
	scanned, met bson.Raw
	most         int

	// group and position are set while the ring has what comes next; guarded by feed.mu.
	group    *group
	position uint64
	// behind is the position behind the last event that was taken from the ring, or where the
	// subscriber has joined it.
	behind uint64
	round  uint64
	turn   turn
	// reading holds what the subscriber uses of the ring; guarded by feed.mu.
	reading []reading
	// own is the source that the subscriber catches up by; nil while group is set.
	own   Source
	ended error
}

// begin begins at a token, or now, and reports whether the ring holds what follows.
func (s *Subscription) begin(after bson.Raw) bool {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	s.round = f.round
	if after == nil {
		s.token = f.ring.last().Clone()
		s.scanned, s.met = s.token, s.token
		if s.filter.Marks {
			s.token = f.ring.mark.Clone()
		}
		s.joinLocked(f.ring.end())
		return true
	}
	s.scanned, s.met = s.token, s.token
	n, ok := f.placeLocked(s.scanned)
	if ok {
		s.joinLocked(n)
	}
	return ok
}

// joinLocked joins the group of the filter, to read from a position on that the ring holds.
func (s *Subscription) joinLocked(position uint64) {
	s.position, s.behind = position, position
	s.group = s.feed.joinLocked(s.filter)
	if position < s.group.from {
		s.decideLocked(position)
	}
}

// decideLocked has the filter decide about what the ring holds from a position on. Meanwhile the
// feed is not locked, the group decides about new entries, and those in use are charged. If one
// that the filter keeps is evicted, the subscriber is behind.
func (s *Subscription) decideLocked(position uint64) {
	f, g := s.feed, s.group
	entries := slices.Clone(f.ring.entries[position-f.ring.first : g.from-f.ring.first])
	s.useLocked(entries, force)
	f.mu.Unlock()
	g.deciding.Lock()
	defer g.deciding.Unlock()
	earlier := g.decide(f, entries, position)
	s.returnLocked()
	if position < g.from { // no other member has decided about them
		g.matches, g.from = append(earlier, g.matches...), position
		g.trim(f.ring.first)
	}
}

// Buffered returns how many events TryNext can return without blocking.
func (s *Subscription) Buffered() int { return len(s.taken) }

// ResumeToken returns the token after which another subscription can continue. It is nil only if
// the server gives none.
func (s *Subscription) ResumeToken() bson.Raw { return s.token }

// SetBatchSize sets how many events TryNext takes from the ring at a time, if n is positive; 100
// unless set.
func (s *Subscription) SetBatchSize(n int32) {
	if n > 0 {
		s.most = int(n)
	}
}

// TryNext returns the next event, which stays valid and must not be changed. It blocks until there
// is an event, or until ResumeToken has a newer token without one: then found is false. If ctx
// ends, it returns its cause, and may be called again. All other errors are *Error, and final. The
// memory of returned events stays charged (see Reader) until TryNext is called while Buffered is 0.
func (s *Subscription) TryNext(ctx context.Context) (event bson.Raw, found bool, err error) {
	for len(s.taken) == 0 && s.ended == nil {
		shown, err := s.take(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, false, context.Cause(ctx)
		case err != nil:
			s.ended = err
		case shown:
			return nil, false, nil
		}
	}
	if len(s.taken) == 0 {
		return nil, false, &Error{s.token, s.ended}
	}
	e := s.taken[0]
	s.token = e.token
	if s.taken = s.taken[1:]; len(s.taken) == 0 {
		s.taken, s.token = nil, e.token.Clone() // which frees the events
	}
	return e.event, true, nil
}

// take takes the next events, and reports instead whether s.token is a newer token to be shown. It
// may do neither.
func (s *Subscription) take(ctx context.Context) (shown bool, err error) {
	if s.own != nil {
		if s.hasRoom() {
			if joined, err := s.join(); joined || err != nil {
				return false, err
			}
		}
		return s.catchUp(ctx)
	}
	if s.group == nil {
		return false, s.fallBehind(ctx)
	}
	waits, shown, err := s.read()
	switch {
	case errors.Is(err, errOverrun):
		return false, s.fallBehind(ctx)
	case errors.Is(err, errRefused):
		if err := s.fallBehind(ctx); err != nil {
			return false, err
		}
		return s.catchUp(ctx) // also if there is room, but not for this event
	case err != nil || !waits:
		return shown, err
	}
	select {
	case <-s.turn.wake:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	return false, nil
}

var (
	// errOverrun says that the ring has evicted an event of the subscriber.
	errOverrun = errors.New("overrun")
	// errRefused says that the account does not permit what the ring has next.
	errRefused = errors.New("refused")
)

// read takes events of the ring. It reports instead whether the subscriber waits to be woken, or is
// shown a newer token.
func (s *Subscription) read() (waits, shown bool, err error) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	s.returnLocked()
	if !s.turn.fresh {
		f.turns.end(s)
		defer f.passLocked()
	}
	if s.position < s.group.lost {
		s.releaseLocked()
		if f.ended != nil && !errors.Is(f.ended, io.EOF) {
			return false, false, f.ended
		}
		return false, false, errOverrun
	}
	there := len(s.group.behind(s.position)) > 0
	if !there && s.group.greedy {
		s.releaseLocked()
		return false, false, ErrGreedy
	}
	if (there || s.round != f.round) && !s.turn.fresh && !f.turns.isAtOnce(s) {
		f.turns.queue(s)
		return true, false, nil
	}
	s.turn.fresh = false
	switch {
	case !s.takeLocked():
		s.releaseLocked()
		return false, false, errRefused
	case there:
		last := s.taken[len(s.taken)-1].token.Clone()
		s.scanned, s.met = last, last
		s.round = f.round // the events have newer tokens
		return false, false, nil
	case f.ended != nil:
		return false, false, f.ended
	}
	if last := f.ring.last(); last != nil {
		s.scanned, s.met = last, last
	}
	shown = s.round != f.round && s.showLocked()
	s.round = f.round
	if !shown {
		f.turns.end(s)
		s.group.idleLocked(s)
		f.passLocked()
	}
	return !shown, shown, nil
}

// showLocked has the ring's newest token shown, of those that the subscriber gets, and reports
// whether there is one behind its last event.
func (s *Subscription) showLocked() bool {
	switch ring := s.feed.ring; {
	case !s.filter.Marks:
		s.token = s.scanned
	case ring.mark == nil || ring.marked < s.behind:
		return false
	default:
		s.token = ring.mark
	}
	return true
}

// takeLocked takes the next events of the ring, for as long as the subscriber uses them. It reports
// whether the account permits that, and takes none otherwise.
func (s *Subscription) takeLocked() bool {
	ring, bytes := s.feed.ring, 0
	end, behind := ring.end(), s.behind
	var taken []*entry
	for _, n := range s.group.behind(s.position) {
		e, _ := ring.next(n)
		bytes += len(e.event)
		if len(taken) == s.most || bytes > takeBytes && len(taken) > 0 {
			end = n
			break
		}
		taken, behind = append(taken, e), n+1
	}
	if !s.useLocked(taken, Account.Spare) {
		return false
	}
	s.taken, s.behind, s.position = taken, behind, end
	return true
}

// useLocked has the subscriber use entries, if its account permits that. It is charged for those
// that no other one uses. What only others are charged for may become its own later, so it must
// permit that, too.
func (s *Subscription) useLocked(entries []*entry, charge func(Account, int64) bool) bool {
	var fresh, others int64
	for _, e := range entries {
		switch {
		case e.readers == nil:
			fresh += int64(e.cost())
		case e.readers.of.by.Who != s.by.Who:
			others += int64(e.cost())
		}
	}
	if fresh+others > 0 {
		if !charge(s.by.Account, fresh+others) {
			return false
		}
		s.by.Account.Shrink(others)
		s.hub.cfg.Account.Shrink(fresh)
	}
	s.reading = make([]reading, len(entries)) // they stay where they are
	for i, e := range entries {
		s.reading[i].begin(s, e)
	}
	return true
}

// returnLocked returns the events that the subscriber has used. What others use is charged to one
// of them then, and what the ring holds to the hub.
func (s *Subscription) returnLocked() {
	var charged, held int64
	for i := range s.reading {
		e, n := s.reading[i].entry, int64(s.reading[i].entry.cost())
		if !s.reading[i].end() {
			continue
		}
		charged += n
		switch {
		case e.readers != nil:
			e.readers.of.by.Account.Force(n)
		case !e.evicted:
			held += n
		}
	}
	if charged > 0 {
		s.hub.cfg.Account.Force(held)
		s.by.Account.Shrink(charged)
	}
	s.reading = nil
}

// force charges an account in any case.
func force(a Account, n int64) bool {
	a.Force(n)
	return true
}

// reading represents a subscriber's use of an entry, among those of others.
type reading struct {
	of            *Subscription
	entry         *entry
	before, after *reading
}

// begin begins a use of an entry.
func (r *reading) begin(s *Subscription, e *entry) {
	r.of, r.entry = s, e
	first := e.readers
	if first == nil {
		e.readers = r
		return
	}
	r.before, r.after = first, first.after
	if r.after != nil {
		r.after.before = r
	}
	first.after = r
}

// end ends the use, and reports whether it is charged.
func (r *reading) end() bool {
	if r.after != nil {
		r.after.before = r.before
	}
	if r.before != nil {
		r.before.after = r.after
		return false
	}
	r.entry.readers = r.after
	return true
}

// releaseLocked leaves the group.
func (s *Subscription) releaseLocked() {
	if s.group != nil {
		s.feed.goLocked(s)
		s.feed.leaveLocked(s.group)
		s.group = nil
	}
}

// fallBehind opens a source of the subscriber's own, which begins after what it has looked at.
func (s *Subscription) fallBehind(ctx context.Context) error {
	if s.scanned == nil || !s.hub.takeCatchUp() {
		return ErrBehind
	}
	ctx, cancel := s.hub.with(ctx)
	defer cancel()
	own, _, err := s.open(ctx, s.scanned)
	if err != nil {
		s.hub.giveCatchUp()
		return reason(ctx, err)
	}
	s.own = own
	return nil
}

// hasRoom reports whether the account permits what a subscriber takes at a time. While it does not,
// the subscriber keeps its own source: the ring would refuse what comes next, again and again.
func (s *Subscription) hasRoom() bool {
	if !s.by.Account.Spare(takeBytes) {
		return false
	}
	s.by.Account.Shrink(takeBytes)
	return true
}

// join returns to the ring if it holds what follows, and reports whether it does.
func (s *Subscription) join() (bool, error) {
	f := s.feed
	f.mu.Lock()
	n, ok := f.placeLocked(s.scanned, s.met)
	if ok {
		s.joinLocked(n)
	}
	ended := f.ended
	f.mu.Unlock()
	if !ok && ended != nil && !errors.Is(ended, io.EOF) {
		return false, ended
	}
	if ok {
		s.closeOwn()
	}
	return ok, nil
}

// catchUp takes the next events of the subscriber's own source. Between them, join looks whether
// the ring has come so far.
func (s *Subscription) catchUp(ctx context.Context) (shown bool, err error) {
	ctx, cancel := s.hub.with(ctx)
	defer cancel()
	batch, err := s.own.Next(ctx)
	if err != nil {
		s.closeOwn()
		return false, reason(ctx, err)
	}
	for _, event := range batch.Events {
		event = event.Clone()
		token := tokenOf(event)
		if s.filter.keeps(event) {
			s.taken = append(s.taken, &entry{event: event, token: token})
		}
		s.scanned, s.met = token, token
	}
	if batch.Token != nil {
		s.scanned = batch.Token.Clone()
	}
	if len(s.taken) > 0 || s.filter.Marks && bytes.Equal(s.scanned, s.met) {
		return false, nil
	}
	s.token = s.scanned
	return true, nil
}

func (s *Subscription) closeOwn() {
	if s.own != nil {
		s.own.Close()
		s.own = nil
		s.hub.giveCatchUp()
	}
}

// Close ends the subscription. It returns nil.
func (s *Subscription) Close(context.Context) error {
	if s.feed == nil {
		return nil
	}
	s.closeOwn()
	s.feed.mu.Lock()
	s.returnLocked()
	s.releaseLocked()
	s.feed.mu.Unlock()
	s.hub.leave(s.feed)
	s.feed, s.taken = nil, nil
	s.ended = ErrClosed
	return nil
}
