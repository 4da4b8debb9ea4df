package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/rpcerr"
)

func TestRequestReachesHandlerInOrder(t *testing.T) {
	var got *mooringv1.FindRequest
	h := newHandler(t, &fake{find: func(
		_ context.Context, r *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		got = r
		return &mooringv1.FindResponse{}, nil
	}})
	w := do(h, "POST", documents+":find", `{
		"filter": {"total": {"$gt": {"$numberLong": "10"}}, "a": 1, "a": 2},
		"sort": [["b", 1], ["2", -1]], "projection": {"2": 1, "1": 1}, "hint": {"x": 1},
		"limit": "5", "skip": 0, "batchSize": {"$numberInt": "7"}, "max_time_ms": 1e3, "maxAwaitTimeMS": 20,
		"comment": null, "readPreference": {"mode": "nearest", "tags": [{"dc": "east"}, {}], "maxStalenessSeconds": 90},
		"readConcern": {"level": "majority"}, "tailable": true, "min": [], "session": "tok\u0065n \"x\""
	}`)
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	for _, c := range []struct{ name, got, want string }{
		{"database", got.GetDatabase(), "shop"},
		{"collection", got.GetCollection(), "orders"},
		{"filter", canonical(t, got.GetFilter()), `{"total":{"$gt":{"$numberLong":"10"}},"a":{"$numberInt":"1"},"a":{"$numberInt":"2"}}`},
		{"sort", canonical(t, got.GetSort()), `{"b":{"$numberInt":"1"},"2":{"$numberInt":"-1"}}`},
		{"projection", canonical(t, got.GetProjection()), `{"2":{"$numberInt":"1"},"1":{"$numberInt":"1"}}`},
		{"hint", canonical(t, got.GetHint().GetKeys()), `{"x":{"$numberInt":"1"}}`},
		{"min", canonical(t, got.GetMin()), `{}`},
		{"max", canonical(t, got.GetMax()), `-`},
		{"session", got.GetSession(), `token "x"`},
		{"mode", got.GetReadPreference().GetMode(), "nearest"},
		{"level", got.GetReadConcern().GetLevel(), "majority"},
	} {
		if c.got != c.want {
			t.Errorf("%s = %s, want %s", c.name, c.got, c.want)
		}
	}
	if got.GetLimit() != 5 || got.Skip == nil || got.GetBatchSize() != 7 ||
		got.GetMaxTimeMs() != 1000 || got.GetMaxAwaitTimeMs() != 20 || !got.GetTailable() ||
		got.AwaitData != nil {
		t.Errorf("scalars: %v", got)
	}
	if v, err := (payload.Decoder{}).Value("comment", got.GetComment()); err != nil || !v.IsNull() {
		t.Errorf("comment = %v, %v, want null", v, err)
	}
	if tags := got.GetReadPreference().GetTags(); len(tags) != 2 ||
		tags[0].GetTags()["dc"] != "east" || len(tags[1].GetTags()) != 0 {
		t.Errorf("tags = %v", tags)
	}
}

func TestUnions(t *testing.T) {
	var got *mooringv1.UpdateOneRequest
	h := newHandler(t, &fake{updateOne: func(
		_ context.Context, r *mooringv1.UpdateOneRequest,
	) (*mooringv1.UpdateOneResponse, error) {
		got = r
		return &mooringv1.UpdateOneResponse{
			Acknowledged: true, MatchedCount: new(int64(1)),
			UpsertedId: payload.NewValue(bson.Int64Value(1 << 60)),
		}, nil
	}})
	for _, c := range []struct{ name, body, want string }{
		{"operators", `{"update": {"$set": {}}}`, `update:{operators:{bson:"\x10\x00\x00\x00\x03$set\x00\x05\x00\x00\x00\x00\x00"}}`},
		{"pipeline", `{"update": [{}]}`, `update:{pipeline:{stages:{bson:"\x05\x00\x00\x00\x00"}}}`},
		{"hint by name", `{"hint": "a_1"}`, `hint:{name:"a_1"}`},
		{"hint by pairs", `{"hint": [["a", null]]}`, `hint:{keys:{bson:"\x08\x00\x00\x00\na\x00\x00"}}`},
		{"w of a number", `{"writeConcern": {"w": 0, "j": false, "wtimeout": 9}}`, `write_concern:{w:{nodes:0} j:false wtimeout_ms:9}`},
		{"w of a canonical number", `{"writeConcern": {"w": {"$numberInt": "2"}}}`, `write_concern:{w:{nodes:2}}`},
		{"w of a tag", `{"writeConcern": {"w": "majority"}}`, `write_concern:{w:{tag:"majority"}}`},
		{"array filters", `{"arrayFilters": [{}, {}]}`, `array_filters:{bson:"\x05\x00\x00\x00\x00"} array_filters:{bson:"\x05\x00\x00\x00\x00"}`},
		{"nothing", ``, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := do(h, "POST", documents+":updateOne", c.body)
			if w.Code != 200 {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if want := `{"acknowledged":true,"matchedCount":1,"upsertedId":{"$numberLong":"1152921504606846976"}}`; w.Body.String() != want {
				t.Errorf("body = %s, want %s", w.Body, want)
			}
			if text := plain(got); text != strings.TrimSpace(`database:"shop" collection:"orders" `+
				c.want) {
				t.Errorf("request = %s\nwant %s", text, c.want)
			}
		})
	}
}

// plain returns a message's text with single spaces, because prototext varies their number.
func plain(m proto.Message) string {
	var b strings.Builder
	for i, part := range strings.Fields(strings.NewReplacer("  ", " ").
		Replace(m.(interface{ String() string }).String())) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(part)
	}
	return b.String()
}

// TestGoneField checks what a client of an earlier version is told to do instead of allowGap.
func TestGoneField(t *testing.T) {
	h := newHandler(t, &fake{})
	for _, path := range []string{"/v1/cursors:next", "/v1/cursors:stream"} {
		w := do(h, "POST", path, `{"cursor": "x", "allowGap": true}`)
		if w.Code != http.StatusBadRequest ||
			!strings.Contains(w.Body.String(), rpcerr.AllowGapGone) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestBadBodies(t *testing.T) {
	h := newHandler(t, &fake{})
	for _, c := range []struct {
		name, verb, body string
		field, problem   string
		offset           int // -1: none
	}{
		{"not an object", "find", `[]`, "", "expected an object", 0},
		{"cut short", "find", `{"filter": {"a": `, "filter.a", "", 17},
		{"in a document", "find", `{"filter": {"a": {"b": tru}}}`, "filter.a.b", "", 23},
		{"trailing garbage", "find", `{} x`, "", "unexpected text after the value", 3},
		{"unknown field", "find", `{"filtre": {}}`, "filtre", "there is no such field: did you mean filter?", -1},
		{"the document as the body", "insertOne", `{"customer": "Ada"}`, "customer", "there is no such field: known are bypassDocumentValidation, comment, document, ", -1},
		{"one for many", "insertMany", `{"document": {}}`, "document", "there is no such field: did you mean documents?", -1},
		{"name in single quotes", "find", `{'filter': {}}`, "", "expected a string in double quotes: JSON has no single quotes", 1},
		{"name without quotes", "find", `{filter: {}}`, "", "expected a string in double quotes", 1},
		{"text in single quotes", "find", `{"session": 'a'}`, "session", "expected a string in double quotes: JSON has no single quotes", 12},
		{"union in single quotes", "find", `{"readPreference": 'primary'}`, "readPreference", "expected an object or a string: JSON has no single quotes", 19},
		{"document in single quotes", "find", `{"filter": {"a": 'b'}}`, "filter.a", `unexpected '\'', expected a value, with double quotes if it is a string`, 17},
		{"key in single quotes", "find", `{"filter": {'a': 1}}`, "filter", `unexpected '\'', expected a key in double quotes`, 12},
		{"unknown nested field", "find", `{"readPreference": {"mod": 1}}`, "readPreference.mod", "there is no such field", -1},
		{"database in the body", "find", `{"database": "shop"}`, "database", "belongs to the path", -1},
		{"field twice", "find", `{"limit": 1, "limit": 2}`, "limit", "the field is repeated", 20},
		{"null", "find", `{"filter": null}`, "filter", "null", 11},
		{"null in an array", "insertMany", `{"documents": [{}, null]}`, "documents.1", "expected an object", 19},
		{"wrong union", "updateOne", `{"update": 5}`, "update", "expected an object or an array", 11},
		{"wrong W", "updateOne", `{"writeConcern": {"w": true}}`, "writeConcern.w", "expected an integer or a string", 23},
		{"W of a document", "updateOne", `{"writeConcern": {"w": {"a": 1}}}`, "writeConcern.w", "expected an integer", 23},
		{"wrong hint", "find", `{"hint": 5}`, "hint", "expected a string, an object or an array of pairs", 9},
		{"number beyond 64 bits", "find", `{"limit": 99999999999999999999}`, "limit", "too large", 10},
		{"number far beyond 64 bits", "find", `{"limit": -1e300}`, "limit", "too large", 10},
		{"number too large", "find", `{"batchSize": 2147483648}`, "batchSize", "too large", 14},
		{"fraction", "find", `{"limit": 1.5}`, "limit", "expected an integer", 10},
		{"plus sign", "find", `{"limit": "+1"}`, "limit", "expected an integer", 10},
		{"bool of text", "find", `{"tailable": "true"}`, "tailable", "expected true or false", 13},
		{"pairs without key", "find", `{"sort": [["a", 1], [1, 1]]}`, "sort.1", "the key", 21},
		{"pairs where order is nothing", "find", `{"filter": [["a", 1]]}`, "filter", "expected an object", 11},
		{"stage that is none", "aggregate", `{"pipeline": [{"$match": {}}, 3]}`, "pipeline.1", "expected an object", 30},
		{"bad string", "find", "{\"session\": \"a\xff\"}", "session", "", 14},
		{"legacy wrapper", "find", `{"filter": {"d": {"$date": 1}}}`, "filter.d", "", 27},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := do(h, "POST", documents+":"+c.verb, c.body)
			e := errorOf(t, w.Code, w.Body.Bytes(), 400)
			if e.Status != "INVALID_ARGUMENT" || e.Retry != "never" || e.RequestID == "" ||
				e.Reason == "" {
				t.Errorf("error = %+v", e)
			}
			if e.Field != c.field || !strings.Contains(e.Message, c.problem) {
				t.Errorf("field %q, message %q; want %q, %q", e.Field, e.Message, c.field,
					c.problem)
			}
			offset := -1
			if e.Offset != nil {
				offset = *e.Offset
			}
			if offset != c.offset {
				t.Errorf("offset = %d, want %d (%s)", offset, c.offset, e.Message)
			}
		})
	}
}

type errorBody struct {
	Status, Reason, Message, Retry, Field string
	Code                                  int
	Truncated                             bool
	RequestID                             string `json:"requestId"`
	Offset                                *int
	Server                                map[string]any
	WriteErrors                           []map[string]any
}

func errorOf(t *testing.T, code int, body []byte, want int) errorBody {
	t.Helper()
	var e struct{ Error *errorBody }
	if err := json.Unmarshal(body, &e); err != nil || e.Error == nil {
		t.Fatalf("status %d, no error body: %s (%v)", code, body, err)
	}
	if code != want {
		t.Fatalf("status = %d, want %d: %s", code, want, body)
	}
	return *e.Error
}

func TestRefusals(t *testing.T) {
	h := newHandler(t, &fake{}, func(c *config) { c.MaxBodyBytes = 100 })
	long := strings.Repeat("x", 9000)
	for _, c := range []struct {
		name, method, url, body string
		header                  []string
		code                    int
		reason, field           string
		want                    []string // a header and its value
	}{
		{"nothing there", "GET", "/v2/x", "", nil, 404, "RouteNotFound", "", nil},
		{"unknown verb", "POST", documents + ":fnd", "{}", nil, 404, "RouteNotFound", "", nil},
		{"empty verb", "GET", documents + ":", "", nil, 404, "RouteNotFound", "", nil},
		{"two verbs", "POST", documents + ":x:find", "{}", nil, 404, "RouteNotFound", "", nil},
		{"path too deep", "GET", documents + "/1/2/3", "", nil, 404, "RouteNotFound", "", nil},
		{"wrong method", "GET", documents + ":find", "", nil, 405, "MethodNotAllowed", "", []string{"Allow", "POST"}},
		{"wrong method on a GET", "DELETE", documents, "", nil, 405, "MethodNotAllowed", "", []string{"Allow", "GET, HEAD"}},
		{"HEAD of a stream", "HEAD", documents + ":streamFind", "", nil, 405, "MethodNotAllowed", "", []string{"Allow", "GET, POST"}},
		{"wrong method on a page", "POST", "/healthz", "", nil, 405, "MethodNotAllowed", "", []string{"Allow", "GET, HEAD"}},
		{"slash at the end", "GET", documents + "/", "", nil, 400, "InvalidArgument", "", nil},
		{"empty segment", "POST", "/v1/databases//collections/c/documents:find", "{}", nil, 400, "InvalidArgument", "", nil},
		{"empty last segment", "POST", "/v1/databases/:runCommand", "{}", nil, 400, "InvalidArgument", "", nil},
		{"empty base64", "POST", "/v1/databases/~:runCommand", "{}", nil, 400, "InvalidArgument", "", nil},
		{"bad base64", "POST", "/v1/databases/~a$b:runCommand", "{}", nil, 400, "InvalidArgument", "", nil},
		{"not UTF-8", "POST", "/v1/databases/%FF:runCommand", "{}", nil, 400, "InvalidArgument", "", nil},
		{"dots", "POST", "/v1/databases/%2e%2e:runCommand", "{}", nil, 400, "InvalidArgument", "", nil},
		{"long URL", "GET", documents + "?comment=" + long, "", nil, 414, "URITooLong", "", nil},
		{"large body", "POST", documents + ":find", `{"session": "` + long + `"}`, nil, 413, "TooLarge", "", nil},
		{"not acceptable", "POST", documents + ":find", `{}`, []string{"Accept", "text/html"}, 406, "NotAcceptable", "", nil},
		{"BSON of one document", "POST", documents + ":findOne", `{}`, []string{"Accept", "application/bson"}, 406, "NotAcceptable", "", nil},
		{"unknown profile", "POST", documents + ":find", `{}`, []string{"Accept", "application/json;profile=pretty"}, 406, "NotAcceptable", "", nil},
		{"JSON of a stream", "POST", documents + ":streamFind", `{}`, []string{"Accept", "application/json"}, 406, "NotAcceptable", "", nil},
		{"weight 0", "POST", documents + ":find", `{}`, []string{"Accept", "*/*;q=0"}, 406, "NotAcceptable", "", nil},
		{"a form", "POST", documents + ":find", `a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "UnsupportedMediaType", "", nil},
		{"another charset", "POST", documents + ":find", `{}`, []string{"Content-Type", "application/json; charset=latin1"}, 415, "UnsupportedMediaType", "", nil},
		{"compressed", "POST", documents + ":find", `{}`, []string{"Content-Encoding", "gzip"}, 415, "UnsupportedMediaType", "", nil},
		{"query of a POST", "POST", documents + ":find?limit=1", `{}`, nil, 400, "InvalidArgument", "limit", nil},
		{"unknown parameter", "GET", documents + "?limt=1", "", nil, 400, "InvalidArgument", "limt", nil},
		{"session in the URL", "GET", documents + "?session=x", "", nil, 400, "InvalidArgument", "session", nil},
		{"repeated parameter", "GET", documents + "?limit=1&limit=2", "", nil, 400, "InvalidArgument", "limit", nil},
		{"bad parameter", "GET", documents + "?filter=%7Bx", "", nil, 400, "MalformedDocument", "filter", nil},
		{"injected parameter", "GET", documents + "?limit=1,%22skip%22:2", "", nil, 400, "InvalidArgument", "limit", nil},
		{"bad timeout", "POST", documents + ":find?timeout=5", `{}`, nil, 400, "InvalidArgument", "timeout", nil},
		{"empty timeout", "POST", documents + ":find?timeout=", `{}`, nil, 400, "InvalidArgument", "timeout", nil},
		{"bad Request-Timeout", "POST", documents + ":find", `{}`, []string{"Request-Timeout", "-1s"}, 400, "InvalidArgument", "Request-Timeout", nil},
		{"bad Grpc-Timeout", "POST", documents + ":find", `{}`, []string{"Grpc-Timeout", "5s"}, 400, "InvalidArgument", "Grpc-Timeout", nil},
		{"two sessions", "POST", documents + ":find", `{"session": "a"}`, []string{"Mooring-Session", "b"}, 400, "InvalidArgument", "Mooring-Session", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := do(h, c.method, c.url, c.body, c.header...)
			if c.method == "HEAD" {
				if w.Code != c.code {
					t.Fatalf("status = %d, want %d", w.Code, c.code)
				}
			} else if e := errorOf(t, w.Code, w.Body.Bytes(), c.code); e.Reason != c.reason ||
				e.Field != c.field {
				t.Errorf("reason %q, field %q, want %q, %q: %s", e.Reason, e.Field, c.reason,
					c.field, e.Message)
			} else if e.RequestID != w.Header().Get("Mooring-Request-Id") {
				t.Errorf("request id %q, header %q", e.RequestID,
					w.Header().Get("Mooring-Request-Id"))
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type = %s", got)
			}
			if c.want != nil && w.Header().Get(c.want[0]) != c.want[1] {
				t.Errorf("%s = %q, want %q", c.want[0], w.Header().Get(c.want[0]), c.want[1])
			}
		})
	}
}

func TestNames(t *testing.T) {
	var database, collection string
	h := newHandler(t, &fake{findOne: func(
		_ context.Context, r *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		database, collection = r.GetDatabase(), r.GetCollection()
		return &mooringv1.FindOneResponse{}, nil
	}})
	for _, c := range []struct{ path, database, collection string }{
		{"/v1/databases/a/collections/b.c/documents:findOne", "a", "b.c"},
		{"/v1/databases/a:b/collections/c%3Ad/documents:findOne", "a:b", "c:d"},
		{"/v1/databases/a%20b/collections/c%2Fd/documents:findOne", "a b", "c/d"},
		{"/v1/databases/collections/collections/documents/documents:findOne", "collections", "documents"},
		{"/v1/databases/~YS8lOn4/collections/~Li4/documents:findOne", "a/%:~", ".."},
		{"/v1/databases/%C3%BC/collections/%252F/documents:findOne", "ü", "%2F"},
	} {
		w := do(h, "POST", c.path, "{}")
		if w.Code != 200 || database != c.database || collection != c.collection {
			t.Errorf("%s: %d, %q, %q, want %q, %q: %s", c.path, w.Code, database, collection,
				c.database, c.collection, w.Body)
		}
		if got := w.Body.String(); got != `{"document":null}` {
			t.Errorf("body = %s", got)
		}
	}
}

func TestPageForms(t *testing.T) {
	page := &mooringv1.FindResponse{
		Documents: docs(t, `{"n": {"$numberLong": "9007199254740993"}, "i": 1}`,
			`{"n": {"$numberLong": "5"}}`),
		Cursor: new("token"), Session: new("renewed"),
	}
	h := newHandler(t, &fake{find: func(
		context.Context, *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		return page, nil
	}})
	const tail = `],"cursor":"token","session":"renewed"}`
	safe := `{"documents":[{"n":{"$numberLong":"9007199254740993"},"i":1},{"n":5}` + tail
	spec := `{"documents":[{"n":9007199254740993,"i":1},{"n":5}` + tail
	canon := `{"documents":[{"n":{"$numberLong":"9007199254740993"},"i":{"$numberInt":"1"}},{"n":{"$numberLong":"5"}}` + tail
	for _, c := range []struct{ accept, contentType, body string }{
		{"", "application/json", safe},
		{"*/*", "application/json", safe},
		{"application/*", "application/json", safe},
		{"text/html, */*;q=0.1", "application/json", safe},
		{"application/json; charset=utf-8", "application/json", safe},
		{"application/json;int64=number", "application/json", spec},
		{"application/ejson", "application/ejson", canon},
		{"application/json;q=0.5, application/ejson", "application/ejson", canon},
		{"application/json;profile=plain", "application/json", spec},
		{"application/ejson;profile=plain, application/json;q=0.1", "application/json", safe},
		{"application/json;profile=pretty, application/ejson;q=0.1", "application/ejson", canon},
		{"application/bson", "application/bson", string(page.Documents[0].GetBson()) + string(page.Documents[1].GetBson())},
	} {
		w := do(h, "POST", documents+":find", `{}`, "Accept", c.accept)
		if w.Code != 200 || w.Header().Get("Content-Type") != c.contentType ||
			w.Body.String() != c.body {
			t.Errorf("%s: %d %s %q\nwant %s %q", c.accept, w.Code, w.Header().Get("Content-Type"),
				w.Body, c.contentType, c.body)
		}
		cursor := ""
		if c.contentType == "application/bson" {
			cursor = "token"
		}
		if got := w.Header().Get("Mooring-Cursor"); got != cursor {
			t.Errorf("%s: Mooring-Cursor = %q, want %q", c.accept, got, cursor)
		}
		if got := w.Header().Get("Mooring-Session"); got != "renewed" {
			t.Errorf("%s: Mooring-Session = %q", c.accept, got)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control = %q", got)
		}
	}
}

func TestGetFind(t *testing.T) {
	var got *mooringv1.FindRequest
	h := newHandler(t, &fake{find: func(
		_ context.Context, r *mooringv1.FindRequest,
	) (*mooringv1.FindResponse, error) {
		got = r
		return &mooringv1.FindResponse{Documents: docs(t, `{"a": 1}`)}, nil
	}})
	url := documents +
		`?filter=%7B%22a%22%3A1%7D&sort=[[%22b%22,1]]&hint=%22a_1%22&limit=3&skip=0&batchSize=2&maxTimeMS=100` +
		`&comment=say+%22hi%22&readPreference=secondary&readConcern=local&timeout=5s&collation={%22locale%22:%22sv%22}`
	w := do(h, "GET", url, "")
	if w.Code != 200 || w.Body.String() != `{"documents":[{"a":1}]}` {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w.Header().Get("Cache-Control") != "private, no-cache" ||
		!strings.Contains(w.Header().Get("Vary"), "Accept") {
		t.Errorf("header = %v", w.Header())
	}
	comment, _ := (payload.Decoder{}).Value("", got.GetComment())
	text, _ := comment.Str()
	if canonical(t, got.GetFilter()) != `{"a":{"$numberInt":"1"}}` ||
		canonical(t, got.GetSort()) != `{"b":{"$numberInt":"1"}}` ||
		got.GetHint().GetName() != "a_1" || got.GetLimit() != 3 || got.Skip == nil ||
		got.GetBatchSize() != 2 || got.GetMaxTimeMs() != 100 ||
		text != `say "hi"` || got.GetReadPreference().GetMode() != "secondary" ||
		got.GetReadConcern().GetLevel() != "local" {
		t.Errorf("request = %v", got)
	}
	if w := do(h, "HEAD", documents, ""); w.Code != 200 ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
}

func TestOtherResponses(t *testing.T) {
	h := newHandler(t, &fake{
		aggregate: func(
			_ context.Context, r *mooringv1.AggregateRequest,
		) (*mooringv1.AggregateResponse, error) {
			if r.Collection != nil || len(r.GetPipeline()) != 2 {
				t.Errorf("request = %v", r)
			}
			return &mooringv1.AggregateResponse{}, nil
		},
		distinct: func(
			context.Context, *mooringv1.DistinctRequest,
		) (*mooringv1.DistinctResponse, error) {
			return &mooringv1.DistinctResponse{
				Values: []*mooringv1.Value{
					payload.NewValue(bson.NullValue()), payload.NewValue(bson.Int32Value(1)),
				},
			}, nil
		},
		count: func(
			context.Context, *mooringv1.CountDocumentsRequest,
		) (*mooringv1.CountDocumentsResponse, error) {
			return &mooringv1.CountDocumentsResponse{}, nil
		},
		runCommand: func(
			_ context.Context, r *mooringv1.RunCommandRequest,
		) (*mooringv1.RunCommandResponse, error) {
			if r.GetReadPreference().GetMode() != "primaryPreferred" {
				t.Errorf("request = %v", r)
			}
			return &mooringv1.RunCommandResponse{Reply: r.GetCommand()}, nil
		},
		insertMany: func(
			context.Context, *mooringv1.InsertManyRequest,
		) (*mooringv1.InsertManyResponse, error) {
			return &mooringv1.InsertManyResponse{
				Acknowledged: true, InsertedCount: new(int64(1)),
				InsertedIds: []*mooringv1.InsertedId{
					{Index: 0, Id: payload.NewValue(bson.StringValue("x"))},
				},
				WriteErrors: []*mooringv1.WriteError{
					{Index: 1, Code: 11000, Message: "dup \"key\"\n", KeyPattern: docs(t, `{"_id": 1}`)[0]},
				},
			}, nil
		},
	})
	for _, c := range []struct {
		url, body string
		code      int
		want      string
	}{
		{"/v1/databases/shop:aggregate", `{"pipeline": [{}, {}]}`, 200, `{"documents":[]}`},
		{documents + ":distinct", `{"fieldName": "a"}`, 200, `{"values":[null,1]}`},
		{documents + ":countDocuments", `{}`, 200, `{"count":0}`},
		{"/v1/databases/shop:runCommand", `{"command": {"ping": 1}, "readPreference": "primaryPreferred"}`, 200, `{"reply":{"ping":1}}`},
		{
			documents + ":insertMany", `{"documents": [{}, {}], "returnPartialSuccess": true}`, 207,
			`{"acknowledged":true,"insertedCount":1,"insertedIds":[{"index":0,"id":"x"}],` +
				`"writeErrors":[{"index":1,"code":11000,"message":"dup \"key\"\n","keyPattern":{"_id":1}}]}`,
		},
	} {
		w := do(h, "POST", c.url, c.body)
		if w.Code != c.code || w.Body.String() != c.want {
			t.Errorf("%s: %d %s\nwant %d %s", c.url, w.Code, w.Body, c.code, c.want)
		}
	}
}

// TestEmptyLists checks responses without documents, values, ids and errors. Empty lists of
// failures are left out; other empty lists are written.
func TestEmptyLists(t *testing.T) {
	h := newHandler(t, &fake{
		find: func(context.Context, *mooringv1.FindRequest) (*mooringv1.FindResponse, error) {
			return &mooringv1.FindResponse{}, nil
		},
		distinct: func(
			context.Context, *mooringv1.DistinctRequest,
		) (*mooringv1.DistinctResponse, error) {
			return &mooringv1.DistinctResponse{}, nil
		},
		insertMany: func(
			context.Context, *mooringv1.InsertManyRequest,
		) (*mooringv1.InsertManyResponse, error) {
			return &mooringv1.InsertManyResponse{Acknowledged: true}, nil
		},
	})
	for verb, want := range map[string]string{
		":find":       `{"documents":[]}`,
		":distinct":   `{"values":[]}`,
		":insertMany": `{"acknowledged":true,"insertedIds":[]}`,
	} {
		if w := do(h, "POST", documents+verb, `{}`); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %s, want %s", verb, w.Code, w.Body, want)
		}
	}
}

func TestFailures(t *testing.T) {
	var fail error
	h := newHandler(t, &fake{findOne: func(
		context.Context, *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		return nil, fail
	}})
	reply := ejson(t, `{"ok": 0, "keyPattern": {"_id": 1}}`)
	for _, c := range []struct {
		name       string
		err        error
		code       int
		status     string
		reason     string
		retryAfter string
	}{
		{"duplicate key", &mongoerr.CommandError{Code: 11000, Name: "DuplicateKey", Message: "E11000", Reply: reply}, 409, "ALREADY_EXISTS", "DuplicateKey", ""},
		{"refusal", &mongoerr.CommandError{Code: 121, Name: "DocumentValidationFailure"}, 422, "FAILED_PRECONDITION", "DocumentValidationFailure", ""},
		{"no server", &mongoerr.SelectionError{}, 503, "UNAVAILABLE", "NoSuitableServer", "1"},
		{"deadline", context.DeadlineExceeded, 504, "DEADLINE_EXCEEDED", "DeadlineExceeded", ""},
		{"malformed", &payload.Error{Field: "filter", Offset: 4, Problem: "x"}, 400, "INVALID_ARGUMENT", "MalformedDocument", ""},
		{"bug", errors.New("bug"), 500, "INTERNAL", "Internal", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fail = c.err
			w := do(h, "POST", documents+":findOne", `{}`, "Mooring-Request-Id", "my-id", "Accept",
				"application/ejson")
			e := errorOf(t, w.Code, w.Body.Bytes(), c.code)
			if e.Status != c.status || e.Reason != c.reason || e.RequestID != "my-id" ||
				w.Header().Get("Retry-After") != c.retryAfter {
				t.Errorf("error = %+v, Retry-After %q", e, w.Header().Get("Retry-After"))
			}
			if c.code == 409 &&
				(e.Server["code"] != 11000.0 ||
					fmt.Sprint(e.Server["keyPattern"]) != "map[_id:map[$numberInt:1]]" ||
					e.Server["writeErrors"] != nil) {
				t.Errorf("server = %v", e.Server)
			}
		})
	}
}

// Clients read the index of a write error, so index 0 is written, too.
func TestIndexesInFailures(t *testing.T) {
	h := newHandler(t, &fake{insertMany: func(
		context.Context, *mooringv1.InsertManyRequest,
	) (*mooringv1.InsertManyResponse, error) {
		return nil, &mongoerr.WriteException{
			WriteErrors: []mongoerr.WriteError{{Index: 0, Code: 11000, Message: "dup"}},
		}
	}})
	w := do(h, "POST", documents+":insertMany", `{"documents": [{}]}`)
	if want := `"writeErrors":[{"index":0,"code":11000,`; w.Code != 409 ||
		!strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s\nwant 409 and %s", w.Code, w.Body, want)
	}
	if strings.Contains(w.Body.String(), "truncated") ||
		strings.Contains(w.Body.String(), "labels") {
		t.Errorf("the error says what it has not: %s", w.Body)
	}
}

// TestLargeErrors checks an error with more than 20 KB of write errors. REST sends all of it. A
// gRPC status made of the same error is truncated and marked as truncated.
func TestLargeErrors(t *testing.T) {
	failed := &mongoerr.WriteException{}
	for i := range 200 {
		failed.WriteErrors = append(failed.WriteErrors, mongoerr.WriteError{
			Index: i, Code: 11000, Message: strings.Repeat("x", 100),
			Raw: ejson(t, `{"keyPattern": {"sku": 1}}`),
		})
	}
	h := newHandler(t, &fake{insertMany: func(
		context.Context, *mooringv1.InsertManyRequest,
	) (*mooringv1.InsertManyResponse, error) {
		return nil, failed
	}})
	w := do(h, "POST", documents+":insertMany", `{"documents": [{}]}`)
	e := errorOf(t, w.Code, w.Body.Bytes(), 409)
	if len(e.WriteErrors) != 200 || e.WriteErrors[199]["keyPattern"] == nil || e.Truncated ||
		w.Body.Len() < 20_000 || e.Code != int(codes.AlreadyExists) {
		t.Errorf("%d bytes, %d write errors, truncated %v, code %d", w.Body.Len(),
			len(e.WriteErrors), e.Truncated, e.Code)
	}
	cut := rpcerr.HTTP(rpcerr.Status(failed).Err()).Body.GetError()
	if size := proto.Size(rpcerr.Status(failed).Proto()); size >= 4096 || !cut.GetTruncated() ||
		len(cut.GetWriteErrors()) == 0 {
		t.Errorf("gRPC: %d bytes, %d write errors, truncated %v", size, len(cut.GetWriteErrors()),
			cut.GetTruncated())
	}
}

func TestContextOfHandlers(t *testing.T) {
	var deadline time.Duration
	var got []string
	h := newHandler(t, &fake{findOne: func(
		ctx context.Context, r *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		deadline = -1
		if d, ok := ctx.Deadline(); ok {
			deadline = time.Until(d)
		}
		got = []string{
			incoming(ctx, "authorization"), incoming(ctx, "idempotency-key"), call.LocalFrom(ctx).RequestID, incoming(ctx, "cookie"),
			incoming(ctx, "mooring-document-encoding"), r.GetSession(), r.GetTransaction(),
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs("mooring-transaction", "t", "other", "secret"))
		return &mooringv1.FindOneResponse{}, nil
	}})
	for _, c := range []struct {
		query     string
		header    []string
		low, high time.Duration
	}{
		{"", nil, -1, -1},
		{"?timeout=5s", nil, 4 * time.Second, 5 * time.Second},
		{"?timeout=1m", []string{"Request-Timeout", "10s", "Grpc-Timeout", "20S"}, 9 * time.Second, 10 * time.Second},
		{"", []string{"Grpc-Timeout", "3000m"}, 2 * time.Second, 3 * time.Second},
	} {
		do(h, "POST", documents+":findOne"+c.query, "", c.header...)
		if deadline < c.low || deadline > c.high {
			t.Errorf("%s %v: deadline in %v", c.query, c.header, deadline)
		}
	}
	w := do(h, "POST", documents+":findOne", "", "Authorization", "Bearer x", "Idempotency-Key",
		"k", "Mooring-Request-Id", "id", "Cookie", "c",
		"Mooring-Document-Encoding", "json", "Mooring-Session", "s", "Mooring-Transaction", "t",
		"Grpc-Metadata-Cookie", "d")
	if want := "|k|id|||s|t"; strings.Join(got, "|") != want {
		t.Errorf("metadata = %s, want %s", strings.Join(got, "|"), want)
	}
	if w.Header().Get("Mooring-Transaction") != "t" || w.Header().Get("Other") != "" ||
		w.Header().Get("Mooring-Request-Id") != "id" {
		t.Errorf("header = %v", w.Header())
	}
	if w := do(h, "POST", documents+":findOne", "", "Mooring-Request-Id", "a b"); w.Header().
		Get("Mooring-Request-Id") == "a b" {
		t.Error("an unsound request id was taken")
	}
}

func TestPages(t *testing.T) {
	h := newHandler(t, &fake{}, func(c *config) {
		c.REST.Ready = func(context.Context) error {
			return &rpcerr.Error{Reason: rpcerr.ShuttingDown, Message: "shutting down"}
		}
	})
	if w := do(h, "GET", "/healthz", ""); w.Code != 200 || w.Body.String() != `{"status":"ok"}` {
		t.Errorf("healthz: %d %s", w.Code, w.Body)
	}
	w := do(h, "GET", "/readyz", "")
	if e := errorOf(t, w.Code, w.Body.Bytes(), 503); e.Reason != "ShuttingDown" ||
		w.Header().Get("Retry-After") == "" {
		t.Errorf("readyz: %+v", e)
	}
	h = newHandler(t, &fake{}, func(c *config) {
		c.REST.Ready = func(context.Context) error { return errors.New("no server yet") }
	})
	w = do(h, "GET", "/readyz", "")
	if e := errorOf(t, w.Code, w.Body.Bytes(), 503); e.Message != "no server yet" {
		t.Errorf("readyz: %+v", e)
	}
	w = do(h, "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string
		Paths   map[string]any
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.OpenAPI != "3.1.0" ||
		doc.Paths["/v1/cursors:next"] == nil {
		t.Errorf("openapi.json: %v, %d paths, %v", doc.OpenAPI, len(doc.Paths), err)
	}
}

// TestEveryRouteHasAHandler calls each path of the description, which has all routes.
func TestEveryRouteHasAHandler(t *testing.T) {
	h := newHandler(t, &fake{})
	w := do(h, "GET", "/openapi.json", "")
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	n := 0
	for path, methods := range doc.Paths {
		path = strings.NewReplacer("{database}", "d", "{collection}", "c").Replace(path)
		for method := range methods {
			n++
			if strings.Contains(path, "{ticket}") {
				continue // a ticket comes before parameters: see TestTickets
			}
			// Refused by the parameter, after routing.
			kind := "application/json"
			if strings.HasSuffix(path, ":import") {
				kind = "application/x-ndjson"
			}
			w := do(h, strings.ToUpper(method), path+"?$nonsense=1", "{}", "Content-Type", kind)
			if e := errorOf(t, w.Code, w.Body.Bytes(), 400); e.Field != "$nonsense" {
				t.Errorf("%s %s: %+v", method, path, e)
			}
		}
	}
	if routes := rest.Templates(rest.New(rest.Config{})); n != len(routes) {
		t.Errorf("%d paths, and %d routes", n, len(routes))
	}
}

func TestLargeChunkOfDocuments(t *testing.T) {
	var body bytes.Buffer
	body.WriteString(`{"documents":[`)
	const n = 3000
	for i := range n {
		if i > 0 {
			body.WriteByte(',')
		}
		body.WriteString(`{"i":` + json.Number(itoa(i)).String() + `,"pad":"` +
			strings.Repeat("x", i%700) + `"}`)
	}
	body.WriteString(`]}`)
	h := newHandler(t, &fake{insertMany: func(
		_ context.Context, r *mooringv1.InsertManyRequest,
	) (*mooringv1.InsertManyResponse, error) {
		if len(r.GetDocuments()) != n {
			t.Errorf("%d documents", len(r.GetDocuments()))
		}
		for i, d := range r.GetDocuments() {
			v, _ := bson.Raw(d.GetBson()).Lookup("i")
			if got, _ := v.AsInt64(); got != int64(i) || bson.Raw(d.GetBson()).Validate() != nil {
				t.Fatalf("document %d is %d", i, got)
			}
		}
		return &mooringv1.InsertManyResponse{}, nil
	}})
	if w := do(h, "POST", documents+":insertMany", body.String()); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

func itoa(i int) string { b, _ := json.Marshal(i); return string(b) }

var _ http.Handler = (*front.Handler)(nil)

// The memory that a body of 64 MiB can take when it is decoded is limited, too.
func TestBodiesThatBecomeTooLarge(t *testing.T) {
	h := newHandler(t, &fake{})
	ones := "[" + strings.Repeat("1,", 2<<20) + "1]"
	for _, c := range []struct{ call, body, field string }{
		{":find", `{"filter": {"a": {"b": ` + ones + `}}}`, "filter.a.b"},
		{":find", `{"sort": [["a", ` + ones + `]]}`, "sort.0"},
		{":find", `{"comment": ` + ones + `}`, "comment"},
		{":insertMany", `{"documents": [{}, {"a": ` + ones + `}]}`, "documents.1.a"},
		{":insertMany", `{"documents": [` + strings.Repeat("{},", 1_000_000) + `{}]}`, "documents"},
	} {
		w := do(h, "POST", documents+c.call, c.body)
		if e := errorOf(t, w.Code, w.Body.Bytes(), 413); e.Reason != "TooLarge" ||
			e.Field != c.field {
			t.Errorf("%s %.30s…: %+v", c.call, c.body, e)
		}
	}
}
