package paging_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/paging"
)

// A stream that takes the rest does not bring back the page before it.
func TestTakenTokenDoesNotRepeatAnotherPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		second := f.r1(f.open(9, 2, 0).Token, 2)
		_, taken, err := f.r.Take(t.Context(),
			paging.Asking{Principal: "anna", Token: second.Token})
		if err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"during", "after"} {
			if page, err := f.next(second.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
				t.Errorf("Next %s the stream: %s, %v", when, numbers(page), err)
			}
			if when == "during" {
				_ = taken.Cursor.Close(t.Context())
				taken.Release()
			}
		}
	})
}

// All calls that wait for a page get it, although there is no memory to keep it.
func TestConcurrentNextWithoutPageMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageMemory = 1 })
		f.s.next = func(context.Context) error { time.Sleep(time.Second); return nil } //nolint:forbidigo // fake time
		first := f.open(5, 2, 100)
		var wg sync.WaitGroup
		pages := make([]paging.Page, 10)
		for i := range pages {
			wg.Go(func() { pages[i] = f.mustNext(first.Token) })
		}
		wg.Wait()
		for _, page := range pages {
			if !same(page, pages[0]) {
				t.Errorf("pages differ: %v and %v", page, pages[0])
			}
		}
		if _, err := f.next(first.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("later: %v", err)
		}
	})
}

// A fetch that panics leaves no call waiting for ever.
func TestPanicDuringNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		first := f.open(5, 2, 0)
		f.s.next = func(context.Context) error { panic("bug: in a test") }
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = f.next(first.Token)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.r.Next(ctx,
			paging.Asking{Principal: "anna", Token: first.Token}); !errors.Is(err,
			paging.ErrCursorPositionUnknown) {
			t.Errorf("again: %v", err)
		}
	})
}

// TestLeftoversStay checks that what is left of batches that are larger than a page stays while its
// cursor is open, and that remembered pages give way to it. What opens is refused while there is
// no room; what is open goes on, and makes room.
func TestLeftoversStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageBytes, c.PageMemory = 2500, 30_000 })
		small := f.open(9, 2, 1000)
		f.mustNext(small.Token)
		var tokens []string
		for range 3 { // 2 of 10 documents delivered, 8 KB kept
			tokens = append(tokens, f.open(10, 10, 1000).Token)
		}
		if _, err := f.next(small.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("a remembered page beside leftovers that fill the memory: %v", err)
		}
		open := func() error {
			_, err := f.r.Open(t.Context(), paging.Opening{
				Principal: "anna",
				Run: func(context.Context, int32) (paging.Cursor, error) {
					return f.s.find(9, 2, 0), nil
				},
			})
			return err
		}
		if e, ok := errors.AsType[*admission.Error](open()); !ok || e.Cause != admission.OwnShare {
			t.Errorf("one more cursor: %v, want a refusal", e)
		}
		for i, token := range tokens {
			for want := 2; token != ""; want += 2 {
				page, err := f.next(token)
				if err != nil || numbers(page) != fmt.Sprint(want, want+1) {
					t.Fatalf("cursor %d: %s, %v", i, numbers(page), err)
				}
				token = page.Token
			}
		}
		if err := open(); err != nil {
			t.Errorf("when the others have been read: %v", err)
		}
	})
}

// Even without any memory, one client gets all of a batch that is larger than a page.
func TestRestWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageBytes, c.PageMemory = 2500, -1 })
		page := f.open(9, 7, 1000)
		got := numbers(page)
		for page.Token != "" {
			page = f.mustNext(page.Token)
			got += " " + numbers(page)
		}
		if got != "0 1 2 3 4 5 6 7 8" {
			t.Errorf("documents %s", got)
		}
		if held := f.r.Held(); held != 0 {
			t.Errorf("%d bytes are held in the end", held)
		}
	})
}

// What a client leaves unread does not stay: pages, rests and cursors.
func TestNothingIsHeldInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageBytes, c.Idle = 2500, time.Minute })
		for i := range 20 {
			page := f.open(30, 10, 1000)
			for range i % 5 {
				page = f.mustNext(page.Token)
			}
			switch i % 3 {
			case 0:
				if err := f.r.CloseCursor(t.Context(),
					paging.Asking{Principal: "anna", Token: page.Token}); err != nil {
					t.Error(err)
				}
			case 1:
				_, taken, err := f.r.Take(t.Context(),
					paging.Asking{Principal: "anna", Token: page.Token})
				if err != nil {
					t.Fatal(err)
				}
				_ = taken.Cursor.Close(t.Context())
				taken.Release()
			}
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // fake time
		if open, _, _ := f.s.count(); open != 0 || f.r.Len() != 0 || f.r.Held() != 0 {
			t.Errorf("%d open, %d held of %d bytes", open, f.r.Len(), f.r.Held())
		}
	})
}

// A document that is a small part of a large reply does not keep it.
func TestPageOfAnOversizedReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.s.buffer = 48_000_000
		token := f.open(3, 1, 100).Token
		page := f.r1(token, 1)
		if held := f.r.Held(); held > 1000 {
			t.Errorf("%d bytes are held", held)
		}
		if again := f.mustNext(token); !same(again, page) ||
			cap(again.Documents[0]) != len(again.Documents[0]) {
			t.Error("the page is not a copy of itself")
		}
	})
}

func TestNoMoreCursorsThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.MaxCursors = 3 })
		var tokens []string
		for i := range 5 {
			tokens = append(tokens, f.open(9, 2, 0).Token)
			if i == 2 { // the first one is used again
				tokens[0] = f.r1(tokens[0], 2).Token
			}
		}
		synctest.Wait()
		if open, killed, _ := f.s.count(); open != 3 || killed != 2 || f.r.Len() != 3 {
			t.Errorf("%d open, %d killed, %d held", open, killed, f.r.Len())
		}
		for i, token := range tokens {
			if _, err := f.next(token); errors.Is(err, paging.ErrCursorNotFound) != (i == 1 ||
				i == 2) {
				t.Errorf("cursor %d: %v", i, err)
			}
		}
	})
}

// A server that does not answer does not let expired cursors pile up.
func TestSlowKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.Idle = time.Minute })
		f.s.slowKill = 3 * time.Second
		for range 80 {
			f.open(9, 2, 0)
		}
		time.Sleep(time.Minute + time.Minute/8 + 31*time.Second) //nolint:forbidigo // fake time
		if _, killed, _ := f.s.count(); killed != 80 {
			t.Errorf("%d killed", killed)
		}
	})
}

// Many clients do all that they can at once, with little memory. None ever misses a document
// without being told.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) {
			c.PageBytes, c.PageMemory, c.MaxCursors, c.Idle = 3000, 150_000, 30, time.Minute
		})
		f.s.next = func(ctx context.Context) error {
			if rand.IntN(20) == 0 {
				return &mongoerr.SelectionError{}
			}
			select {
			case <-time.After(time.Duration(rand.IntN(2000)) * time.Millisecond):
				return nil
			case <-ctx.Done(): // it would run on, if only its client had gone
				if errors.Is(context.Cause(ctx), context.Canceled) {
					return nil
				}
				return &mongoerr.NetworkError{Sent: true, Err: context.Cause(ctx)}
			}
		}
		var complete atomic.Int64
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				for range 10 {
					if f.read(30, 1+rand.IntN(20), 1000) {
						complete.Add(1)
					}
					time.Sleep(time.Duration(rand.IntN(20_000)) * time.Millisecond) //nolint:forbidigo // fake time
				}
			})
		}
		wg.Wait()
		if n := complete.Load(); n < 10 || n > 390 {
			t.Errorf("%d of 400 cursors were read to their end: the test shows little", n)
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // fake time
		if open, _, _ := f.s.count(); open != 0 || f.r.Len() != 0 || f.r.Held() != 0 {
			t.Errorf("%d open, %d held of %d bytes", open, f.r.Len(), f.r.Held())
		}
	})
}

// read reads one cursor to its end, or until an error that ends it, in the ways that clients have.
func (f *fixture) read(total, batch, size int) (complete bool) {
	page, err := f.tryOpen(total, batch, size)
	if _, full := errors.AsType[*admission.Error](err); full {
		return false
	}
	if err != nil {
		f.t.Error(err)
		return false
	}
	want := 0
	take := func(page paging.Page) {
		for _, doc := range page.Documents {
			v, _ := doc.Lookup("i")
			if n, _ := v.Int32(); int(n) != want {
				f.t.Errorf("document %d, want %d", n, want)
			}
			want++
		}
	}
	take(page)
	for page.Token != "" {
		asking := paging.Asking{Principal: "anna", Token: page.Token}
		switch rand.IntN(60) {
		case 0:
			_ = f.r.CloseCursor(f.t.Context(), paging.Asking{Principal: "anna", Token: page.Token})
			return false
		case 1:
			ctx, taken, err := f.r.Take(f.t.Context(), asking)
			if err != nil {
				return false
			}
			b, _ := taken.Cursor.NextLent(ctx)
			b.Lent.Release()
			_ = taken.Cursor.Close(ctx)
			taken.Release()
			return false
		case 2: // it gives up waiting, and asks again
			ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
			_, _ = f.r.Next(ctx, asking)
			cancel()
		case 3: // so does a second one
			go func() { _, _ = f.r.Next(f.t.Context(), asking) }()
		}
		next, err := f.r.Next(f.t.Context(), asking)
		if _, none := errors.AsType[*mongoerr.SelectionError](err); none {
			continue
		}
		if err != nil {
			return false
		}
		take(next)
		page = next
	}
	if want != total {
		f.t.Errorf("%d documents, want %d", want, total)
	}
	return true
}
