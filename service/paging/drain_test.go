package paging_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
)

// A draining replica hands its cursors over in any state. Tokens that name the old replica lead to
// the new one.
func TestDrainHandsOver(t *testing.T) {
	for _, gone := range []bool{false, true} { // it answers still, or no longer
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			for _, address := range []string{"a", "b", "c"} {
				n.start(address, func(c *paging.Config) { c.PageBytes = 2500 })
			}
			rest := n.open("a", 30, 10, 1000) // 2 of 10 documents
			delivered := n.open("a", 9, 2, 0)
			second := n.mustNext("a", delivered.Token)
			ended := n.open("a", 4, 2, 0)
			n.mustNext("a", ended.Token)
			n.questions()
			owner := n.node("a")
			if gone {
				n.stop("a")
			} else if err := n.node("a").Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, want := owner.Fate(), (paging.Fate{HandedOver: 2}); got != want {
				t.Errorf("%+v, want %+v: the third cursor was at its end", got, want)
			}
			if asked := n.questions(); strings.Join(asked, " ") != "a>b push a>c announce" {
				t.Errorf("asked %v", asked)
			}
			for _, at := range []string{"c", "b"} { // c first: later b knows all by itself
				// no page goes along
				if _, err := n.next(at, delivered.Token); !errors.Is(err,
					paging.ErrCursorTokenReused) {
					t.Errorf("at %s, a page that was delivered: %v", at, err)
				}
				if _, err := n.next(at, ended.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
					t.Errorf("at %s, a cursor at its end: %v", at, err)
				}
				if next := n.mustNext(at, second.Token); numbers(next) != "4 5" {
					t.Errorf("at %s, the next page: %s", at, numbers(next))
				}
				if next := n.mustNext(at, rest.Token); numbers(next) != "2 3" {
					t.Errorf("at %s, the rest: %s", at, numbers(next))
				}
			}
			if !gone {
				if _, err := n.next("a", second.Token); !errors.Is(err, handle.ErrClosing) {
					t.Errorf("at a: %v", err)
				}
			}
		})
	}
}

// A drain waits for what runs, for a while; then it ends it, and tells the next replica that a
// page is lost.
func TestDrainWaits(t *testing.T) {
	for _, test := range []struct {
		takes time.Duration
		want  string
	}{
		{3 * time.Second, paging.ErrCursorTokenReused.Error()},
		{time.Minute, paging.ErrCursorPositionUnknown.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, "a", "b")
			page := n.open("a", 9, 2, 0)
			n.s.next = func(ctx context.Context) error {
				select {
				case <-time.After(test.takes):
					return nil
				case <-ctx.Done():
					return &mongoerr.NetworkError{Sent: true, Err: context.Cause(ctx)}
				}
			}
			streamed := n.open("a", 9, 2, 0)
			ctx, taken, err := n.node("a").
				Take(t.Context(), paging.Asking{Principal: "anna", Token: streamed.Token})
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				<-ctx.Done()
				_ = taken.Cursor.Close(ctx)
				taken.Release()
			})
			var next paging.Page
			wg.Go(func() { next, err = n.next("a", page.Token) })
			synctest.Wait()
			begin := time.Now()
			if err := n.node("a").Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took != min(test.takes, 5*time.Second) {
				t.Errorf("Drain took %v", took)
			}
			wg.Wait()
			if err == nil && numbers(next) != "2 3" || err != nil && test.takes < 5*time.Second {
				t.Errorf("the page in flight: %s, %v", numbers(next), err)
			}
			n.s.next = nil
			got, err := n.next("b", page.Token)
			// The call at a may not have sent the page yet when it is pushed: then it goes along.
			unsent := err == nil && test.takes < 5*time.Second && numbers(got) == numbers(next)
			if !unsent && (err == nil || err.Error() != test.want) {
				t.Errorf("its token at b: %s, %v, want %s", numbers(got), err, test.want)
			}
			if _, err := n.next("b", streamed.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
				t.Errorf("the stream's token at b: %v", err)
			}
		})
	}
}

// TestDrainBesideQuestions checks that a draining replica hands over all cursors although other
// replicas ask for their pages all the time: there is no moment in which no page is fetched. Their
// clients get every page, without an error.
func TestDrainBesideQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		n.s.next = func(ctx context.Context) error {
			select {
			case <-time.After(100 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return &mongoerr.NetworkError{Sent: true, Err: context.Cause(ctx)}
			}
		}
		const readers, documents = 5, 100
		var wg sync.WaitGroup
		for i := range readers {
			page := n.open("a", documents, 2, 0)
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 20 * time.Millisecond) //nolint:forbidigo // fake time
				read := len(page.Documents)
				for page.Token != "" {
					var err error
					if page, err = n.next([]string{"b", "c"}[i%2], page.Token); err != nil {
						t.Errorf("reader %d, after %d documents: %v", i, read, err)
						return
					}
					read += len(page.Documents)
				}
				if read != documents {
					t.Errorf("reader %d has read %d documents, want %d", i, read, documents)
				}
			})
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		begin := time.Now()
		if err := n.node("a").Drain(ctx); err != nil {
			t.Errorf("Drain = %v", err)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("Drain took %v, want the time of the pages in flight", took)
		}
		n.crash("a")
		wg.Wait()
	})
}

// Of pinned cursors nothing can be handed over: they are killed, and their connections are free
// before the process ends.
func TestDrainKillsPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		n.openPinned()
		n.open("a", 9, 2, 0)
		if err := n.node("a").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := n.s.count(); open != 1 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if got, want := n.node("a").Fate(), (paging.Fate{HandedOver: 1, Ended: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Pinned cursors whose servers do not answer take none of the time in which others are handed over.
func TestSlowPinnedHoldUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		page := n.open("a", 9, 2, 0)
		for range 20 {
			n.openPinned()
		}
		n.s.slowKill = 3 * time.Second
		n.faults.before = func(ctx context.Context, _, _ string) error { return ctx.Err() }
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_ = n.node("a").Drain(ctx)
		if got := n.node("a").Fate().HandedOver; got != 1 {
			t.Errorf("%d cursors were handed over, want 1", got)
		}
		if next := n.mustNext("b", page.Token); numbers(next) != "2 3" {
			t.Errorf("page %s", numbers(next))
		}
	})
}

// A draining replica accepts nothing, so the next one is asked. If it is unknown whether a replica
// has accepted, no other replica is asked.
func TestDrainChooses(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(n *network)
		want  string // the exchanges
		next  error  // at c, of what a had
	}{
		{"the first drains, too", func(n *network) { _ = n.node("b").Drain(n.t.Context()); n.questions() }, "a>b push a>c push a>b announce", nil},
		{"the first is gone", func(n *network) { n.crash("b") }, "a>c push", nil},
		{"lost once", func(n *network) {
			n.faults.after = func(context.Context, string, string) error {
				n.faults.after = nil
				return errLine
			}
		}, "a>b push a>b push a>c announce", nil},
		{"lost", func(n *network) {
			n.faults.before = func(context.Context, string, string) error { return errLine }
		}, "a>b push a>b push", paging.ErrCursorPositionUnknown},
		{"nobody", func(n *network) { n.crash("b"); n.crash("c") }, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, "a", "b", "c")
				page := n.open("a", 9, 2, 0)
				test.fault(n)
				n.stop("a")
				if asked := strings.Join(n.questions(), " "); asked != test.want {
					t.Errorf("asked %s, want %s", asked, test.want)
				}
				n.faults = faults{}
				if open, _, _ := n.s.count(); open != 1 {
					t.Errorf("%d open: it may be continued after a restart", open)
				}
				if n.node("c") == nil {
					return
				}
				if _, err := n.next("c", page.Token); !errors.Is(err, test.next) {
					t.Errorf("Next = %v, want %v", err, test.next)
				}
			})
		})
	}
}

// A cursor that was pushed from replica to replica is found where it is now, from every token,
// and stays there whatever is pushed again.
func TestPushesInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c", "d")
		page := n.open("a", 20, 2, 0)
		old := page.Token
		for _, end := range []string{"a", "b", "c"} {
			n.stop(end)
			page = n.mustNext("d", page.Token)
		}
		if numbers(page) != "6 7" {
			t.Errorf("page %s", numbers(page))
		}
		if _, err := n.next("d", old); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("an old token: %v", err)
		}
	})
}

// Cursors that are accepted beyond what there is room for push out the oldest.
func TestAcceptHasBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.start("a", nil)
		b := n.start("b", func(c *paging.Config) { c.MaxCursors = 10 })
		for range 8 {
			n.open("b", 9, 2, 0)
		}
		for range 8 {
			n.open("a", 30, 10, 0)
		}
		n.stop("a")
		synctest.Wait()
		if got := b.Len(); got != 10 {
			t.Errorf("b knows %d cursors, want 10", got)
		}
		if open, killed, _ := n.s.count(); open != 10 || killed != 6 {
			t.Errorf("%d open, %d killed", open, killed)
		}
	})
}

// A replica that asks for a cursor while it is pushed to that replica finds it.
func TestPushWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		page := n.open("a", 9, 2, 0)
		n.faults.before = func(_ context.Context, from, _ string) error {
			if from == "b" {
				time.Sleep(time.Second) //nolint:forbidigo // fake time
			}
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if next, err := n.next("b", page.Token); err != nil || numbers(next) != "2 3" {
				t.Errorf("page %s, %v", numbers(next), err)
			}
		})
		synctest.Wait()
		if err := n.node("a").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	})
}

// Close waits for the calls that a drain had no time to wait for. It leaves no goroutine behind,
// even if calls still run.
func TestCloseAfterAHastyDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.Keys = ring(t) })
		f.s.next = func(context.Context) error { time.Sleep(10 * time.Second); return nil } //nolint:forbidigo // fake time
		token := f.open(9, 2, 0).Token
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = f.next(token) })
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.r.Drain(hasty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v", err)
		}
		if err := f.r.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		wg.Wait()
		if open, _, _ := f.s.count(); open != 0 {
			t.Errorf("%d open", open)
		}
	})
}

// A call that does not end in time does not keep other cursors from being handed over, nor pinned
// cursors from being killed. Close hands over the cursors whose calls end later.
func TestDrainOfWhatIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		page, pinned, slow := n.open("a", 9, 2, 0), n.openPinned(), n.open("a", 9, 2, 0)
		n.s.next = func(context.Context) error { time.Sleep(30 * time.Second); return nil } //nolint:forbidigo // fake time
		var wg sync.WaitGroup
		var late paging.Page
		wg.Go(func() { late = n.mustNext("a", slow.Token) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := n.node("a").Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain = %v", err)
		}
		n.s.next = nil
		if next := n.mustNext("b", page.Token); numbers(next) != "2 3" {
			t.Errorf("page %s", numbers(next))
		}
		if _, err := n.next("b", pinned.Token); !errors.Is(err, paging.ErrOwnerGone) {
			t.Errorf("pinned: %v", err)
		}
		if _, killed, _ := n.s.count(); killed != 1 {
			t.Errorf("%d killed", killed)
		}
		if err := n.node("a").Close(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if got, want := n.node("a").Fate(), (paging.Fate{HandedOver: 2, Ended: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		n.crash("a")
		if next := n.mustNext("b", late.Token); numbers(next) != "4 5" {
			t.Errorf("page %s", numbers(next))
		}
	})
}

// TestDrainOfManyLeftovers checks that all leftovers go along with their cursors.
func TestDrainOfManyLeftovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.start("a", func(c *paging.Config) { c.PageBytes, c.PageMemory = 1<<20, 1<<30 })
		n.start("b", func(c *paging.Config) { c.PageBytes, c.PageMemory = 1<<20, 1<<30 })
		var tokens []string
		for range 10 { // 14 of 15 MB each
			tokens = append(tokens, n.open("a", 100, 15, 1e6).Token)
			time.Sleep(time.Second) //nolint:forbidigo // fake time
		}
		n.stop("a")
		for i, token := range tokens {
			page, err := n.next("b", token)
			if err != nil || numbers(page) != "1" {
				t.Errorf("cursor %d: page %s, %v", i, numbers(page), err)
			}
		}
		if open, _, _ := n.s.count(); open != 10 {
			t.Errorf("%d open", open)
		}
	})
}

// TestDrainOfUndelivered checks that a page whose response was refused goes along with its cursor,
// or alone if it is the last one: the client gets it at the other replica, also one without a name,
// to whose address it is charged there.
func TestDrainOfUndelivered(t *testing.T) {
	for _, test := range []struct {
		name      string
		documents int
		then      string // the page behind it
	}{{"a page", 6, "4 5"}, {"the last page", 4, ""}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				a := admission.New(admission.Config{Bytes: 1 << 20})
				b := admission.New(admission.Config{Bytes: 1 << 20})
				n.start("a", func(c *paging.Config) { c.Admission = a })
				n.start("b", func(c *paging.Config) { c.Admission = b })
				client := admission.PrincipalOf("", netip.MustParseAddr("192.0.2.1"))
				var call admission.Account
				a.Open(&call, client)
				ctx := context.WithValue(t.Context(), admission.AccountKey{}, &call)
				open, err := n.node("a").Open(ctx, paging.Opening{
					Run: func(context.Context, int32) (paging.Cursor, error) {
						return n.s.find(test.documents, 2, 1000), nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				ask := func(ctx context.Context, at, token string) (paging.Page, error) {
					return n.node(at).
						Next(ctx, paging.Asking{Token: token, BatchSize: new(int32(2))})
				}
				got, err := ask(ctx, "a", open.Token)
				if err != nil || call.GrowLast(ctx, 2<<20) == nil {
					t.Fatalf("the page: %v, or there is room for its response", err)
				}
				call.Close()
				n.stop("a")
				if held := b.Bytes().Held; held < 2000 {
					t.Errorf("%d bytes are charged at b", held)
				}
				n.node("b").Reclaim(1<<20, &admission.Principal{}) // for all clients without a name
				for _, want := range []error{nil, paging.ErrCursorTokenReused} {
					again, err := ask(t.Context(), "b", open.Token)
					if !errors.Is(err, want) || err == nil && !same(again, got) {
						t.Errorf("the page again: %s, %v, want %v", numbers(again), err, want)
					}
					n.node("b").Reclaim(1<<20, &client)
				}
				if (got.Token == "") != (test.then == "") {
					t.Fatalf("the token %q is behind the page", got.Token)
				}
				if test.then == "" {
					return
				}
				next, err := ask(t.Context(), "b", got.Token)
				if err != nil || numbers(next) != test.then {
					t.Errorf("the page behind it: %s, %v, want %s", numbers(next), err, test.then)
				}
			})
		})
	}
}

// TestDrainOfAsked checks that a cursor whose second page was asked for, and refused, gives way to
// no new cursor at the replica that takes it over.
func TestDrainOfAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a")
		n.start("b", func(c *paging.Config) { c.MaxPerPrincipal = 1 })
		page := n.open("a", 9, 2, 0)
		n.s.next = func(context.Context) error { return &pool.ClosedError{} } // so it is not sent
		if _, err := n.next("a", page.Token); err == nil {
			t.Fatal("the second page was not refused")
		}
		n.s.next = nil
		n.stop("a")
		_, err := n.node("b").Open(t.Context(), paging.Opening{Principal: "anna"})
		if _, limited := errors.AsType[*handle.LimitError](err); !limited {
			t.Errorf("a new cursor: %v, want a LimitError", err)
		}
		if next := n.mustNext("b", page.Token); numbers(next) != "2 3" {
			t.Errorf("the second page: %s", numbers(next))
		}
	})
}

// A cursor that is closed, or killed, while it is pushed does not stay where it went to.
func TestCloseDuringAPush(t *testing.T) {
	for _, lost := range []bool{false, true} { // the push may not have arrived
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, "a", "b", "c")
			page := n.open("a", 9, 2, 0)
			time.Sleep(time.Second) //nolint:forbidigo // fake time; lists are in this order
			other := n.open("a", 9, 2, 0)
			n.faults.after = func(_ context.Context, from, _ string) error {
				time.Sleep(time.Second) //nolint:forbidigo // fake time
				if lost && from == "a" {
					return errLine
				}
				return nil
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := n.node("a").Drain(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			info := n.node("a").Handles(handle.Query{Limit: 10})
			wg.Go(func() {
				_ = n.node("c").
					CloseCursor(t.Context(), paging.Asking{Principal: "anna", Token: page.Token})
			})
			wg.Go(func() { _ = n.node("a").Kill(t.Context(), info[1].ID) })
			wg.Wait()
			if got := n.node("b").Handles(handle.Query{Limit: 10}); len(got) != 0 {
				t.Errorf("b lists %v", got)
			}
			if open, _, _ := n.s.count(); open != 0 {
				t.Errorf("%d open", open)
			}
			if _, err := n.next("b", other.Token); err == nil {
				t.Error("a killed cursor goes on")
			}
		})
	}
}

// A replica may know neither where the cursors of drained replicas went nor the replica that has
// them now. Another replica tells it, also if the cursors were pushed twice.
func TestSuccessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c", "e")
		page := n.open("a", 9, 2, 0)
		n.stop("a") // to b
		n.stop("b") // to c
		n.hidden = "c"
		n.start("d", nil)
		n.questions()
		if next := n.mustNext("d", page.Token); numbers(next) != "2 3" {
			t.Errorf("page %s", numbers(next))
		}
		if asked := strings.Join(n.questions(), ", "); asked != "d>a page, d>e page, d>c page" {
			t.Errorf("asked %s", asked)
		}
	})
}
