package cursor_test

import (
	"fmt"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func reasonOf(err error) string {
	if err == nil {
		return "OK"
	}
	r := rpcerr.HTTP(err)
	return fmt.Sprint(r.Code, " ", r.Body.GetError().GetReason())
}

func firstOf(docs []*mooringv1.Document) int32 {
	if len(docs) == 0 {
		return -1
	}
	v, _ := raw(docs[0]).Lookup("_id")
	n, _ := v.Int32()
	return n
}

// What a server does to a getMore never makes a page go missing unseen, and never leaves a
// connection or a cursor behind.
func TestFaultsOfGetMore(t *testing.T) {
	reply := func(build func(b *bson.Builder)) fakemongo.Reply { return fakemongo.OK(build) }
	for _, test := range []struct {
		name  string
		reply fakemongo.Reply
		first string // what Next says then
		again string // and what it says to the same token, when the server is well again
		open  int    // cursors that stay open: a server ends one itself if the connection breaks
	}{
		{"closes the connection", fakemongo.Drop(), "503 NetworkError", "409 CursorPositionUnknown", 1},
		{"no cursor", fakemongo.OK(nil), "500 MalformedReply", "409 CursorPositionUnknown", 0},
		{"garbage", fakemongo.Garbage([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), "503 NetworkError", "409 CursorPositionUnknown", 1},
		{"batch of another type", reply(func(b *bson.Builder) {
			b.OpenDocument("cursor").Int64("id", 1).String("ns", "d.c").String("nextBatch", "none").
				Close()
		}), "500 MalformedReply", "409 CursorPositionUnknown", 0},
		{"numbers for documents", reply(func(b *bson.Builder) {
			b.OpenDocument("cursor").Int64("id", 1).String("ns", "d.c").OpenArray("nextBatch").
				Int32("", 1).Close().Close()
		}), "500 MalformedReply", "409 CursorPositionUnknown", 0},
		{"first batch again", fakemongo.CursorReply(1, "d.c", "firstBatch", servicetest.Docs(3, 10)...), "500 MalformedReply", "409 CursorPositionUnknown", 0},
		{"cursor killed", fakemongo.Error(237, "CursorKilled", "killed"), "", "404 CursorNotFound", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := start(t)
			g.Server.SetDocuments("d.c", servicetest.Docs(10, 10)...)
			page, err := g.Document.Find(t.Context(),
				&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(3))})
			if err != nil {
				t.Fatal(err)
			}
			next := func() (*mooringv1.NextPageResponse, error) {
				return g.Cursor.NextPage(t.Context(),
					&mooringv1.NextPageRequest{Cursor: page.GetCursor()})
			}
			g.Server.Handle("getMore", fakemongo.Always(test.reply))
			if _, err := next(); err == nil || test.first != "" && reasonOf(err) != test.first {
				t.Errorf("Next: %s, want %s", reasonOf(err), test.first)
			}
			g.Server.Handle("getMore", nil)
			if _, err := next(); reasonOf(err) != test.again {
				t.Errorf("again: %s, want %s", reasonOf(err), test.again)
			}
			if test.again == "409 CursorPositionUnknown" {
				if _, err := g.Cursor.CloseCursor(t.Context(),
					&mooringv1.CloseCursorRequest{Cursor: page.GetCursor()}); err != nil {
					t.Error(err)
				}
			}
			g.Idle(test.open)
		})
	}
}

// A server that is away costs nothing but time: the token is as good as before.
func TestNextWhileTheServerIsAway(t *testing.T) {
	server := fakemongo.NewServer(t, nil)
	g := servicetest.Start(t, server,
		servicetest.Config{URIOptions: "serverSelectionTimeoutMS=50&heartbeatFrequencyMS=500"})
	server.SetDocuments("d.c", servicetest.Docs(10, 10)...)
	page, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(3))})
	if err != nil {
		t.Fatal(err)
	}
	server.SetDown(true)
	next := &mooringv1.NextPageRequest{Cursor: page.GetCursor()}
	if _, err := g.Cursor.NextPage(t.Context(), next); err == nil {
		t.Fatal("Next found a server")
	}
	server.SetDown(false)
	servicetest.Eventually(t, "the next page", func() bool {
		p, err := g.Cursor.NextPage(t.Context(), next)
		if r := reasonOf(err); err != nil && r != "503 NoSuitableServer" &&
			r != "503 NetworkError" && r != "503 ConnectionPoolCleared" {
			t.Fatalf("Next: %s", r)
		}
		return err == nil && firstOf(p.GetDocuments()) == 3
	})
}

// TestLargeBatchesOfManyCursors checks that what is left of batches whose size the client chose is
// lost for none of its cursors, although the memory for pages is full.
func TestLargeBatchesOfManyCursors(t *testing.T) {
	server := fakemongo.NewServer(t, nil)
	g := servicetest.Start(t, server,
		servicetest.Config{Handles: paging.Config{PageMemory: 4 << 20, PageBytes: 100 << 10}})
	server.SetDocuments("d.c", servicetest.Docs(2000, 1000)...)
	var tokens []string
	for range 6 {
		page, err := g.Document.Find(t.Context(),
			&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(1900))})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, page.GetCursor())
	}
	for i, token := range tokens {
		if _, err := g.Cursor.NextPage(t.Context(),
			&mooringv1.NextPageRequest{Cursor: token}); err != nil {
			t.Errorf("cursor %d: %s", i, reasonOf(err))
		}
	}
}
