package paging

import (
	"container/list"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/admission"
)

// memory counts what cursors hold while no call works on them: the last delivered pages, for
// clients that ask again, and the leftovers of batches that were larger than a page. Both count
// against one budget. If it is exceeded, the oldest pages are dropped. What no client has got stays
// until its cursor ends, since it would be lost: leftovers, and pages that were not sent.
type memory struct {
	budget    int
	pages     row
	leftovers row
	shares    map[admission.Principal]int // of leftovers
}

// shareOfFree is how many times as much as is left of the budget the leftovers of a principal may
// have when it opens a cursor, so that there is room for the next principal.
const shareOfFree = 4

// opens reports whether there is room for what may be left of a batch of a new cursor.
func (m *memory) opens(p admission.Principal) error {
	left := m.budget - m.leftovers.cost
	switch {
	case m.leftovers.cost == 0 || left >= 0 && m.shares[p] <= shareOfFree*left:
		return nil
	case m.shares[p] > m.leftovers.cost-m.shares[p]:
		return &admission.Error{Cause: admission.OwnShare, What: "memory for pages"}
	default:
		return &admission.Error{Cause: admission.Full, What: "memory for pages"}
	}
}

// keep counts a cursor's leftover, if it has one.
func (m *memory) keep(h *held) {
	m.release(h)
	if len(h.leftover.documents) > 0 {
		m.leftovers.push(h, &h.inLeftovers, h.leftover.cost())
		m.shares[h.account.Principal()] += h.inLeftovers.cost
	}
}

// release ends the count of a cursor's leftover.
func (m *memory) release(h *held) {
	p := h.account.Principal()
	if m.shares[p] -= h.inLeftovers.cost; m.shares[p] == 0 {
		delete(m.shares, p)
	}
	m.leftovers.remove(h, &h.inLeftovers)
}

// hold remembers a page instead of the one before. It stays at least until it was sent.
func (m *memory) hold(h *held, p Page, cost int) {
	m.forget(h)
	h.last, h.undelivered = p, true
	m.pages.push(h, &h.inPages, cost)
}

// forget drops the cursor's page, if one is remembered.
func (m *memory) forget(h *held) {
	h.last, h.undelivered = Page{}, false
	m.pages.remove(h, &h.inPages)
}

// trim makes room.
func (m *memory) trim() {
	m.drop(m.pages.cost+m.leftovers.cost-m.budget, nil)
}

// drop drops the oldest pages, those of one principal if only is not nil, until so many bytes are
// free, or none is left that a client has got.
func (m *memory) drop(bytes int, only *admission.Principal) {
	least := m.pages.cost - bytes
	for at := m.pages.cursors.Front(); at != nil && m.pages.cost > least; {
		h, _ := at.Value.(*held) // always
		at = at.Next()
		if !h.undelivered && (only == nil || h.account.Principal() == *only) {
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
