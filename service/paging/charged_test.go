package paging_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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

// TestPageIsChargedOnce checks that the reply of a page is charged to its call and then to what the
// cursor keeps of it, and not to both.
func TestPageIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reply, kept = 2000, 2000 + 24
		a := admission.New(admission.Config{Bytes: 10_000})
		f := newFixture(t, func(c *paging.Config) { c.Admission, c.PageBytes = a, 2500 })
		token := f.open(9, 2, 2000).Token
		before := a.Bytes().Held // the first page left a document
		f.s.next = func(ctx context.Context) error {
			done, err := a.AdmitReply(ctx, reply)
			done(true)
			return err
		}
		var call admission.Account
		a.Open(&call, admission.Principal{Name: "anna"})
		ctx := context.WithValue(t.Context(), admission.AccountKey{}, &call)
		page, err := f.r.Next(ctx, paging.Asking{Principal: "anna", Token: token})
		if err == nil {
			page, err = f.r.Next(ctx, paging.Asking{Principal: "anna", Token: page.Token})
		}
		if err != nil || numbers(page) != "2" {
			t.Fatalf("the page of a new batch: %s, %v", numbers(page), err)
		}
		if held := a.Bytes().Held; held < reply || held > kept+100 {
			t.Errorf("%d bytes are charged for a reply of %d; %d before it", held, reply, before)
		}
		call.Close()
		if held := a.Bytes().Held; held < reply || held > kept+100 {
			t.Errorf("%d bytes are charged when the call has ended", held)
		}
	})
}

// TestTakenLeftoverIsCharged checks that what is left of a batch stays charged when a stream takes
// the cursor over, to the call of the stream.
func TestTakenLeftoverIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 10_000})
		f := newFixture(t, func(c *paging.Config) { c.Admission, c.PageBytes = a, 2500 })
		token := f.open(9, 5, 1000).Token
		kept := a.Bytes().Held // three documents, in a buffer for five
		var call admission.Account
		a.Open(&call, admission.Principal{Name: "anna"})
		ctx := context.WithValue(t.Context(), admission.AccountKey{}, &call)
		ctx, taken, err := f.r.Pager.Take(ctx, paging.Asking{Principal: "anna", Token: token})
		if err != nil {
			t.Fatal(err)
		}
		held := a.Bytes().Held
		if kept < 3000 || held != kept || call.Held() != kept || taken.Charge != kept {
			t.Errorf("%d bytes are charged before, %d after; %d to the call, which knows of %d",
				kept, held, call.Held(), taken.Charge)
		}
		_ = taken.Cursor.Close(ctx)
		taken.Drop()
		taken.Release()
		call.Close()
		if held := a.Bytes().Held; held != 0 {
			t.Errorf("%d bytes are charged at the end", held)
		}
	})
}

// TestNextWithoutRoom checks that a call for a page waits for room, and is then refused before its
// getMore is sent, so that the same token brings the page once there is room. A cursor with a
// leftover goes on without room.
func TestNextWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 4 << 20, Patience: time.Second})
		f := newFixture(t, func(c *paging.Config) { c.Admission, c.PageBytes = a, 1<<20 })
		next := func(token string) (paging.Page, error) {
			var c admission.Account
			a.Open(&c, admission.Principal{Name: "anna"})
			defer c.Close()
			ctx := context.WithValue(t.Context(), admission.AccountKey{}, &c)
			return f.r.Next(ctx, paging.Asking{Principal: "anna", Token: token})
		}
		plain := f.open(30, 2, 100_000) // 2 of 2 documents delivered
		left := f.open(30, 15, 100_000) // 10 of 15 documents delivered
		var other admission.Account
		a.Open(&other, admission.Principal{Name: "berta"})
		other.Force(4<<20 - a.Bytes().Held)
		_, _, before := f.s.count()
		_, err := next(plain.Token)
		if e, ok := errors.AsType[*admission.Error](err); !ok || e.Cause != admission.Full {
			t.Errorf("without room: %v, want a refusal", err)
		}
		if _, _, fetched := f.s.count(); fetched != before {
			t.Error("a getMore was sent")
		}
		if page, err := next(left.Token); err != nil || numbers(page) != "10 11 12 13 14" {
			t.Errorf("a leftover: %s, %v", numbers(page), err)
		}
		waits := time.AfterFunc(time.Second/2, other.Close)
		defer waits.Stop()
		if page, err := next(plain.Token); err != nil || numbers(page) != "2 3 4 5 6 7 8 9 10 11" {
			t.Errorf("when there is room after a while: %s, %v", numbers(page), err)
		}
	})
}

// TestRefusedCursorIsNotEvicted checks that a cursor whose second page was asked for, and
// refused for
// lack of room, does not give way to a new cursor.
func TestRefusedCursorIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 4 << 20})
		f := newFixture(t, func(c *paging.Config) {
			c.Admission, c.PageBytes, c.MaxPerPrincipal = a, 1<<20, 2
		})
		next := func(token string) (paging.Page, error) {
			var c admission.Account
			a.Open(&c, admission.Principal{Name: "anna"})
			defer c.Close()
			ctx := context.WithValue(t.Context(), admission.AccountKey{}, &c)
			return f.r.Next(ctx, paging.Asking{Principal: "anna", Token: token})
		}
		asked := f.open(30, 2, 100_000)
		var other admission.Account
		a.Open(&other, admission.Principal{Name: "berta"})
		other.Force(4<<20 - a.Bytes().Held)
		if _, err := next(asked.Token); err == nil {
			t.Fatal("there is room for the second page")
		}
		unread := f.open(30, 2, 100_000)
		f.open(30, 2, 100)
		other.Close()
		page, err := next(asked.Token)
		if err != nil || numbers(page) != "2 3 4 5 6 7 8 9 10 11" {
			t.Errorf("the cursor whose page was refused: %s, %v", numbers(page), err)
		}
		if _, err := next(unread.Token); !errors.Is(err, paging.ErrCursorEvicted) {
			t.Errorf("the cursor that was not asked for: %v, want ErrCursorEvicted", err)
		}
	})
}

// TestUndeliveredPage checks that a page whose call had ended before it was there does not give way
// to other calls until it was delivered.
func TestUndeliveredPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(9, 2, 100).Token
		f.s.next = func(context.Context) error { time.Sleep(time.Second); return nil } //nolint:forbidigo // fake time
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, _ = f.r.Next(ctx,
			paging.Asking{Principal: "anna", Token: token, BatchSize: new(int32(2))})
		f.r.Reclaim(1<<20, nil)
		first, err := f.next(token)
		if err != nil {
			t.Fatalf("the page that its client has not got: %v", err)
		}
		f.r.Reclaim(1<<20, nil)
		if again, err := f.next(token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("once more, after it was delivered: %s, %v", numbers(again), err)
		}
		if numbers(f.mustNext(first.Token)) == "" {
			t.Error("the cursor does not go on")
		}
	})
}

// TestUnsentPage checks that a page for whose response there was no room does not give way to other
// calls, so that its client gets it later.
func TestUnsentPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admission.New(admission.Config{Bytes: 1 << 20})
		f := newFixture(t, func(c *paging.Config) { c.Admission = a })
		token := f.open(9, 2, 100).Token
		next := func(response int64) (paging.Page, error) {
			var c admission.Account
			a.Open(&c, admission.Principal{Name: "anna"})
			defer c.Close()
			ctx := context.WithValue(t.Context(), admission.AccountKey{}, &c)
			got, err := f.r.Next(ctx,
				paging.Asking{Principal: "anna", Token: token, BatchSize: new(int32(2))})
			f.r.Reclaim(1<<20, nil) // while the call sends its response
			return got, errors.Join(err, c.GrowLast(ctx, response))
		}
		for range 2 {
			if _, err := next(2 << 20); err == nil {
				t.Fatal("there is room for the response")
			}
			f.r.Reclaim(1<<20, nil)
		}
		if page, err := next(1); err != nil || numbers(page) != "2 3" {
			t.Errorf("the page later: %s, %v", numbers(page), err)
		}
		f.r.Reclaim(1<<20, nil)
		if _, err := next(1); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("once more, after it was sent: %v", err)
		}
	})
}

// TestPageFromElsewhere checks that a page of another replica is asked for only when there is room
// for it and for its response, which is then not refused: the other replica may hold the page no
// longer.
func TestPageFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 4 << 20
		a := admission.New(admission.Config{Bytes: room})
		n := newNetwork(t, "a")
		b := n.start("b", func(c *paging.Config) { c.Admission, c.PageBytes = a, 1<<20 })
		token := n.open("a", 30, 5, 100).Token
		var other, call admission.Account
		a.Open(&other, admission.Principal{Name: "berta"})
		a.Open(&call, admission.Principal{Name: "anna"})
		ctx := context.WithValue(t.Context(), admission.AccountKey{}, &call)
		next := func() (paging.Page, error) {
			return b.Next(ctx, paging.Asking{Principal: "anna", Token: token})
		}
		other.Force(room)
		_, err := next()
		if _, ok := errors.AsType[*admission.Error](err); !ok || n.asked != nil {
			t.Errorf("without room: %v after the questions %v, want a refusal", err, n.asked)
		}
		other.Shrink(room)
		if page, err := next(); err != nil || numbers(page) == "" {
			t.Errorf("with room: %s, %v", numbers(page), err)
		}
		other.Force(room)
		if err := call.GrowLast(ctx, 1<<20); err != nil {
			t.Errorf("the response: %v", err)
		}
		call.Close()
		other.Close()
		if held := a.Bytes().Held; held != 0 {
			t.Errorf("%d bytes are charged at the end", held)
		}
	})
}
