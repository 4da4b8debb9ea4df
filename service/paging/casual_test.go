package paging_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
)

// The cursor of a client that may be content with the first page expires soon, and its token with
// it. Once the second page is asked for it lives as long as any other.
func TestUnreadPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		open := func() paging.Page {
			page, err := f.r.Open(t.Context(), paging.Opening{
				Principal: "anna", Casual: true, Run: func(
					context.Context, int32,
				) (paging.Cursor, error) {
					return f.s.find(9, 2, 0), nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			return page
		}
		unread, read := open(), open()
		usual := f.open(9, 2, 0)
		read = f.r1(read.Token, 2)
		if infos := f.r.Handles(handle.Query{Limit: 3}); len(infos) != 3 {
			t.Errorf("%d handles", len(infos))
		}
		time.Sleep(paging.DefaultUnreadIdle) //nolint:forbidigo // fake time
		if _, err := f.next(unread.Token); !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("the unread one after a minute: %v", err)
		}
		time.Sleep(20 * time.Second) //nolint:forbidigo // fake time
		synctest.Wait()
		if open, killed, _ := f.s.count(); open != 2 || killed != 1 {
			t.Errorf("%d open, %d killed; want 2 and 1", open, killed)
		}
		time.Sleep(handle.DefaultIdle - paging.DefaultUnreadIdle - 30*time.Second) //nolint:forbidigo // fake time
		for name, token := range map[string]string{
			"read on": read.Token, "of another kind": usual.Token,
		} {
			if _, err := f.next(token); err != nil {
				t.Errorf("%s, before its time is up: %v", name, err)
			}
		}
	})
}

// Cursors whose tokens cannot be opened any more, since their key is gone, do not count for their
// principal.
func TestCursorsOfAGoneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := ring(t, key(t, 1))
		f := newFixture(t, func(c *paging.Config) { c.Keys, c.MaxPerPrincipal = keys, 2 })
		for range 2 {
			f.r1(f.open(9, 2, 0).Token, 2) // so that it is not evicted
		}
		open := func() error {
			_, err := f.r.Open(t.Context(), paging.Opening{
				Principal: "anna", Run: func(context.Context, int32) (paging.Cursor, error) {
					return f.s.find(9, 2, 0), nil
				},
			})
			return err
		}
		if _, ok := errors.AsType[*handle.LimitError](open()); !ok {
			t.Error("a third cursor is opened")
		}
		if err := keys.Replace(key(t, 2)); err != nil {
			t.Fatal(err)
		}
		if err := open(); err != nil {
			t.Errorf("after the key was removed: %v", err)
		}
		synctest.Wait()
		if open, killed, _ := f.s.count(); open != 1 || killed != 2 {
			t.Errorf("%d open, %d killed; want 1 and 2", open, killed)
		}
	})
}
