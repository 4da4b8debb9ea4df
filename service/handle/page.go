package handle

import "github.com/mooringdb/mooring/core/bson"

// Page is what one page call delivers.
type Page struct {
	// Documents are views on a reply's buffer, or on a copy; nobody changes them.
	Documents []bson.Raw
	// Token asks for the next page; empty: there is none.
	Token string
}

// Cursor is the token as responses have it: nil at the end.
func (p Page) Cursor() *string {
	if p.Token == "" {
		return nil
	}
	return &p.Token
}

// heldPage is a delivered page, remembered in case that somebody asks again. The zero value is none.
type heldPage struct {
	Page
	cost       int // bytes of memory that it keeps; > 0
	prev, next *entry
}

// pages are all held pages, oldest first, as a list through the entries: what it drops to stay within its budget is the page that was
// delivered longest ago.
type pages struct {
	budget       int
	used         int
	oldest, last *entry
}

// hold remembers a page instead of the one that the entry held. A page larger than the whole budget is not held.
func (p *pages) hold(e *entry, page Page, cost int) {
	p.drop(e)
	cost = max(cost, 1)
	if cost > p.budget {
		return
	}
	e.page = heldPage{Page: page, cost: cost, prev: p.last}
	if p.last == nil {
		p.oldest = e
	} else {
		p.last.page.next = e
	}
	p.last = e
	p.used += cost
	for p.used > p.budget {
		p.drop(p.oldest)
	}
}

// drop forgets an entry's page, if it holds one.
func (p *pages) drop(e *entry) {
	if e.page.cost == 0 {
		return
	}
	if prev := e.page.prev; prev != nil {
		prev.page.next = e.page.next
	} else {
		p.oldest = e.page.next
	}
	if next := e.page.next; next != nil {
		next.page.prev = e.page.prev
	} else {
		p.last = e.page.prev
	}
	p.used -= e.page.cost
	e.page = heldPage{}
}

// compact copies documents whose batch is more than twice as large as they are, so that holding them does not hold all of it. It
// returns them with the memory that they keep.
func compact(docs []bson.Raw, bytes, batchBytes int) ([]bson.Raw, int) {
	if 2*bytes >= batchBytes {
		return docs, batchBytes
	}
	buf := make([]byte, 0, bytes)
	copies := make([]bson.Raw, len(docs))
	for i, doc := range docs {
		at := len(buf)
		buf = append(buf, doc...)
		copies[i] = buf[at:len(buf):len(buf)]
	}
	return copies, bytes
}
