package paging

import (
	"net/netip"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// DecodeClaim reports whether b is a claim, and what it encodes to.
func DecodeClaim(b []byte) (again []byte, err error) {
	c, err := decodeClaim(b)
	if err != nil {
		return nil, err
	}
	return c.append(nil), nil
}

// NewClaim returns a claim of a cursor that a replica holds.
func NewClaim(address string) []byte {
	c := claim{
		holder: page.Replica{Address: address, Instance: page.Instance{1}}, id: handle.ID{2},
		seq: 300, pinned: true,
	}
	return c.append(nil)
}

// TokenOf returns the token with which a cursor is continued at page seq.
func (p *Pager) TokenOf(cur Cursor, seq uint64) string {
	h := p.newHeld(handle.Handle{}, Namespace{}, netip.Addr{})
	h.cur = cur
	return h.token(seq)
}

// Held returns the memory of remembered pages and of leftovers.
func (p *Pager) Held() (bytes int) {
	p.table.Do(func(*handle.Locked) { bytes = p.memory.pagesCost + p.memory.leftovers })
	return bytes
}

// Leftovers returns the memory of leftovers.
func (p *Pager) Leftovers() (bytes int) {
	p.table.Do(func(*handle.Locked) { bytes = p.memory.leftovers })
	return bytes
}

// Known returns the cursors of which something is known.
func (p *Pager) Known() map[handle.ID]bool {
	known := map[handle.ID]bool{}
	p.table.Do(func(t *handle.Locked) {
		for h := range handle.All[*held](t) {
			known[h.ID] = true
		}
	})
	return known
}

// Holds returns the server's ids of the cursors that are held and on which no call works.
func (p *Pager) Holds() map[int64]bool {
	ids := map[int64]bool{}
	p.table.Do(func(t *handle.Locked) {
		for h := range handle.All[*held](t) {
			if !h.Working() && h.cur != nil && h.cur.State().ID != 0 {
				ids[h.cur.State().ID] = true
			}
		}
	})
	return ids
}
