package command_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	corecursor "github.com/mooringdb/mooring/core/cursor"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/command"
	"github.com/mooringdb/mooring/service/document"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/servicetest"
	"github.com/mooringdb/mooring/service/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var doc = servicetest.JSON

func TestRunCommand(t *testing.T) {
	writeErrors := bson.NewBuilder(nil).Double("ok", 1).OpenArray("writeErrors").OpenDocument("").
		Int32("code", 11000).Close().Close().Finish()
	g := servicetest.Start(t, fakemongo.NewServer(t, fakemongo.Handlers{
		"insert": fakemongo.Always(fakemongo.Document(writeErrors)),
	}), servicetest.Config{})
	cmd := bson.NewBuilder(nil).String("insert", "c").OpenArray("documents").OpenDocument("").
		Int32("a", 1).Int32("a", 2).Close().Close().Finish()
	res, err := g.Command.RunCommand(t.Context(), &mooringv1.RunCommandRequest{
		Database: "d", Command: &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: cmd}},
	})
	if err != nil || !bytes.Equal(res.GetReply().GetBson(), writeErrors) {
		t.Errorf("RunCommand = %v, %v", res, err)
	}
	if got := bson.Without(g.Server.Commands("insert")[0].Body, "$db", "lsid"); !bytes.Equal(got,
		cmd) {
		t.Errorf("sent %x, want %x", got, cmd)
	}
	_, err = g.Command.RunCommand(t.Context(),
		&mooringv1.RunCommandRequest{Database: "d", Command: doc(`{"noSuch": 1}`)})
	if r := rpcerr.HTTP(err); r.Code != 501 || r.Body.GetError().GetServer().GetCode() != 59 {
		t.Errorf("an unknown command: %v", r)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "mooring-document-encoding",
		"canonical-json")
	if res, err := g.Command.RunCommand(ctx, &mooringv1.RunCommandRequest{
		Database: "d", Command: doc(`{"ping": 1}`),
	}); err != nil || res.GetReply().GetJson() == "" {
		t.Errorf("canonical JSON: %v, %v", res, err)
	}
}

func TestRefusedCommands(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	for _, test := range []struct {
		command *mooringv1.Document
		field   string
	}{
		{nil, "command"},
		{doc(`{}`), "command"},
		{doc(`{"ping": 1, "$db": "admin"}`), "command.$db"},
		{doc(`{"ping": 1, "lsid": {}}`), "command.lsid"},
		{doc(`{"ping": 1, "txnNumber": 1}`), "command.txnNumber"},
		{doc(`{"ping": 1, "autocommit": false}`), "command.autocommit"},
		{doc(`{"ping": 1, "startTransaction": true}`), "command.startTransaction"},
		{doc(`{"ping": 1, "$clusterTime": {}}`), "command.$clusterTime"},
		{doc(`{"ping": 1, "$readPreference": {}}`), "command.$readPreference"},
		{doc(`{"getMore": 1}`), "command"},
		{doc(`{"getmore": 1}`), "command"},
		{doc(`{"killCursors": "c", "cursors": [1]}`), "command"},
		{doc(`{"killSessions": []}`), "command"},
		{doc(`{"killAllSessions": []}`), "command"},
		{doc(`{"endSessions": []}`), "command"},
		{doc(`{"refreshSessions": []}`), "command"},
		{doc(`{"commitTransaction": 1}`), "command"},
		{doc(`{"abortTransaction": 1}`), "command"},
		{doc(`{"killAllSessionsByPattern": []}`), "command"},
		{doc(`{"logout": 1}`), "command"},
		{doc(`{"authenticate": 1, "mechanism": "MONGODB-X509"}`), "command"},
		{doc(`{"saslStart": 1, "mechanism": "PLAIN"}`), "command"},
		{doc(`{"saslContinue": 1, "conversationId": 1}`), "command"},
		{doc(`{"getnonce": 1}`), "command"},
		{doc(`{"killOp": 1, "op": 7}`), "command"},
		{doc(`{"killop": 1, "op": 7}`), "command"},
		{doc(`{"dropConnections": 1, "hostAndPort": []}`), "command"},
		{doc(`{"_configsvrAddShard": "a"}`), "command"},
		{doc(`{"clusterFind": "c"}`), "command"},
		{doc(`{"clusterBulkWrite": 1}`), "command"},
		{doc(`{"clusterAnything": 1}`), "command"},
		{doc(`{"applyOps": []}`), "command"},
		{doc(`{"hello": 1, "speculativeAuthenticate": {}}`), "command.speculativeAuthenticate"},
		{doc(`{"isMaster": 1, "speculativeAuthenticate": {}}`), "command.speculativeAuthenticate"},
		{doc(`{"ismaster": 1, "client": {}}`), "command.client"},
		{doc(`{"hello": 1, "compression": []}`), "command.compression"},
		{doc(`{"hello": 1, "internalClient": {}}`), "command.internalClient"},
		{doc(`{"hello": 1, "loadBalanced": true}`), "command.loadBalanced"},
		{doc(`{"hello": 1, "maxAwaitTimeMS": 10, "topologyVersion": {}}`), "command.maxAwaitTimeMS"},
		{doc(`{"ping": 1, "$audit": {}}`), "command.$audit"},
		{doc(`{"ping": 1, "$client": {}}`), "command.$client"},
		{doc(`{"ping": 1, "$tenant": "a"}`), "command.$tenant"},
		{doc(`{"ping": 1, "$new": 1}`), "command.$new"},
		{doc(`{"find": "c", "fromMongos": true}`), "command.fromMongos"},
		{doc(`{"find": "c", "shardVersion": {}}`), "command.shardVersion"},
		{doc(`{"find": "c", "databaseVersion": {}}`), "command.databaseVersion"},
		{doc(`{"insert": "c", "mayBypassWriteBlocking": true}`), "command.mayBypassWriteBlocking"},
		{doc(`{"insert": "c", "stmtId": 1}`), "command.stmtId"},
	} {
		_, err := g.Command.RunCommand(t.Context(),
			&mooringv1.RunCommandRequest{Database: "d", Command: test.command})
		if got := rpcerr.HTTP(err).Body.GetError().
			GetField(); status.Code(err) != codes.InvalidArgument || got != test.field {
			t.Errorf("RunCommand(%v): field %q, %v, want %q", test.command, got, err, test.field)
		}
		_, err = g.Command.RunCursorCommand(t.Context(),
			&mooringv1.RunCursorCommandRequest{Database: "d", Command: test.command})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("RunCursorCommand(%v): %v", test.command, err)
		}
	}
	if n := len(g.Server.Commands("ping", "getMore", "killCursors", "find", "insert")); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
}

func TestCursorCommands(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	docs := servicetest.Docs(50, 10)
	g.Server.SetDocuments("d.c", docs...)
	page, err := g.Command.RunCursorCommand(t.Context(), &mooringv1.RunCursorCommandRequest{
		Database: "d", Command: doc(`{"find": "c", "batchSize": 10}`), BatchSize: new(int32(15)),
		Comment: &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: `"hi"`}},
	})
	if err != nil || len(page.GetDocuments()) != 10 {
		t.Fatalf("RunCursorCommand = %v, %v", page, err)
	}
	next, err := g.Cursor.NextPage(t.Context(),
		&mooringv1.NextPageRequest{Cursor: page.GetCursor()})
	if err != nil || len(next.GetDocuments()) != 15 ||
		!bytes.Equal(next.GetDocuments()[0].GetBson(), docs[10]) {
		t.Errorf("Next = %v, %v", next, err)
	}
	if c := g.Server.Commands("getMore")[0]; !c.Body.Has("comment") {
		t.Errorf("getMore without the comment")
	}
	if _, err := g.Cursor.CloseCursor(t.Context(),
		&mooringv1.CloseCursorRequest{Cursor: next.GetCursor()}); err != nil {
		t.Error(err)
	}
	ss, err := g.Command.StreamRunCursorCommand(t.Context(),
		&mooringv1.StreamRunCursorCommandRequest{
			Database: "d", Command: doc(`{"find": "c", "batchSize": 10}`),
		})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		message, err := ss.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n += len(message.GetDocuments())
	}
	if n != len(docs) {
		t.Errorf("%d documents, want %d", n, len(docs))
	}
	// A command that answers without a cursor is the client's mistake, not the server's.
	_, err = g.Command.RunCursorCommand(t.Context(),
		&mooringv1.RunCursorCommandRequest{Database: "d", Command: doc(`{"ping": 1}`)})
	if e := rpcerr.HTTP(err).Body.GetError(); status.Code(err) != codes.InvalidArgument ||
		e.GetField() != "command" {
		t.Errorf("ping as a cursor command: %v", err)
	}
	ss, err = g.Command.StreamRunCursorCommand(t.Context(),
		&mooringv1.StreamRunCursorCommandRequest{Database: "d", Command: doc(`{"ping": 1}`)})
	if err == nil {
		_, err = ss.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a stream of ping: %v", err)
	}
	_, err = g.Command.RunCursorCommand(t.Context(), &mooringv1.RunCursorCommandRequest{
		Database: "d", Command: doc(`{"find": "c"}`), CursorType: new("odd"),
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("cursorType odd: %v", err)
	}
	g.Idle(0)
}

// Behind a load balancer, a cursor beyond the budget for pins is refused after its command was
// run. A find can be repeated. Whether a command can is unknown.
func TestPinLimit(t *testing.T) {
	b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1})
	b.SetDocuments("d.c", servicetest.Docs(10, 10)...)
	cfg, err := connstring.Parse(b.URI("&maxPoolSize=10"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Dialer: b.Dial, MaxPinnedShare: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.NewRing()
	if err != nil {
		t.Fatal(err)
	}
	handles := paging.New(paging.Config{Keys: keys, Continue: func(
		s corecursor.State,
	) paging.Cursor {
		return c.ContinueCursor(s)
	}})
	if err := errors.Join(c.Start(t.Context()), handles.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(handles.Close(context.Background()),
			c.Close(context.Background())); err != nil {
			t.Error(err)
		}
	}()
	commands := command.New(command.Config{
		Client: c, Handles: handles, Streams: stream.New(stream.Config{}),
	})
	documents := document.New(document.Config{
		Client: c, Handles: handles, Streams: stream.New(stream.Config{}),
	})
	ctx := &call.Context{Context: t.Context()}
	run := func() error {
		_, err := commands.RunCursorCommand(ctx, &mooringv1.RunCursorCommandRequest{
			Database: "d", Command: doc(`{"find": "c", "batchSize": 2}`),
		})
		return err
	}
	find := func() error {
		_, err := documents.Find(ctx,
			&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(2))})
		return err
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	for retry, run := range map[string]func() error{"never": run, "same-request": find} {
		r := rpcerr.HTTP(run())
		if e := r.Body.GetError(); r.Code != 429 || e.GetReason() != "PinLimitExceeded" ||
			e.GetRetry() != retry || r.RetryAfter == 0 ||
			!strings.Contains(e.GetMessage(), "1 by cursors, 0 by transactions") {
			t.Errorf("want retry %s: %d %v", retry, r.Code, r.Body)
		}
	}
	if n := b.OpenCursors(); n != 1 {
		t.Errorf("%d cursors are open", n)
	}
}

// TestCursorsOfRunCommand checks that the cursors that commands leave on the server count for their
// client, that the oldest one ends for a new one, and that a cursor for which there is no room ends
// at once.
func TestCursorsOfRunCommand(t *testing.T) {
	server := fakemongo.NewServer(t, nil)
	g := servicetest.Start(t, server,
		servicetest.Config{Handles: paging.Config{MaxPerPrincipal: 5}})
	server.SetDocuments("d.c", servicetest.Docs(150, 10)...)
	ctx := servicetest.As(t.Context(), "anna")
	run := func() {
		t.Helper()
		_, err := g.Command.RunCommand(ctx,
			&mooringv1.RunCommandRequest{Database: "d", Command: doc(`{"find": "c"}`)})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		run()
	}
	g.Idle(5)
	if got := len(g.Handles.Handles(handle.Query{Limit: 100})); got != 5 {
		t.Errorf("%d handles, want 5", got)
	}
	for range 5 { // that are read, so that they do not end for others
		page, err := g.Document.Find(ctx,
			&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: new(int32(5))})
		if err != nil {
			t.Fatal(err)
		}
		next := &mooringv1.NextPageRequest{Cursor: page.GetCursor()}
		if _, err := g.Cursor.NextPage(ctx, next); err != nil {
			t.Fatal(err)
		}
	}
	g.Idle(5)
	run()
	g.Idle(5)
}
