package servicetest_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var doc = servicetest.JSON

// failing is a request that is sound, and the reason with which it fails on a server that refuses
// every command with Unauthorized.
type failing struct {
	request proto.Message
	want    string
}

const refused = "Unauthorized"

// sound has the fields of a request that is sound, each in JSON, by their names.
var sound = map[protoreflect.Name]string{
	"database": `"d"`, "collection": `"c"`, "field_name": `"a"`, "to": `"x"`, "name": `"n"`, "id": `{"json": "1"}`,
	"filter": `{"json": "{}"}`, "document": `{"json": "{}"}`, "documents": `[{"json": "{}"}]`,
	"replacement": `{"json": "{}"}`, "definition": `{"json": "{}"}`,
	"update": `{"operators": {"json": "{\"$set\": {\"a\": 1}}"}}`,
}

// rowOf returns the row of an RPC that has none of its own: a request with all fields that are
// sound in others.
func rowOf(t *testing.T, m protoreflect.MethodDescriptor) failing {
	t.Helper()
	var fields []string
	for name, value := range sound {
		if m.Input().Fields().ByName(name) != nil {
			fields = append(fields, `"`+string(name)+`": `+value)
		}
	}
	input, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	request := input.New().Interface()
	if err := protojson.Unmarshal([]byte("{"+strings.Join(fields, ", ")+"}"), request); err != nil {
		t.Fatalf("%s needs a row: %v", m.FullName(), err)
	}
	return failing{request, refused}
}

// rows has the RPCs that need other requests, or fail in another way, by their full names.
func rows(token string) map[protoreflect.FullName]failing {
	const d, c = "d", "c"
	return map[protoreflect.FullName]failing{
		"mooring.v1.CommandService.RunCommand":             {&mooringv1.RunCommandRequest{Database: d, Command: doc(`{"ping": 1}`)}, refused},
		"mooring.v1.CommandService.RunCursorCommand":       {&mooringv1.RunCursorCommandRequest{Database: d, Command: doc(`{"find": "c"}`)}, refused},
		"mooring.v1.CommandService.StreamRunCursorCommand": {&mooringv1.StreamRunCursorCommandRequest{Database: d, Command: doc(`{"find": "c"}`)}, refused},

		"mooring.v1.DocumentService.BulkWrite": {
			&mooringv1.BulkWriteRequest{Database: d, Collection: c, Models: []*mooringv1.WriteModel{
				{Kind: &mooringv1.WriteModel_DeleteOne{DeleteOne: &mooringv1.DeleteOneModel{Filter: doc(`{}`)}}},
			}}, refused,
		},

		"mooring.v1.CatalogService.CreateIndexes": {
			&mooringv1.CreateIndexesRequest{Database: d, Collection: c, Indexes: []*mooringv1.Document{doc(`{"key": {"a": 1}}`)}}, refused,
		},
		"mooring.v1.CatalogService.DropIndexes": {
			&mooringv1.DropIndexesRequest{Database: d, Collection: c, Index: &mooringv1.Hint{Kind: &mooringv1.Hint_Name{Name: "*"}}}, refused,
		},
		"mooring.v1.CatalogService.CreateSearchIndexes": {
			&mooringv1.CreateSearchIndexesRequest{Database: d, Collection: c, Indexes: []*mooringv1.Document{doc(`{"definition": {}}`)}}, refused,
		},

		"mooring.v1.CursorService.NextPage":    {&mooringv1.NextPageRequest{Cursor: token}, refused},
		"mooring.v1.CursorService.Stream":      {&mooringv1.CursorServiceStreamRequest{Cursor: "x"}, "CursorNotFound"},
		"mooring.v1.CursorService.CloseCursor": {&mooringv1.CloseCursorRequest{Cursor: "x"}, "CursorNotFound"},

		"mooring.v1.SessionService.Start": {&mooringv1.SessionServiceStartRequest{SnapshotTime: &mooringv1.Value{}}, "InvalidArgument"},
		"mooring.v1.SessionService.End":   {&mooringv1.SessionServiceEndRequest{Session: proto.String("x")}, "SessionNotFound"},

		"mooring.v1.ChangeStreamService.Watch": {&mooringv1.WatchRequest{Database: d}, refused},
		"mooring.v1.ChangeStreamService.CreateTicket": {
			&mooringv1.CreateTicketRequest{}, "InvalidArgument",
		},

		"mooring.v1.TransactionService.Begin":  {&mooringv1.TransactionServiceBeginRequest{MaxCommitTimeMs: proto.Int64(-1)}, "InvalidArgument"},
		"mooring.v1.TransactionService.Commit": {&mooringv1.TransactionServiceCommitRequest{Transaction: proto.String("x")}, "TransactionNotFound"},
		"mooring.v1.TransactionService.Abort":  {&mooringv1.TransactionServiceAbortRequest{Transaction: proto.String("x")}, "TransactionNotFound"},
		"mooring.v1.TransactionService.Run": {
			&mooringv1.TransactionServiceRunRequest{Operations: []*mooringv1.TransactionOperation{
				{Operation: &mooringv1.TransactionOperation_FindOne{FindOne: &mooringv1.FindOneRequest{Database: d, Collection: c}}},
			}}, "InvalidArgument",
		},

		// These ask no server: only a request can be wrong.
		"mooring.v1.DeploymentService.GetTopology":   {unknown(&mooringv1.GetTopologyRequest{}), "InvalidArgument"},
		"mooring.v1.DeploymentService.WatchTopology": {unknown(&mooringv1.WatchTopologyRequest{}), "InvalidArgument"},
		"mooring.v1.DeploymentService.ListPools":     {unknown(&mooringv1.ListPoolsRequest{}), "InvalidArgument"},
		"mooring.v1.DeploymentService.ListHandles":   {&mooringv1.ListHandlesRequest{BatchSize: proto.Int32(0)}, "InvalidArgument"},
		"mooring.v1.DeploymentService.KillHandle":    {&mooringv1.KillHandleRequest{Id: "x"}, "HandleNotFound"},
		"mooring.v1.DeploymentService.ListNotableCalls": {
			unknown(&mooringv1.ListNotableCallsRequest{}), "InvalidArgument",
		},
		"mooring.v1.DeploymentService.ExplainPolicy": {&mooringv1.ExplainPolicyRequest{Call: "DocumentService/Fnd"}, "InvalidArgument"},
	}
}

func unknown[M proto.Message](m M) M {
	m.ProtoReflect().
		SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4000, protowire.VarintType), 1))
	return m
}

// call makes a call of any RPC and returns its error.
func call(
	ctx context.Context, conn grpc.ClientConnInterface, m protoreflect.MethodDescriptor,
	req proto.Message,
) error {
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	output, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return err
	}
	if !m.IsStreamingServer() && !m.IsStreamingClient() {
		return conn.Invoke(ctx, name, req, output.New().Interface())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ss, err := conn.NewStream(ctx, &grpc.StreamDesc{
		ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient(),
	}, name)
	if err != nil {
		return err
	}
	if err := ss.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // RecvMsg has the reason
		return err
	}
	if err := ss.CloseSend(); err != nil {
		return err
	}
	return ss.RecvMsg(output.New().Interface())
}

// methods are all RPCs of the API.
func methods() []protoreflect.MethodDescriptor {
	var all []protoreflect.MethodDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("mooring.v1", func(
		file protoreflect.FileDescriptor,
	) bool {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				all = append(all, file.Services().Get(i).Methods().Get(j))
			}
		}
		return true
	})
	return all
}

// TestErrorsOfEveryRPC has each RPC fail: with what its row says, with a field that this version
// does not know, and with metadata whose feature is not there. The client gets the reason and the
// request's id, and nothing is left behind.
func TestErrorsOfEveryRPC(t *testing.T) {
	g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{})
	g.Server.SetDocuments("d.c", servicetest.Docs(5, 1)...)
	page, err := g.Document.Find(t.Context(),
		&mooringv1.FindRequest{Database: "d", Collection: "c", BatchSize: proto.Int32(1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"ping", "find", "getMore", "aggregate", "distinct", "count", "insert", "update", "delete", "findAndModify", "explain",
		"listDatabases", "listCollections", "create", "drop", "dropDatabase", "renameCollection", "collMod", "createIndexes",
		"listIndexes", "dropIndexes", "createSearchIndexes", "updateSearchIndex", "dropSearchIndex",
	} {
		g.Server.Handle(command, fakemongo.Always(fakemongo.Error(13, "Unauthorized", "not you")))
	}
	table := rows(page.GetCursor())
	found := methods()
	if len(found) < 53 {
		t.Fatalf("only %d RPCs were found", len(found))
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "mooring-request-id", "the-id")
	for _, m := range found {
		row, ok := table[m.FullName()]
		if !ok {
			row = rowOf(t, m)
		}
		delete(table, m.FullName())
		g.Callers.Clear()
		wantError(t, m, call(ctx, g.Conn, m, row.request), row.want)
		g.Callers.Range(func(command, caller any) bool {
			if caller != "the-id" && command != "getMore" && command != "killCursors" {
				t.Errorf("%s: the events of %v have the caller %q", m.FullName(), command, caller)
			}
			return true
		})
		wantError(t, m, call(ctx, g.Conn, m, unknown(proto.Clone(row.request))), "InvalidArgument")
		session := metadata.AppendToOutgoingContext(ctx, "mooring-session", "s")
		known := proto.Clone(row.request)
		known.ProtoReflect().SetUnknown(nil)
		want := "SessionNotFound"
		// none, or another one
		if m.Input().Fields().ByName("session") == nil || m.Name() == "End" {
			want = "InvalidArgument"
		}
		wantError(t, m, call(session, g.Conn, m, known), want)
	}
	for name := range table {
		t.Errorf("there is no RPC %s", name)
	}
	g.Idle(0) // a getMore that the server refuses has closed the cursor
}

func wantError(t *testing.T, m protoreflect.MethodDescriptor, err error, reason string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %s", m.FullName(), reason)
		return
	}
	e := rpcerr.HTTP(err).Body.GetError()
	id := ""
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RequestInfo); ok {
			id = info.GetRequestId()
		}
	}
	if e.GetReason() != reason || id != "the-id" || e.GetMessage() == "" {
		t.Errorf("%s: %s (%s), request id %q, want %s", m.FullName(), e.GetReason(), e.GetMessage(),
			id, reason)
	}
}
