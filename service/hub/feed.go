package hub

import (
	"bytes"
	"sort"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// feed holds what its goroutine has read of a source, and who waits for more.
type feed struct {
	hub    *Hub
	key    Key
	open   Open
	cancel func()
	// opened is closed when the source is open, or failed says why it is not.
	opened chan struct{}
	failed error

	// subscribers and linger are guarded by hub.mu.
	subscribers int
	linger      *time.Timer

	// asked has the groups that decide about a new event. It is the goroutine's.
	asked []asked

	// mu guards the fields below. No filter is called under it.
	mu   sync.Mutex
	ring *ring
	// groups has those with members, by the text of their filter. A greedy one that others must not
	// join is its own key: it is trimmed and woken until its members have left.
	groups map[any]*group
	// round counts the wakes of all subscribers, so that they get a newer token. At the last one,
	// the ring ended at shown.
	round uint64
	shown uint64
	woken time.Time
	ended error // nil while the source goes on
	turns turns
}

func newFeed(h *Hub, key Key, open Open) *feed {
	return &feed{
		hub: h, key: key, open: open, opened: make(chan struct{}), groups: map[any]*group{},
		woken: time.Now(), turns: turns{round: 1},
	}
}

// group holds what one filter has decided about the entries of a ring from a number on.
type group struct {
	filter  Filter
	key     any // in feed.groups
	members int
	// deciding is held, and locked before feed.mu, while from becomes smaller.
	deciding sync.Mutex
	from     uint64
	// next is the number behind the last new event about which it was asked. If it has not decided
	// about that one, it is greedy, and asked no more: see Filter.Within.
	next   uint64
	greedy bool
	// matches has the numbers of the events that the filter keeps, in order.
	matches []uint64
	// lost is the number behind the last such event that was evicted.
	lost uint64
	// idle has the members that wait for the next event that the filter keeps.
	idle []*Subscription
}

// joinLocked returns the group of a filter, with one more member.
func (f *feed) joinLocked(filter Filter) *group {
	g := f.groups[filter.Text]
	if g != nil && g.greedy {
		g.key = g
		f.groups[g] = g
		g = nil
	}
	if g == nil {
		g = &group{filter: filter, key: filter.Text, from: f.ring.end(), next: f.ring.end()}
		f.groups[filter.Text] = g
	}
	g.members++
	return g
}

// leaveLocked takes a member from a group.
func (f *feed) leaveLocked(g *group) {
	if g.members--; g.members == 0 {
		delete(f.groups, g.key)
	}
}

// decide returns which of some entries the filter keeps, of those that the group does not know. The
// first one has a number. The feed is locked again then.
func (g *group) decide(f *feed, entries []*entry, first uint64) (matches []uint64) {
	defer f.mu.Lock()
	for i, e := range entries {
		n := first + uint64(i)
		if n >= g.from {
			break
		}
		if e.event != nil && g.filter.keeps(e.event) {
			matches = append(matches, n)
		}
	}
	return matches
}

// trim forgets what the ring does not hold.
func (g *group) trim(first uint64) {
	n := sort.Search(len(g.matches), func(i int) bool { return g.matches[i] >= first })
	if n > 0 {
		g.lost = max(g.lost, g.matches[n-1]+1)
		g.matches = g.matches[n:]
	}
}

// behind returns the matches from a position on.
func (g *group) behind(position uint64) []uint64 {
	n := sort.Search(len(g.matches), func(i int) bool { return g.matches[i] >= position })
	return g.matches[n:]
}

// add appends what a source has read, and wakes the subscribers that it is for.
func (f *feed) add(batch Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	begin := f.ring.end()
	for _, event := range batch.Events {
		event = event.Clone()
		f.appendLocked(&entry{event: event, token: tokenOf(event)}, begin)
	}
	if token := batch.Token; token != nil && !bytes.Equal(token, f.ring.last()) {
		f.appendLocked(&entry{token: token.Clone()}, begin)
	}
	all := f.ring.end() > f.shown && time.Since(f.woken) >= f.hub.cfg.Progress
	if all {
		f.round++
		f.shown, f.woken = f.ring.end(), time.Now()
	}
	f.wakeLocked(func(g *group) bool {
		n := len(g.matches)
		return all || n > 0 && g.matches[n-1] >= begin || g.lost > begin || g.greedy
	})
}

// appendLocked appends an entry of a reply that begins at a number. If the account has no bytes for
// it, older entries make room, those of the same reply as well.
func (f *feed) appendLocked(e *entry, begin uint64) {
	account := f.hub.cfg.Account
	if e.event != nil {
		f.askLocked(e.event)
	}
	charged := account.Spare(int64(e.cost()))
	for !charged && len(f.ring.entries) > 0 {
		account.Shrink(int64(f.ring.evict()))
		charged = account.Spare(int64(e.cost()))
	}
	account.Shrink(int64(f.ring.append(e, begin)))
	if !charged { // the ring has nothing else
		f.ring.evict()
	}
	for _, g := range f.groups {
		g.trim(f.ring.first)
	}
}

// asked represents a group that decides about a new event.
type asked struct {
	group          *group
	decided, keeps bool
}

// askLocked has all groups decide about an event that gets the next number. Meanwhile the feed is
// not locked, and those that come then are asked as well: of MaxSteps, they get less. No
// subscriber sees that an event matches before the ring has it.
func (f *feed) askLocked(event bson.Raw) {
	n := f.ring.end()
	for steps := f.hub.cfg.MaxSteps; ; steps /= 2 {
		before := len(f.asked)
		for _, g := range f.groups {
			if g.next <= n && !g.greedy {
				g.next = n + 1
				f.asked = append(f.asked, asked{group: g})
			}
		}
		if len(f.asked) == before {
			break
		}
		f.mu.Unlock()
		ask(f.asked[before:], event, steps, f.hub.cfg.MinSteps)
		f.mu.Lock()
	}
	for _, a := range f.asked {
		a.group.greedy = !a.decided
		if a.keeps {
			a.group.matches = append(a.group.matches, n)
		}
	}
	clear(f.asked)
	f.asked = f.asked[:0]
}

// ask has groups decide about an event in so many steps. Each may take an equal part, and what
// others leave of theirs, but least in any case.
func ask(all []asked, event bson.Raw, steps, least int) {
	for last := -1; len(all) > 0; {
		part, rest := max(steps/len(all), least), 0
		if part <= last { // the rest has taken more than that
			return
		}
		last = part
		for i := range all {
			a := &all[i]
			keeps, took := a.group.filter.within(event, part)
			steps = max(0, steps-min(took, part))
			if a.decided = took <= part; a.decided {
				a.keeps = keeps
				continue
			}
			all[i], all[rest] = all[rest], all[i]
			rest++
		}
		all = all[:rest]
	}
}

// begin lets the subscribers in.
func (f *feed) begin(start bson.Raw) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring = newRing(f.hub.cfg.RingBytes, start.Clone())
	close(f.opened)
}

// end ends the subscriptions with an error, when they have read what is held.
func (f *feed) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = err
	f.wakeLocked(func(*group) bool { return true })
}

// release evicts the oldest entries, until so many bytes are free or there is none, and returns how
// many are.
func (f *feed) release(n int64) (freed int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ring == nil {
		return 0
	}
	for freed < n && len(f.ring.entries) > 0 {
		freed += int64(f.ring.evict())
	}
	f.hub.cfg.Account.Shrink(freed)
	for _, g := range f.groups {
		g.trim(f.ring.first)
	}
	return freed
}

// size returns the bytes of the ring.
func (f *feed) size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ring == nil {
		return 0
	}
	return int64(f.ring.bytes)
}

// placeLocked returns the position behind one of some tokens, and whether the ring holds what
// follows.
func (f *feed) placeLocked(tokens ...bson.Raw) (uint64, bool) {
	for _, token := range tokens {
		if token == nil {
			continue
		}
		if n, ok := f.ring.after(token); ok {
			return n, true
		}
	}
	return 0, false
}
