// Package session keeps the driver's side of sessions (Driver Sessions): client sessions with
// their times, the pool of server sessions, and the newest cluster time. It holds numbers and
// documents only: it sends nothing, selects no server and starts no goroutine.
package session

import (
	"crypto/rand"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// reserve is how much of its life a session must have left to be used: servers forget one that has
// not been used for logicalSessionTimeoutMinutes.
const reserve = time.Minute

// Session represents a server session: an id that servers keep state for. It has one holder at a
// time, which Pool.Acquire makes and Pool.Release ends. Its methods are for the goroutine of the
// holder.
type Session struct {
	id        bson.UUID
	lastUse   time.Time
	dirty     bool
	txnNumber int64
}

func newSession(now time.Time) *Session {
	s := &Session{lastUse: now}
	_, _ = rand.Read(s.id[:]) // never fails
	s.id[6] = s.id[6]&0x0f | 0x40
	s.id[8] = s.id[8]&0x3f | 0x80
	return s
}

// ID returns the id of the session, a random UUID (version 4).
func (s *Session) ID() bson.UUID { return s.id }

// Append appends the session to a command as lsid, and counts that as a use of the session.
func (s *Session) Append(b *bson.Builder) {
	s.lastUse = time.Now()
	appendID(b, "lsid", &s.id)
}

func appendID(b *bson.Builder, key string, id *bson.UUID) {
	b.OpenDocument(key).Binary("id", bson.SubtypeUUID, id[:]).Close()
}

// MarkDirty records that a command of the session ended with a network error. The session may still
// be used, and Pool.Release discards it.
func (s *Session) MarkDirty() { s.dirty = true }

// IsDirty reports whether MarkDirty was called.
func (s *Session) IsDirty() bool { return s.dirty }

// NextTxnNumber returns a number for a transaction or a retryable write. It is greater than all
// before it, for as long as the session lives, in the pool as well.
func (s *Session) NextTxnNumber() int64 {
	s.txnNumber++
	return s.txnNumber
}

// isStale reports whether less than a minute of the session's life is left. A life of 0 is not
// limited.
func (s *Session) isStale(now time.Time, life time.Duration) bool {
	return life > 0 && s.lastUse.Add(life).Sub(now) < reserve
}
