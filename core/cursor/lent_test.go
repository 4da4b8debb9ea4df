package cursor_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// big returns a document of 10 KB.
func big(n int) bson.Raw {
	return bson.NewBuilder(nil).Int32("_id", int32(n)).String("pad", fmt.Sprintf("%010000d", n)).
		Finish()
}

func runBig(t *testing.T, n int, test func(t *testing.T, srv *fakemongo.Server, c *client.Client)) {
	t.Helper()
	before := buffer.Lent()
	run(t, 0, nil, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		docs := make([]bson.Raw, n)
		for i := range docs {
			docs[i] = big(i)
		}
		srv.SetDocuments("shop.orders", docs...)
		test(t, srv, c)
	})
	if n := buffer.Lent() - before; n != 0 {
		t.Errorf("%d buffers are lent after all", n)
	}
}

// TestDocumentsStayValid checks that what Next and Batches return stays valid, also of the first
// batch, while other batches are lent.
func TestDocumentsStayValid(t *testing.T) {
	runBig(t, 50, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		opt := client.FindOptions{BatchSize: new(int32(5))}
		var kept []bson.Raw
		for b, err := range find(t, c, opt).Batches(t.Context()) {
			if err != nil || b.Lent != nil {
				t.Fatalf("a batch lends %t, %v", b.Lent != nil, err)
			}
			kept = append(kept, b.Documents...)
			for _, err := range find(t, c, opt).LentBatches(t.Context()) { // uses the memory again
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, d := range kept {
			if !bytes.Equal(d, big(i)) {
				t.Fatalf("document %d of %d reads %x", i, len(kept), d[:20])
			}
		}
		if len(kept) != 50 {
			t.Errorf("%d documents", len(kept))
		}
	})
}

// TestLentBatches checks that each batch is valid in the body of the loop, that a holder may keep
// one longer, and that nothing is lent when the loop has ended early.
func TestLentBatches(t *testing.T) {
	runBig(t, 50, func(t *testing.T, _ *fakemongo.Server, c *client.Client) {
		var held cursor.Batch
		n := 0
		for b, err := range find(t, c, client.FindOptions{BatchSize: new(int32(5))}).
			LentBatches(t.Context()) {
			if err != nil || b.Lent == nil {
				t.Fatalf("a batch lends %t, %v", b.Lent != nil, err)
			}
			for i, d := range b.Documents {
				if !bytes.Equal(d, big(n+i)) {
					t.Fatalf("document %d reads %x", n+i, d[:20])
				}
			}
			if n == 10 {
				b.Lent.Retain()
				held = b
			}
			if n += len(b.Documents); n == 40 {
				break
			}
		}
		document := held.Documents[0]
		if !bytes.Equal(document, big(10)) {
			t.Errorf("the batch that is held reads %x", document[:20])
		}
		held.Lent.Release()
		if buffer.Poisoned && document[0] != buffer.Poison {
			t.Error("the batch can be read after its last Release")
		}
	})
}

// TestLentMemoryIsTakenBack checks that a cursor that is closed, or that cannot read a reply,
// leaves nothing lent.
func TestLentMemoryIsTakenBack(t *testing.T) {
	runBig(t, 50, func(t *testing.T, srv *fakemongo.Server, c *client.Client) {
		unread := find(t, c, client.FindOptions{BatchSize: new(int32(5))})
		if err := unread.Close(t.Context()); err != nil {
			t.Error(err)
		}
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(5))})
		srv.Handle("getMore", fakemongo.Always(fakemongo.Document(bson.NewBuilder(nil).
			OpenDocument("cursor").Int32("id", 1).OpenArray("nextBatch").String("", "x").Close().
			Close().
			Document("pad", big(0)).Document("more", big(1)).Int32("ok", 1).Finish())))
		first, err := cur.NextLent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first.Lent.Release()
		if b, err := cur.NextLent(t.Context()); err == nil || b.Lent != nil {
			t.Errorf("NextLent() = %v, lent %t, want an error", err, b.Lent != nil)
		}
		_ = cur.Close(t.Context())
	})
}
