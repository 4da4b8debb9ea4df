package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

// TestLinger shares a source, which stays open for a while after its last subscriber.
func TestLinger(t *testing.T) {
	run(t, nil, func(f *fixture) {
		a, b := f.subscribe(Filter{}, nil), f.subscribe(Filter{}, nil)
		f.log.write(3, 10)
		f.expect(f.read(a, 3), 0, 3)
		f.expect(f.read(b, 3), 0, 3)
		f.leave(a)
		f.leave(b)
		f.leave(b)                          // does nothing
		time.Sleep(29 * time.Second)        //nolint:forbidigo // time is fake
		f.leave(f.subscribe(Filter{}, nil)) // the time begins anew
		time.Sleep(29 * time.Second)        //nolint:forbidigo // time is fake
		c := f.subscribe(Filter{}, nil)
		time.Sleep(time.Minute) //nolint:forbidigo // time is fake
		if f.log.opened != 1 || f.log.open != 1 {
			t.Fatalf("%d sources were opened, %d are open; want 1", f.log.opened, f.log.open)
		}
		f.leave(c)
		time.Sleep(31 * time.Second) //nolint:forbidigo // time is fake
		synctest.Wait()
		if f.log.open != 0 || f.account.used != 0 {
			t.Fatalf("%d sources are open, %d bytes held", f.log.open, f.account.used)
		}
	})
}

// TestJoin resumes from memory where the ring holds the token, and by a source of its own before.
func TestJoin(t *testing.T) {
	one := entry{event: eventAt(1, 10, true), token: tokenAt(1, true)}
	small := func(c *Config) { c.RingBytes = 10 * one.cost() }
	run(t, small, func(f *fixture) {
		first := f.subscribe(Filter{}, nil)
		f.log.write(100, 10)
		synctest.Wait()
		memory := f.subscribe(Filter{}, tokenAt(2*95, true))
		f.expect(f.read(memory, 5), 95, 5)
		if f.log.opened != 1 {
			t.Fatalf("%d sources, want the ring to do", f.log.opened)
		}
		old := f.subscribe(Filter{}, tokenAt(2*20, true))
		f.expect(f.read(old, 80), 20, 80)
		if f.log.opened != 2 || f.log.open != 1 {
			t.Fatalf("%d sources opened, %d open; want one to catch up", f.log.opened, f.log.open)
		}
		f.log.write(2, 10)
		f.expect(f.read(old, 2), 100, 2)
		f.expect(f.read(memory, 2), 100, 2)
		f.expect(f.read(first, 102), 0, 102) // an overrun
		for _, s := range []*Subscription{first, memory, old} {
			f.leave(s)
		}
	})
}

// TestTooLarge reads events larger than a ring may be, one at a time.
func TestTooLarge(t *testing.T) {
	run(t, func(c *Config) { c.RingBytes = 0 }, func(f *fixture) {
		s := f.subscribe(Filter{}, nil)
		for n := range 3 {
			f.log.write(1, 10)
			f.expect(f.read(s, 1), n, 1)
		}
		f.leave(s)
	})
}

// TestLargeReply has a source read more at once than a ring may hold: no prompt subscriber is lost.
// The next reply makes room.
func TestLargeReply(t *testing.T) {
	small := func(c *Config) { c.RingBytes, c.MaxCatchUps = 40_000, 0 }
	run(t, small, func(f *fixture) {
		var all []*Subscription
		for range 3 {
			all = append(all, f.subscribe(Filter{}, nil))
		}
		for first := 0; first < 21; first += 7 {
			f.log.write(7, 10_000)
			for _, s := range all {
				f.expect(f.read(s, 7), first, 7)
			}
		}
		synctest.Wait()
		if ring := f.hub.Stats().RingBytes; ring < 70_000 || ring > 80_000 {
			t.Errorf("the ring has %d bytes, want those of the last reply", ring)
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // time is fake: a token comes
		synctest.Wait()
		if ring := f.hub.Stats().RingBytes; ring > 40_000 {
			t.Errorf("the ring has %d bytes after the next reply", ring)
		}
		for _, s := range all {
			f.leave(s)
		}
	})
}

// TestNoRoom tells subscribers that cannot catch up to come back with their token.
func TestNoRoom(t *testing.T) {
	run(t, func(c *Config) { c.RingBytes, c.MaxCatchUps = 1000, 0 }, func(f *fixture) {
		s := f.subscribe(Filter{}, nil)
		f.log.write(1, 10)
		f.expect(f.read(s, 1), 0, 1)
		f.log.write(50, 10)
		synctest.Wait()
		if err := f.ends(s, 1); !errors.Is(err, ErrBehind) {
			t.Errorf("an overrun ends with %v", err)
		}
		f.leave(s)
		_, err := f.hub.Subscribe(f.t.Context(), Key{Collection: "c"}, Filter{}, tokenAt(2, true),
			Reader{Account: f.account}, f.log.Open)
		if !errors.Is(err, ErrBehind) {
			t.Errorf("an old token: %v", err)
		}
	})
}

// TestOpaque catches up where tokens have no order: the subscriber meets the ring at an event that
// it has read before the ring.
func TestOpaque(t *testing.T) {
	run(t, func(c *Config) { c.RingBytes = 2000 }, func(f *fixture) {
		f.log.opaque, f.log.lag = true, 2*time.Second
		f.log.write(20, 10)
		other := f.subscribe(Filter{}, nil)
		f.log.write(1, 10)
		s := f.subscribe(Filter{}, tokenAt(2*5, false))
		f.expect(f.read(s, 16), 5, 16)
		for n := 0; n < 5 && f.log.open > 1; n++ { // no token without an event is the same
			_, _, _ = s.TryNext(f.t.Context())
		}
		if f.log.open != 1 {
			t.Errorf("%d sources are open, want the ring to do", f.log.open)
		}
		f.log.write(20, 10)
		f.expect(f.read(s, 20), 21, 20)
		f.expect(f.read(other, 21), 20, 21)
		f.leave(s)
		f.leave(other)
	})
}

// TestMarks has subscribers that get no token of an event without the event: none of events before
// they began, and none of those that their filter drops. Their tokens move on nevertheless, and who
// resumes after one misses and repeats nothing, in memory or by a source of its own.
func TestMarks(t *testing.T) {
	const events, every = 200, 9
	one := entry{event: eventAt(1, 10, true), token: tokenAt(1, true)}
	for name, bytes := range map[string]int{"in memory": 1 << 20, "behind": 10 * one.cost()} {
		t.Run(name, func(t *testing.T) {
			run(t, func(c *Config) { c.RingBytes = bytes }, func(f *fixture) {
				other := f.subscribe(Filter{}, nil)
				f.log.write(3, 10)
				synctest.Wait() // the newest token is an event's
				some := Filter{Text: "some", Marks: true, Match: func(event bson.Raw) bool {
					return numberOf(tokenOf(event))%every == 0
				}}
				type seen struct {
					token bson.Raw
					next  int // the event that follows
				}
				var tokens []seen
				t := f.t
				read := func(s *Subscription) (number int) {
					t.Helper()
					for last := s.ResumeToken(); ; {
						event, found, err := s.TryNext(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						if found {
							return numberOf(tokenOf(event))
						}
						token := s.ResumeToken()
						was, _ := timeOf(last)
						at, _ := timeOf(token)
						if at%2 == 0 && at > 0 || at < was {
							t.Errorf("a token without an event is %v, after %v", token, last)
						}
						tokens, last = append(tokens, seen{token: token}), token
					}
				}
				s := f.subscribe(some, nil)
				if at, _ := timeOf(s.ResumeToken()); at != 0 {
					t.Errorf("the first token is %v, want the source's first", s.ResumeToken())
				}
				var writer sync.WaitGroup
				writer.Go(func() {
					for n := range events {
						pause := time.Duration(n%5) * time.Second / 2
						if 20 < n && n < 80 { // no token comes without an event
							pause = 400 * time.Millisecond
						}
						time.Sleep(pause) //nolint:forbidigo // time is fake
						f.log.write(1, 10)
					}
				})
				again := f.subscribe(some, s.ResumeToken())
				for want := every; want < events; want += every {
					from := len(tokens)
					both := [2]*Subscription{s, again}
					for i := range both { // the first one waits
						if got := read(both[(i+want)%2]); got != want {
							t.Fatalf("read the event %d, want %d", got, want)
						}
					}
					for i := range tokens[from:] {
						tokens[from+i].next = want
					}
					f.leave(again)
					again = f.subscribe(some, s.ResumeToken())
				}
				f.leave(again)
				writer.Wait()
				if len(tokens) < 5 {
					t.Errorf("only %d tokens came without an event", len(tokens))
				}
				for _, was := range slices.Clone(tokens) {
					again := f.subscribe(some, was.token)
					if got := read(again); got != was.next {
						t.Errorf("after %v comes the event %d, want %d", was.token, got, was.next)
					}
					f.leave(again)
				}
				f.leave(s)
				f.leave(other)
			})
		})
	}
}

// TestFatal ends all subscribers with the error of the source, after what was read before it, and
// lets the next one open another.
func TestFatal(t *testing.T) {
	for _, failure := range []error{io.EOF, errors.New("history lost")} {
		run(t, nil, func(f *fixture) {
			a, b := f.subscribe(Filter{}, nil), f.subscribe(Filter{}, nil)
			f.log.write(3, 10)
			f.expect(f.read(a, 1), 0, 1)
			f.log.fail(failure)
			synctest.Wait()
			for _, s := range []*Subscription{a, b} {
				if err := f.ends(s, 3); !errors.Is(err, failure) {
					t.Errorf("ends with %v, want %v", err, failure)
				}
				f.leave(s)
			}
			if f.account.used != 0 {
				t.Errorf("%d bytes held after the end", f.account.used)
			}
			f.log.fail(nil)
			c := f.subscribe(Filter{}, nil)
			f.log.write(1, 10)
			f.expect(f.read(c, 1), 3, 1)
			f.leave(c)
			f.log.refuse = failure
			_, err := f.hub.Subscribe(f.t.Context(), Key{Collection: "d"}, Filter{}, nil,
				Reader{Account: f.account}, f.log.Open)
			if !errors.Is(err, failure) {
				t.Errorf("the source does not open: %v", err)
			}
		})
	}
}

// TestClose ends subscribers that wait, that catch up, and those that come later.
func TestClose(t *testing.T) {
	run(t, func(c *Config) { c.RingBytes = 0 }, func(f *fixture) {
		waits := f.subscribe(Filter{Text: "none", Match: func(bson.Raw) bool { return false }}, nil)
		f.log.write(10, 10)
		synctest.Wait()
		f.log.hang = true
		behind := f.subscribe(Filter{}, tokenAt(2*4, true))
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := f.ends(behind, 4); !errors.Is(err, ErrClosed) {
				t.Errorf("catching up ends with %v", err)
			}
		})
		wg.Go(func() {
			if err := f.ends(waits, 0); !errors.Is(err, ErrClosed) {
				t.Errorf("waiting ends with %v", err)
			}
		})
		synctest.Wait()
		f.hub.Close()
		wg.Wait()
		f.leave(waits)
		f.leave(behind)
		_, err := f.hub.Subscribe(f.t.Context(), Key{}, Filter{}, nil, Reader{Account: f.account},
			f.log.Open)
		if !errors.Is(err, ErrClosed) {
			t.Errorf("a closed hub: %v", err)
		}
	})
}

// TestProgress gives a subscriber without events newer tokens, now and then.
func TestProgress(t *testing.T) {
	run(t, nil, func(f *fixture) {
		s := f.subscribe(Filter{Text: "none", Match: func(bson.Raw) bool { return false }}, nil)
		begun := time.Now()
		f.log.write(5, 10)
		_, found, err := s.TryNext(f.t.Context())
		passed := time.Since(begun)
		if found || err != nil || numberOf(s.ResumeToken()) != 5 || passed != 10*time.Second {
			t.Errorf("%t, %v, %v after %v", found, err, s.ResumeToken(), passed)
		}
		f.leave(s)
	})
}

// TestRefused has an account that takes a few events only: the ring shrinks, and nothing is lost.
func TestRefused(t *testing.T) {
	for _, limit := range []int64{0, 1000} {
		run(t, nil, func(f *fixture) {
			f.account.limit = limit
			s := f.subscribe(Filter{}, nil)
			f.log.write(50, 10)
			synctest.Wait()
			if f.account.used > limit {
				t.Errorf("%d bytes, want at most %d", f.account.used, limit)
			}
			f.expect(f.read(s, 50), 0, 50)
			f.leave(s)
		})
	}
}

// TestFatalBehind ends subscribers whose events the ring does not hold with the error of the feed.
func TestFatalBehind(t *testing.T) {
	run(t, func(c *Config) { c.RingBytes = 0 }, func(f *fixture) {
		failure := errors.New("history lost")
		overrun := f.subscribe(Filter{}, nil)
		f.log.write(20, 10)
		synctest.Wait()
		behind := f.subscribe(Filter{}, tokenAt(2*5, true))
		f.log.fail(failure)
		synctest.Wait()
		for s, after := range map[*Subscription]int{overrun: 0, behind: 5} {
			if err := f.ends(s, after); !errors.Is(err, failure) {
				t.Errorf("ends with %v, want %v", err, failure)
			}
			f.leave(s)
		}
	})
}

// TestContext interrupts a subscriber that waits, and one that catches up. Both may go on.
func TestContext(t *testing.T) {
	run(t, func(c *Config) { c.RingBytes = 0 }, func(f *fixture) {
		waits := f.subscribe(Filter{}, nil)
		f.log.hang = true
		f.log.write(20, 10)
		synctest.Wait()
		behind := f.subscribe(Filter{}, tokenAt(2*5, true))
		f.log.hang = false
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(f.t.Context(), time.Second/2, gone)
		defer cancel()
		if _, _, err := behind.TryNext(ctx); !errors.Is(err, gone) {
			t.Errorf("catching up ends with %v, want the cause", err)
		}
		f.expect(f.read(behind, 15), 5, 15)
		f.expect(f.read(waits, 20), 0, 20)
		ctx, cancel = context.WithTimeoutCause(f.t.Context(), time.Second/2, gone)
		defer cancel()
		if _, _, err := waits.TryNext(ctx); !errors.Is(err, gone) {
			t.Errorf("waiting ends with %v, want the cause", err)
		}
		f.log.write(1, 10)
		f.expect(f.read(waits, 1), 20, 1)
		f.leave(waits)
		f.leave(behind)
	})
}

// TestExactlyOnce has 1,000 subscribers with 50 filters, which pause, leave and come back with
// their token. Each gets what its filter makes of the whole history.
func TestExactlyOnce(t *testing.T) {
	const subscribers, filters, total = 1000, 50, 1000
	run(t, func(c *Config) { c.RingBytes = 40_000 }, func(f *fixture) {
		asked := 0 // under the lock of the feed, and by catching up
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range subscribers {
			k := i % filters
			keeps := func(event bson.Raw) bool {
				mu.Lock()
				asked++
				mu.Unlock()
				return numberOf(tokenOf(event))%filters == k
			}
			filter := Filter{Text: fmt.Sprint(k), Match: keeps}
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			s := f.subscribe(filter, nil)
			wg.Go(func() {
				var got []int
				for len(got) < total/filters {
					got = append(got, f.read(s, 1)...)
					switch slow := i%10 == 0; {
					case slow && rnd.IntN(4) == 0:
						pause := time.Duration(rnd.IntN(3000)) * time.Millisecond
						time.Sleep(pause) //nolint:forbidigo // time is fake
					case slow && rnd.IntN(4) == 0:
						token := s.ResumeToken()
						f.leave(s)
						s = f.subscribe(filter, token)
					}
				}
				f.leave(s)
				var want []int
				for n := range total {
					if (n+1)%filters == k {
						want = append(want, n)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("subscriber %d: %v, want %v", i, got, want)
				}
			})
		}
		for range total / 10 {
			f.log.write(10, 100)
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // time is fake
		}
		wg.Wait()
		if f.log.opened < 10 {
			t.Errorf("%d sources: nothing was overrun", f.log.opened)
		}
		t.Logf("%d sources, at most %d at a time; filters were asked %d times",
			f.log.opened, f.log.most, asked)
	})
}

// TestOncePerGroup asks equal filters once for each event.
func TestOncePerGroup(t *testing.T) {
	run(t, nil, func(f *fixture) {
		asked := 0
		filter := Filter{Text: "all", Match: func(bson.Raw) bool { asked++; return true }}
		start := tokenAt(0, true)
		a, b := f.subscribe(filter, nil), f.subscribe(filter, nil)
		f.log.write(20, 10)
		synctest.Wait()
		c := f.subscribe(filter, start)
		for _, s := range []*Subscription{a, b, c} {
			s.SetBatchSize(3)
			f.expect(f.read(s, 20), 0, 20)
			f.leave(s)
		}
		if asked != 20 {
			t.Errorf("the filter was asked %d times about 20 events", asked)
		}
	})
}

// TestDecide has a filter take long to decide about what the ring holds. Meanwhile others go on, an
// equal filter waits and is not asked again, and what is in use stays charged. What was evicted
// then comes by a source of the subscriber's own.
func TestDecide(t *testing.T) {
	const size = 1000
	for name, evicts := range map[string]bool{"held": false, "evicted": true} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				start := tokenAt(0, true)
				other := f.subscribe(Filter{}, nil)
				f.log.write(20, size)
				f.expect(f.read(other, 20), 0, 20)
				gate, asked := make(chan struct{}), map[int]int{}
				var mu sync.Mutex
				odd := Filter{Text: "odd", Match: func(event bson.Raw) bool {
					n := numberOf(tokenOf(event)) - 1
					mu.Lock()
					asked[n]++
					mu.Unlock()
					if n == 0 {
						<-gate
					}
					return n%2 == 1
				}}
				var resumed [2]*Subscription
				var wg sync.WaitGroup
				wg.Go(func() { resumed[0] = f.subscribe(odd, start) })
				synctest.Wait()
				free := other.feed.mu.TryLock()
				if free {
					other.feed.mu.Unlock()
					f.log.write(10, size)
					f.expect(f.read(other, 10), 20, 10)
					if evicts {
						f.hub.Reclaim(1 << 30)
					}
					if used, ring := f.account.used, f.hub.Stats().RingBytes; used < 20*size ||
						evicts && ring != 0 || !evicts && used != ring {
						t.Errorf("%d bytes are charged, %d of them of the ring", used, ring)
					}
				} else {
					t.Error("the feed is locked while a filter decides")
					f.log.write(10, size)
				}
				if !evicts {
					wg.Go(func() { resumed[1] = f.subscribe(odd, start) })
				}
				close(gate)
				wg.Wait()
				for _, s := range resumed {
					if s == nil {
						continue
					}
					for i, got := range f.read(s, 15) {
						if got != 2*i+1 {
							t.Errorf("read the event %d, want %d", got, 2*i+1)
						}
					}
				}
				if want := map[bool]int{false: 1, true: 2}[evicts]; f.log.opened != want {
					t.Errorf("%d sources were opened, want %d", f.log.opened, want)
				}
				for n, times := range asked {
					if !evicts && times != 1 {
						t.Errorf("the filter was asked %d times about the event %d", times, n)
					}
				}
				if free {
					f.log.write(2, size)
					f.expect(f.read(resumed[0], 1), 31, 1)
				}
				for _, s := range append(resumed[:], other) {
					if s != nil {
						f.leave(s)
					}
				}
			})
		})
	}
}

// TestGreedy has filters that together take more steps than a feed has: those end that take the
// most, and the others get the event. It costs no more steps.
func TestGreedy(t *testing.T) {
	const maxSteps = 10_000
	run(t, func(c *Config) { c.MaxSteps = maxSteps }, func(f *fixture) {
		spent := 0
		taking := func(n, cost int) (all []*Subscription) {
			for i := range n {
				all = append(all, f.subscribe(Filter{
					Text:  fmt.Sprint(cost, " ", i),
					Match: func(bson.Raw) bool { return true },
					Within: func(_ bson.Raw, steps int) (bool, int) {
						if spent += min(cost, steps); cost > steps {
							return false, steps + 1
						}
						return true, cost
					},
				}, nil))
			}
			return all
		}
		cheap, large := taking(10, 50), taking(5, maxSteps/20)
		f.log.write(1, 10)
		for _, s := range append(cheap, large...) {
			f.expect(f.read(s, 1), 0, 1)
		}
		greedy := taking(30, maxSteps/10)
		spent = 0
		f.log.write(1, 10)
		for _, s := range cheap {
			f.expect(f.read(s, 1), 1, 1)
			f.leave(s)
		}
		for _, s := range greedy {
			if err := f.ends(s, 1); !errors.Is(err, ErrGreedy) {
				t.Errorf("a greedy filter ends with %v", err)
			}
			f.leave(s)
		}
		if spent > maxSteps {
			t.Errorf("%d steps were taken, want at most %d", spent, maxSteps)
		}
		for _, s := range large {
			f.leave(s)
		}
	})
}

// TestGreedyGroup has a subscriber that does not come back, and whose filter takes too many steps
// for one event. Others with this filter leave, and those that come then get the next events.
func TestGreedyGroup(t *testing.T) {
	run(t, func(c *Config) { c.MaxSteps = 500 }, func(f *fixture) {
		filter := Filter{Text: "a", Within: func(event bson.Raw, steps int) (bool, int) {
			return true, len(event)
		}}
		stuck, b := f.subscribe(filter, nil), f.subscribe(filter, nil)
		f.log.write(1, 1000)
		if err := f.ends(b, 0); !errors.Is(err, ErrGreedy) {
			t.Errorf("it ends with %v", err)
		}
		f.leave(b)
		for n := 1; n < 3; n++ { // the second one joins the first one's group
			b = f.subscribe(filter, nil)
			f.log.write(1, 0)
			f.expect(f.read(b, 1), n, 1)
			defer f.leave(b)
		}
		if err := f.ends(stuck, 0); !errors.Is(err, ErrGreedy) {
			t.Errorf("the stuck one ends with %v", err)
		}
		f.leave(stuck)
		if len(b.feed.groups) != 1 {
			t.Errorf("%d groups are left, want 1", len(b.feed.groups))
		}
	})
}

// TestNotGreedy has many filters that together take more steps than a feed has, but each no more
// than it may take in any case: none ends.
func TestNotGreedy(t *testing.T) {
	const cost = 100
	run(t, func(c *Config) { c.MaxSteps, c.MinSteps = 100*cost, cost }, func(f *fixture) {
		var all []*Subscription
		for i := range 101 {
			all = append(all, f.subscribe(Filter{
				Text: fmt.Sprint(i),
				Within: func(_ bson.Raw, steps int) (bool, int) {
					return cost <= steps, min(cost, steps+1)
				},
			}, nil))
		}
		f.log.write(1, 10)
		for _, s := range all {
			f.expect(f.read(s, 1), 0, 1)
			f.leave(s)
		}
	})
}

// TestAsk has a filter take long to decide about a new event. Meanwhile the feed is not locked, and
// a subscriber comes whose filter decides about it, too.
func TestAsk(t *testing.T) {
	run(t, nil, func(f *fixture) {
		gate := make(chan struct{})
		slow := f.subscribe(Filter{Text: "slow", Match: func(bson.Raw) bool {
			<-gate
			return true
		}}, nil)
		f.log.write(1, 10)
		synctest.Wait()
		if !slow.feed.mu.TryLock() {
			t.Error("the feed is locked while a filter decides")
			close(gate)
			f.leave(slow)
			return
		}
		slow.feed.mu.Unlock()
		f.hub.Reclaim(1)
		lateGate := make(chan struct{})
		late := f.subscribe(Filter{Text: "late", Match: func(bson.Raw) bool {
			<-lateGate
			return true
		}}, nil)
		close(gate)
		synctest.Wait()
		again := f.subscribe(slow.filter, nil)
		ctx, cancel := context.WithCancel(f.t.Context())
		cancel()
		if _, found, err := again.TryNext(ctx); found || !errors.Is(err, context.Canceled) {
			t.Errorf("before all have decided: %t, %v", found, err)
		}
		close(lateGate)
		for _, s := range []*Subscription{slow, late, again} {
			f.expect(f.read(s, 1), 0, 1)
			f.leave(s)
		}
	})
}

// TestReaders keeps events charged that a slow subscriber has taken, and the ring does not hold any
// more, and takes large events one at a time.
func TestReaders(t *testing.T) {
	run(t, func(c *Config) { c.RingBytes = 1 << 20 }, func(f *fixture) {
		slow, fast := f.subscribe(Filter{}, nil), f.subscribe(Filter{}, nil)
		f.log.write(3, 200<<10)
		f.expect(f.read(slow, 1), 0, 1)
		if n := slow.Buffered(); n != 0 {
			t.Errorf("%d more events were taken beside a large one", n)
		}
		one := int64((&entry{event: eventAt(2, 200<<10, true), token: tokenAt(2, true)}).cost())
		f.expect(f.read(fast, 3), 0, 3)
		f.log.write(10, 200<<10)
		f.expect(f.read(fast, 10), 3, 10)
		if ring := f.hub.Stats().RingBytes; f.account.used != ring+one {
			t.Errorf("%d bytes are charged, %d of the ring, want one event of %d more",
				f.account.used, ring, one)
		}
		f.expect(f.read(slow, 1), 1, 1) // by catching up
		if ring := f.hub.Stats().RingBytes; f.account.used != ring {
			t.Errorf("%d bytes are charged, want %d", f.account.used, ring)
		}
		f.leave(slow)
		f.leave(fast)
	})
}

// TestTaken charges an event to one of those that have taken it, in turn, and otherwise to the hub
// while the ring holds it.
func TestTaken(t *testing.T) {
	for name, evicts := range map[string]bool{"held": false, "evicted": true} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(f *fixture) {
				event := entry{event: eventAt(2, 1000, true), token: tokenAt(2, true)}
				one := int64(event.cost())
				accounts := [3]*ledger{{limit: 1 << 20}, {limit: 1 << 20}, {limit: 1 << 20}}
				var all [3]*Subscription
				for i, account := range accounts {
					all[i] = f.subscribeAs(account, Filter{}, nil)
				}
				f.log.write(1, 1000)
				synctest.Wait()
				check := func(when string, hub int64, want ...int64) {
					f.t.Helper()
					got := []int64{accounts[0].used, accounts[1].used, accounts[2].used}
					if f.account.used != hub || !slices.Equal(got, want) {
						f.t.Errorf("%s: charged are %d of the hub, want %d; %d, want %d", when,
							f.account.used, hub, got, want)
					}
				}
				check("in the ring", one, 0, 0, 0)
				for _, s := range all {
					f.expect(f.read(s, 1), 0, 1)
					check("taken", 0, one, 0, 0)
				}
				ring := one
				if evicts {
					f.hub.Reclaim(1 << 30)
					check("evicted", 0, one, 0, 0)
					ring = 0
				}
				f.leave(all[1])
				check("without the second", 0, one, 0, 0)
				f.leave(all[0])
				check("without the first", 0, 0, 0, one)
				f.leave(all[2])
				check("given back", ring, 0, 0, 0)
			})
		})
	}
}

// TestTakesTooMuch has a subscriber catch up whose account permits nothing. It returns to the ring
// when there is more, and nothing is lost.
func TestTakesTooMuch(t *testing.T) {
	run(t, nil, func(f *fixture) {
		account := &ledger{}
		s, other := f.subscribeAs(account, Filter{}, nil), f.subscribe(Filter{}, nil)
		f.log.write(1, 1000)
		f.expect(f.read(other, 1), 0, 1) // and is charged
		f.expect(f.read(s, 1), 0, 1)
		if f.log.opened != 2 || account.used != 0 {
			t.Errorf("%d sources were opened, want 2; %d bytes are charged", f.log.opened,
				account.used)
		}
		account.limit = 1 << 20
		f.log.write(5, 1000)
		f.expect(f.read(s, 5), 1, 5)
		f.expect(f.read(other, 5), 1, 5)
		if f.log.opened != 2 || f.log.open != 1 {
			t.Errorf("%d sources were opened, want 2; %d are open", f.log.opened, f.log.open)
		}
		f.leave(s)
		f.leave(other)
	})
}

// TestNoRoomForLong has a prompt subscriber whose account has no room. It keeps its own source for
// that time, and then returns to the ring.
func TestNoRoomForLong(t *testing.T) {
	run(t, nil, func(f *fixture) {
		account := &ledger{}
		s := f.subscribeAs(account, Filter{}, nil)
		for n := range 50 {
			f.log.write(1, 1000)
			synctest.Wait()
			f.expect(f.read(s, 1), n, 1)
		}
		if f.log.opened != 2 || f.log.open != 2 || account.used != 0 {
			t.Errorf("%d sources were opened, want 2; %d are open; %d bytes are charged",
				f.log.opened, f.log.open, account.used)
		}
		account.limit = takeBytes
		f.log.write(1, 1000)
		f.expect(f.read(s, 1), 50, 1)
		if f.log.open != 1 {
			t.Errorf("%d sources are open, want 1", f.log.open)
		}
		f.leave(s)
	})
}

// TestTooLargeToTake has a subscriber whose account has room, but not for the next event.
func TestTooLargeToTake(t *testing.T) {
	run(t, nil, func(f *fixture) {
		account := &ledger{limit: takeBytes}
		s := f.subscribeAs(account, Filter{}, nil)
		f.log.write(3, 2*takeBytes)
		f.expect(f.read(s, 3), 0, 3)
		f.leave(s)
	})
}

// TestReclaim evicts as much as others need. Nothing is lost.
func TestReclaim(t *testing.T) {
	run(t, nil, func(f *fixture) {
		s := f.subscribe(Filter{}, nil)
		f.log.write(20, 1000)
		synctest.Wait()
		before := f.account.used
		f.hub.Reclaim(5000)
		if freed := before - f.account.used; freed < 5000 || freed > 7000 {
			t.Errorf("%d bytes are free, want about 5000", freed)
		}
		if got := f.hub.Stats(); got.Subscribers != 1 || got.Shared != 1 || got.CatchUps != 0 ||
			got.RingBytes != f.account.used {
			t.Errorf("%+v, and %d bytes are charged", got, f.account.used)
		}
		f.expect(f.read(s, 20), 0, 20)
		if f.hub.Reclaim(1 << 30); f.hub.Stats().RingBytes != 0 {
			t.Errorf("the ring holds %d bytes", f.hub.Stats().RingBytes)
		}
		f.log.write(1, 1000)
		f.expect(f.read(s, 1), 20, 1)
		f.leave(s)
	})
}

// TestMaxLingering ends sources at once whose last subscriber goes while others linger.
func TestMaxLingering(t *testing.T) {
	run(t, nil, func(f *fixture) {
		var all []*Subscription
		for _, name := range []string{"a", "b", "c"} {
			s, err := f.hub.Subscribe(f.t.Context(), Key{Collection: name}, Filter{}, nil,
				Reader{Account: f.account}, f.log.Open)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		for _, s := range all {
			f.leave(s)
		}
		synctest.Wait()
		if f.log.open != 1 {
			t.Errorf("%d sources linger, want 1", f.log.open)
		}
		f.leave(f.subscribe(Filter{}, nil)) // ends at once as well
		time.Sleep(31 * time.Second)        //nolint:forbidigo // time is fake
		synctest.Wait()
		if f.log.open != 0 {
			t.Errorf("%d sources are open after the time, want none", f.log.open)
		}
	})
}
