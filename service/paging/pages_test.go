package paging_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/seal"
)

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		page := f.open(7, 3, 10)
		all := numbers(page)
		for page.Token != "" {
			if len(page.Token) > seal.MaxTokenBytes {
				t.Errorf("token of %d bytes", len(page.Token))
			}
			page = f.mustNext(page.Token)
			all += " " + numbers(page)
		}
		if all != "0 1 2 3 4 5 6" {
			t.Errorf("documents %s", all)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 0 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if page := f.open(2, 3, 0); page.Token != "" || len(page.Documents) != 2 {
			t.Errorf("a result that fits: %v", page)
		}
	})
}

// TestCursorOfAPage checks that the last page has no cursor.
func TestCursorOfAPage(t *testing.T) {
	if got := (paging.Page{}).Cursor(); got != nil {
		t.Errorf("Cursor of the last page = %q", *got)
	}
	if got := (paging.Page{Token: "t"}).Cursor(); got == nil || *got != "t" {
		t.Errorf("Cursor of a page = %v, want its token", got)
	}
}

// TestStreamOfAPageThatIsFetched asks for a stream with the token of a page that another call gets
// meanwhile: it would repeat that page.
func TestStreamOfAPageThatIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(6, 2, 0).Token
		f.s.next = func(context.Context) error {
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			return nil
		}
		fetched := make(chan error, 1)
		go func() {
			_, err := f.next(token)
			fetched <- err
		}()
		synctest.Wait()
		_, _, err := f.r.Take(t.Context(), paging.Asking{Principal: "anna", Token: token})
		if !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("Take = %v, want %v", err, paging.ErrCursorTokenReused)
		}
		if err := <-fetched; err != nil {
			t.Error(err)
		}
	})
}

func TestSameTokenSamePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		first := f.open(5, 2, 0)
		second := f.r1(first.Token, 2)
		for range 3 {
			if again := f.mustNext(first.Token); !same(again, second) {
				t.Fatalf("again: %v, want %v", again, second)
			}
		}
		third := f.mustNext(second.Token)
		if third.Token != "" {
			t.Fatal("the last page has a token")
		}
		if again := f.mustNext(second.Token); !same(again, third) {
			t.Errorf("the last page again: %v, want %v", again, third)
		}
		if _, err := f.next(first.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("an older token: %v, want %v", err, paging.ErrCursorTokenReused)
		}
		if _, _, fetched := f.s.count(); fetched != 2 {
			t.Errorf("%d getMores, want 2", fetched)
		}
	})
}

func TestForgottenPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageMemory = 5000 })
		var tokens, next []string
		for range 4 { // pages of 2000 bytes: two fit
			first := f.open(6, 2, 1000)
			tokens = append(tokens, first.Token)
			next = append(next, f.r1(first.Token, 2).Token)
		}
		for i, token := range tokens {
			_, err := f.next(token)
			if want := i < 2; errors.Is(err, paging.ErrCursorTokenReused) != want {
				t.Errorf("page of cursor %d: %v, want forgotten = %v", i, err, want)
			}
		}
		if page := f.mustNext(next[0]); numbers(page) != "4 5" {
			t.Errorf("after a forgotten page: %s", numbers(page))
		}
	})
}

func TestPageBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageBytes = 2500 })
		page := f.open(9, 5, 1000) // a batch of five is three pages
		got := []string{numbers(page)}
		for page.Token != "" {
			page = f.mustNext(page.Token)
			got = append(got, numbers(page))
		}
		if want := "[0 1 2 3 4 5 6 7 8]"; fmt.Sprint(got) != want {
			t.Errorf("pages %q", got)
		}
		if _, _, fetched := f.s.count(); fetched != 2 { // batches are then made to fit a page
			t.Errorf("%d getMores, want 2", fetched)
		}
		if page := f.open(3, 5, 4000); numbers(page) != "0" || page.Token == "" {
			t.Errorf("a document larger than a page: %s", numbers(page))
		} else if page = f.mustNext(page.Token); numbers(page) != "1" {
			t.Errorf("the next one: %s", numbers(page))
		}
	})
}

func TestBatchSizeOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageBytes = 5000 })
		page := f.open(100, 10, 1000) // 10 documents, of which 4 fit
		page = f.r1(page.Token, 2)
		if numbers(page) != "4 5" {
			t.Errorf("of what is left: %s", numbers(page))
		}
		page = f.r1(page.Token, 4)
		if page = f.r1(page.Token, 3); numbers(page) != "10 11 12" {
			t.Errorf("of the next batch: %s", numbers(page))
		}
		if page = f.mustNext(page.Token); numbers(page) != "13 14 15" {
			t.Errorf("it stays: %s", numbers(page))
		}
	})
}

func TestConcurrentNextGetsOnePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		f.s.next = func(context.Context) error { time.Sleep(time.Second); return nil } //nolint:forbidigo // fake time
		first := f.open(5, 2, 0)
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
		if _, _, fetched := f.s.count(); fetched != 1 {
			t.Errorf("%d getMores, want 1", fetched)
		}
	})
}

// A page that is a small part of its batch's buffer does not keep the buffer.
func TestHeldPagesAreCompact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageBytes = 8000 })
		first := f.open(12, 10, 1000) // 7 documents, then 3 of the same buffer
		page := f.mustNext(first.Token)
		if numbers(page) != "7 8 9" {
			t.Fatalf("page %s", numbers(page))
		}
		if doc := page.Documents[0]; cap(doc) != len(doc) {
			t.Errorf("the page's documents are views on %d bytes", cap(doc))
		}
		if again := f.mustNext(first.Token); !same(page, again) {
			t.Error("the page differs")
		}
	})
}

// The ledger is read for a page's token while other calls ask it for the same page. Without the
// table's lock the race detector reports it.
func TestTokenWhileOthersAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		first := f.open(9, 2, 0)
		f.s.next = func(context.Context) error { time.Sleep(time.Second); return nil } //nolint:forbidigo // fake time
		pages := make(chan paging.Page, 2)
		for i := range 2 {
			go func() {
				time.Sleep(time.Duration(i) * time.Second / 2) //nolint:forbidigo // fake time
				two := int32(2)
				page, err := f.r.Next(t.Context(),
					paging.Asking{Principal: "anna", Token: first.Token, BatchSize: &two})
				if err != nil {
					t.Error(err)
				}
				pages <- page
			}()
		}
		if one, other := <-pages, <-pages; numbers(one) != "2 3" || !same(one, other) {
			t.Errorf("pages %v and %v", one, other)
		}
	})
}
