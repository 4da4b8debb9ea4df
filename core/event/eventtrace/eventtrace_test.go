package eventtrace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventtrace"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// recorder writes down what happens to spans, one line each.
type recorder struct {
	lines []string
	spans int
}

type span struct {
	r  *recorder
	id int
}

func (r *recorder) start(
	ctx context.Context, parent eventtrace.Span, name string, attributes []eventtrace.Attribute,
) eventtrace.Span {
	r.spans++
	s := &span{r, r.spans}
	under := fmt.Sprint(ctx.Value(key{}))
	if parent != nil {
		under = fmt.Sprint(parent.(*span).id)
	}
	r.add("%d under %s: %s%s", s.id, under, name, list(attributes))
	return s
}

func (r *recorder) add(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func list(attributes []eventtrace.Attribute) (all string) {
	for _, a := range attributes {
		all += fmt.Sprintf(" %s=%v", strings.TrimPrefix(a.Key, "db."), a.Value)
	}
	return all
}

func (s *span) Set(attributes []eventtrace.Attribute) {
	s.r.add("%d has%s", s.id, list(attributes))
}

func (s *span) Fail(e eventtrace.Exception) {
	s.r.add("%d failed: %s: %s, stack: %v", s.id, e.Type, e.Message,
		strings.Contains(e.Stacktrace, "eventtrace"))
}

func (s *span) End() { s.r.add("%d ends", s.id) }

type key struct{}

func doc(t *testing.T, json string) bson.Raw {
	t.Helper()
	d, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSpans(t *testing.T) {
	var r recorder
	s := eventtrace.Sink(eventtrace.Config{Start: r.start, MaxQueryTextLength: 60})
	caller := context.WithValue(t.Context(), key{}, "the caller's")
	operation := event.Operation{
		ID: 7, Name: "createCollection", Database: "shop", Collection: "orders", Transaction: 3,
	}
	command := event.Command{
		Name: "create", Database: "shop", RequestID: 8, OperationID: 7, Address: "h:1",
		ConnectionID: 4, ServerConnectionID: 5,
	}
	body := doc(t,
		`{"create":"orders","capped":true,"lsid":{"id":{"$uuid":"00112233-4455-6677-8899-aabbccddeeff"}},"txnNumber":{"$numberLong":"2"},"$db":"shop","$clusterTime":{}}`)
	again := command
	again.RequestID, again.Address, again.ServerConnectionID = 9, "/tmp/m.sock", 0

	s.TransactionStarted(event.TransactionStarted{ID: 3, Context: caller})
	s.OperationStarted(event.OperationStarted{Operation: operation, Context: caller})
	s.CommandStarted(event.CommandStarted{Command: command, Body: body})
	s.CommandFailed(event.CommandFailed{
		Command: command, Err: &mongoerr.CommandError{Code: 89, Message: "slow", Address: "h:1"},
	})
	s.CommandStarted(event.CommandStarted{Command: again, Body: doc(t, `{"create":"orders"}`)})
	s.CommandSucceeded(event.CommandSucceeded{
		Command: again, Reply: doc(t, `{"cursor":{"id":{"$numberLong":"6"}},"ok":1}`),
	})
	s.OperationEnded(event.OperationEnded{Operation: operation, Err: errors.New("cut")})
	s.TransactionEnded(event.TransactionEnded{ID: 3})

	want := `
1 under the caller's: transaction system.name=mongodb
2 under 1: createCollection shop.orders system.name=mongodb namespace=shop collection.name=orders operation.name=createCollection operation.summary=createCollection shop.orders
3 under 2: create system.name=mongodb namespace=shop collection.name=orders command.name=create query.summary=create shop.orders server.address=h server.port=1 network.transport=tcp mongodb.server_connection_id=5 mongodb.driver_connection_id=4 mongodb.lsid=00112233-4455-6677-8899-aabbccddeeff mongodb.txn_number=2 query.text={"create":"orders","capped":true,"txnNumber":2}
3 has response.status_code=89
3 failed: *mongoerr.CommandError: command failed on h:1: error (code 89), stack: true
3 ends
4 under 2: create system.name=mongodb namespace=shop collection.name=orders command.name=create query.summary=create shop.orders server.address=/tmp/m.sock network.transport=unix mongodb.driver_connection_id=4 query.text={"create":"orders"}
4 has mongodb.cursor_id=6
4 ends
2 failed: *errors.errorString: cut, stack: true
2 ends
1 ends`
	if got := "\n" + strings.Join(r.lines, "\n"); got != want {
		t.Errorf("spans:%s\nwant:%s", got, want)
	}
}

// TestAttributesAreCopies has the buffer of a command be used again, while a span still has its
// attributes.
func TestAttributesAreCopies(t *testing.T) {
	var kept []eventtrace.Attribute
	var r recorder
	s := eventtrace.Sink(eventtrace.Config{
		MaxQueryTextLength: 60,
		Start: func(
			ctx context.Context, parent eventtrace.Span, name string,
			attributes []eventtrace.Attribute,
		) eventtrace.Span {
			kept = attributes
			return r.start(ctx, parent, name, attributes)
		},
	})
	s.OperationStarted(event.OperationStarted{
		Operation: event.Operation{ID: 7, Name: "drop"}, Context: t.Context(),
	})
	body := doc(t,
		`{"drop": "orders", "lsid": {"id": {"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}}}`)
	s.CommandStarted(event.CommandStarted{
		Command: event.Command{Name: "drop", OperationID: 7, Address: "h:1"}, Body: body,
	})
	before := strings.Clone(list(kept))
	clear(body)
	if got := list(kept); got != before {
		t.Errorf("the attributes are%s, they were%s", got, before)
	}
}

// TestNoSpan checks the events that make no span: of sensitive commands, of commands outside of
// operations, and ends without a beginning.
func TestNoSpan(t *testing.T) {
	var r recorder
	s := eventtrace.Sink(eventtrace.Config{Start: r.start})
	operation := event.Operation{ID: 7, Name: "runCommand", Database: "admin"}
	s.OperationStarted(event.OperationStarted{Operation: operation, Context: t.Context()})
	secret := event.Command{Name: "saslStart", RequestID: 8, OperationID: 7}
	s.CommandStarted(event.CommandStarted{Command: secret, Body: bson.NewBuilder(nil).Finish()})
	s.CommandSucceeded(event.CommandSucceeded{Command: secret})
	other := event.Command{Name: "ping", RequestID: 9, OperationID: 9}
	s.CommandStarted(event.CommandStarted{Command: other, Body: doc(t, `{"ping":1}`)})
	s.CommandFailed(event.CommandFailed{Command: other, Err: errors.New("cut")})
	s.OperationEnded(event.OperationEnded{Operation: operation})
	s.OperationEnded(event.OperationEnded{Operation: operation})
	s.TransactionEnded(event.TransactionEnded{ID: 1})
	if len(r.lines) != 2 || r.lines[1] != "1 ends" {
		t.Errorf("spans: %q, want only that of the operation", r.lines)
	}
}

func TestQueryText(t *testing.T) {
	for _, tt := range []struct {
		limit int
		want  string // empty: there is none
	}{
		{0, ""},
		{1000, `{"find":"ü","filter":{}}`},
		{8, `{"find":`},
		{10, `{"find":"`}, // not inside of the ü
	} {
		var r recorder
		s := eventtrace.Sink(eventtrace.Config{Start: r.start, MaxQueryTextLength: tt.limit})
		s.OperationStarted(event.OperationStarted{
			Operation: event.Operation{ID: 1}, Context: t.Context(),
		})
		s.CommandStarted(event.CommandStarted{
			Command: event.Command{OperationID: 1},
			Body:    doc(t, `{"find":"ü","filter":{},"$db":"d"}`),
		})
		_, text, _ := strings.Cut(r.lines[1], " query.text=")
		if text != tt.want {
			t.Errorf("limit %d: the text is %q, want %q", tt.limit, text, tt.want)
		}
	}
}

func TestCollection(t *testing.T) {
	for json, want := range map[string]string{
		`{"find":"orders"}`:                        "orders",
		`{"aggregate":1}`:                          "",
		`{"getMore":1,"collection":"orders"}`:      "orders",
		`{"usersInfo":"root"}`:                     "",
		`{"renameCollection":"a.b","to":"c.d"}`:    "",
		`{}`:                                       "",
		`{"bulkWrite":1,"nsInfo":[{"ns":"a.b"}]}`:  "",
		`{"killCursors":"orders","cursors":[1,2]}`: "orders",
	} {
		if got := eventtrace.Collection(doc(t, json)); got != want {
			t.Errorf("Collection(%s) = %q, want %q", json, got, want)
		}
	}
}

func TestFromEnvironment(t *testing.T) {
	for _, tt := range []struct {
		enabled, length string
		wantEnabled     bool
		want            int
	}{
		{"", "", false, 0},
		{"true", "1024", true, 1024},
		{"1", "0", true, 0},
		{"false", "7", false, 7},
		{"yes", "-1", false, 0},
		{"TRUE", "many", true, 0},
	} {
		env := map[string]string{
			eventtrace.EnabledVariable: tt.enabled, eventtrace.MaxQueryTextLengthVariable: tt.length,
		}
		enabled, length := eventtrace.FromEnvironment(func(name string) string { return env[name] })
		if enabled != tt.wantEnabled || length != tt.want {
			t.Errorf("FromEnvironment(%q, %q) = %v, %d", tt.enabled, tt.length, enabled, length)
		}
	}
}

// TestNotRecorded checks that nothing is made under a span that is not recorded: of an operation
// whose caller's is not, and of one that Start refuses. A transaction that is not recorded leaves
// its operations to the spans of their callers.
func TestNotRecorded(t *testing.T) {
	command := event.Command{Name: "find", RequestID: 8, OperationID: 7}
	for name, tt := range map[string]struct {
		records, starts bool
		transaction     bool // is recorded, whatever the caller's span is
		want            int
	}{
		"all":               {records: true, starts: true, want: 2},
		"not the caller":    {starts: true},
		"not the operation": {records: true},
		"not the caller's, but the transaction's": {starts: true, transaction: true, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			var r recorder
			recorded := tt.records || tt.transaction
			s := eventtrace.Sink(eventtrace.Config{
				Records: func(context.Context) bool { return recorded },
				Start: func(
					ctx context.Context, parent eventtrace.Span, name string,
					attributes []eventtrace.Attribute,
				) eventtrace.Span {
					if !tt.starts {
						return nil
					}
					return r.start(ctx, parent, name, attributes)
				},
			})
			operation := event.Operation{ID: 7, Name: "find", Database: "shop"}
			if tt.transaction {
				s.TransactionStarted(event.TransactionStarted{ID: 3, Context: t.Context()})
				operation.Transaction = 3
			}
			recorded = tt.records
			s.OperationStarted(event.OperationStarted{Operation: operation, Context: t.Context()})
			s.CommandStarted(event.CommandStarted{
				Command: command, Body: doc(t, `{"find": "orders"}`),
			})
			s.CommandSucceeded(event.CommandSucceeded{Command: command})
			s.OperationEnded(event.OperationEnded{Operation: operation})
			if r.spans != tt.want {
				t.Errorf("%d spans, want %d: %q", r.spans, tt.want, r.lines)
			}
		})
	}
}
