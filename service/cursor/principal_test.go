package cursor_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestCursorsBelongToTheirPrincipal opens cursors in every way as one principal. Another one, and
// a client without credentials, can do nothing with them.
func TestCursorsBelongToTheirPrincipal(t *testing.T) {
	g := start(t)
	g.Server.SetDocuments("d.c", servicetest.Docs(20, 1)...)
	size := new(int32(2))
	command := &mooringv1.Document{
		Encoding: &mooringv1.Document_Json{Json: `{"find": "c", "batchSize": 2}`},
	}
	ada, bob := servicetest.As(t.Context(), "ada"), servicetest.As(t.Context(), "bob")
	next := func(ctx context.Context, token string) (string, error) {
		page, err := g.Cursor.NextPage(ctx,
			&mooringv1.NextPageRequest{Cursor: token, BatchSize: size})
		return page.GetCursor(), err
	}
	stream := func(ctx context.Context, token string) error {
		ss, err := g.Cursor.Stream(ctx, &mooringv1.CursorServiceStreamRequest{Cursor: token})
		if err == nil {
			_, err = ss.Recv()
		}
		return err
	}
	for name, open := range map[string]func() (string, error){
		"Find": func() (string, error) {
			page, err := g.Document.Find(ada,
				&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: size})
			return page.GetCursor(), err
		},
		"Aggregate": func() (string, error) {
			page, err := g.Document.Aggregate(ada,
				&mooringv1.AggregateRequest{Database: "d", Collection: new("c"), BatchSize: size})
			return page.GetCursor(), err
		},
		"RunCursorCommand": func() (string, error) {
			page, err := g.Command.RunCursorCommand(ada, &mooringv1.RunCursorCommandRequest{
				Database: "d", Command: command, BatchSize: size,
			})
			return page.GetCursor(), err
		},
	} {
		token, err := open()
		if err != nil {
			t.Fatal(name, err)
		}
		if held := g.Handles.Handles(handle.Query{Limit: 10}); len(held) != 1 ||
			held[0].Principal != "ada" {
			t.Errorf("%s: handles %+v, want one of ada", name, held)
		}
		for who, ctx := range map[string]context.Context{"bob": bob, "nobody": t.Context()} {
			if _, err := next(ctx, token); status.Code(err) != codes.NotFound {
				t.Errorf("%s: NextPage as %s: %v", name, who, err)
			}
			if err := stream(ctx, token); status.Code(err) != codes.NotFound {
				t.Errorf("%s: Stream as %s: %v", name, who, err)
			}
			if _, err := g.Cursor.CloseCursor(ctx,
				&mooringv1.CloseCursorRequest{Cursor: token}); status.Code(err) != codes.NotFound {
				t.Errorf("%s: CloseCursor as %s: %v", name, who, err)
			}
		}
		if token, err = next(ada, token); err != nil {
			t.Errorf("%s: NextPage as ada: %v", name, err)
		}
		if _, err := g.Cursor.CloseCursor(ada,
			&mooringv1.CloseCursorRequest{Cursor: token}); err != nil {
			t.Errorf("%s: CloseCursor as ada: %v", name, err)
		}
		g.Idle(0)
	}
	token, err := next(ada, mustFind(ada, t, g))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream(ada, token); err != nil {
		t.Errorf("Stream as ada: %v", err)
	}
	bad := bson.NewBuilder(nil).String("text", "\xff").Finish()
	g.Server.SetDocuments("d.c", bad, bad, bad, bad)
	asJSON := metadata.AppendToOutgoingContext(ada, "mooring-document-encoding", "json")
	if _, err := g.Document.Find(asJSON,
		&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: size}); err == nil {
		t.Error("JSON carries text that is not UTF-8")
	}
	g.Idle(0) // the page that cannot be sent has closed its principal's cursor
}

func mustFind(ctx context.Context, t *testing.T, g *servicetest.Gateway) string {
	t.Helper()
	page, err := g.Document.Find(ctx,
		&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(2))})
	if err != nil {
		t.Fatal(err)
	}
	return page.GetCursor()
}
