package paging_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/service/paging"
)

// alike is the cursor of a result of documents of one size. A reply has as many as are asked for
// and fit into 16 MB. It counts commands.
type alike struct {
	fakeCursor
	doc      bson.Raw
	left     int
	commands int
	batch    *cursor.Batch // the first one, until Next has returned it
}

func (a *alike) reply(n int32) *cursor.Batch {
	a.commands++
	count := min(int(n), a.left, max(16<<20/len(a.doc), 1))
	a.left -= count
	if a.left == 0 {
		a.state.ID = 0
	}
	docs := make([]bson.Raw, count)
	for i := range docs {
		docs[i] = a.doc
	}
	return &cursor.Batch{Documents: docs, Bytes: count * len(a.doc)}
}

func (a *alike) NextLent(context.Context) (cursor.Batch, error) {
	if b := a.batch; b != nil {
		a.batch = nil
		return *b, nil
	}
	return *a.reply(a.state.BatchSize), nil
}

func (a *alike) Done() bool { return a.batch == nil && a.state.ID == 0 }

// TestCommands reads results in pages, for the first time and once more, and counts the commands
// that were sent, the pages, and the most that was left of a batch between two pages, in KiB.
// docs/scaling.md says how many commands a page takes.
func TestCommands(t *testing.T) {
	type reading struct{ commands, pages, leftover int }
	for _, row := range []struct {
		size, documents int
		first, then     reading
	}{
		{100, 1, reading{1, 1, 0}, reading{1, 1, 0}},
		{100, 101, reading{2, 1, 0}, reading{1, 1, 0}},
		{100, 1000, reading{4, 3, 0}, reading{3, 3, 0}},
		{100, 100_000, reading{9, 8, 0}, reading{8, 8, 0}},
		{10_000, 1, reading{1, 1, 0}, reading{1, 1, 0}},
		{10_000, 101, reading{2, 1, 0}, reading{1, 1, 0}},
		{10_000, 1000, reading{5, 4, 0}, reading{4, 4, 0}},
		{10_000, 100_000, reading{321, 320, 0}, reading{320, 320, 0}},
		{1_000_000, 1, reading{1, 1, 0}, reading{1, 1, 0}},
		{1_000_000, 101, reading{32, 34, 7812}, reading{34, 34, 0}},
		{1_000_000, 1000, reading{332, 334, 7812}, reading{334, 334, 0}},
		{1_000_000, 100_000, reading{33332, 33334, 7812}, reading{33334, 33334, 0}},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", row.documents, row.size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, nil)
				doc := bson.NewBuilder(nil).Binary("pad", 0, make([]byte, row.size-15)).Finish()
				for i, want := range []reading{row.first, row.then} {
					a := &alike{doc: doc, left: row.documents, fakeCursor: fakeCursor{s: f.s}}
					a.state.ID = 1
					page, err := f.r.Open(t.Context(), paging.Opening{
						Namespace: paging.Namespace{Database: "d", Collection: "c"}, Sized: true,
						Run: func(_ context.Context, first int32) (paging.Cursor, error) {
							a.batch = a.reply(first)
							return a, nil
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					got := reading{pages: 1}
					for page.Token != "" {
						got.leftover = max(got.leftover, f.r.Leftovers()>>10)
						if page, err = f.r.Next(t.Context(),
							paging.Asking{Token: page.Token}); err != nil {
							t.Fatal(err)
						}
						got.pages++
					}
					if got.commands = a.commands; got != want {
						t.Errorf("reading %d: %+v, want %+v", i+1, got, want)
					}
				}
			})
		})
	}
}
