package session_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/session"
)

const life = 30 * time.Minute

// newPool returns a pool whose sessions have that life.
func newPool() *session.Pool {
	return &session.Pool{Life: func() time.Duration { return life }}
}

// wait lets fake time pass.
func wait(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // fake time

// Driver Sessions, prose test 1: the pool is last in, first out.
func TestPoolIsLIFO(t *testing.T) {
	p := newPool()
	a, b := p.Acquire(), p.Acquire()
	if a.ID() == b.ID() {
		t.Fatal("two sessions have one id")
	}
	p.Release(a)
	p.Release(b)
	if c := p.Acquire(); c != b {
		t.Error("the first is not the one that was returned last")
	}
	if c := p.Acquire(); c != a {
		t.Error("the second is not the one that was returned before")
	}
	if p.Len() != 0 {
		t.Errorf("Len() = %d, want 0", p.Len())
	}
}

// "Algorithm to acquire a ServerSession" and "to return": what has less than a minute left is not
// used, and is discarded from the end of the pool that is the oldest.
func TestStaleSessions(t *testing.T) {
	tests := []struct {
		name string
		life time.Duration
		idle time.Duration
		same bool // the idle one is used again
		left int  // in the pool of three idle ones after another was returned
	}{
		{"fresh", life, life - time.Minute, true, 4},
		{"a minute is not left", life, life - time.Minute + 1, false, 1},
		{"over", life, 2 * life, false, 1},
		{"no limit", 0, 1000 * life, true, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := session.Pool{Life: func() time.Duration { return tt.life }}
				s := p.Acquire()
				p.Release(s)
				wait(tt.idle)
				if got := p.Acquire(); (got == s) != tt.same {
					t.Errorf("Acquire() = the idle one: %v, want %v", got == s, tt.same)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				p := session.Pool{Life: func() time.Duration { return tt.life }}
				idle := []*session.Session{p.Acquire(), p.Acquire(), p.Acquire()}
				for _, s := range idle {
					p.Release(s)
				}
				wait(tt.idle)
				var other session.Pool
				p.Release(other.Acquire())
				if p.Len() != tt.left {
					t.Errorf("Len() = %d, want %d", p.Len(), tt.left)
				}
			})
		})
	}
}

// A session that is used longer than it would live idle counts from its last use, and is discarded
// on return if that was too long ago.
func TestLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool()
		s := p.Acquire()
		for range 3 {
			wait(life - time.Minute)
			s.Append(bson.NewBuilder(nil))
		}
		if p.Release(s); p.Len() != 1 {
			t.Error("a session that was just used is not kept")
		}
		s = p.Acquire()
		wait(life)
		if p.Release(s); p.Len() != 0 {
			t.Error("a session that was not used for too long is kept")
		}
	})
}

// Only the old end of the pool is cleaned: what is younger stays.
func TestReleaseKeepsYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool()
		old, young, third := p.Acquire(), p.Acquire(), p.Acquire()
		p.Release(old)
		wait(life / 2)
		young.Append(bson.NewBuilder(nil))
		p.Release(young)
		wait(life / 2)
		third.Append(bson.NewBuilder(nil))
		p.Release(third)
		if p.Len() != 2 {
			t.Fatalf("Len() = %d, want 2", p.Len())
		}
		if a, b := p.Acquire(), p.Acquire(); a != third || b != young {
			t.Error("the pool does not hold the two that are fresh, the last one first")
		}
	})
}

func TestDirtySessions(t *testing.T) {
	p := newPool()
	s := p.Acquire()
	if s.IsDirty() {
		t.Error("a new session is dirty")
	}
	if s.MarkDirty(); !s.IsDirty() {
		t.Error("MarkDirty() has no effect")
	}
	if p.Release(s); p.Len() != 0 {
		t.Error("a dirty session is kept")
	}
}

// The number goes on in the pool.
func TestTxnNumbers(t *testing.T) {
	p := newPool()
	s := p.Acquire()
	if a, b := s.NextTxnNumber(), s.NextTxnNumber(); a != 1 || b != 2 {
		t.Errorf("numbers %d and %d, want 1 and 2", a, b)
	}
	p.Release(s)
	if n := p.Acquire().NextTxnNumber(); n != 3 {
		t.Errorf("the next number is %d, want 3", n)
	}
}

// lsid is {id: a UUID of version 4, as a binary of subtype 4}.
func TestAppend(t *testing.T) {
	p := newPool()
	s := p.Acquire()
	b := bson.NewBuilder(nil)
	s.Append(b)
	doc := b.Finish()
	v, _ := doc.Lookup("lsid", "id")
	id, err := v.UUID(bson.UUIDStandard)
	if err != nil || id != s.ID() || id[6]>>4 != 4 || id[8]>>6 != 2 {
		t.Errorf("lsid is %v (%v), want the id %v of version 4", id, err, s.ID())
	}
	if lsid, _ := doc.Lookup("lsid"); lsid.Type != bson.TypeDocument || doc.Len() != 1 {
		t.Errorf("the command has %d elements, lsid of the type %v", doc.Len(), lsid.Type)
	}
}

func TestDrain(t *testing.T) {
	p := newPool()
	a, b := p.Acquire(), p.Acquire()
	p.Release(a)
	p.Release(b)
	ids := p.Drain()
	if len(ids) != 2 || ids[0] != a.ID() || ids[1] != b.ID() || p.Len() != 0 {
		t.Fatalf("Drain() = %v, %d left, want both", ids, p.Len())
	}
	if again := p.Drain(); len(again) != 0 {
		t.Errorf("the second Drain() = %v", again)
	}
	cmd := bson.NewBuilder(nil)
	session.AppendEnd(cmd, ids)
	doc := cmd.Finish()
	v, _ := doc.Lookup("endSessions")
	list, _ := v.Array()
	n := 0
	for d := range list.Documents() {
		v, _ := d.Lookup("id")
		if id, err := v.UUID(bson.UUIDStandard); err != nil || id != ids[n] {
			t.Errorf("session %d is %v, %v, want %v", n, id, err, ids[n])
		}
		n++
	}
	if n != 2 || doc.FirstKey() != "endSessions" {
		t.Errorf("endSessions has %d sessions", n)
	}
}

// No session has two holders.
func TestConcurrentHolders(t *testing.T) {
	p := newPool()
	var mu sync.Mutex
	held := map[*session.Session]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				s := p.Acquire()
				mu.Lock()
				if held[s] {
					t.Error("a session has two holders")
				}
				held[s] = true
				mu.Unlock()
				s.NextTxnNumber()
				mu.Lock()
				delete(held, s)
				mu.Unlock()
				p.Release(s)
			}
		})
	}
	wg.Wait()
	if p.Len() > 8 {
		t.Errorf("8 goroutines have made %d sessions", p.Len())
	}
}
