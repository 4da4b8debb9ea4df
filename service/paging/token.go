package paging

import (
	"encoding/binary"
	"errors"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// MaxReplicaBytes is how long a replica's address may be, which is in every token.
const MaxReplicaBytes = 61

// claim holds what a cursor's token says.
type claim struct {
	holder page.Replica // that served the last page; its address may be empty
	id     handle.ID
	seq    uint64 // the page it asks for
	pinned bool   // only the holder can deliver it
}

// The bits of a claim's flags.
const (
	flagPinned = 1 << iota
	flagsKnown = 1<<iota - 1
)

// errClaim is a sealed text that is not a claim.
var errClaim = errors.New("unknown content")

// append appends the body of the token.
func (c *claim) append(b []byte) []byte {
	flags := byte(0)
	if c.pinned {
		flags |= flagPinned
	}
	b = append(b, flags)
	b = appendText(b, c.holder.Address)
	b = append(b, c.holder.Instance[:]...)
	b = append(b, c.id[:]...)
	return binary.AppendUvarint(b, c.seq)
}

func decodeClaim(b []byte) (claim, error) {
	r := reader{b: b}
	var c claim
	flags := r.byte()
	c.holder.Address = r.text()
	copy(c.holder.Instance[:], r.take(len(c.holder.Instance)))
	copy(c.id[:], r.take(len(c.id)))
	c.seq = r.uvarint()
	c.pinned = flags&flagPinned != 0
	if r.bad || len(r.b) > 0 || flags&^flagsKnown != 0 {
		return claim{}, errClaim
	}
	return c, nil
}
