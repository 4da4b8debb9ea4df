package paging_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/paging"
)

// TestReclaimTakesNoMore checks that pages which are not in the way of a call stay.
func TestReclaimTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		older := f.open(6, 2, 1000)
		f.mustNext(older.Token)
		one := f.r.Held()
		newer := f.open(6, 2, 1000)
		f.mustNext(newer.Token)
		f.r.Reclaim(int64(one), nil)
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

// TestChargedPages checks that what is held between two calls is charged to the principal of the
// cursor, whatever its name is, and that pages give way to calls.
func TestChargedPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 10_000})
		f := newFixture(t, func(c *paging.Config) { c.Admission = a })
		first := f.open(6, 2, 1000)
		f.mustNext(first.Token)
		if held := a.Bytes().Held; held < 4000 || held > 5000 {
			t.Errorf("%d bytes are charged for a page of 4000", held)
		}
		var own, other admission.Account
		a.Open(&own, admission.Principal{Name: "anna"})
		a.Open(&other, admission.Principal{Name: "pages"})
		if err := own.Grow(t.Context(), 4500); err == nil {
			t.Error("the page is not charged to its principal")
		}
		if err := other.Grow(t.Context(), 4500); err != nil {
			t.Errorf("the page is charged to another principal: %v", err)
		}
		other.Close()
		f.r.Reclaim(1, &admission.Principal{Name: "pages"})
		if held := a.Bytes().Held; held == 0 {
			t.Error("a page was dropped that is another principal's")
		}
		f.r.Reclaim(1, &admission.Principal{Name: "anna"})
		if held := a.Bytes().Held; held != 0 {
			t.Errorf("%d bytes are charged after Reclaim", held)
		}
		if _, err := f.next(first.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("the page that was dropped: %v", err)
		}
	})
}
