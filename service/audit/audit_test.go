package audit_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/audit"
)

func inText(text string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}
}

func native(doc bson.Raw) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: doc}}
}

// written returns what the log writes of entries until it is closed.
func written(t *testing.T, entries ...*audit.Entry) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	l := audit.New(audit.Config{Handler: slog.NewTextHandler(&out, nil)})
	for _, e := range entries {
		l.Ended(t.Context(), e)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &out
}

// run returns a request with the operations of a transaction.
func run(operations []*mooringv1.TransactionOperation) *mooringv1.TransactionServiceRunRequest {
	return &mooringv1.TransactionServiceRunRequest{Operations: operations}
}

// TestEntries checks which calls are logged, and with what. No line has a value of a document.
func TestEntries(t *testing.T) {
	const secret = "hunter2"
	out := native(bson.NewBuilder(nil).String("$out", "o").Finish())
	match := native(bson.NewBuilder(nil).OpenDocument("$match").String("a", secret).Close().
		Finish())
	pipeline := func(stages ...*mooringv1.Document) *mooringv1.AggregateRequest {
		return &mooringv1.AggregateRequest{Database: "d", Collection: new("c"), Pipeline: stages}
	}
	command := func(d *mooringv1.Document) *mooringv1.RunCommandRequest {
		return &mooringv1.RunCommandRequest{Database: "d", Command: d}
	}
	const documents, commands = "/mooring.v1.DocumentService/",
		"/mooring.v1.CommandService/RunCommand"
	for _, row := range []struct {
		name  string
		entry audit.Entry
		want  string // of the line; empty: there is none
	}{
		{"a read", audit.Entry{Method: documents + "Find", Request: &mooringv1.FindRequest{Database: "d", Collection: "c"}}, ""},
		{"a read that fails", audit.Entry{Method: documents + "Find", Code: codes.InvalidArgument, Reason: "InvalidArgument"}, ""},
		{"a read that is refused for its share", audit.Entry{Principal: "key:a", Method: documents + "Find", Code: codes.ResourceExhausted, Reason: "QuotaExceeded", Request: &mooringv1.FindRequest{Database: "d", Collection: "c"}}, "namespace=d.c outcome=QuotaExceeded"},
		{"a read that is refused for lack of room", audit.Entry{Principal: "key:a", Method: documents + "Find", Code: codes.Unavailable, Reason: "Overloaded"}, "outcome=Overloaded"},
		{"a read without a server", audit.Entry{Principal: "key:a", Method: documents + "Find", Code: codes.Unavailable, Reason: "NoSuitableServer"}, ""},
		{"an address that fails too often", audit.Entry{Method: "GET /v1/databases", Code: codes.ResourceExhausted, Reason: "TooManyAttempts"}, "outcome=TooManyAttempts"},
		{"a read that is refused", audit.Entry{Principal: "key:a", Method: documents + "Find", Code: codes.PermissionDenied, Reason: "Forbidden", Request: &mooringv1.FindRequest{Database: "d", Collection: "c"}}, "principal=key:a action=DocumentService/Find namespace=d.c outcome=Forbidden request_id=r"},
		{"a write", audit.Entry{Principal: "key:a", Method: documents + "InsertOne", Request: &mooringv1.InsertOneRequest{Database: "d", Collection: "c", Document: match}}, "principal=key:a action=DocumentService/InsertOne namespace=d.c outcome=ok request_id=r"},
		{"a write that fails", audit.Entry{Method: documents + "InsertOne", Code: codes.AlreadyExists, Reason: "DuplicateKey", Request: &mooringv1.InsertOneRequest{Database: "d", Collection: "c"}}, "outcome=DuplicateKey"},
		{"a write without a request", audit.Entry{Method: documents + "InsertOne", Code: codes.DeadlineExceeded, Reason: "BodyTimeout"}, `namespace="" outcome=BodyTimeout`},
		{"a database", audit.Entry{Method: "/mooring.v1.CatalogService/DropDatabase", Request: &mooringv1.DropDatabaseRequest{Database: "d"}}, "action=CatalogService/DropDatabase namespace=d outcome=ok"},
		{"many collections", audit.Entry{Method: documents + "BulkWrite", Request: &mooringv1.BulkWriteRequest{Models: []*mooringv1.WriteModel{{Namespace: new("d.a")}, {Namespace: new("d.b")}, {Namespace: new("d.a")}}}}, `namespace="" outcome=ok request_id=r namespaces="[{\"name\":\"d.a\",\"?\":2},{\"name\":\"d.b\",\"?\":1}]"`},
		{"a pipeline", audit.Entry{Method: documents + "Aggregate", Request: pipeline(match)}, ""},
		{"a pipeline in JSON", audit.Entry{Method: documents + "Aggregate", Request: pipeline(inText(`{"$match": {}}`))}, ""},
		{
			"a transaction",
			audit.Entry{
				Method: "/mooring.v1.TransactionService/Run",
				Request: run([]*mooringv1.TransactionOperation{
					{Operation: &mooringv1.TransactionOperation_InsertOne{InsertOne: &mooringv1.InsertOneRequest{Database: "d", Collection: "a"}}},
					{Operation: &mooringv1.TransactionOperation_BulkWrite{BulkWrite: &mooringv1.BulkWriteRequest{Database: "d", Collection: "b"}}},
					{Operation: &mooringv1.TransactionOperation_FindOne{FindOne: &mooringv1.FindOneRequest{Database: "d", Collection: "a"}}},
					{},
				}),
			},
			`action=TransactionService/Run namespace="" outcome=ok request_id=r namespaces="[{\"name\":\"d.a\",\"findOne\":1,\"insertOne\":1},{\"name\":\"d.b\",\"bulkWrite\":1}]"`,
		},
		{"a pipeline that writes", audit.Entry{Method: documents + "Aggregate", Request: pipeline(match, out)}, "action=DocumentService/Aggregate namespace=d.c"},
		{"a pipeline in JSON that writes", audit.Entry{Method: documents + "StreamAggregate", Request: pipeline(inText(`{"$merge": {"into": "o", "let": "hunter2"}}`))}, "action=DocumentService/StreamAggregate"},
		{"a pipeline in JSON with escapes", audit.Entry{Method: documents + "Aggregate", Request: pipeline(inText(`{"$o\u0075t": "o"}`))}, "action=DocumentService/Aggregate"},
		{"a pipeline that did not arrive", audit.Entry{Method: documents + "Aggregate"}, "action=DocumentService/Aggregate"},
		{"a command", audit.Entry{Method: commands, Request: command(native(bson.NewBuilder(nil).String("insert", "c").String("comment", secret).Finish()))}, `action="CommandService/RunCommand insert" namespace=d.c `},
		{"a command in JSON", audit.Entry{Method: commands, Request: command(inText(`{ "drop": "c", "comment": "hunter2"}`))}, `action="CommandService/RunCommand drop" namespace=d.c `},
		{"a command that is a text", audit.Entry{Method: commands, Request: command(inText(`"hunter2"`))}, `action="CommandService/RunCommand ?"`},
		{"a command without quotes", audit.Entry{Method: commands, Request: command(inText(`{drop: "hunter2"}`))}, `action="CommandService/RunCommand ?"`},
		{"a command that is a list", audit.Entry{Method: commands, Request: command(inText(`["hunter2"]`))}, `action="CommandService/RunCommand ?"`},
		{"a command with a strange name", audit.Entry{Method: commands, Request: command(inText(`{"a\nb": 1}`))}, `action="CommandService/RunCommand ?"`},
		{"a command with all characters", audit.Entry{Method: commands, Request: command(inText(`{"azAZ09_": 1}`))}, `action="CommandService/RunCommand azAZ09_"`},
		{"a method without a class", audit.Entry{Method: "/mooring.v1.NewService/New"}, "action=NewService/New"},
		{"a path of REST", audit.Entry{Method: "GET /nothing", Code: codes.NotFound, Reason: "RouteNotFound"}, ""},
		{"a refusal of REST", audit.Entry{Method: "POST /v1/" + strings.Repeat("x", 1000), Client: netip.MustParseAddr("192.0.2.1"), Code: codes.Unauthenticated, Reason: "Unauthenticated"}, "outcome=Unauthenticated request_id=r client=192.0.2.1"},
	} {
		row.entry.RequestID = "r"
		log := written(t, &row.entry)
		if got := log.String(); !strings.Contains(got, row.want) ||
			(row.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
		if strings.Contains(log.String(), secret) || log.Len() > 600 {
			t.Errorf("%s: a value, or too long: %s", row.name, log)
		}
	}
	var none *audit.Log
	none.Ended(t.Context(), &audit.Entry{Method: documents + "InsertOne"})
	if err := errors.Join(none.Flush(t.Context()), none.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestStrangeNames checks that a command's name is in the log only if it has nothing but letters,
// digits and _.
func TestStrangeNames(t *testing.T) {
	for _, c := range "`{@[/:^- é" {
		log := written(t, &audit.Entry{
			Method: "/mooring.v1.CommandService/RunCommand",
			Request: &mooringv1.RunCommandRequest{
				Command: native(bson.NewBuilder(nil).Int32("a"+string(c), 1).Finish()),
			},
		})
		if !strings.Contains(log.String(), `RunCommand ?"`) {
			t.Errorf("%q: %s", c, log)
		}
	}
}

// TestLongNamespace checks that a client cannot write as much as it wants into the log.
func TestLongNamespace(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	log := written(t, &audit.Entry{
		Method: "/mooring.v1.DocumentService/Find", Code: codes.PermissionDenied,
		Request: &mooringv1.FindRequest{Database: long, Collection: long},
	})
	if log.Len() > 1<<10 || !strings.Contains(log.String(), "éé…") {
		t.Errorf("the line has %d bytes", log.Len())
	}
}
