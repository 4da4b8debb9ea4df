package paging_test

import (
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/service/paging"
)

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
			_, taken, err := a.Take(t.Context(),
				paging.Asking{Principal: "anna", Token: n.open("a", 9, 2, 0).Token})
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
