package handle

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
)

// kindCursor is the first sealed byte: what the token is for, and the version of what follows. 1 had no pinned, 2 the whole name of the
// deployment, and the namespace twice. Tokens of other versions do not open.
const kindCursor = 3

// maxPlainBytes is what fits into a token of MaxTokenBytes.
const maxPlainBytes = MaxTokenBytes/4*3 - headBytes - 16

// MaxReplicaBytes is how long a replica's address may be, so that the longest namespace (a database of 63 bytes, 255 bytes in all), on a server
// with the longest name (253 bytes and a port), fits into a token whatever else is in it.
const MaxReplicaBytes = 90

// DeploymentID tells deployments apart.
type DeploymentID [16]byte

// NewDeploymentID makes one of a deployment's name, which may be a list of many hosts.
func NewDeploymentID(name string) DeploymentID {
	sum := sha256.Sum256([]byte("mooring deployment\x00" + name))
	return DeploymentID(sum[:16])
}

// claim is what a cursor's token says. It was sealed by a gateway with the same key; its principal is proved by opening it.
type claim struct {
	deployment DeploymentID // of the deployment that holds the cursor
	replica    string       // address of the replica that served the last page, for its peers; may be empty
	instance   InstanceID   // of that replica's life: a restarted one is another
	id         CursorID     // of the cursor, ours
	seq        uint64       // the page it asks for
	pinned     bool         // only this replica can deliver it
	expires    time.Time
	namespace  Namespace    // that the cursor was opened on
	state      cursor.State // what a getMore needs
}

// The bits of a claim's flags. A namespace's part that is the same in the state is left out there.
const (
	flagPinned = 1 << iota
	flagSameDatabase
	flagSameCollection
	flagsKnown = 1<<iota - 1
)

// errClaim is a sealed text that this version cannot read.
var errClaim = errors.New("unknown content")

// encode returns the bytes to seal. A comment that has no room is left out: getMores by other replicas then go without it.
func (c *claim) encode() ([]byte, error) {
	b := c.append(make([]byte, 0, 256), c.state.Comment)
	if len(b) > maxPlainBytes {
		b = c.append(b[:0], bson.Value{})
	}
	if len(b) > maxPlainBytes {
		return nil, ErrTokenTooLong
	}
	return b, nil
}

func (c *claim) append(b []byte, comment bson.Value) []byte {
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
	b = append(b, kindCursor, flags)
	b = append(b, c.deployment[:]...)
	b = appendText(b, c.replica)
	b = append(b, c.instance[:]...)
	b = append(b, c.id[:]...)
	b = binary.AppendUvarint(b, c.seq)
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
	return appendText(b, string(comment.Data))
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
	if r.byte() != kindCursor {
		return claim{}, errClaim
	}
	var c claim
	flags := r.byte()
	copy(c.deployment[:], r.take(len(c.deployment)))
	c.replica = r.text()
	copy(c.instance[:], r.take(len(c.instance)))
	copy(c.id[:], r.take(len(c.id)))
	c.seq = r.uvarint()
	c.pinned = flags&flagPinned != 0
	c.expires = time.UnixMilli(r.varint())
	c.namespace = Namespace{Database: r.text(), Collection: r.text()}
	c.state = r.state()
	if flags&flagSameDatabase != 0 {
		c.state.Database = c.namespace.Database
	}
	if flags&flagSameCollection != 0 {
		c.state.Collection = c.namespace.Collection
	}
	if r.bad || len(r.b) > 0 || flags&^flagsKnown != 0 {
		return claim{}, errClaim
	}
	return c, nil
}

// DecodeState reads what AppendState has written. The state keeps no part of b.
func DecodeState(b []byte) (cursor.State, error) {
	r := reader{b: b}
	s := r.state()
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

func (r *reader) byte() byte {
	if head := r.take(1); head != nil {
		return head[0]
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
