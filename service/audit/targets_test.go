package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/payload"
)

// logged is a line of the log in JSON.
type logged struct {
	Msg, Namespace, Action, Outcome string
	Client                          *string
	Namespaces                      []map[string]any
	Part, Parts, Lines              int
	RequestID                       string `json:"request_id"`
	Refused, Others                 int
	Outcomes                        map[string]int
	Clients                         []struct {
		Client  string
		Refused int
	}
}

func parsed(t *testing.T, text []byte) (lines []logged) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var l logged
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%v: %.300s", err, line)
		}
		lines = append(lines, l)
	}
	return lines
}

// inJSON returns the lines of entries in JSON.
func inJSON(t *testing.T, entries ...*audit.Entry) []logged {
	t.Helper()
	var out bytes.Buffer
	l := audit.New(audit.Config{Handler: slog.NewJSONHandler(&out, nil)})
	for _, e := range entries {
		l.Ended(t.Context(), e)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return parsed(t, out.Bytes())
}

// both returns a document in both encodings.
func both(t *testing.T, text string) []*mooringv1.Document {
	t.Helper()
	raw, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return []*mooringv1.Document{inText(text), native(bson.Raw(raw))}
}

func (l *logged) list() string {
	text, err := json.Marshal(l.Namespaces)
	if err != nil {
		return err.Error()
	}
	if l.Namespaces == nil {
		return l.Namespace
	}
	return l.Namespace + " " + string(text)
}

// TestCommands checks the namespaces of commands of the client's own, in both encodings.
func TestCommands(t *testing.T) {
	for command, want := range map[string]string{
		`{"insert": "c", "documents": [{"a": 1}]}`:                                                                           `d.c`,
		`{"findAndModify": "c", "query": {}}`:                                                                                `d.c`,
		`{"explain": {"delete": "c", "deletes": []}}`:                                                                        `d.c`,
		`{"explain": {"explain": {"delete": "c"}}}`:                                                                          `d`,
		`{"aggregate": 1, "pipeline": [{"$currentOp": {}}]}`:                                                                 `d`,
		`{"aggregate": "c", "pipeline": [{"$match": {}}, {"$out": "o"}]}`:                                                    `d.c [{"$out":1,"name":"d.o"}]`,
		`{"aggregate": "c", "pipeline": [{"$out": {"db": "e", "coll": "o"}}]}`:                                               `d.c [{"$out":1,"name":"e.o"}]`,
		`{"aggregate": "c", "pipeline": [{"$merge": {"into": {"db": "e", "coll": "o"}, "on": "_id"}}]}`:                      `d.c [{"$merge":1,"name":"e.o"}]`,
		`{"aggregate": "c", "pipeline": [{"$merge": {"into": "o"}}]}`:                                                        `d.c [{"$merge":1,"name":"d.o"}]`,
		`{"aggregate": "c", "pipeline": [{"$merge": {"into": {"coll": "o"}}}]}`:                                              `d.c [{"$merge":1,"name":"d.o"}]`,
		`{"aggregate": "c", "pipeline": [{"$out": 1}]}`:                                                                      `d.c [{"$out":1,"name":"?"}]`,
		`{"aggregate": "c", "pipeline": [{"$out": {"s3": 1}}]}`:                                                              `d.c [{"$out":1,"name":"?"}]`,
		`{"explain": {"aggregate": "c", "pipeline": [{"$out": "o"}]}}`:                                                       `d.c [{"$out":1,"name":"d.o"}]`,
		`{"aggregate": "c", "pipeline": [{"$facet": {"a": [{"$lookup": {"pipeline": [{"$out": "o"}]}}, {"$merge": "m"}]}}]}`: `d.c [{"$merge":1,"name":"d.m"},{"$out":1,"name":"d.o"}]`,
		`{"create": "v", "viewOn": "c", "pipeline": [{"$unionWith": {"coll": "x", "pipeline": [{"$out": "o"}]}}]}`:           `d.v [{"$out":1,"name":"d.o"}]`,
		`{"renameCollection": "a.b", "to": "c.d"}`:                                                                           `a.b [{"name":"c.d","to":1}]`,
		`{"cloneCollectionAsCapped": "b", "toCollection": "e"}`:                                                              `d.b [{"name":"d.e","to":1}]`,
		`{"shardCollection": "a.b", "key": {}}`:                                                                              `a.b`,
		`{"mapReduce": "c", "out": {"inline": 1}}`:                                                                           `d.c`,
		`{"mapReduce": "c", "out": "o"}`:                                                                                     `d.c [{"name":"d.o","out":1}]`,
		`{"mapreduce": "c", "out": {"merge": "o", "db": "e"}}`:                                                               `d.c [{"name":"e.o","out":1}]`,
		`{"mapreduce": "c", "out": {"reduce": "o"}}`:                                                                         `d.c [{"name":"d.o","out":1}]`,
		`{"mapreduce": "c", "out": {"replace": "o"}}`:                                                                        `d.c [{"name":"d.o","out":1}]`,
		`{"mapreduce": "c", "out": {"normal": "o"}}`:                                                                         `d.c [{"name":"d.o","out":1}]`,
		`{"mapreduce": "c", "out": {"replace": "o", "merge": "p"}}`:                                                          `d.c [{"name":"?","out":1}]`,
		`{"mapreduce": "c", "out": {"inline": 1, "merge": "p"}}`:                                                             `d.c [{"name":"d.p","out":1}]`,
		`{"createUser": "hunter2", "pwd": "hunter2"}`:                                                                        `d`,
		`{"ping": 1}`: `d`,
		`{"bulkWrite": 1, "ops": [{"insert": 0}, {"update": 1}, {"delete": {"$numberLong": "0"}}, {"insert": 0}], "nsInfo": [{"ns": "d.a"}, {"ns": "e.b"}]}`: `d [{"delete":1,"insert":2,"name":"d.a"},{"name":"e.b","update":1}]`,
		`{"bulkWrite": 1, "ops": [{"insert": 2}, {"insert": -1}, {"drop": 0}, {"insert": "x"}], "nsInfo": [{"ns": "d.a"}, 7]}`:                               `d [{"insert":3,"name":"?"},{"?":1,"name":"d.a"}]`,
		`{"bulkWrite": 1}`: `d`,
	} {
		for _, d := range both(t, command) {
			lines := inJSON(t, &audit.Entry{
				Method:  mooringv1.CommandService_RunCommand_FullMethodName,
				Request: &mooringv1.RunCommandRequest{Database: "d", Command: d},
			})
			if len(lines) != 1 || lines[0].list() != want {
				t.Errorf("%s: %+v, want %s", command, lines, want)
			}
		}
	}
}

// TestAmbiguousTargets checks that a stage that names two targets names none: servers differ in
// which of them counts.
func TestAmbiguousTargets(t *testing.T) {
	for name, fields := range map[string]func(*bson.Builder){
		"into": func(b *bson.Builder) { b.String("into", "a").String("into", "b") },
		"coll": func(b *bson.Builder) {
			b.OpenDocument("into").String("coll", "a").String("coll", "b").Close()
		},
		"db": func(b *bson.Builder) {
			b.OpenDocument("into").String("coll", "a").String("db", "a").String("db", "b").Close()
		},
	} {
		b := bson.NewBuilder(nil).OpenDocument("$merge")
		fields(b)
		lines := inJSON(t, &audit.Entry{
			Method: mooringv1.DocumentService_Aggregate_FullMethodName,
			Request: &mooringv1.AggregateRequest{
				Database: "d", Collection: new("c"),
				Pipeline: []*mooringv1.Document{payload.NewDocument(b.Close().Finish())},
			},
		})
		if len(lines) != 1 || lines[0].list() != `d.c [{"$merge":1,"name":"?"}]` {
			t.Errorf("%s twice: %+v", name, lines)
		}
	}
}

// TestPipelines checks that the log has where a pipeline writes to, in every request with a
// pipeline, whatever its method is otherwise.
func TestPipelines(t *testing.T) {
	requests := map[string]bool{}
	rangeMethods(func(name string, request protoreflect.MessageDescriptor) {
		requests[string(request.Name())] = request.Fields().ByName("pipeline") != nil
	})
	c := new("c")
	for text, want := range map[string]string{
		`{"$out": "o"}`:                             `[{"$out":1,"name":"d.o"}]`,
		`{"$facet": {"a": [{"$merge": "o"}]}}`:      `[{"$merge":1,"name":"d.o"}]`,
		`{"$match": {"a": {"$in": ["$out", "x"]}}}`: ``,
	} {
		for _, stage := range both(t, text) {
			stages := []*mooringv1.Document{inText(`{"$match": {}}`), stage}
			for _, row := range []struct {
				method  string
				request any
			}{
				{mooringv1.DocumentService_Aggregate_FullMethodName, &mooringv1.AggregateRequest{Database: "d", Collection: c, Pipeline: stages}},
				{mooringv1.DocumentService_StreamAggregate_FullMethodName, &mooringv1.StreamAggregateRequest{Database: "d", Collection: c, Pipeline: stages}},
				{mooringv1.DocumentService_ExplainAggregate_FullMethodName, &mooringv1.ExplainAggregateRequest{Database: "d", Collection: c, Pipeline: stages}},
				{mooringv1.CatalogService_CreateCollection_FullMethodName, &mooringv1.CreateCollectionRequest{Database: "d", Collection: "c", Pipeline: stages}},
				{mooringv1.CatalogService_CollMod_FullMethodName, &mooringv1.CollModRequest{Database: "d", Collection: "c", Pipeline: stages}},
				{mooringv1.ChangeStreamService_Watch_FullMethodName, &mooringv1.WatchRequest{Database: "d", Collection: c, Pipeline: stages}},
			} {
				delete(requests, strings.TrimPrefix(fmt.Sprintf("%T", row.request), "*mooringv1."))
				lines := inJSON(t,
					&audit.Entry{Principal: "p", Method: row.method, Request: row.request})
				switch {
				case want == "" && len(lines) > 0 && lines[0].Namespaces != nil,
					want != "" && (len(lines) != 1 || lines[0].list() != "d.c "+want):
					t.Errorf("%s of %s: %+v, want %s", row.method, text, lines, want)
				}
			}
		}
	}
	for request, has := range requests {
		if has {
			t.Errorf("%s has a pipeline and no row", request)
		}
	}
}

// TestUnreadableStages checks that a stage that may write, and cannot be read, is in the log.
func TestUnreadableStages(t *testing.T) {
	for name, text := range map[string]string{
		"too long": `{"$out": "` + strings.Repeat("x", 1<<20) + `"}`, "wrong": `{"$out": `,
	} {
		lines := inJSON(t, &audit.Entry{
			Method: mooringv1.DocumentService_Aggregate_FullMethodName,
			Request: &mooringv1.AggregateRequest{
				Database: "d", Pipeline: []*mooringv1.Document{inText(text)},
			},
		})
		if len(lines) != 1 || lines[0].list() != `d [{"?":1,"name":"?"}]` {
			t.Errorf("%s: %+v", name, lines)
		}
	}
	// The depth of a document that was not validated is bounded by nothing else.
	deep := bytes.Repeat([]byte{0xff, 0xff, 0xff, 0x7f, 3, 'a', 0}, 100_000)
	for _, d := range []*mooringv1.Document{native(append(deep, "$out"...)), native(nil), nil} {
		for _, e := range []*audit.Entry{
			{Method: mooringv1.DocumentService_Aggregate_FullMethodName, Request: &mooringv1.AggregateRequest{Database: "d", Pipeline: []*mooringv1.Document{d}}},
			{Method: mooringv1.CommandService_RunCommand_FullMethodName, Request: &mooringv1.RunCommandRequest{Database: "d", Command: d}},
		} {
			inJSON(t, e)
		}
	}
}

// TestDeepStages checks that stages are found down to the depth that servers take.
func TestDeepStages(t *testing.T) {
	for _, depth := range []int{100, 199} {
		text := strings.Repeat(`{"a":`, depth) + `{"$out": "o"}` + strings.Repeat("}", depth)
		raw, err := extjson.Parse(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		lines := inJSON(t, &audit.Entry{
			Method: mooringv1.DocumentService_Aggregate_FullMethodName,
			Request: &mooringv1.AggregateRequest{
				Database: "d", Pipeline: []*mooringv1.Document{native(bson.Raw(raw))},
			},
		})
		if len(lines) != 1 || lines[0].list() != `d [{"$out":1,"name":"d.o"}]` {
			t.Errorf("depth %d: %+v", depth, lines)
		}
	}
}

// TestDeeperStages checks that the search ends below the depth that servers take, in documents and
// in arrays.
func TestDeeperStages(t *testing.T) {
	for name, wrap := range map[string]func(bson.Raw) bson.Raw{
		"documents": func(in bson.Raw) bson.Raw { return bson.NewBuilder(nil).Document("0", in).Finish() },
		"arrays":    func(in bson.Raw) bson.Raw { return bson.NewBuilder(nil).Array("0", bson.Array(in)).Finish() },
	} {
		stage := bson.NewBuilder(nil).String("$out", "o").Finish()
		for depth := 1; depth <= 300; depth++ {
			stage = wrap(stage)
			if depth != 200 && depth != 300 {
				continue
			}
			lines := inJSON(t, &audit.Entry{
				Method: mooringv1.DocumentService_Aggregate_FullMethodName,
				Request: &mooringv1.AggregateRequest{
					Database: "d", Pipeline: []*mooringv1.Document{native(stage)},
				},
			})
			if found := len(lines) > 0; found != (depth == 200) {
				t.Errorf("%s, depth %d: %+v", name, depth, lines)
			}
		}
	}
}

// TestRename checks that the line of a rename has the new name.
func TestRename(t *testing.T) {
	r := &mooringv1.RenameCollectionRequest{Database: "d", Collection: "c", To: "o"}
	e := &audit.Entry{Method: mooringv1.CatalogService_RenameCollection_FullMethodName, Request: r}
	if lines := inJSON(t, e); len(lines) != 1 || lines[0].list() != `d.c [{"name":"d.o","to":1}]` {
		t.Errorf("%+v", lines)
	}
	r.ToDatabase = new("e")
	if lines := inJSON(t, e); len(lines) != 1 || lines[0].list() != `d.c [{"name":"e.o","to":1}]` {
		t.Errorf("%+v", lines)
	}
}

// TestKinds checks that the log names each kind of a write model and of a transaction's operation.
func TestKinds(t *testing.T) {
	kinds := (*mooringv1.WriteModel)(nil).ProtoReflect().Descriptor().Oneofs().ByName("kind")
	for i := range kinds.Fields().Len() {
		field := kinds.Fields().Get(i)
		m := &mooringv1.WriteModel{}
		m.ProtoReflect().Mutable(field)
		for _, many := range []*mooringv1.BulkWriteRequest{
			{Database: "d", Collection: "c", Models: []*mooringv1.WriteModel{m, m}},
			{Models: []*mooringv1.WriteModel{{Namespace: new("d.c"), Kind: m.GetKind()}, {Namespace: new("d.c"), Kind: m.GetKind()}}},
		} {
			operation := &mooringv1.TransactionOperation{
				Operation: &mooringv1.TransactionOperation_BulkWrite{BulkWrite: many},
			}
			for _, e := range []*audit.Entry{
				{Method: mooringv1.DocumentService_BulkWrite_FullMethodName, Request: many},
				{Method: mooringv1.TransactionService_Run_FullMethodName, Request: &mooringv1.TransactionServiceRunRequest{Operations: []*mooringv1.TransactionOperation{operation}}},
			} {
				lines := inJSON(t, e)
				if len(lines) != 1 || lines[0].Namespace != "d.c" ||
					len(lines[0].Namespaces) != 1 ||
					lines[0].Namespaces[0][field.JSONName()] != 2.0 {
					t.Errorf("%s: %+v", field.JSONName(), lines)
				}
			}
		}
	}
	operations := (*mooringv1.TransactionOperation)(nil).ProtoReflect().Descriptor().Oneofs().
		ByName("operation")
	for i := range operations.Fields().Len() {
		field := operations.Fields().Get(i)
		o := &mooringv1.TransactionOperation{}
		request := o.ProtoReflect().Mutable(field).Message()
		request.Set(request.Descriptor().Fields().ByName("database"),
			protoreflect.ValueOfString("d"))
		request.Set(request.Descriptor().Fields().ByName("collection"),
			protoreflect.ValueOfString("c"))
		lines := inJSON(t, &audit.Entry{
			Method: mooringv1.TransactionService_Run_FullMethodName,
			Request: &mooringv1.TransactionServiceRunRequest{
				Operations: []*mooringv1.TransactionOperation{o},
			},
		})
		if len(lines) != 1 ||
			lines[0].list() != `d.c [{"`+field.JSONName()+`":1,"name":"d.c"}]` &&
				lines[0].list() != `d.c [{"name":"d.c","`+field.JSONName()+`":1}]` {
			t.Errorf("%s: %+v", field.JSONName(), lines)
		}
	}
}

// TestNothingHides checks that a bulk write on so many collections that its list takes many lines
// has each of them in the log, with the counts, and names the lines as one.
func TestNothingHides(t *testing.T) {
	const collections = 100_000
	many := &mooringv1.BulkWriteRequest{}
	for i := range collections {
		name := fmt.Sprintf("db.%s%06d", strings.Repeat("x", 200), i)
		for range 1 + i%2 {
			many.Models = append(many.Models, &mooringv1.WriteModel{
				Namespace: &name, Kind: &mooringv1.WriteModel_InsertOne{},
			})
		}
	}
	lines := inJSON(t, &audit.Entry{
		Method: mooringv1.DocumentService_BulkWrite_FullMethodName, Request: many, RequestID: "r",
	})
	seen, operations := map[any]bool{}, 0.0
	for i, l := range lines {
		if l.Part != i+1 || l.Parts != len(lines) || l.RequestID != "r" {
			t.Fatalf("line %d of %d: part %d of %d, request %s", i+1, len(lines), l.Part, l.Parts,
				l.RequestID)
		}
		for _, n := range l.Namespaces {
			seen[n["name"]] = true
			operations += n["insertOne"].(float64)
		}
		if size := len(fmt.Sprint(l.Namespaces)); size > 80<<10 {
			t.Errorf("line %d has %d bytes of names", i, size)
		}
	}
	if len(seen) != collections || operations != collections*3/2 || len(lines) < 300 {
		t.Errorf("%d lines with %d namespaces and %v operations", len(lines), len(seen), operations)
	}
}

// TestNamespace checks the short form of the namespaces, for the log of slow requests.
func TestNamespace(t *testing.T) {
	model := func(name string) *mooringv1.WriteModel {
		return &mooringv1.WriteModel{Namespace: &name}
	}
	for want, request := range map[string]any{
		"":      nil,
		"d":     &mooringv1.DropDatabaseRequest{Database: "d"},
		"d.c":   &mooringv1.FindRequest{Database: "d", Collection: "c"},
		"a.b":   &mooringv1.BulkWriteRequest{Models: []*mooringv1.WriteModel{model("a.b"), model("a.b")}},
		"a.b,…": &mooringv1.BulkWriteRequest{Models: []*mooringv1.WriteModel{model("a.b"), model("a.c")}},
	} {
		if got := audit.Namespace(request); got != want {
			t.Errorf("Namespace(%v) = %q, want %q", request, got, want)
		}
	}
	if got := audit.Namespace(&mooringv1.BulkWriteRequest{}); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// rangeMethods calls f for the methods of the API.
func rangeMethods(f func(name string, request protoreflect.MessageDescriptor)) {
	for _, file := range []protoreflect.FileDescriptor{
		mooringv1.File_mooring_v1_catalog_service_proto,
		mooringv1.File_mooring_v1_change_stream_service_proto,
		mooringv1.File_mooring_v1_command_service_proto,
		mooringv1.File_mooring_v1_cursor_service_proto,
		mooringv1.File_mooring_v1_deployment_service_proto,
		mooringv1.File_mooring_v1_document_service_proto,
		mooringv1.File_mooring_v1_document_resource_service_proto,
		mooringv1.File_mooring_v1_session_service_proto,
		mooringv1.File_mooring_v1_transaction_service_proto,
	} {
		methods := file.Services().Get(0).Methods()
		for i := range methods.Len() {
			f(string(methods.Get(i).FullName()), methods.Get(i).Input())
		}
	}
}
