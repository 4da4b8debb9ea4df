package session

import (
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// Pool holds the server sessions of a client that are not in use. It has no maximum. Its zero value
// is an empty pool. Its methods may be called from many goroutines at once.
type Pool struct {
	// Life returns the deployment's logicalSessionTimeoutMinutes. 0, and a nil Life, stand for a
	// life that is not known, as behind a load balancer: sessions do not become stale then. It must
	// not change after the first call of a method.
	Life func() time.Duration

	// mu guards free, which is in the order of returning: the last is the next to be used.
	mu   sync.Mutex
	free []*Session
}

// Acquire returns the session that was returned last, or a new one. The caller passes the session
// to Release when no command and no cursor uses it any more.
func (p *Pool) Acquire() *Session {
	now, life := time.Now(), p.life()
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.free); n > 0; n = len(p.free) {
		s := p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		if !s.isStale(now, life) {
			return s
		}
	}
	return newSession(now)
}

// Release returns a session. It discards those that have become stale in the pool, and the session
// if it is dirty or stale itself.
func (p *Pool) Release(s *Session) {
	now, life := time.Now(), p.life()
	p.mu.Lock()
	defer p.mu.Unlock()
	stale := 0
	for stale < len(p.free) && p.free[stale].isStale(now, life) {
		stale++
	}
	if stale > 0 {
		n := copy(p.free, p.free[stale:])
		clear(p.free[n:])
		p.free = p.free[:n]
	}
	if s.dirty || s.isStale(now, life) {
		return
	}
	p.free = append(p.free, s)
}

func (p *Pool) life() time.Duration {
	if p.Life == nil {
		return 0
	}
	return p.Life()
}

// Len returns the number of sessions in the pool.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

// Drain empties the pool and returns the ids of its sessions, for endSessions when the client
// closes.
func (p *Pool) Drain() []bson.UUID {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]bson.UUID, 0, len(p.free))
	for _, s := range p.free {
		ids = append(ids, s.id)
	}
	p.free = nil
	return ids
}

// MaxEnded is the most sessions that one endSessions should name.
const MaxEnded = 10_000

// AppendEnd appends the elements of an endSessions command for these sessions.
func AppendEnd(b *bson.Builder, ids []bson.UUID) {
	b.OpenArray("endSessions")
	for _, id := range ids {
		appendID(b, "", &id)
	}
	b.Close()
}
