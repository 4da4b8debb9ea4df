package paging

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/seal"
)

// The first sealed byte of a cursor's token says what the token is for, and the version of what
// follows. A release reads a new version before the next one writes it, so that tokens stay valid
// while replicas are replaced one after the other.
const (
	// version3 has no branch: its tokens are on the branch without a gap.
	version3 = 3
	// version4 has the branch.
	version4 = 4
	// version5 has the session of the cursor behind its state. A token has an earlier version if
	// there is none.
	version5 = 5
	// writtenVersion is the version that this release writes.
	writtenVersion = version4
)

// MaxReplicaBytes is how long a replica's address may be, so that the longest namespace (a
// database of 63 bytes, 255 bytes in all), on a server with the longest name (253 bytes and a
// port), fits into a token whatever else is in it.
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
	branch     page.Branch
	pinned     bool // only the holder can deliver it
	expires    time.Time
	namespace  Namespace    // that the cursor was opened on
	state      cursor.State // what a getMore needs
}

// The bits of a claim's flags. A namespace's part that is the same in the state is left out there.
const (
	flagPinned = 1 << iota
	flagSameDatabase
	flagSameCollection
	flagBranch
	flagsKnown = 1<<iota - 1
)

// errClaim is a sealed text that is no claim.
var errClaim = errors.New("unknown content")

// encode returns the bytes to seal. A comment that has no room is left out: getMores by other
// replicas then go without it.
func (c *claim) encode(version byte) ([]byte, error) {
	b := c.append(make([]byte, 0, 256), version, c.state.Comment)
	if len(b) > seal.MaxPlainBytes {
		b = c.append(b[:0], version, bson.Value{})
	}
	if len(b) > seal.MaxPlainBytes {
		return nil, ErrTokenTooLong
	}
	return b, nil
}

func (c *claim) append(b []byte, version byte, comment bson.Value) []byte {
	state, flags := c.state, byte(0)
	if c.pinned {
		flags |= flagPinned
	}
	if state.Database == c.namespace.Database {
		state.Database, flags = "", flags|flagSameDatabase
	}
	if state.Collection == c.namespace.Collection {
		state.Collection, flags = "", flags|flagSameCollection
	}
	if c.branch != (page.Branch{}) { // which no earlier version can say
		version, flags = version4, flags|flagBranch
	}
	if state.Session != (bson.UUID{}) {
		version = version5
	}
	b = append(b, version, flags)
	b = append(b, c.deployment[:]...)
	b = appendText(b, c.holder.Address)
	b = append(b, c.holder.Instance[:]...)
	b = append(b, c.id[:]...)
	b = binary.AppendUvarint(b, c.seq)
	if flags&flagBranch != 0 {
		b = binary.AppendUvarint(b, uint64(c.branch.Gaps))
		b = binary.BigEndian.AppendUint64(b, c.branch.ID)
	}
	b = binary.AppendVarint(b, c.expires.UnixMilli())
	b = appendText(b, c.namespace.Database)
	b = appendText(b, c.namespace.Collection)
	return appendState(b, &state, comment)
}

// AppendState appends a cursor's state in the form that it has in tokens.
func AppendState(b []byte, s *cursor.State) []byte { return appendState(b, s, s.Comment) }

func appendState(b []byte, s *cursor.State, comment bson.Value) []byte {
	b = appendText(b, string(s.Server))
	b = binary.AppendVarint(b, s.ID)
	b = appendText(b, s.Database)
	b = appendText(b, s.Collection)
	b = binary.AppendVarint(b, int64(s.BatchSize))
	b = binary.AppendVarint(b, s.Remaining)
	b = appendOptional(b, s.MaxAwaitTimeMS)
	b = append(b, byte(comment.Type))
	b = appendText(b, string(comment.Data))
	if s.Session != (bson.UUID{}) {
		b = append(b, s.Session[:]...)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendOptional(b []byte, v *int64) []byte {
	if v == nil {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, 1), *v)
}

func decodeClaim(b []byte) (claim, error) {
	r := reader{b: b}
	version := r.byte()
	if r.bad {
		return claim{}, errClaim
	}
	if version < version3 || version > version5 {
		return claim{}, seal.ErrVersion
	}
	var c claim
	flags := r.byte()
	copy(c.deployment[:], r.take(len(c.deployment)))
	c.holder.Address = r.text()
	copy(c.holder.Instance[:], r.take(len(c.holder.Instance)))
	copy(c.id[:], r.take(len(c.id)))
	c.seq = r.uvarint()
	if flags&flagBranch != 0 {
		c.branch = page.Branch{Gaps: r.uint32(), ID: r.uint64()}
	}
	c.pinned = flags&flagPinned != 0
	c.expires = time.UnixMilli(r.varint())
	c.namespace = Namespace{Database: r.text(), Collection: r.text()}
	c.state = r.state()
	if version >= version5 {
		c.state.Session = r.session()
	}
	if flags&flagSameDatabase != 0 {
		c.state.Database = c.namespace.Database
	}
	if flags&flagSameCollection != 0 {
		c.state.Collection = c.namespace.Collection
	}
	known := byte(flagsKnown)
	if version == version3 {
		known &^= flagBranch
	}
	if r.bad || len(r.b) > 0 || flags&^known != 0 {
		return claim{}, errClaim
	}
	return c, nil
}

// DecodeState reads what AppendState has written. The state keeps no part of b.
func DecodeState(b []byte) (cursor.State, error) {
	r := reader{b: b}
	s := r.state()
	if len(r.b) > 0 {
		s.Session = r.session()
	}
	if r.bad || len(r.b) > 0 {
		return cursor.State{}, errClaim
	}
	return s, nil
}

// reader takes values off the front of b; bad says that there was too little, and stays.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) state() (s cursor.State) {
	s.Server = address.Address(r.text())
	s.ID = r.varint()
	s.Database = r.text()
	s.Collection = r.text()
	s.BatchSize = int32(r.varint())
	s.Remaining = r.varint()
	if r.byte() == 1 {
		v := r.varint()
		s.MaxAwaitTimeMS = &v
	}
	if typ, data := r.byte(), r.text(); typ != 0 {
		s.Comment = bson.Value{Type: bson.Type(typ), Data: []byte(data)}
	}
	return s
}

// session reads an id, which is not zero.
func (r *reader) session() (id bson.UUID) {
	copy(id[:], r.take(len(id)))
	if id == (bson.UUID{}) {
		r.bad = true
	}
	return id
}

func (r *reader) byte() byte {
	if head := r.take(1); head != nil {
		return head[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.bad = true
	}
	return uint32(v)
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	return string(r.take(int(n)))
}
