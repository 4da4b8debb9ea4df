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

func TestHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b")
		a, b := n.node("a"), n.node("b")
		begin := time.Now()
		var pages []paging.Page
		for i := range 5 {
			page, err := n.openAs("a", []string{"anna", "berta"}[i%2], func() *fakeCursor {
				if i == 4 {
					return n.s.findPinned(9, 2)
				}
				return n.s.find(9, 2, 0)
			})
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, page)
			time.Sleep(time.Second) //nolint:forbidigo // fake time
		}
		all := handle.Query{Limit: 100}
		infos := a.Handles(all)
		if len(infos) != 5 {
			t.Fatalf("%d handles, want 5", len(infos))
		}
		first := infos[0]
		want := handle.Info{
			ID: first.ID, Kind: handle.KindCursor, Principal: "anna", Database: "shop",
			Collection: "orders",
			Server:     "db:27017", Opened: begin.Truncate(time.Millisecond), LastUse: begin,
			Expires: begin.Add(handle.DefaultIdle), Pages: 1, Replica: "a",
		}
		if first.ID == "" || first != want {
			t.Errorf("handle %+v, want %+v", first, want)
		}
		if !infos[4].Pinned || infos[3].Pinned {
			t.Error("not the last one is pinned")
		}
		anna, no := "anna", false
		for name, test := range map[string]struct {
			q    handle.Query
			want int
		}{
			"none":             {handle.Query{}, 0},
			"two":              {handle.Query{Limit: 2}, 2},
			"after the second": {handle.Query{After: infos[1].Mark(), Limit: 100}, 3},
			"after the last":   {handle.Query{After: infos[4].Mark(), Limit: 100}, 0},
			"anna":             {handle.Query{Principal: &anna, Limit: 100}, 3},
			"not pinned":       {handle.Query{Pinned: &no, Limit: 100}, 4},
			"shop":             {handle.Query{Database: "shop", Limit: 100}, 5},
			"shop.goods":       {handle.Query{Database: "shop", Collection: "goods", Limit: 100}, 0},
		} {
			if got := a.Handles(test.q); len(got) != test.want {
				t.Errorf("%s: %d, want %d", name, len(got), test.want)
			}
		}
		n.mustNext("b", pages[0].Token) // it stays where it is
		if got := a.Handles(all); len(got) != 5 || got[0].Pages != 2 || len(b.Handles(all)) != 0 {
			t.Errorf("at a %+v, at b %d", got[0], len(b.Handles(all)))
		}
		// it moves, and keeps what it is; the pinned one ends
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		moved := b.Handles(all)
		if len(a.Handles(all)) != 0 || len(moved) != 4 || moved[0].ID != first.ID ||
			moved[0].Opened != first.Opened ||
			moved[0].Pages != 2 || moved[0].Replica != "b" {
			t.Errorf("at a %d, at b %+v", len(a.Handles(all)), moved)
		}
		if err := a.Kill(t.Context(), first.ID); !errors.Is(err, handle.ErrNotFound) {
			t.Errorf("Kill at a: %v", err)
		}
		if err := b.Kill(t.Context(), first.ID); err != nil {
			t.Error(err)
		}
		for _, id := range []string{first.ID, "", "x", first.ID + "00", "zz" + first.ID[2:]} {
			if err := b.Kill(t.Context(), id); !errors.Is(err, handle.ErrNotFound) {
				t.Errorf("Kill(%q) = %v", id, err)
			}
		}
		if open, killed, _ := n.s.count(); open != 3 || killed != 2 {
			t.Errorf("%d open, %d killed", open, killed)
		}
	})
}

// A busy handle says so, and can be killed.
func TestKillWhatIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		token := f.open(9, 2, 0).Token
		f.s.next = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		done := make(chan error)
		go func() {
			_, err := f.next(token)
			done <- err
		}()
		synctest.Wait()
		infos := f.r.Handles(handle.Query{Limit: 1})
		if len(infos) != 1 || !infos[0].Busy || !infos[0].Expires.IsZero() {
			t.Fatalf("handles %+v", infos)
		}
		if err := f.r.Kill(t.Context(), infos[0].ID); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, paging.ErrCursorNotFound) {
			t.Errorf("Next = %v", err)
		}
		if open, _, _ := f.s.count(); open != 0 {
			t.Errorf("%d open", open)
		}
	})
}

// Those that ended are not handles any more, even if their last page may still be asked for.
func TestEndedCursorsAreNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		page := f.open(4, 2, 0)
		f.mustNext(page.Token)
		if infos := f.r.Handles(handle.Query{Limit: 10}); len(infos) != 0 || f.r.Len() != 1 {
			t.Errorf("%d handles, %d known", len(infos), f.r.Len())
		}
	})
}

// A principal has so many open cursors that are read, and no more: a call that may leave one more
// is not run. Other principals may open theirs.
func TestMaxPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		for _, address := range []string{"a", "b"} {
			n.start(address, func(c *paging.Config) { c.MaxPerPrincipal = 3 })
		}
		open := func(address, principal string, total int) (paging.Page, error) {
			return n.openAs(address, principal, func() *fakeCursor { return n.s.find(total, 2, 0) })
		}
		var tokens []string
		for range 3 {
			page, err := open("a", "anna", 6)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, n.mustNext("a", page.Token).Token) // so that it is not evicted
		}
		refused := func(address string) bool {
			_, err := open(address, "anna", 9)
			limit, ok := errors.AsType[*handle.LimitError](err)
			if ok && (limit.Principal != "anna" || limit.Max != 3 || limit.RetryAfter <= 0) {
				t.Errorf("%+v", limit)
			}
			return ok
		}
		if !refused("a") {
			t.Error("a fourth cursor was opened")
		}
		if open, killed, _ := n.s.count(); open != 3 || killed != 0 || n.s.opened != 3 {
			t.Errorf("%d open, %d killed, %d opened", open, killed, n.s.opened)
		}
		if page, err := n.node("a").Open(t.Context(), paging.Opening{
			Principal: "anna", Whole: true, Run: func(
				context.Context, int32,
			) (paging.Cursor, error) {
				return n.s.find(2, 2, 0), nil
			},
		}); err != nil || len(page.Documents) != 2 {
			t.Errorf("a result that fits its page: %v", err)
		}
		if _, err := open("a", "", 9); err != nil {
			t.Errorf("without a principal: %v", err)
		}
		if _, err := open("a", "berta", 9); err != nil {
			t.Errorf("another principal: %v", err)
		}
		n.mustNext("a", tokens[0]) // to its end
		if refused("a") {
			t.Error("one has ended, and there is still no room")
		}
		if refused("b") {
			t.Error("the replicas count together")
		}
		// what is taken over counts at b, and is never refused
		if err := n.node("a").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(n.node("b").
			Handles(handle.Query{Principal: new("anna"), Limit: 9})); got != 4 {
			t.Errorf("%d cursors of the principal at b, want its own and 3 that were pushed", got)
		}
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		if refused("b") {
			t.Error("expired ones still count")
		}
	})
}

// TestEvict opens a hundred cursors, more than a principal may have, whose second page is never
// asked for: none is refused. The least recently used cursor ends first, on its server too, and its
// client is told why, also by another replica that it was pushed to. A cursor that is read stays.
func TestEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "b")
		n.start("a", func(c *paging.Config) { c.MaxPerPrincipal = 3 })
		read := n.mustNext("a", n.open("a", 9, 2, 0).Token)
		var tokens []string
		for i := range 100 {
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			tokens = append(tokens, n.open("a", 9, 2, 0).Token)
			synctest.Wait()
			if open, _, _ := n.s.count(); open != min(i+2, 3) {
				t.Fatalf("%d open", open)
			}
		}
		for i, token := range tokens[:98] {
			if _, err := n.next("a", token); !errors.Is(err, paging.ErrCursorEvicted) {
				t.Errorf("cursor %d: %v, want ErrCursorEvicted", i, err)
			}
		}
		if _, err := n.next("b", tokens[0]); !errors.Is(err, paging.ErrCursorEvicted) {
			t.Errorf("asked at b: %v, want ErrCursorEvicted", err)
		}
		for name, token := range map[string]string{
			"read": read.Token, "new": tokens[98], "newest": tokens[99],
		} {
			if _, err := n.next("a", token); err != nil {
				t.Errorf("the %s one: %v", name, err)
			}
		}
		n.stop("a")
		if _, err := n.next("b", tokens[0]); !errors.Is(err, paging.ErrCursorEvicted) {
			t.Errorf("after a push to b: %v, want ErrCursorEvicted", err)
		}
	})
}
