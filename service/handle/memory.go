package handle

import (
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// memory is what cursors may hold while nobody works on them: the pages that were delivered last, for those who ask again, the rests
// of batches that were larger than a page, and those that went to another replica, which may not have got them. All count against one budget.
// Too much of it makes the granted rests go, then the pages that were delivered longest ago, then the rests that were asked for longest ago:
// what was in a rest is then lost to its client, who is told so (see position).
type memory struct {
	budget int
	pages  list
	rests  list
	grants list
}

// tooMuch says whether something has to go.
func (m *memory) tooMuch() bool { return m.pages.cost+m.rests.cost+m.grants.cost > m.budget }

// hold remembers a page instead of the one that the entry held. One that is larger than the whole budget is not held.
func (m *memory) hold(e *entry, page Page, cost int) {
	m.forget(e)
	if cost > m.budget {
		return
	}
	e.page = page
	m.pages.push(&e.inPages, cost)
}

// forget drops the entry's page, if it holds one.
func (m *memory) forget(e *entry) {
	e.page = Page{}
	m.pages.remove(&e.inPages)
}

// drop lets go of what was granted to another replica.
func (m *memory) drop(e *entry) {
	e.granted = nil
	m.grants.remove(&e.inGrants)
}

// trim makes room. The rest of one entry stays in any case, lest a batch be larger than the budget and no cursor ever get on.
func (m *memory) trim(but *entry) {
	for m.tooMuch() && m.grants.first != nil {
		m.drop(m.grants.first.e)
	}
	for m.tooMuch() && m.pages.first != nil {
		m.forget(m.pages.first.e)
	}
	for m.tooMuch() && m.rests.first != nil && m.rests.first.e != but {
		e := m.rests.first.e
		m.rests.remove(&e.inRests)
		e.rest = rest{}
		e.pos = e.pos.lost()
	}
}

// list is a list of entries, oldest first.
type list struct {
	first, last *place
	len         int
	cost        int // of all, together
}

// place is an entry's place in a list. The zero value is in none; the entry and the cost are set by push.
type place struct {
	e          *entry
	in         bool
	cost       int // bytes of memory
	prev, next *place
}

func (l *list) push(p *place, cost int) {
	p.in, p.cost, p.prev, p.next = true, cost, l.last, nil
	if l.last == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
	l.len++
	l.cost += cost
}

func (l *list) remove(p *place) {
	if !p.in {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.last = p.prev
	}
	l.len--
	l.cost -= p.cost
	*p = place{e: p.e}
}

// rest is what is left of a batch. The zero value is nothing.
type rest struct {
	documents []bson.Raw
	bytes     int // of the documents
	buffer    int // bytes of the buffer that they are views on
}

// perDocument is what a document costs beside its bytes: its place in the list.
const perDocument = 24

// cut takes the first n documents off, which have so many bytes. It returns them with the memory that they keep beside the rest's.
//
// What is less than half of a buffer is copied, so that remembering it does not keep the buffer.
func (r *rest) cut(n, bytes int) (docs []bson.Raw, cost int) {
	docs, cost = r.documents[:n:n], bytes
	r.documents, r.bytes = r.documents[n:], r.bytes-bytes
	buffer := r.buffer
	switch {
	case len(r.documents) == 0:
		*r = rest{}
	case 2*r.bytes < buffer:
		r.documents, r.buffer = copied(r.documents, r.bytes), r.bytes
	default: // the rest keeps the buffer anyway
		return docs, cost + n*perDocument
	}
	if 2*bytes < buffer {
		docs = copied(docs, bytes)
	} else {
		cost = buffer
	}
	return docs, cost + n*perDocument
}

// cost is the memory that the rest keeps.
func (r *rest) cost() int { return r.buffer + len(r.documents)*perDocument }

func copied(docs []bson.Raw, bytes int) []bson.Raw {
	buf := make([]byte, 0, bytes)
	copies := make([]bson.Raw, len(docs))
	for i, doc := range docs {
		at := len(buf)
		buf = append(buf, doc...)
		copies[i] = buf[at:len(buf):len(buf)]
	}
	return copies
}

// settleLocked puts an entry on which nobody works any more, and which is not removed, back among those that wait for their clients. It
// may push out others, which the janitor then kills.
func (r *Registry) settleLocked(e *entry) {
	e.lastUse = time.Now()
	e.expires = e.lastUse.Add(r.cfg.Idle)
	e.live = e.pos.phase == phaseIdle || e.pos.phase == phaseLost
	r.idle(e).push(&e.inIdle, 0)
	if len(e.rest.documents) > 0 {
		r.memory.rests.push(&e.inRests, e.rest.cost())
	}
	open := e.cur != nil && !e.cur.Done()
	e.pinned = open && e.cur.Pinned()
	r.countLocked(e, open)
	r.memory.trim(e)
	r.makeRoomLocked(e)
}

// idle is the list in which an entry waits.
func (r *Registry) idle(e *entry) *list {
	if e.live {
		return &r.live
	}
	return &r.past
}

// makeRoomLocked lets go of what there is no room for: what is over first, and what can be read on only for what can be read on.
func (r *Registry) makeRoomLocked(but *entry) {
	for len(r.entries) > r.cfg.MaxCursors {
		first := r.past.first
		if first == nil && but.live {
			first = r.live.first
		}
		if first == nil || first.e == but {
			return
		}
		if first.e.pos.phase == phaseMoved {
			r.forgotLocked()
		}
		r.doomLocked(first.e)
	}
}

// forgotLocked notes that it is not known any more where a cursor went.
func (r *Registry) forgotLocked() { r.forgot = time.Now() }

func (r *Registry) forgetful() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forgetfulLocked()
}

// forgetfulLocked says that a cursor of which nothing is known here need not have been closed, nor have expired.
func (r *Registry) forgetfulLocked() bool {
	return !r.forgot.IsZero() && time.Since(r.forgot) <= r.cfg.Idle
}

// unsettleLocked takes an entry out of all lists but those of pages and grants: somebody works on it, or it is removed.
func (r *Registry) unsettleLocked(e *entry) {
	r.idle(e).remove(&e.inIdle)
	r.memory.rests.remove(&e.inRests)
}

// countLocked counts an entry among the open cursors of its principal, or no longer.
func (r *Registry) countLocked(e *entry, open bool) {
	switch {
	case open == e.counted:
		return
	case open:
		r.open[e.principal]++
	default:
		if r.open[e.principal]--; r.open[e.principal] == 0 {
			delete(r.open, e.principal)
		}
	}
	e.counted = open
}
