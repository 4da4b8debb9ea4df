package paging

import (
	"container/list"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/admission"
)

// memory counts what cursors hold while no call works on them: the last delivered pages, for
// clients that ask again, and the leftovers of batches that were larger than a page. Both count
// against one budget. If it is exceeded, the oldest pages are dropped. A leftover stays until its
// cursor ends, since its documents would be lost to the client.
type memory struct {
	budget    int
	pages     row
	leftovers row
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
	m.pages.push(h, &h.inPages, cost)
}

// forget drops the cursor's page, if one is remembered.
func (m *memory) forget(h *held) {
	h.last = Page{}
	m.pages.remove(h, &h.inPages)
}

// trim makes room.
func (m *memory) trim() {
	for h := m.pages.first(); h != nil && m.tooMuch(); h = m.pages.first() {
		m.forget(h)
	}
}

// reclaim drops the oldest pages, those of one principal if only is not nil, until so many bytes are
// free, or none is left.
func (m *memory) reclaim(bytes int, only *admission.Principal) {
	least := m.pages.cost - bytes
	for at := m.pages.cursors.Front(); at != nil && m.pages.cost > least; {
		h, _ := at.Value.(*held) // always
		at = at.Next()
		if only == nil || h.account.Principal() == *only {
			m.forget(h)
		}
	}
}

// row holds cursors, oldest first, and the sum of the memory that they keep. Each cursor's account
// is charged with what the cursor keeps.
type row struct {
	cursors list.List // of *held
	cost    int
}

// place holds a cursor's place in a row. The zero value is in no row.
type place struct {
	element *list.Element
	cost    int // bytes of memory
}

func (p *place) isIn() bool { return p.element != nil }

// first returns the oldest cursor, or nil if there is none.
func (r *row) first() *held {
	if r.cursors.Len() == 0 {
		return nil
	}
	h, _ := r.cursors.Front().Value.(*held) // always
	return h
}

func (r *row) push(h *held, at *place, cost int) {
	*at = place{r.cursors.PushBack(h), cost}
	r.cost += cost
	h.account.Force(int64(cost))
}

// remove takes a cursor out of the row, if it is in it.
func (r *row) remove(h *held, at *place) {
	if at.isIn() {
		r.cursors.Remove(at.element)
		r.cost -= at.cost
		h.account.Shrink(int64(at.cost))
		*at = place{}
	}
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
