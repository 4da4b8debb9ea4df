package bson

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// ObjectID holds a 12-byte identifier: seconds, five random bytes of the process, and a counter.
type ObjectID [12]byte

var errObjectID = errors.New("bson: an ObjectId is 24 hexadecimal digits")

// source makes ObjectIDs. It lives as long as the process, because the specification requires
// random bytes and a start of the counter for each process. (Go cannot fork, so a child process
// has its own.)
var source = sync.OnceValue(newObjectIDSource)

type objectIDSource struct {
	random  [5]byte
	counter atomic.Uint32 // its low 24 bits count, and wrap to 0
}

func newObjectIDSource() *objectIDSource {
	var seed [9]byte
	rand.Read(seed[:]) //nolint:errcheck // crypto/rand never fails
	s := &objectIDSource{random: [5]byte(seed[:5])}
	s.counter.Store(binary.LittleEndian.Uint32(seed[5:]))
	return s
}

func (s *objectIDSource) next(now time.Time) ObjectID {
	var id ObjectID
	binary.BigEndian.PutUint32(id[:], uint32(now.Unix()))
	copy(id[4:], s.random[:])
	n := s.counter.Add(1)
	id[9], id[10], id[11] = byte(n>>16), byte(n>>8), byte(n)
	return id
}

// NewObjectID makes an ObjectID for now.
func NewObjectID() ObjectID { return NewObjectIDAt(time.Now()) }

// NewObjectIDAt makes an ObjectID for a time. For many at once it saves asking for the time.
func NewObjectIDAt(t time.Time) ObjectID { return source().next(t) }

// ParseObjectID reads 24 hexadecimal digits of either case.
func ParseObjectID(s string) (ObjectID, error) {
	var id ObjectID
	if len(s) != 24 {
		return id, errObjectID
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ObjectID{}, errObjectID
	}
	return id, nil
}

// Hex returns the id as 24 lower-case hexadecimal digits.
func (id ObjectID) Hex() string { return hex.EncodeToString(id[:]) }

// String returns what Hex returns.
func (id ObjectID) String() string { return id.Hex() }

// IsZero reports whether all bytes are zero.
func (id ObjectID) IsZero() bool { return id == ObjectID{} }

// Time returns the time when the id was made. Its seconds are unsigned and last until 2106.
func (id ObjectID) Time() time.Time {
	return time.Unix(int64(binary.BigEndian.Uint32(id[:])), 0).UTC()
}
