package paging_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/paging"
)

var errLine = errors.New("the line is cut")

// Pages fetched from three replicas in turn are those that one would have delivered, and each is
// fetched once.
func TestPagesFromAnyReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		page := n.open("a", 11, 2, 0)
		got := numbers(page)
		for i := 0; page.Token != ""; i++ {
			page = n.mustNext([]string{"b", "c", "a"}[i%3], page.Token)
			got += " " + numbers(page)
		}
		if got != "0 1 2 3 4 5 6 7 8 9 10" {
			t.Errorf("documents %s", got)
		}
		if _, killed, fetched := n.s.count(); killed != 0 || fetched != 5 {
			t.Errorf("%d killed, %d getMores, want 0 and 5", killed, fetched)
		}
		if asked := n.questions(); len(asked) != 4 {
			t.Errorf("asked %v, want one question for each page that a did not deliver itself",
				asked)
		}
	})
}

// The same token brings the same page at every replica, and nothing is fetched twice; an older
// one is refused everywhere.
func TestSameTokenAtAnyReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		first := n.open("a", 9, 2, 0)
		second := n.mustNext("b", first.Token)
		for _, address := range []string{"c", "a", "b"} {
			if again := n.mustNext(address, first.Token); !same(again, second) {
				t.Errorf("again at %s: %s, want %s", address, numbers(again), numbers(second))
			}
		}
		third := n.mustNext("c", second.Token)
		for _, address := range []string{"a", "b", "c"} {
			if _, err := n.next(address, first.Token); !errors.Is(err,
				paging.ErrCursorTokenReused) {
				t.Errorf("an old token at %s: %v", address, err)
			}
			if again := n.mustNext(address, second.Token); !same(again, third) {
				t.Errorf("again at %s: %s, want %s", address, numbers(again), numbers(third))
			}
		}
		if _, _, fetched := n.s.count(); fetched != 2 {
			t.Errorf("%d getMores, want 2", fetched)
		}
	})
}

// A batch that is larger than a page comes whole, from the replica that has the cursor.
func TestLargeBatchFromAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		small := func(c *paging.Config) { c.PageBytes = 2500 }
		n.start("a", small)
		n.start("b", small)
		page := n.open("a", 9, 7, 1000)
		got := numbers(page)
		for page.Token != "" {
			page = n.mustNext("b", page.Token)
			got += " " + numbers(page)
		}
		if got != "0 1 2 3 4 5 6 7 8" {
			t.Errorf("documents %s", got)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		if held := n.node("a").Held() + n.node("b").Held(); held != 0 {
			t.Errorf("%d bytes are held in the end", held)
		}
	})
}

// An answer that is lost is asked for again: at once, or when the client asks again, however long
// that takes it.
func TestLostAnswers(t *testing.T) {
	for _, test := range []struct {
		name  string
		lose  int // the first so many answers
		first error
	}{
		{"once", 1, nil},
		{"each time", 4, paging.ErrCursorPositionUnknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, "a", "b", "c")
				page := n.open("a", 9, 2, 0)
				lost := 0
				n.faults.after = func(_ context.Context, _, to string) error {
					if to != "a" {
						return nil
					}
					if lost++; lost <= test.lose {
						return errLine
					}
					return nil
				}
				second, err := n.next("b", page.Token)
				if !errors.Is(err, test.first) {
					t.Fatalf("Next at b: %v, want %v", err, test.first)
				}
				n.faults.after = nil
				if test.first != nil { // a has the page still, for every replica
					second = n.mustNext("c", page.Token)
					if again := n.mustNext("b", page.Token); !same(again, second) {
						t.Errorf("again at b: %s", numbers(again))
					}
				}
				if numbers(second) != "2 3" {
					t.Errorf("page %s", numbers(second))
				}
				if numbers(n.mustNext("a", second.Token)) != "4 5" {
					t.Error("it does not go on at a")
				}
			})
		})
	}
}

// An answer that comes after its asker has given up is never used.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		page := n.open("a", 9, 2, 0)
		n.faults.after = func(context.Context, string, string) error {
			time.Sleep(time.Minute) //nolint:forbidigo // fake time
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.node("b").
			Next(ctx, paging.Asking{Principal: "anna", Token: page.Token, BatchSize: new(int32(2))})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Next at b: %v", err)
		}
		time.Sleep(time.Hour / 10) //nolint:forbidigo // fake time; the answer has come
		if holds := len(n.node("b").Holds()); holds != 0 {
			t.Errorf("b holds %d cursors", holds)
		}
		n.faults.after = nil
		if page := n.mustNext("b", page.Token); numbers(page) != "2 3" {
			t.Errorf("page %s", numbers(page))
		}
	})
}

// Of many calls with one token, at all replicas at once, one fetches and all have the page.
func TestConcurrentNextAtAnyReplica(t *testing.T) {
	for seed := range 50 {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, "a", "b", "c")
			n.s.next = func(context.Context) error { time.Sleep(time.Second); return nil } //nolint:forbidigo // fake time
			delay := time.Duration(seed%5) * 300 * time.Millisecond
			n.faults.before = func(_ context.Context, from, _ string) error {
				time.Sleep(delay * time.Duration(from[0]-'a')) //nolint:forbidigo // fake time
				return nil
			}
			n.faults.after = n.faults.before
			first := n.open("a", 9, 2, 0)
			var wg sync.WaitGroup
			pages := make([]paging.Page, 12)
			for i := range pages {
				wg.Go(func() { pages[i] = n.mustNext([]string{"b", "c", "a"}[i%3], first.Token) })
			}
			wg.Wait()
			for _, page := range pages {
				if numbers(page) != "2 3" || page.Token != pages[0].Token {
					t.Errorf("pages differ: %s and %s", numbers(page), numbers(pages[0]))
				}
			}
			if _, _, fetched := n.s.count(); fetched != 1 {
				t.Errorf("%d getMores, want 1", fetched)
			}
		})
	}
}

// A client that goes away while another replica is asked finds its cursor where it has come to.
func TestClientGoesAwayWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		// nothing is sent for a client that has gone
		n.s.next = func(ctx context.Context) error { return ctx.Err() }
		page := n.open("a", 9, 2, 0)
		n.faults.after = func(context.Context, string, string) error {
			time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, _ = n.node("b").Next(ctx, paging.Asking{Principal: "anna", Token: page.Token})
		n.faults.after = nil
		if page := n.mustNext("b", page.Token); numbers(page) != "2 3" &&
			numbers(page) != "2 3 4 5 6 7 8" {
			t.Errorf("page %s", numbers(page))
		}
		// No call waits forever.
		page = n.open("a", 9, 2, 0)
		n.faults.before = func(ctx context.Context, _, _ string) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		if _, err := n.node("b").
			Next(ctx, paging.Asking{Principal: "anna", Token: page.Token}); err == nil {
			t.Error("a page came from nowhere")
		}
		if took := time.Since(begin); took != 31*time.Second {
			t.Errorf("it went on for %v", took)
		}
	})
}

// A replica that is gone, or was restarted, takes with it what it knew: the client is told.
func TestHolderGone(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(n *network)
	}{
		{"gone", func(n *network) { n.crash("a") }},
		{"restarted", func(n *network) { n.crash("a"); n.start("a", nil) }},
		{"its address is another one's", func(n *network) { n.crash("a"); n.crash("c"); n.start("a", nil) }},
	} {
		for _, at := range []string{"a", "b"} {
			t.Run(test.name+", asked at "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := newNetwork(t, "a", "b", "c")
					page := n.open("a", 9, 2, 0)
					test.end(n)
					if n.node(at) == nil {
						at = "c"
					}
					if _, err := n.next(at, page.Token); !errors.Is(err,
						paging.ErrCursorPositionUnknown) {
						t.Fatalf("Next = %v, want %v", err, paging.ErrCursorPositionUnknown)
					}
				})
			})
		}
	}
}

// Errors of the holder reach the client as they are.
func TestErrorsOfTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		page := n.open("a", 9, 2, 0)
		n.s.after = func() error { return &mongoerr.NetworkError{Sent: true, Err: errLine} }
		_, _ = n.next("a", page.Token)
		n.s.after = nil
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorPositionUnknown) {
			t.Errorf("a lost page: %v", err)
		}
		if err := n.node("a").
			CloseCursor(t.Context(),
				paging.Asking{Principal: "anna", Token: page.Token}); err != nil {
			t.Error(err)
		}
		if _, err := n.next("b", page.Token); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("a closed cursor: %v", err)
		}
	})
}

// A call at any replica that streams or closes a cursor reaches the replica that holds it.
func TestStreamAndCloseElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		first := n.open("a", 9, 2, 0)
		second := n.mustNext("b", first.Token)
		_, taken, err := n.node("c").
			Take(t.Context(), paging.Asking{Principal: "anna", Token: second.Token})
		if err != nil {
			t.Fatal(err)
		}
		n.s.next = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		for _, at := range []string{"a", "b", "c"} {
			if _, err := n.next(at, second.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
				t.Errorf("Next at %s during the stream: %v", at, err)
			}
			if _, _, err := n.node(at).
				Take(t.Context(),
					paging.Asking{Principal: "anna", Token: first.Token}); !errors.Is(err,
				paging.ErrCursorTokenReused) {
				t.Errorf("a stream at %s of an old token: %v", at, err)
			}
		}
		ended, closed := make(chan error, 1), make(chan struct{})
		go func() {
			_, err := taken.Cursor.NextLent(t.Context())
			_ = taken.Cursor.Close(t.Context())
			taken.Release()
			ended <- err
		}()
		synctest.Wait()
		go func() {
			if err := n.node("b").
				CloseCursor(t.Context(),
					paging.Asking{Principal: "anna", Token: first.Token}); err != nil {
				t.Error(err)
			}
			close(closed)
		}()
		if err := <-ended; !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("the stream ended with %v", err)
		}
		<-closed
		n.s.next = nil
		if open, killed, _ := n.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		for _, at := range []string{"a", "b", "c"} {
			if err := n.node(at).
				CloseCursor(t.Context(),
					paging.Asking{Principal: "anna", Token: second.Token}); !errors.Is(err,
				paging.ErrCursorNotFound) {
				t.Errorf("closed again at %s: %v", at, err)
			}
		}
	})
}

// A cursor that is closed while it is on its way does not arrive.
func TestCloseWhileItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		page := n.open("a", 9, 2, 0)
		n.faults.after = func(_ context.Context, from, _ string) error {
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			return nil
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = n.next("b", page.Token) })
		synctest.Wait()
		if err := n.node("b").
			CloseCursor(t.Context(),
				paging.Asking{Principal: "anna", Token: page.Token}); err != nil {
			t.Errorf("CloseCursor = %v", err)
		}
		wg.Wait()
		if open, _, _ := n.s.count(); open != 0 {
			t.Errorf("%d open", open)
		}
		if holds := len(n.node("a").Holds()) + len(n.node("b").Holds()); holds != 0 {
			t.Errorf("%d are held", holds)
		}
	})
}

// A cursor on which a call works is not pushed. The replica that drains still has it, and the
// replica that got the other cursors does not say that it has ended. Once the first one is gone,
// the position is unknown.
func TestNotPushedWithTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "c")
		n.open("a", 9, 2, 0) // is pushed
		page := n.open("a", 9, 2, 0)
		n.s.next = func(context.Context) error { time.Sleep(10 * time.Second); return nil } //nolint:forbidigo // fake time
		pages := make(chan paging.Page)
		go func() {
			page, err := n.next("c", page.Token)
			if err != nil {
				t.Error(err)
			}
			pages <- page
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := n.node("a").Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain() = %v", err)
		}
		b := n.node("b")
		b.Succeeded(n.node("a").Self().Instance, b.Self()) // it may hear it from others
		// DNS does not list a replica that drains
		n.hidden = "a"
		page = <-pages
		if next := n.mustNext("c", page.Token); numbers(page) != "2 3" || numbers(next) != "4 5" {
			t.Errorf("pages %s and %s", numbers(page), numbers(next))
		} else {
			page = next
		}
		n.crash("a")
		for _, address := range []string{"b", "c"} {
			if _, err := n.next(address, page.Token); !errors.Is(err,
				paging.ErrCursorPositionUnknown) {
				t.Errorf("at %s, when its replica is gone: %v", address, err)
			}
		}
	})
}
