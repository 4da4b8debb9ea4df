package paging

import (
	"container/list"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/admission"
)

// memory counts what cursors hold while no call works on them: the last delivered pages, for
// clients that ask again, and the leftovers of batches that were larger than a page. Both count
// against one budget. If it is exceeded, the oldest pages are dropped. What no client has got stays
// until its cursor ends, since it would be lost: leftovers, and pages that were not sent. Each
// cursor's account is charged with what the cursor keeps.
type memory struct {
	budget    int
	pages     list.List // the cursors with a page, oldest first
	pagesCost int
	leftovers int                         // what they cost, and what cursors keep of their requests
	shares    map[admission.Principal]int // of leftovers
}

// shareOfFree is how many times as much as is left of the budget the leftovers of a principal may
// have when it opens a cursor, so that there is room for the next principal.
const shareOfFree = 4

// opens reports whether there is room for what may be left of a batch of a new cursor.
func (m *memory) opens(p admission.Principal) error {
	left := m.budget - m.leftovers
	switch {
	case m.leftovers == 0 || left >= 0 && m.shares[p] <= shareOfFree*left:
		return nil
	case m.shares[p] > m.leftovers-m.shares[p]:
		return &admission.Error{Cause: admission.OwnShare, What: "memory for pages"}
	default:
		return &admission.Error{Cause: admission.Full, What: "memory for pages"}
	}
}

// keep counts a cursor's leftover.
func (m *memory) keep(h *held) {
	m.release(h)
	m.countLeftover(h, h.leftover.cost())
	h.payer.HandOver(&h.account, int64(h.leftoverCost))
	m.countState(h, h.stateSize())
}

// countState counts what a cursor keeps of its request, until it ends.
func (m *memory) countState(h *held, size int) {
	more := size - h.stateCost
	h.stateCost = size
	m.count(h, more)
	if more > 0 {
		h.payer.HandOver(&h.account, int64(more))
	} else {
		h.account.Shrink(int64(-more))
	}
}

// release ends the count of a cursor's leftover. While a call fetches a page, the leftover has no
// charge, so that there is room for the response that is made of it.
func (m *memory) release(h *held) {
	h.account.Shrink(int64(h.leftoverCost))
	m.countLeftover(h, 0)
}

// lend ends the count of the leftover of a cursor that a stream takes over. It hands the charge to
// the account of the stream's call, and returns it.
func (m *memory) lend(h *held) (charge int64) {
	charge = int64(h.leftoverCost)
	h.account.HandOver(h.payer, charge)
	m.countLeftover(h, 0)
	return charge
}

func (m *memory) countLeftover(h *held, cost int) {
	more := cost - h.leftoverCost
	h.leftoverCost = cost
	m.count(h, more)
}

func (m *memory) count(h *held, more int) {
	p := h.account.Principal()
	m.leftovers += more
	if m.shares[p] += more; m.shares[p] == 0 {
		delete(m.shares, p)
	}
}

// hold remembers a page instead of the one before. It stays at least until it was sent.
func (m *memory) hold(h *held, p Page, cost int) {
	m.forget(h)
	p.lent.retain()
	h.last = remembered{page: p, unsent: true, place: place{m.pages.PushBack(h), cost}}
	m.pagesCost += cost
	h.payer.HandOver(&h.account, int64(cost))
}

// forget drops the cursor's page, if one is remembered.
func (m *memory) forget(h *held) {
	if !h.last.isIn() {
		return
	}
	m.pages.Remove(h.last.element)
	m.pagesCost -= h.last.cost
	h.account.Shrink(int64(h.last.cost))
	h.last.page.lent.release()
	h.last = remembered{}
}

// trim makes room.
func (m *memory) trim() {
	m.drop(m.pagesCost+m.leftovers-m.budget, nil)
}

// drop drops the oldest pages, those of one principal if only is not nil, until so many bytes are
// free, or none is left that a client has got.
func (m *memory) drop(bytes int, only *admission.Principal) {
	least := m.pagesCost - bytes
	for at := m.pages.Front(); at != nil && m.pagesCost > least; {
		h, _ := at.Value.(*held) // always
		at = at.Next()
		if !h.last.unsent && (only == nil || h.account.Principal() == *only) {
			m.forget(h)
		}
	}
}

// place holds a cursor's place in the list of pages. The zero value is in no list.
type place struct {
	element *list.Element
	cost    int // bytes of memory
}

func (p *place) isIn() bool { return p.element != nil }

// leftover holds the rest of a batch. The zero value is empty.
type leftover struct {
	documents []bson.Raw
	bytes     int // of the documents
	buffer    int // bytes of the buffer that they are views on
	lent      lent
}

// drop forgets the documents.
func (l *leftover) drop() {
	l.lent.release()
	*l = leftover{}
}

// add adds a batch.
func (l *leftover) add(b cursor.Batch) {
	if len(l.documents) == 0 {
		l.documents = b.Documents
	} else {
		l.documents = append(l.documents, b.Documents...)
	}
	l.bytes += b.Bytes
	l.buffer += max(b.Bytes, b.Buffer)
	if b.Lent != nil {
		l.lent = append(l.lent, b.Lent)
	}
}

// perDocument is the memory of a document beside its bytes: its place in the list.
const perDocument = 24

// cut takes off and returns the first n documents, which have so many bytes, with references of
// their own. cost is the memory that they keep beside the leftover's.
//
// Documents that fill less than half of a buffer are copied, so that they do not keep the buffer.
func (l *leftover) cut(n, bytes int) (p Page, cost int) {
	p.Documents, cost = l.documents[:n:n], bytes
	l.documents, l.bytes = l.documents[n:], l.bytes-bytes
	buffer := l.buffer
	switch {
	case len(l.documents) == 0:
		p.lent = l.lent
		*l = leftover{}
	case 2*l.bytes < buffer:
		p.lent = l.lent
		l.documents, l.buffer, l.lent = copied(l.documents, l.bytes), l.bytes, nil
	default: // the leftover keeps the buffer anyway
		p.lent = l.lent.retain()
		return p, cost + n*perDocument
	}
	if 2*bytes < buffer {
		p.Documents = copied(p.Documents, bytes)
		p.lent.release()
		p.lent = nil
	} else {
		cost = buffer
	}
	return p, cost + n*perDocument
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
