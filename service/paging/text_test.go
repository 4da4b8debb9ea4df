package paging_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/service/paging"
)

// TestTextPages reads documents, two of which JSON cannot carry, in pages for JSON. A page ends
// before such a document, even if the cursor has come to its end. The next page begins with it.
func TestTextPages(t *testing.T) {
	for _, test := range []struct {
		name                    string
		total, batch, inflation int
		want                    string
	}{
		{"as JSON", 9, 4, 1, "[0 1|2 3|4 5 6|7 8]"},
		{"all in the first batch", 9, 20, 1, "[0 1|2 3 4 5 6|7 8]"},
		{"the last document", 8, 20, 3, "[0 1|2 3 4 5 6|7]"},
		{"as BSON", 9, 4, 0, "[0 1 2 3|4 5 6 7 8]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, "a", "b")
				n.s.bad = map[int]bool{2: true, 7: true}
				page, err := n.node("a").Open(t.Context(), paging.Opening{
					Principal: "anna", Inflation: test.inflation,
					Run: func(context.Context, int32) (paging.Cursor, error) {
						return n.holds(n.node("a"), n.s.find(test.total, test.batch, 0)), nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				got := numbers(page)
				for page.Token != "" {
					ask := paging.Asking{
						Principal: "anna", Token: page.Token, Inflation: test.inflation,
					}
					// b asks a, which holds the cursor; then a has the same page.
					page = mustAsk(t, n, "b", ask)
					if again := mustAsk(t, n, "a", ask); !same(again, page) {
						t.Errorf("again %s, want %s", numbers(again), numbers(page))
					}
					got += "|" + numbers(page)
				}
				if got = fmt.Sprintf("[%s]", got); got != test.want {
					t.Errorf("pages %s, want %s", got, test.want)
				}
				if open, killed, _ := n.s.count(); open != 0 || killed != 0 {
					t.Errorf("%d open, %d killed", open, killed)
				}
			})
		})
	}
}

func mustAsk(t *testing.T, n *network, address string, ask paging.Asking) paging.Page {
	t.Helper()
	page, err := n.node(address).Next(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	return page
}
