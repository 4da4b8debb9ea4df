package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// mixed returns documents whose _ids are of several types, in their order.
func mixed(n int) (docs []bson.Raw) {
	id := func() *bson.Builder { return bson.NewBuilder(nil) }
	add := func(b *bson.Builder) {
		docs = append(docs, b.Binary("pad", 0, make([]byte, wide)).Finish())
	}
	for i := range n {
		add(id().Double("_id", float64(i)+0.5))
	}
	for i := range n {
		add(id().String("_id", fmt.Sprintf("%04d", i)))
	}
	for i := range n {
		add(id().ObjectID("_id", bson.ObjectID{0, 0, byte(i)}))
	}
	for i := range n {
		add(id().DateTime("_id", int64(i)))
	}
	return docs
}

// series returns documents of which five have one _id.
func series(n int) (docs []bson.Raw) {
	for i := range n {
		docs = append(docs, bson.NewBuilder(nil).Int32("_id", int32(i/5)).Int32("n", int32(i)).
			Binary("pad", 0, make([]byte, wide)).Finish())
	}
	return docs
}

// TestExportContinues cuts an export off, or kills it, at a page in the middle of each type, and
// has it continue. The file has what an export that is not disturbed writes.
func TestExportContinues(t *testing.T) {
	w := newWorld(t)
	t.Run("collection", func(t *testing.T) { w.exportContinues(t, mixed(120)) })
	w.deployment.SetOptions("a.b", bson.NewBuilder(nil).OpenDocument("timeseries").
		String("timeField", "t").Close().Finish())
	t.Run("time series", func(t *testing.T) { w.exportContinues(t, series(480)) })
}

func (w *world) exportContinues(t *testing.T, docs []bson.Raw) {
	w.deployment.SetDocuments("a.b", docs...)
	var want []byte
	for _, d := range docs {
		want, _ = extjson.Append(want, d, extjson.Canonical)
		want = append(want, '\n')
	}
	const line = "export a.b --file $DIR/out --canonical --quiet --continue $DIR/state"
	_ = os.Remove(filepath.Join(w.dir, "state"))
	check := func(t *testing.T, said string) {
		t.Helper()
		if said != "{\"exportedCount\":480}\n" {
			t.Errorf("export prints %q", said)
		}
		if got, err := os.ReadFile(filepath.Join(w.dir, "out")); err != nil ||
			!bytes.Equal(got, want) {
			t.Errorf("the file has %d bytes, %v; want others, %d", len(got), err, len(want))
		}
	}
	for kind, address := range w.addresses {
		w.use(t, address)
		for _, page := range []int32{1, 2, 4} {
			_ = os.Remove(filepath.Join(w.dir, "state"))
			var pages atomic.Int32
			reached := make(chan struct{}, 100)
			disturb := func(reply func() fakemongo.Reply) {
				pages.Store(0)
				w.deployment.Disturb(func(
					cmd *fakemongo.Command, next fakemongo.Handler,
				) fakemongo.Reply {
					if cmd.Name == "getMore" && pages.Add(1) == page {
						return reply()
					}
					return next(cmd)
				})
			}
			t.Run(fmt.Sprintf("%s, cursor lost at page %d", kind, page), func(t *testing.T) {
				disturb(func() fakemongo.Reply {
					return fakemongo.Error(43, "CursorNotFound", "cursor not found")
				})
				check(t, w.run(t, line, ""))
			})
			_ = os.Remove(filepath.Join(w.dir, "state"))
			t.Run(fmt.Sprintf("%s, killed at page %d", kind, page), func(t *testing.T) {
				disturb(func() fakemongo.Reply {
					reached <- struct{}{}
					return fakemongo.Hang()
				})
				cmd := w.process(t, line)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				<-reached
				if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // it was killed
				w.deployment.Disturb(nil)
				check(t, w.run(t, line, ""))
			})
		}
	}
}

// TestCompleteData checks what completes the words of commands that work with data.
func TestCompleteData(t *testing.T) {
	w := newWorld(t)
	doc := bson.NewBuilder(nil).Int32("_id", 1).Finish()
	for _, namespace := range []string{"shop.orders", "shop.users", "stock.items", "other.x"} {
		w.deployment.SetDocuments(namespace, doc)
	}
	for kind, address := range w.addresses {
		w.use(t, address)
		for _, row := range []struct{ line, want string }{
			{"complete find s", "shop.\nstock.\n"},
			{"complete find sh", "shop.orders\nshop.users\n"},
			{"complete find shop.o", "shop.orders\n"},
			{"complete find --limit 5 other.", "other.x\n"},
			{"complete find shop.orders s", ""},
			{"complete find --profile t", "test\n"},
			{"complete find -o n", "ndjson\n"},
			{"complete call Catalog", "CatalogService.CollMod\n"},
			{"complete find --profile nope s", ""},
			{"complete find --address http://127.0.0.1:1 s", ""},
		} {
			if said := w.run(t, row.line, ""); said != row.want &&
				(row.want == "" || !strings.HasPrefix(said, row.want)) {
				t.Errorf("%s: %s prints %q, want %q", kind, row.line, said, row.want)
			}
		}
	}
}
