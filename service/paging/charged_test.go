package paging_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/service/paging"
)

// counted counts the memory that a pager charges.
type counted struct{ bytes int64 }

func (c *counted) Force(n int64)  { c.bytes += n }
func (c *counted) Shrink(n int64) { c.bytes -= n }

// TestReclaimTakesNoMore checks that pages which are not in the way of a call stay.
func TestReclaimTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		older := f.open(6, 2, 1000)
		f.mustNext(older.Token)
		one := f.r.Held()
		newer := f.open(6, 2, 1000)
		f.mustNext(newer.Token)
		f.r.Reclaim(int64(one))
		if held := f.r.Held(); held != one {
			t.Errorf("Reclaim of %d bytes leaves %d, want one page", one, held)
		}
		if _, err := f.next(newer.Token); err != nil {
			t.Errorf("the newer page again: %v", err)
		}
		if _, err := f.next(older.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("the older page again: %v", err)
		}
	})
}

// TestChargedPages checks that what is held between two calls is charged, and that pages give way
// to calls.
func TestChargedPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &counted{}
		f := newFixture(t, func(c *paging.Config) { c.Memory = memory })
		first := f.open(6, 2, 1000)
		f.mustNext(first.Token)
		if memory.bytes < 4000 || memory.bytes > 5000 {
			t.Errorf("%d bytes are charged for a page of 4000", memory.bytes)
		}
		f.r.Reclaim(1)
		if memory.bytes != 0 {
			t.Errorf("%d bytes are charged after Reclaim", memory.bytes)
		}
		if _, err := f.next(first.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("the page that was dropped: %v", err)
		}
	})
}
