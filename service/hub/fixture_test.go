package hub

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/service/stream"
)

var _ stream.Changes = (*Subscription)(nil)

// history is a deployment's log in memory, which sources read. The n-th event has the token 2n+2.
type history struct {
	mu      sync.Mutex
	events  []bson.Raw
	changed chan struct{}
	failure error // of all sources, at the end of the log
	opened  int   // so far
	open    int   // now
	most    int   // open at a time
	refuse  error // what Open fails with
	hang    bool  // sources that are opened read nothing
	opaque  bool  // tokens have no order, and those without events are of one source
	// lag is how much later than others the first source reads events.
	lag time.Duration
}

func newHistory() *history { return &history{changed: make(chan struct{})} }

func (l *history) write(n, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		l.events = append(l.events, eventAt(2*len(l.events)+2, size, !l.opaque))
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *history) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
	close(l.changed)
	l.changed = make(chan struct{})
}

// numberOf returns the number of an event, from 0 on, or of a token: how many events are before it.
func numberOf(token bson.Raw) int {
	if v, ok := token.Lookup("opaque"); ok {
		n, _ := v.Int32()
		return int(n / 2)
	}
	at, _ := timeOf(token)
	return int(at / 2)
}

func (l *history) Open(ctx context.Context, after bson.Raw) (Source, bson.Raw, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return nil, nil, l.refuse
	}
	l.opened++
	l.open++
	l.most = max(l.most, l.open)
	s := &logSource{log: l, at: len(l.events), hangs: l.hang, number: l.opened}
	if after != nil {
		s.at = numberOf(after)
	}
	return s, tokenAt(2*s.at, !l.opaque), ctx.Err()
}

type logSource struct {
	log    *history
	at     int
	closed bool
	hangs  bool
	number int // from 1 on
}

// Next returns at most seven events, or what an idle server answers after a second.
func (s *logSource) Next(ctx context.Context) (Batch, error) {
	if s.hangs {
		<-ctx.Done()
		return Batch{}, context.Cause(ctx)
	}
	idle := time.After(time.Second)
	for {
		s.log.mu.Lock()
		events, changed, failure := s.log.events[s.at:], s.log.changed, s.log.failure
		s.log.mu.Unlock()
		if len(events) > 0 {
			events = events[:min(7, len(events))]
			s.at += len(events)
			if s.number == 1 {
				time.Sleep(s.log.lag) //nolint:forbidigo // time is fake
			}
			return Batch{Events: events}, nil
		}
		if failure != nil {
			return Batch{}, failure
		}
		select {
		case <-changed:
		case <-idle:
			return Batch{Token: s.mark()}, nil
		case <-ctx.Done():
			return Batch{}, context.Cause(ctx)
		}
	}
}

// mark returns a token that is newer than that of the last event.
func (s *logSource) mark() bson.Raw {
	token := tokenAt(2*s.at+1, !s.log.opaque)
	if s.log.opaque {
		return bson.With(token, "source", bson.Int32Value(int32(s.number)))
	}
	return token
}

func (s *logSource) Close() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	if s.closed {
		panic("bug: closed twice")
	}
	s.closed = true
	s.log.open--
}

// ledger is an account with so many bytes.
type ledger struct {
	mu          sync.Mutex
	limit, used int64
}

func (a *ledger) Spare(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used+n > a.limit {
		return false
	}
	a.used += n
	return true
}

func (a *ledger) Force(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used += n
}

func (a *ledger) Shrink(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
}

type fixture struct {
	t       *testing.T
	log     *history
	account *ledger
	hub     *Hub
}

// run runs a test in a bubble, which fails if a goroutine is left. At the end nothing is open, and
// nothing charged.
func run(t *testing.T, change func(*Config), test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, log: newHistory(), account: &ledger{limit: 1 << 30}}
		cfg := Config{
			Account: f.account, RingBytes: 1 << 20, MaxCatchUps: 1000, MaxLingering: 1,
		}
		if change != nil {
			change(&cfg)
		}
		f.hub = New(cfg)
		test(f)
		f.hub.Close()
		synctest.Wait()
		if f.log.open != 0 || f.account.used != 0 || f.hub.catchUps != 0 {
			t.Errorf("left: %d sources, %d bytes, %d catching up",
				f.log.open, f.account.used, f.hub.catchUps)
		}
	})
}

func (f *fixture) subscribe(filter Filter, after bson.Raw) *Subscription {
	f.t.Helper()
	return f.subscribeAs(f.account, filter, after)
}

// subscribeAs does what subscribe does, with another account for what is taken.
func (f *fixture) subscribeAs(account *ledger, filter Filter, after bson.Raw) *Subscription {
	f.t.Helper()
	s, err := f.hub.Subscribe(f.t.Context(), Key{Collection: "c"}, filter, after,
		Reader{Who: account, Account: account}, f.log.Open)
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// read reads n events, and returns their numbers.
func (f *fixture) read(s *Subscription, n int) (numbers []int) {
	f.t.Helper()
	for len(numbers) < n {
		event, found, err := s.TryNext(f.t.Context())
		if err != nil {
			f.t.Fatalf("after %v: %v", numbers, err)
		}
		if found {
			numbers = append(numbers, numberOf(tokenOf(event))-1)
		}
	}
	return numbers
}

// ends reads to the end, and returns the error, which must have the token behind so many events.
func (f *fixture) ends(s *Subscription, after int) error {
	f.t.Helper()
	for {
		_, _, err := s.TryNext(f.t.Context())
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || numberOf(e.Token) != after {
			f.t.Fatalf("ends with %v, want a token after %d events", err, after)
		}
		return err
	}
}

func (f *fixture) expect(got []int, first, n int) {
	f.t.Helper()
	for i := range n {
		if len(got) != n || got[i] != first+i {
			f.t.Fatalf("read %v, want %d from %d on", got, n, first)
		}
	}
}

func (f *fixture) leave(s *Subscription) { _ = s.Close(context.Background()) }
