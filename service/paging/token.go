package paging

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/seal"
)

// version is the first sealed byte of a cursor's token. It says what the token is for, and the
// layout of what follows. A release reads a new version before the next one writes it, so that
// tokens stay valid while replicas are replaced one after the other. The numbers below are used up.
const version = 6

// MaxReplicaBytes is how long a replica's address may be, which is in every token.
const MaxReplicaBytes = 61

// DeploymentID tells deployments apart.
type DeploymentID [16]byte

// NewDeploymentID makes one of a deployment's name, which may be a list of many hosts.
func NewDeploymentID(name string) DeploymentID {
	sum := sha256.Sum256([]byte("mooring deployment\x00" + name))
	return DeploymentID(sum[:16])
}

// claim holds what a cursor's token says. A gateway with the same key has sealed it, and opening it
// proves its principal.
type claim struct {
	deployment DeploymentID // of the deployment that holds the cursor
	holder     page.Replica // that served the last page; its address may be empty
	id         handle.ID
	seq        uint64 // the page it asks for
	pinned     bool   // only the holder can deliver it
	expires    time.Time
}

// The bits of a claim's flags.
const (
	flagPinned = 1 << iota
	flagsKnown = 1<<iota - 1
)

// errClaim is a sealed text that is no claim.
var errClaim = errors.New("unknown content")

// append appends the bytes to seal.
func (c *claim) append(b []byte) []byte {
	flags := byte(0)
	if c.pinned {
		flags |= flagPinned
	}
	b = append(b, version, flags)
	b = append(b, c.deployment[:]...)
	b = appendText(b, c.holder.Address)
	b = append(b, c.holder.Instance[:]...)
	b = append(b, c.id[:]...)
	b = binary.AppendUvarint(b, c.seq)
	return binary.AppendVarint(b, c.expires.UnixMilli())
}

func decodeClaim(b []byte) (claim, error) {
	r := reader{b: b}
	found := r.byte()
	if r.bad {
		return claim{}, errClaim
	}
	if found != version {
		return claim{}, seal.ErrVersion
	}
	var c claim
	flags := r.byte()
	copy(c.deployment[:], r.take(len(c.deployment)))
	c.holder.Address = r.text()
	copy(c.holder.Instance[:], r.take(len(c.holder.Instance)))
	copy(c.id[:], r.take(len(c.id)))
	c.seq = r.uvarint()
	c.pinned = flags&flagPinned != 0
	c.expires = time.UnixMilli(r.varint())
	if r.bad || len(r.b) > 0 || flags&^flagsKnown != 0 {
		return claim{}, errClaim
	}
	return c, nil
}
