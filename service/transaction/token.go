package transaction

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
)

// claim holds what a transaction's token says. The token does not expire: it can be used for as
// long as the transaction is open, and for a while after it.
type claim struct {
	id    handle.ID
	owner page.Replica // that keeps the transaction
	begun time.Time    // in whole milliseconds
	// session and number are those of the transaction on the server.
	session bson.UUID
	number  int64
}

// fixedBytes is the length of a claim without the owner's address.
const fixedBytes = 16 + 16 + 8 + 16 + 8

func (c *claim) encode() []byte {
	b := append(make([]byte, 0, fixedBytes+len(c.owner.Address)), c.id[:]...)
	b = append(b, c.owner.Instance[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.begun.UnixMilli()))
	b = append(b, c.session[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.number))
	return append(b, c.owner.Address...)
}

// errClaim is a sealed text that is not a claim.
var errClaim = errors.New("unknown content")

func decodeClaim(b []byte) (claim, error) {
	if len(b) < fixedBytes {
		return claim{}, errClaim
	}
	var c claim
	b = b[copy(c.id[:], b):]
	b = b[copy(c.owner.Instance[:], b):]
	c.begun = time.UnixMilli(int64(binary.BigEndian.Uint64(b)))
	b = b[8:]
	b = b[copy(c.session[:], b):]
	c.number = int64(binary.BigEndian.Uint64(b))
	c.owner.Address = string(b[8:])
	return c, nil
}
