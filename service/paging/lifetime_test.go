package paging_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
)

func TestEphemeralKeyKillsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.Keys = ring(t) })
		f.open(5, 2, 0)
		if err := f.r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if got, want := f.r.Fate(), (paging.Fate{Ended: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if _, err := f.r.Open(t.Context(), paging.Opening{Run: func(
			context.Context, int32,
		) (paging.Cursor, error) {
			return f.s.find(5, 2, 0), nil
		}}); !errors.Is(err, handle.ErrClosing) {
			t.Errorf("Open after Close: %v", err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 2 {
			t.Errorf("%d open, %d killed", open, killed)
		}
	})
}

// TestTooLittleTimeToEnd closes a pager that has more cursors to end than there is time for. Those
// that stay on their servers count as left.
func TestTooLittleTimeToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.Keys = ring(t) })
		f.s.slowKill = 3 * time.Second
		const cursors = 50
		for range cursors {
			f.open(5, 2, 0)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.r.Close(ctx); err != nil {
			t.Fatal(err)
		}
		open, killed, _ := f.s.count()
		if got, want := f.r.Fate(), (paging.Fate{Ended: killed, Left: open}); got != want ||
			open == 0 || killed == 0 {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestCloseEndsCursors closes a pager without other replicas: its cursors end on their servers.
// Those at their end count as nothing.
func TestCloseEndsCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.open(5, 2, 0)
		f.open(5, 2, 0)
		ended := f.open(4, 2, 0)
		if _, err := f.next(ended.Token); err != nil {
			t.Fatal(err)
		}
		if err := f.r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := f.r.Fate(), (paging.Fate{Ended: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestCloseDuringAnAnswer closes a pager that fetches a page for another replica: the fetch, which
// owns the cursor, ends it. Close waits for that, and counts the cursor as ended only then.
func TestCloseDuringAnAnswer(t *testing.T) {
	const slow = 3 * time.Second // that canceling takes, and killing
	for _, row := range []struct {
		name  string
		limit time.Duration // of Close
		open  int           // cursors, when Close returns
		want  paging.Fate
	}{
		{"in time", time.Minute, 0, paging.Fate{Ended: 2}},
		{"too late", slow, 1, paging.Fate{Ended: 1, Left: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, nil)
				f.s.slowKill = slow
				release := make(chan struct{})
				f.s.next = func(ctx context.Context) error {
					select {
					case <-release:
						return nil
					case <-ctx.Done():
						time.Sleep(slow) //nolint:forbidigo // fake time
						return &mongoerr.NetworkError{Sent: true, Err: context.Cause(ctx)}
					}
				}
				first, second := f.open(9, 2, 0).Token, f.open(9, 2, 0).Token
				var wg sync.WaitGroup
				wg.Go(func() { f.r1(first, 2) }) // of 9 documents: it stays open
				synctest.Wait()
				wg.Go(func() {
					if err := f.r.Drain(t.Context()); err != nil {
						t.Errorf("Drain = %v", err)
					}
				})
				synctest.Wait()
				wg.Go(func() { // begins once the drain has ended
					asking := paging.Asking{Principal: "anna", Token: second, Forwarded: true}
					if _, err := f.r.Pager.Next(t.Context(), asking); err == nil {
						t.Error("a closed pager answers")
					}
				})
				synctest.Wait()
				release <- struct{}{}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), row.limit)
				defer cancel()
				if err := f.r.Close(ctx); err != nil {
					t.Fatal(err)
				}
				if open, _, _ := f.s.count(); open != row.open {
					t.Errorf("%d open, want %d", open, row.open)
				}
				if got := f.r.Fate(); got != row.want {
					t.Errorf("%+v, want %+v", got, row.want)
				}
				wg.Wait()
				if open, killed, _ := f.s.count(); open != 0 || killed != 2 {
					t.Errorf("in the end %d open, %d killed", open, killed)
				}
			})
		})
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(5, 2, 0).Token
		if err := f.r.CloseCursor(t.Context(),
			paging.Asking{Principal: "berta", Token: token}); !errors.Is(err,
			paging.ErrCursorNotFound) {
			t.Errorf("a stranger: %v", err)
		}
		if err := f.r.CloseCursor(t.Context(),
			paging.Asking{Principal: "anna", Token: token}); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if _, err := f.next(token); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("Next: %v", err)
		}
		if err := f.r.CloseCursor(t.Context(),
			paging.Asking{Principal: "anna", Token: token}); !errors.Is(err,
			paging.ErrCursorNotFound) {
			t.Errorf("again: %v", err)
		}
		token = f.open(5, 2, 0).Token
		if err := f.start(nil).
			CloseCursor(t.Context(),
				paging.Asking{Principal: "anna", Token: token}); !errors.Is(err,
			paging.ErrCursorNotFound) {
			t.Errorf("at another gateway that is alone: %v", err)
		}
	})
}

func TestCloseDuringNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.s.next = func(ctx context.Context) error {
			<-ctx.Done()
			return &mongoerr.NetworkError{Sent: true, Err: context.Cause(ctx)}
		}
		token := f.open(5, 2, 0).Token
		done := make(chan error)
		go func() {
			_, err := f.next(token)
			done <- err
		}()
		synctest.Wait()
		if err := f.r.CloseCursor(t.Context(),
			paging.Asking{Principal: "anna", Token: token}); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if err := <-done; !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("Next: %v, want %v", err, paging.ErrCursorNotFound)
		}
		if f.r.Len() != 0 {
			t.Errorf("%d cursors are held", f.r.Len())
		}
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.Idle = time.Minute })
		token := f.open(9, 2, 0).Token
		for range 2 {
			time.Sleep(50 * time.Second) //nolint:forbidigo // fake time; each page renews
			token = f.r1(token, 2).Token
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		if _, err := f.next(token); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("an expired token: %v", err)
		}
		time.Sleep(time.Minute / 4) //nolint:forbidigo // fake time
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 || f.r.Len() != 0 {
			t.Errorf("%d open, %d killed, %d held", open, killed, f.r.Len())
		}
	})
}

func TestNothingExpiresWhileItIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.Idle = time.Minute })
		f.s.next = func(context.Context) error { time.Sleep(time.Hour); return nil } //nolint:forbidigo // fake time
		first := f.open(5, 2, 0)
		page := f.mustNext(first.Token)
		if numbers(page) != "2 3 4" {
			t.Errorf("page %s", numbers(page))
		}
	})
}

func TestOpenForAClientThatWentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := f.r.Open(ctx, paging.Opening{Run: func(
			context.Context, int32,
		) (paging.Cursor, error) {
			cancel()
			return f.s.find(5, 2, 0), nil
		}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 || f.r.Len() != 0 {
			t.Errorf("%d open, %d killed, %d held", open, killed, f.r.Len())
		}
	})
}
