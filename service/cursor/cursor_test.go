package cursor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *servicetest.Gateway {
	t.Helper()
	return servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
}

func raw(d *mooringv1.Document) bson.Raw { return d.GetBson() }

func errorOf(t *testing.T, err error) *mooringv1.Error {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	return rpcerr.HTTP(err).Body.GetError()
}

func TestPageForAClientThatGoesAway(t *testing.T) {
	g := start(t)
	g.Server.SetDocuments("d.c", servicetest.Docs(10, 10)...)
	first, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(3))})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	g.Server.Handle("getMore", func(c *fakemongo.Command) fakemongo.Reply {
		<-release
		return g.Server.Default(c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := g.Cursor.NextPage(ctx, &mooringv1.NextPageRequest{Cursor: first.GetCursor()})
		done <- err
	}()
	servicetest.Eventually(t, "a getMore", func() bool {
		return len(g.Server.Commands("getMore")) > 0
	})
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("Next = %v", err)
	}
	close(release)
	page, err := g.Cursor.NextPage(t.Context(),
		&mooringv1.NextPageRequest{Cursor: first.GetCursor()})
	if err != nil {
		t.Fatal(err)
	}
	if got := raw(page.GetDocuments()[0]); !bytes.Equal(got, servicetest.Doc(3, 10)) {
		t.Errorf("the page begins with %v", got)
	}
	if n := len(g.Server.Commands("getMore")); n != 1 {
		t.Errorf("%d getMores, want 1", n)
	}
	g.Idle(1)
	if _, err := g.Cursor.CloseCursor(t.Context(),
		&mooringv1.CloseCursorRequest{Cursor: page.GetCursor()}); err != nil {
		t.Fatal(err)
	}
	g.Idle(0)
}

// TestCloseForAClientThatHasGone checks that a cursor is closed at once although a page is under
// way whose client has gone.
func TestCloseForAClientThatHasGone(t *testing.T) {
	g := start(t)
	g.Server.SetDocuments("d.c", servicetest.Docs(10, 10)...)
	first, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(3))})
	if err != nil {
		t.Fatal(err)
	}
	g.Server.Handle("getMore", fakemongo.Always(fakemongo.Hang()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := g.Cursor.NextPage(ctx, &mooringv1.NextPageRequest{Cursor: first.GetCursor()})
		done <- err
	}()
	servicetest.Eventually(t, "a getMore", func() bool {
		return len(g.Server.Commands("getMore")) > 0
	})
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("Next = %v", err)
	}
	within, end := context.WithTimeout(t.Context(), operation.RunOnLimit/2)
	defer end()
	if _, err := g.Cursor.CloseCursor(within,
		&mooringv1.CloseCursorRequest{Cursor: first.GetCursor()}); err != nil {
		t.Errorf("CloseCursor = %v", err)
	}
	g.Idle(0)
}

func TestCursorErrors(t *testing.T) {
	keys, err := seal.NewRing()
	if err != nil {
		t.Fatal(err)
	}
	server := fakemongo.NewServer(t, nil)
	server.SetDocuments("d.c", servicetest.Docs(100, 100)...)
	cfg := servicetest.Config{Handles: paging.Config{Keys: keys}}
	g, other := servicetest.Start(t, server, cfg), servicetest.Start(t, server, cfg)
	find := func() string {
		page, err := g.Document.Find(t.Context(),
			&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(10))})
		if err != nil {
			t.Fatal(err)
		}
		return page.GetCursor()
	}
	next := func(g *servicetest.Gateway, token string) (*mooringv1.NextPageResponse, error) {
		return g.Cursor.NextPage(t.Context(), &mooringv1.NextPageRequest{Cursor: token})
	}
	reason := func(_ *mooringv1.NextPageResponse, err error) string {
		r := rpcerr.HTTP(err)
		return fmt.Sprint(r.Code, " ", r.Body.GetError().GetReason())
	}
	token := find()
	second, err := next(g, token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := next(g, second.GetCursor()); err != nil {
		t.Fatal(err)
	}
	if got := reason(next(g, token)); got != "409 CursorTokenReused" {
		t.Errorf("an old token: %s", got)
	}
	if got := reason(next(g, token[:20]+"AAAA"+token[24:])); got != "404 CursorNotFound" {
		t.Errorf("a changed token: %s", got)
	}
	token = find()
	if got := reason(next(other, token)); got != "409 CursorPositionUnknown" {
		t.Errorf("another gateway: %s", got)
	}
	gap := &mooringv1.NextPageRequest{Cursor: token}
	gap.ProtoReflect().
		SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 23, protowire.VarintType), 1))
	if _, err := g.Cursor.NextPage(t.Context(), gap); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "allowGap was removed") {
		t.Errorf("allowGap: %v", err)
	}
	if _, err := g.Cursor.NextPage(t.Context(), &mooringv1.NextPageRequest{
		Cursor: token, BatchSize: new(int32(-1)),
	}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a negative batchSize: %v", err)
	}
	// No token at all is a mistake in the request, not a cursor that is gone.
	none := map[string]error{}
	_, none["Next"] = g.Cursor.NextPage(t.Context(), &mooringv1.NextPageRequest{})
	_, none["Close"] = g.Cursor.CloseCursor(t.Context(), &mooringv1.CloseCursorRequest{})
	ss, err := g.Cursor.Stream(t.Context(), &mooringv1.CursorServiceStreamRequest{})
	if err == nil {
		_, err = ss.Recv()
	}
	none["Stream"] = err
	for name, err := range none {
		if status.Code(err) != codes.InvalidArgument || errorOf(t, err).GetField() != "cursor" {
			t.Errorf("%s without a cursor: %v", name, err)
		}
	}
	// The server has lost the cursor.
	token = find()
	server.Handle("getMore",
		fakemongo.Always(fakemongo.Error(43, "CursorNotFound", "cursor id 1 not found")))
	for range 2 {
		if got := reason(next(g, token)); got != "404 CursorNotFound" {
			t.Errorf("a cursor that the server has lost: %s", got)
		}
	}
}

func TestCursorStream(t *testing.T) {
	g := start(t)
	docs := servicetest.Docs(5000, 900)
	g.Server.SetDocuments("d.c", docs...)
	page, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(4500))})
	if err != nil {
		t.Fatal(err)
	}
	var got []bson.Raw
	for _, d := range page.GetDocuments() {
		got = append(got, raw(d))
	}
	ss, err := g.Cursor.Stream(t.Context(),
		&mooringv1.CursorServiceStreamRequest{Cursor: page.GetCursor()})
	if err != nil {
		t.Fatal(err)
	}
	for {
		message, err := ss.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range message.GetDocuments() {
			got = append(got, raw(d))
		}
	}
	if !slices.EqualFunc(got, docs, func(a, b bson.Raw) bool { return bytes.Equal(a, b) }) {
		t.Errorf("%d documents, want the %d of the collection", len(got), len(docs))
	}
	_, err = g.Cursor.NextPage(t.Context(), &mooringv1.NextPageRequest{Cursor: page.GetCursor()})
	if e := errorOf(t, err); e.GetReason() != "CursorTokenReused" {
		t.Errorf("its token again: %v", e)
	}
	g.Idle(0)
}

// Closing a cursor ends the stream that has taken it.
func TestCloseDuringStream(t *testing.T) {
	g := start(t)
	g.Server.SetDocuments("d.c", servicetest.Docs(20_000, 900)...)
	page, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "d", Collection: "c"})
	if err != nil {
		t.Fatal(err)
	}
	g.Server.Handle("getMore", fakemongo.Always(fakemongo.Hang()))
	ss, err := g.Cursor.Stream(t.Context(),
		&mooringv1.CursorServiceStreamRequest{Cursor: page.GetCursor()})
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Eventually(t, "a getMore", func() bool {
		return len(g.Server.Commands("getMore")) > 0
	})
	if _, err := g.Cursor.CloseCursor(t.Context(),
		&mooringv1.CloseCursorRequest{Cursor: page.GetCursor()}); err != nil {
		t.Fatal(err)
	}
	_, err = ss.Recv()
	if e := errorOf(t, err); e.GetReason() != "CursorNotFound" {
		t.Errorf("the stream ended with %v", e)
	}
	g.Idle(0)
}

// TestCursorsLeaveTheirSessions checks that the session of a cursor that was read in pages is used
// for the next one: a server has room for a number of sessions, and keeps each for half an hour.
func TestCursorsLeaveTheirSessions(t *testing.T) {
	g := start(t)
	g.Server.SetDocuments("d.c", servicetest.Docs(10, 10)...)
	for range 3 {
		page, err := g.Document.Find(t.Context(),
			&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(4))})
		if err != nil {
			t.Fatal(err)
		}
		for cursor := page.GetCursor(); cursor != ""; {
			next, err := g.Cursor.NextPage(t.Context(),
				&mooringv1.NextPageRequest{Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			cursor = next.GetCursor()
		}
	}
	ids := map[string]bool{}
	for _, name := range []string{"find", "getMore"} {
		for _, c := range g.Server.Commands(name) {
			id, _ := c.Body.Lookup("lsid", "id")
			ids[string(id.Data)] = true
		}
	}
	if len(ids) != 1 || ids[""] {
		t.Errorf("three cursors have the sessions %x, want one", slices.Collect(maps.Keys(ids)))
	}
}
