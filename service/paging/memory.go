package paging

import "github.com/mooringdb/mooring/core/bson"

// memory bounds what cursors hold while no call works on them: the last delivered pages, for
// clients that ask again, and the leftovers of batches that were larger than a page. Both count
// against one budget. If it is exceeded, the oldest pages are dropped first, then the oldest
// leftovers. The documents of a dropped leftover are lost to its client, which gets an error.
type memory struct {
	budget    int
	pages     list
	leftovers list
}

// tooMuch reports whether something has to go.
func (m *memory) tooMuch() bool { return m.pages.cost+m.leftovers.cost > m.budget }

// hold remembers a page instead of the one before. One that is larger than the whole budget is
// not remembered.
func (m *memory) hold(h *held, p Page, cost int) {
	m.forget(h)
	if cost > m.budget {
		return
	}
	h.last = p
	m.pages.push(&h.inPages, cost)
}

// forget drops the cursor's page, if one is remembered.
func (m *memory) forget(h *held) {
	h.last = Page{}
	m.pages.remove(&h.inPages)
}

// trim makes room. The leftover of one cursor stays in any case, so that a batch may be larger
// than the budget.
func (m *memory) trim(but *held) {
	for m.tooMuch() && m.pages.first != nil {
		m.forget(m.pages.first.h)
	}
	for m.tooMuch() && m.leftovers.first != nil && m.leftovers.first.h != but {
		h := m.leftovers.first.h
		m.leftovers.remove(&h.inLeftovers)
		h.leftover = leftover{}
		h.ledger = h.ledger.Cut()
	}
}

// list links cursors, oldest first.
type list struct {
	first, last *spot
	len         int
	cost        int // of all, together
}

// spot holds a cursor's place in a list. The zero value is in no list.
type spot struct {
	h          *held
	in         bool
	cost       int // bytes of memory
	prev, next *spot
}

func (l *list) push(p *spot, cost int) {
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

func (l *list) remove(p *spot) {
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
	*p = spot{h: p.h}
}

// leftover holds the rest of a batch. The zero value is empty.
type leftover struct {
	documents []bson.Raw
	bytes     int // of the documents
	buffer    int // bytes of the buffer that they are views on
}

// perDocument is the memory of a document beside its bytes: its place in the list.
const perDocument = 24

// cut takes off and returns the first n documents, which have so many bytes. cost is the memory
// that they keep beside the leftover's.
//
// Documents that fill less than half of a buffer are copied, so that they do not keep the buffer.
func (l *leftover) cut(n, bytes int) (docs []bson.Raw, cost int) {
	docs, cost = l.documents[:n:n], bytes
	l.documents, l.bytes = l.documents[n:], l.bytes-bytes
	buffer := l.buffer
	switch {
	case len(l.documents) == 0:
		*l = leftover{}
	case 2*l.bytes < buffer:
		l.documents, l.buffer = copied(l.documents, l.bytes), l.bytes
	default: // the leftover keeps the buffer anyway
		return docs, cost + n*perDocument
	}
	if 2*bytes < buffer {
		docs = copied(docs, bytes)
	} else {
		cost = buffer
	}
	return docs, cost + n*perDocument
}

// cost returns the memory that the leftover keeps.
func (l *leftover) cost() int { return l.buffer + len(l.documents)*perDocument }

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

func leftoverOf(docs []bson.Raw) leftover {
	l := leftover{documents: docs}
	for _, doc := range docs {
		l.bytes += len(doc)
	}
	l.buffer = l.bytes
	return l
}
