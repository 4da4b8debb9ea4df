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

// leaveBehind opens a cursor at b, whose page 1 is lost, and lets d go on with a gap without
// asking b. It returns the token for page 2, and that for page 1, which b has served.
func (n *network) leaveBehind() (ahead, behind string) {
	n.t.Helper()
	page := n.open("b", 20, 2, 0)
	n.s.after = func() error { return lostReply }
	_, _ = n.next("b", page.Token)
	n.s.after = nil
	n.faults.before = n.cutOff("d", "b")
	next, err := n.nextWithGap("d", page.Token)
	if err != nil || numbers(next) != "4 5" {
		n.t.Fatalf("behind the gap: %s, %v", numbers(next), err)
	}
	n.faults.before = nil
	return next.Token, page.Token
}

func (n *network) nextWithGap(address, token string) (paging.Page, error) {
	two := int32(2)
	return n.node(address).Next(n.t.Context(), paging.Asking{Principal: "anna", Token: token, AllowGap: true, BatchSize: &two})
}

// A replica that has fallen behind, and finds no replica that has gone on, returns an error, or
// goes on if the client allows the gap. It does not ask forever.
func TestBehindSomebodyWhoIsGone(t *testing.T) {
	for _, allowGap := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, "a", "b", "d")
			token, _ := n.leaveBehind()
			n.crash("d")
			n.questions()
			asked := 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n.faults.before = func(context.Context, string, string) error {
				if asked++; asked > 20 {
					cancel()
				}
				return nil
			}
			two := int32(2)
			page, err := n.node("b").Next(ctx, paging.Asking{Principal: "anna", Token: token, AllowGap: allowGap, BatchSize: &two})
			switch {
			case allowGap && (err != nil || numbers(page) != "6 7"):
				t.Errorf("with a gap: %s, %v", numbers(page), err)
			case !allowGap && !errors.Is(err, paging.ErrCursorPositionUnknown):
				t.Errorf("Next = %s, %v", numbers(page), err)
			case asked > 6:
				t.Errorf("%d questions", asked)
			}
		})
	}
}

// A replica that is asked for a page that it cannot know of learns that its cursor went on without
// it. It does not kill a cursor that another replica reads.
func TestBehindSomebodyWhoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "a", "b", "d")
		token, old := n.leaveBehind()
		for i := range 3 {
			at := []string{"a", "d"}[i%2] // which ask b, among others, when d has lost what it knew
			if i == 0 {
				n.crash("d")
				n.start("d", nil)
			}
			page, err := n.nextWithGap(at, token)
			if err != nil {
				t.Fatalf("at %s: %v", at, err)
			}
			token = page.Token
			time.Sleep(handle.DefaultIdle * 2 / 3) //nolint:forbidigo // fake time
		}
		if open, killed, _ := n.s.count(); open != 1 || killed != 0 {
			t.Errorf("%d open, %d killed", open, killed)
		}
		if _, err := n.next("b", old); err == nil {
			t.Error("b goes on from where it was")
		}
	})
}

// Cursors that have ended, were streamed, or went to another replica do not push out those that are
// still read.
func TestLiveCursorsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, "b")
		a := n.start("a", func(c *paging.Config) { c.MaxCursors = 10 })
		var live []string
		for range 8 {
			live = append(live, n.open("a", 20, 2, 0).Token)
		}
		for range 10 {
			n.mustNext("a", n.open("a", 4, 2, 0).Token)
			_, taken, err := a.Take(t.Context(), paging.Asking{Principal: "anna", Token: n.open("a", 9, 2, 0).Token})
			if err != nil {
				t.Fatal(err)
			}
			_ = taken.Cursor.Close(t.Context())
			taken.Release()
		}
		if got := a.Len(); got != 10 {
			t.Errorf("%d are known, want 10", got)
		}
		for i, token := range live {
			if page, err := n.next("a", token); err != nil || numbers(page) != "2 3" {
				t.Errorf("cursor %d: %s, %v", i, numbers(page), err)
			}
		}
	})
}
