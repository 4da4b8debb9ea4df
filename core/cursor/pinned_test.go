package cursor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// balanced is a client of two services behind a load balancer, which leads its connections to them
// in turn.
type balanced struct {
	*fakemongo.Balanced
	client *client.Client

	mu     sync.Mutex
	events []string
	byID   map[uint64]bson.ObjectID // the services that commands were sent to, by connection
}

func runBalanced(
	t *testing.T, options string, opt client.Options, test func(t *testing.T, b *balanced),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &balanced{
			Balanced: fakemongo.NewBalanced(t, fakemongo.BalancedConfig{}),
			byID:     map[uint64]bson.ObjectID{},
		}
		b.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		cfg, err := connstring.Parse(b.URI(options))
		if err != nil {
			t.Fatal(err)
		}
		opt.Dialer, opt.Sink = b.Dial, b.sink(t)
		if b.client, err = client.New(cfg, opt); err != nil {
			t.Fatal(err)
		}
		if err := b.client.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, b)
		if p := b.client.Pools()[0]; p.InUse != 0 || p.Cursors != 0 {
			t.Errorf("%d connections are out, %d of them pinned: they leak", p.InUse, p.Cursors)
		}
		if err := b.client.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
}

func (b *balanced) add(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, fmt.Sprintf(format, args...))
}

// take returns the events so far and forgets them.
func (b *balanced) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}

func (b *balanced) sink(t *testing.T) *event.Sink {
	return &event.Sink{
		ConnectionCheckOutStarted: func(event.ConnectionCheckOutStarted) { b.add("started") },
		ConnectionCheckOutFailed:  func(event.ConnectionCheckOutFailed) { b.add("failed") },
		ConnectionCheckedOut:      func(event.ConnectionCheckedOut) { b.add("out") },
		ConnectionCheckedIn:       func(event.ConnectionCheckedIn) { b.add("in") },
		ConnectionClosed:          func(e event.ConnectionClosed) { b.add("closed %s", e.Reason) },
		PoolCleared:               func(e event.PoolCleared) { b.add("cleared %v", e.ServiceID) },
		CommandStarted: func(e event.CommandStarted) {
			b.add("%s", e.Name)
			b.mu.Lock()
			defer b.mu.Unlock()
			if was, ok := b.byID[e.ConnectionID]; e.ServiceID.IsZero() || ok && was != e.ServiceID {
				t.Errorf("a command on connection %d is said to go to the service %v, those "+
					"before to %v", e.ConnectionID, e.ServiceID, was)
			}
			b.byID[e.ConnectionID] = e.ServiceID
		},
		CommandFailed: func(e event.CommandFailed) {
			if e.ServiceID.IsZero() {
				t.Errorf("%s failed, at no service", e.Name)
			}
		},
		CommandSucceeded: func(e event.CommandSucceeded) {
			if e.ServiceID.IsZero() {
				t.Errorf("%s succeeded, at no service", e.Name)
			}
		},
	}
}

func (b *balanced) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := b.take(); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// find opens a cursor in batches of two and takes the first.
func (b *balanced) find(t *testing.T) *cursor.Cursor {
	t.Helper()
	cur := find(t, b.client, client.FindOptions{BatchSize: new(int32(2))})
	if batch, err := cur.Next(t.Context()); err != nil || len(batch.Documents) != 2 {
		t.Fatalf("Next() = %v, %v, want the first batch", batch, err)
	}
	return cur
}

// LB-020: what opens cursors pins, and all of a cursor's commands go over its connection, until
// its id is 0. LB-026: that is one check-out.
func TestPinnedUntilExhausted(t *testing.T) {
	opens := map[string]func(c *client.Client) (*cursor.Cursor, error){
		"find": func(c *client.Client) (*cursor.Cursor, error) {
			return c.Find(context.Background(), orders,
				client.FindOptions{BatchSize: new(int32(3))})
		},
		"find, in another client's words": func(c *client.Client) (*cursor.Cursor, error) {
			return c.RunCursorCommand(context.Background(), "shop",
				doc(t, `{"find":"orders","batchSize":3}`),
				client.RunCursorCommandOptions{BatchSize: new(int32(3))})
		},
		"aggregate": func(c *client.Client) (*cursor.Cursor, error) {
			return c.Aggregate(context.Background(), orders,
				client.AggregateOptions{BatchSize: new(int32(3))})
		},
	}
	for name, open := range opens {
		t.Run(name, func(t *testing.T) {
			runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
				for _, s := range b.Services() { // an aggregation is answered as a find is
					s.Handle("aggregate", func(*fakemongo.Command) fakemongo.Reply {
						return firstThree(s)
					})
				}
				cur, err := open(b.client)
				if err != nil {
					t.Fatal(err)
				}
				if p := b.client.Pools()[0]; !cur.Pinned() || p.Cursors != 1 || p.InUse != 1 {
					t.Errorf("Pinned() = %v, the pool has %d pinned of %d in use, want 1 of 1",
						cur.Pinned(), p.Cursors, p.InUse)
				}
				n := 0
				for batch, err := range cur.Batches(t.Context()) {
					if err != nil {
						t.Errorf("Batches() = %v", err)
					}
					n += len(batch.Documents)
				}
				if n != 9 || cur.Pinned() {
					t.Errorf("%d documents, Pinned() = %v, want all 9 and no more", n, cur.Pinned())
				}
				var pooled []string
				for _, e := range b.take() {
					if e == "started" || e == "out" || e == "in" {
						pooled = append(pooled, e)
					}
				}
				if !slices.Equal(pooled, []string{"started", "out", "in"}) {
					t.Errorf("events %v, want one check-out and one check-in", pooled)
				}
			})
		})
	}
}

// firstThree opens a cursor of the service over nine documents, by a find that the test makes up.
func firstThree(s *fakemongo.Service) fakemongo.Reply {
	return s.Default(&fakemongo.Command{
		Name: "find", Database: "shop",
		Body: bson.NewBuilder(nil).String("find", "orders").Int32("batchSize", 3).Finish(),
	})
}

// A cursor that is exhausted at once is not pinned.
func TestNotPinned(t *testing.T) {
	runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
		cur := find(t, b.client, client.FindOptions{})
		b.expect(t, "started", "out", "find", "in")
		if cur.Pinned() {
			t.Error("an exhausted cursor is pinned")
		}
		cur = find(t, b.client, client.FindOptions{BatchSize: new(int32(2)), Limit: new(int64(2))})
		if cur.Pinned() || b.OpenCursors() != 0 {
			t.Error("a cursor whose limit is reached is pinned")
		}
		_, err := b.client.RunCursorCommand(t.Context(), "shop", doc(t, `{"ping":1}`),
			client.RunCursorCommandOptions{})
		if !isA[*mongoerr.MalformedReplyError](err) {
			t.Errorf("RunCursorCommand(ping) = %v, want a MalformedReplyError", err)
		}
	})
	run(t, 9, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		if cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))}); cur.Pinned() ||
			c.Pools()[0].InUse != 0 {
			t.Error("a cursor is pinned without a load balancer")
		}
	})
}

// Cursors that are read at once, each from the service that knows it.
func TestManyPinnedCursors(t *testing.T) {
	runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
		var wg sync.WaitGroup
		for range 10 {
			cur := b.find(t)
			wg.Go(func() {
				n := 2
				for batch, err := range cur.Batches(t.Context()) {
					if err != nil {
						t.Errorf("Batches() = %v", err)
					}
					n += len(batch.Documents)
				}
				if n != 9 {
					t.Errorf("%d documents, want 9", n)
				}
			})
		}
		wg.Wait()
	})
}

// What it would be without pins: continued over another connection, a cursor is known there only
// by luck.
func TestCursorOverAnotherConnection(t *testing.T) {
	runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
		a, z := b.find(t), b.find(t)
		var codes []int32
		// Both over a third connection, to the first one's service.
		for _, cur := range []*cursor.Cursor{a, z} {
			_, err := b.client.ContinueCursor(cur.State()).Next(t.Context())
			codes = append(codes, mongoerr.Code(err))
			_ = cur.Close(t.Context())
		}
		if !slices.Equal(codes, []int32{0, 43}) {
			t.Errorf("codes %v, want CursorNotFound for the second", codes)
		}
	})
}

// LB-021, LB-022: what becomes of the connection when something goes wrong.
func TestPinnedCursorFails(t *testing.T) {
	type handlers = map[string]fakemongo.Reply
	tests := []struct {
		name     string
		handlers handlers
		next     error // what Next returns, in part: nil for anything
		failures []string
		close    []string
		again    bool // whether Next may be tried again
	}{
		{"network error", handlers{"getMore": fakemongo.Drop()}, nil, []string{"getMore", "cleared"}, []string{"in", "closed error"}, false},
		{"command error", handlers{"getMore": fakemongo.Error(7, "HostNotFound", "gone")}, nil, []string{"getMore"}, []string{"killCursors", "in"}, true},
		{"state change", handlers{"getMore": fakemongo.Error(91, "ShutdownInProgress", "bye")}, nil, []string{"getMore", "cleared"}, []string{"killCursors", "in", "closed stale"}, true},
		{"cursor not found", handlers{"getMore": fakemongo.Error(43, "CursorNotFound", "gone")}, nil, []string{"getMore"}, []string{"in"}, false},
		{"malformed", handlers{"getMore": fakemongo.OK(nil)}, nil, []string{"getMore"}, []string{"killCursors", "in"}, false},
		{"canceled", handlers{"getMore": fakemongo.Hang()}, context.DeadlineExceeded, []string{"getMore"}, []string{"in", "closed error"}, false},
		{"killCursors cut off", handlers{"getMore": fakemongo.Error(7, "HostNotFound", "gone"), "killCursors": fakemongo.Drop()}, nil, []string{"getMore"}, []string{"killCursors", "cleared", "in", "closed error"}, true},
		{"killCursors fails", handlers{"getMore": fakemongo.Error(7, "HostNotFound", "gone"), "killCursors": fakemongo.Error(1, "", "no")}, nil, []string{"getMore"}, []string{"killCursors", "in"}, true},
		{"killCursors hangs", handlers{"getMore": fakemongo.Error(7, "HostNotFound", "gone"), "killCursors": fakemongo.Hang()}, nil, []string{"getMore"}, []string{"killCursors", "in", "closed error"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
				cur := b.find(t)
				var id string // of the service that has the cursor
				for _, s := range b.Services() {
					if s.OpenCursors() == 1 {
						id = s.ID().String()
					}
					for name, r := range tt.handlers {
						s.Handle(name, fakemongo.Always(r))
					}
				}
				b.take()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, first := cur.Next(ctx)
				if first == nil || tt.next != nil && !errors.Is(first, tt.next) {
					t.Errorf("Next() = %v, want an error", first)
				}
				synctest.Wait()
				b.expect(t, withService(tt.failures, id)...)
				if !cur.Pinned() || cur.Done() {
					t.Errorf("Pinned() = %v, Done() = %v, want the connection kept until Close",
						cur.Pinned(), cur.Done())
				}
				for _, s := range b.Services() {
					s.Handle("getMore", nil)
				}
				if _, again := cur.Next(t.Context()); (again == nil) != tt.again {
					t.Errorf("Next() again = %v, want success: %v", again, tt.again)
				}
				b.take()
				for range 2 {
					if err := cur.Close(t.Context()); err != nil {
						t.Errorf("Close() = %v", err)
					}
				}
				synctest.Wait()
				b.expect(t, withService(tt.close, id)...)
				if cur.Pinned() || !cur.Done() {
					t.Errorf("after Close: Pinned() = %v, Done() = %v", cur.Pinned(), cur.Done())
				}
			})
		})
	}
}

func withService(events []string, id string) []string {
	out := slices.Clone(events)
	for i := range out {
		if out[i] == "cleared" {
			out[i] += " " + id
		}
	}
	return out
}

func TestClosePinned(t *testing.T) {
	runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
		other, cur := b.find(t), b.find(t) // of two services
		b.take()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := cur.Close(ctx); err != nil || b.OpenCursors() != 1 {
			t.Errorf("Close() = %v, %d cursors open, want 1", err, b.OpenCursors())
		}
		b.expect(t, "killCursors", "in")
		_ = other.Close(t.Context())
	})
}

// More cursors than may be pinned: the one too many is closed at once, over its own connection.
func TestPinBudget(t *testing.T) {
	runBalanced(t, "&maxPoolSize=5", client.Options{MaxPinnedShare: 0.5}, func(
		t *testing.T, b *balanced,
	) {
		a, z := b.find(t), b.find(t)
		b.take()
		_, err := b.client.Find(t.Context(), orders, client.FindOptions{BatchSize: new(int32(2))})
		limit, ok := errors.AsType[*pool.PinLimitError](err)
		if !ok || limit.Max != 2 || limit.Cursors != 2 {
			t.Errorf("Find() = %v, want a PinLimitError of 2 cursors", err)
		}
		b.expect(t, "started", "out", "find", "killCursors", "in")
		if n := b.OpenCursors(); n != 2 {
			t.Errorf("%d cursors are open, want the 2 pinned ones", n)
		}
		if err := b.client.Ping(t.Context()); err != nil {
			t.Errorf("Ping() = %v", err)
		}
		if docs := find(t, b.client, client.FindOptions{}); docs.Pinned() {
			t.Error("a cursor that needs no pin has one")
		}
		_ = a.Close(t.Context())
		_ = b.find(t).Close(t.Context())
		_ = z.Close(t.Context())
	})
}

// TestKeepsNoContext checks that a cursor between two batches keeps nothing of the context of the
// last one alive: it may wait for its caller for a long time.
func TestKeepsNoContext(t *testing.T) {
	run(t, 9, nil, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		value := next(t, cur)
		for range 2 {
			value = next(t, cur)
		}
		runtime.GC()
		runtime.GC()
		if value.Value() != nil {
			t.Error("the value of the last context is kept")
		}
		if err := cur.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// next reads a batch with a context of its own, and returns a value of that.
func next(t *testing.T, cur *cursor.Cursor) weak.Pointer[[1 << 10]byte] {
	t.Helper()
	type key struct{}
	value := new([1 << 10]byte)
	if _, err := cur.Next(context.WithValue(t.Context(), key{}, value)); err != nil {
		t.Fatal(err)
	}
	return weak.Make(value)
}

// LB-023: Close interrupts a Next that is under way, and begins when that has ended. It does so
// also if the caller of Next has gone, and the getMore runs on.
func TestCloseDuringNext(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("caller gone: %t", gone), func(t *testing.T) {
			testCloseDuringNext(t, gone)
		})
	}
}

func testCloseDuringNext(t *testing.T, gone bool) {
	test := func(t *testing.T, c *client.Client, hang func()) {
		cur := find(t, c,
			client.FindOptions{Common: client.Common{RunOn: true}, BatchSize: new(int32(2))})
		if _, err := cur.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		hang()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := cur.Next(ctx)
			ended <- err
		}()
		synctest.Wait()
		if gone {
			cancel()
			synctest.Wait()
		}
		if _, err := cur.Next(t.Context()); !errors.Is(err, cursor.ErrBusy) {
			t.Errorf("Next() beside another = %v, want ErrBusy", err)
		}
		began := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _ = cur.Close(t.Context()) })
		}
		wg.Wait()
		if err := <-ended; !errors.Is(err, cursor.ErrClosed) || time.Since(began) > 0 {
			t.Errorf("Next() = %v after %v, want ErrClosed at once", err, time.Since(began))
		}
		if _, err := cur.Next(t.Context()); !errors.Is(err, cursor.ErrClosed) {
			t.Errorf("Next() after Close = %v, want ErrClosed", err)
		}
	}
	runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
		test(t, b.client, func() {
			for _, s := range b.Services() {
				s.Handle("getMore", fakemongo.Always(fakemongo.Hang()))
			}
		})
		for _, s := range b.Services() {
			if n := len(s.Commands("killCursors")); n != 0 {
				t.Errorf("%d killCursors: they went over a broken connection", n)
			}
		}
	})
	run(t, 9, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		test(t, c, func() { srv.Handle("getMore", fakemongo.Always(fakemongo.Hang())) })
		if n := len(srv.Commands("killCursors")); n != 1 {
			t.Errorf("%d killCursors, want 1", n)
		}
	})
}

// Whatever is called at the same time, the server is asked one thing at a time, and the connection
// comes back once.
func TestCrowdOnOneCursor(t *testing.T) {
	runBalanced(t, "", client.Options{}, func(t *testing.T, b *balanced) {
		for i := range 50 {
			cur := find(t, b.client, client.FindOptions{BatchSize: new(int32(1))})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for {
						_, err := cur.Next(t.Context())
						if errors.Is(err, io.EOF) || errors.Is(err, cursor.ErrClosed) {
							return
						}
						if err != nil && !errors.Is(err, cursor.ErrBusy) {
							t.Errorf("Next() = %v", err)
							return
						}
						_, _, _, _ = cur.State(), cur.ID(), cur.Done(), cur.Pinned()
						cur.SetBatchSize(1)
						cur.SetMaxAwaitTimeMS(nil)
						cur.SetRunOn(i%2 == 0)
					}
				})
			}
			for range 2 {
				wg.Go(func() {
					time.Sleep(time.Duration(i)) //nolint:forbidigo // fake time, so that others come first now and then
					_ = cur.Close(t.Context())
				})
			}
			wg.Wait()
		}
		outs, ins := 0, 0
		for _, e := range b.take() {
			switch e {
			case "out":
				outs++
			case "in":
				ins++
			}
		}
		if outs != 50 || ins != 50 {
			t.Errorf("%d check-outs and %d check-ins, want one for each of 50 cursors", outs, ins)
		}
	})
}
