package session

import (
	"encoding/binary"
	"errors"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/session"
)

// The bits of a claim's flags.
const (
	flagCausal = 1 << iota
	flagSnapshot
	flagsKnown = 1<<iota - 1
)

// claim holds what a session's token says.
type claim struct {
	causal   bool
	snapshot bool
	state    session.State // without what only one process can count
}

// maxClusterTime is the most bytes of a cluster time that a token carries: without one, the next
// call sends the gateway's own.
const maxClusterTime = 256

func (c *claim) encode() []byte {
	flags := byte(0)
	if c.causal {
		flags |= flagCausal
	}
	if c.snapshot {
		flags |= flagSnapshot
	}
	b := append(make([]byte, 0, 192), flags)
	b = append(b, c.state.ID[:]...)
	b = appendTimestamp(b, c.state.OperationTime)
	b = appendTimestamp(b, c.state.SnapshotTime)
	if len(c.state.ClusterTime) <= maxClusterTime {
		b = append(b, c.state.ClusterTime...)
	}
	return b
}

func appendTimestamp(b []byte, t session.Timestamp) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, t.T), t.I)
}

// errClaim is a sealed text that is not a claim.
var errClaim = errors.New("unknown content")

// fixedBytes is the length of a claim without its cluster time.
const fixedBytes = 1 + 16 + 8 + 8

func decodeClaim(b []byte) (claim, error) {
	if len(b) < fixedBytes || b[0]&^flagsKnown != 0 {
		return claim{}, errClaim
	}
	c := claim{causal: b[0]&flagCausal != 0, snapshot: b[0]&flagSnapshot != 0}
	b = b[1:]
	b = b[copy(c.state.ID[:], b):]
	c.state.OperationTime, c.state.SnapshotTime = timestamp(b), timestamp(b[8:])
	if b = b[16:]; len(b) > 0 {
		if bson.Raw(b).Validate() != nil {
			return claim{}, errClaim
		}
		c.state.ClusterTime = b
	}
	return c, nil
}

func timestamp(b []byte) session.Timestamp {
	return session.Timestamp{T: binary.BigEndian.Uint32(b), I: binary.BigEndian.Uint32(b[4:])}
}
