package paging_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/paging"
)

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *paging.Config) { c.PageBytes, c.Idle = 2500, time.Minute })
		first := f.open(9, 5, 1000)
		ctx, taken, err := f.r.Take(t.Context(),
			paging.Asking{Principal: "anna", Token: first.Token})
		if err != nil {
			t.Fatal(err)
		}
		if len(taken.Documents) != 3 || taken.Cursor.Done() {
			t.Errorf("%d documents left, done %v", len(taken.Documents), taken.Cursor.Done())
		}
		if _, err := f.next(first.Token); !errors.Is(err, paging.ErrCursorTokenReused) {
			t.Errorf("Next during the stream: %v", err)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // fake time; it does not expire
		if ctx.Err() != nil {
			t.Error("the stream was ended")
		}
		_ = taken.Cursor.Close(ctx)
		taken.Release()
		if ctx.Err() == nil {
			t.Error("the context outlives the stream")
		}
		if _, _, err := f.r.Take(t.Context(),
			paging.Asking{Principal: "anna", Token: first.Token}); !errors.Is(err,
			paging.ErrCursorNotFound) {
			t.Errorf("its token has expired: %v", err)
		}
	})
}

func TestCloseEndsTheStreamThatTookIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(9, 5, 1000).Token
		ctx, taken, err := f.r.Take(t.Context(), paging.Asking{Principal: "anna", Token: token})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-ctx.Done()
			_ = taken.Cursor.Close(ctx)
			taken.Release()
		}()
		if err := f.r.CloseCursor(t.Context(),
			paging.Asking{Principal: "anna", Token: token}); err != nil {
			t.Fatal(err)
		}
		if open, killed, _ := f.s.count(); open != 0 || killed != 1 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if err := context.Cause(ctx); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("the stream ended with %v", err)
		}
	})
}
