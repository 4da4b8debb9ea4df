package dataapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/dataapi"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// backend answers the calls of actions with one response or error, and records the last request.
type backend struct {
	mooringv1.UnimplementedDocumentServiceServer

	response any // the first message of a stream
	err      error
	more     []any  // the other messages of a stream
	rest     func() // before each of these, if it is not nil
	late     error  // ends a stream after its messages
	request  proto.Message
	who      string
	ended    bool // the handler of a stream
}

func answer[R any](ctx context.Context, b *backend, request proto.Message) (*R, error) {
	b.request = request
	if id := call.LocalFrom(ctx).Identity; id != nil {
		b.who = id.Principal
	}
	if b.err != nil {
		return nil, b.err
	}
	response, _ := b.response.(*R)
	return response, nil
}

func (b *backend) FindOne(
	ctx context.Context, r *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	return answer[mooringv1.FindOneResponse](ctx, b, r)
}

// send answers a call with a stream.
func send[M any](b *backend, request proto.Message, ss grpc.ServerStreamingServer[M]) error {
	defer func() { b.ended = true }()
	first, err := answer[M](ss.Context(), b, request)
	if err != nil {
		return err
	}
	if first != nil {
		err = ss.Send(first)
	}
	for _, m := range b.more {
		if b.rest != nil {
			b.rest()
		}
		if err == nil {
			err = ss.Send(m.(*M))
		}
	}
	if err == nil {
		err = b.late
	}
	return err
}

func (b *backend) StreamFind(
	r *mooringv1.StreamFindRequest, ss grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	return send(b, r, ss)
}

func (b *backend) StreamAggregate(
	r *mooringv1.StreamAggregateRequest,
	ss grpc.ServerStreamingServer[mooringv1.StreamAggregateResponse],
) error {
	return send(b, r, ss)
}

func (b *backend) InsertOne(
	ctx context.Context, r *mooringv1.InsertOneRequest,
) (*mooringv1.InsertOneResponse, error) {
	return answer[mooringv1.InsertOneResponse](ctx, b, r)
}

func (b *backend) InsertMany(
	ctx context.Context, r *mooringv1.InsertManyRequest,
) (*mooringv1.InsertManyResponse, error) {
	return answer[mooringv1.InsertManyResponse](ctx, b, r)
}

func (b *backend) UpdateOne(
	ctx context.Context, r *mooringv1.UpdateOneRequest,
) (*mooringv1.UpdateOneResponse, error) {
	return answer[mooringv1.UpdateOneResponse](ctx, b, r)
}

func (b *backend) UpdateMany(
	ctx context.Context, r *mooringv1.UpdateManyRequest,
) (*mooringv1.UpdateManyResponse, error) {
	return answer[mooringv1.UpdateManyResponse](ctx, b, r)
}

func (b *backend) ReplaceOne(
	ctx context.Context, r *mooringv1.ReplaceOneRequest,
) (*mooringv1.ReplaceOneResponse, error) {
	return answer[mooringv1.ReplaceOneResponse](ctx, b, r)
}

func (b *backend) DeleteOne(
	ctx context.Context, r *mooringv1.DeleteOneRequest,
) (*mooringv1.DeleteOneResponse, error) {
	return answer[mooringv1.DeleteOneResponse](ctx, b, r)
}

func (b *backend) DeleteMany(
	ctx context.Context, r *mooringv1.DeleteManyRequest,
) (*mooringv1.DeleteManyResponse, error) {
	return answer[mooringv1.DeleteManyResponse](ctx, b, r)
}

// newHandler returns the REST port with the API, for the data source main.
func newHandler(tb testing.TB, b *backend, change ...func(*front.Config)) http.Handler {
	tb.Helper()
	conn := inproc.NewConn(func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		response, err := handler(ctx, req)
		if err != nil {
			err = rpcerr.Explain(err, call.Call{})
		}
		return response, err
	}, func(
		srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		err := handler(srv, ss)
		if err != nil {
			err = rpcerr.Explain(err, call.Call{})
		}
		return err
	})
	mooringv1.RegisterDocumentServiceServer(conn, b)
	cfg := front.Config{
		Conn: conn, APIs: []front.API{
			dataapi.New(dataapi.Config{Sources: []string{"main", "mongodb-atlas"}}),
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	h, err := front.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// withKey makes clients need an API key, and returns one.
func withKey(tb testing.TB) (string, func(*front.Config)) {
	tb.Helper()
	key, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		tb.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		tb.Fatal(err)
	}
	return key, func(c *front.Config) { c.Callers = caller.New(caller.Config{Keys: keys}) }
}

const base = "/app/data-abcde/endpoint/data/v1/action/"

func post(h http.Handler, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			r.Header.Del(header[i])
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func document(tb testing.TB, text string) *mooringv1.Document {
	tb.Helper()
	raw, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return payload.NewDocument(raw)
}

// body returns the body of an action with these fields beside those that each has.
func body(fields string) string {
	return strings.TrimSuffix(`{"dataSource":"main","database":"shop","collection":"orders",`+
		fields, ",") + "}"
}

const (
	oid   = `{"$oid":"56e1fc72e0c917e9c4714161"}`
	plain = `"56e1fc72e0c917e9c4714161"`
)

func idValue(tb testing.TB) *mooringv1.Value {
	tb.Helper()
	v, _, err := extjson.ParseValue(nil, []byte(oid))
	if err != nil {
		tb.Fatal(err)
	}
	return payload.NewValue(v)
}

// actions has each action: a body, the request that it becomes, the service's response, and what
// clients get in both forms.
func actions(tb testing.TB) []struct {
	name, fields string
	response     any
	status       int
	json, ejson  string
	request      string
} {
	tb.Helper()
	doc := document(tb, `{"_id":`+oid+`,"n":1,"d":{"$date":"2026-11-01T15:16:20Z"}}`)
	const (
		docJSON  = `{"_id":` + plain + `,"n":1,"d":"2026-11-01T15:16:20.000Z"}`
		docEJSON = `{"_id":` + oid +
			`,"n":{"$numberInt":"1"},"d":{"$date":{"$numberLong":"1793546180000"}}}`
		shop = `database:"shop" collection:"orders" `
	)
	one := new(int64(1))
	return []struct {
		name, fields string
		response     any
		status       int
		json, ejson  string
		request      string
	}{
		{
			"findOne", `"filter":{"_id":` + oid + `},"projection":{"b":1,"a":1},"sort":{"x":-1},`, &mooringv1.FindOneResponse{Document: doc},
			200, `{"document":` + docJSON + `}`, `{"document":` + docEJSON + `}`,
			`filter {"_id":` + oid + `} projection {"b":{"$numberInt":"1"},"a":{"$numberInt":"1"}} sort {"x":{"$numberInt":"-1"}}`,
		},
		{
			"find", `"filter":{"a":1},"limit":2,"skip":{"$numberInt":"3"},"sort":null,`, &mooringv1.StreamFindResponse{Documents: []*mooringv1.Document{doc, doc}},
			200, `{"documents":[` + docJSON + `,` + docJSON + `]}`, `{"documents":[` + docEJSON + `,` + docEJSON + `]}`,
			`filter {"a":{"$numberInt":"1"}} skip 3 limit 2`,
		},
		{
			"insertOne", `"document":{"_id":` + oid + `},`, &mooringv1.InsertOneResponse{Acknowledged: true, InsertedId: idValue(tb)},
			201, `{"insertedId":` + plain + `}`, `{"insertedId":` + oid + `}`,
			`document {"_id":` + oid + `}`,
		},
		{
			"insertMany", `"documents":[{"a":1},{"a":2}],`, &mooringv1.InsertManyResponse{InsertedCount: new(int64(2)), InsertedIds: []*mooringv1.InsertedId{{Id: idValue(tb)}, {Index: 1, Id: idValue(tb)}}},
			201, `{"insertedIds":[` + plain + `,` + plain + `]}`, `{"insertedIds":[` + oid + `,` + oid + `]}`,
			`documents {"a":{"$numberInt":"1"}} {"a":{"$numberInt":"2"}}`,
		},
		{
			"updateOne", `"filter":{},"update":{"$set":{"a":1}},"upsert":true,`, &mooringv1.UpdateOneResponse{MatchedCount: new(int64(0)), ModifiedCount: new(int64(0)), UpsertedId: idValue(tb)},
			200, `{"matchedCount":0,"modifiedCount":0,"upsertedId":` + plain + `}`,
			`{"matchedCount":{"$numberInt":"0"},"modifiedCount":{"$numberInt":"0"},"upsertedId":` + oid + `}`,
			`filter {} upsert true`,
		},
		{
			"updateMany", `"filter":{},"update":[{"$set":{"a":1}}],`, &mooringv1.UpdateManyResponse{MatchedCount: new(int64(3000000000)), ModifiedCount: one},
			200, `{"matchedCount":3000000000,"modifiedCount":1}`, `{"matchedCount":{"$numberLong":"3000000000"},"modifiedCount":{"$numberInt":"1"}}`,
			`filter {}`,
		},
		{
			"replaceOne", `"filter":{"a":1},"replacement":{"a":2},"upsert":false,`, &mooringv1.ReplaceOneResponse{MatchedCount: one, ModifiedCount: one},
			200, `{"matchedCount":1,"modifiedCount":1}`, `{"matchedCount":{"$numberInt":"1"},"modifiedCount":{"$numberInt":"1"}}`,
			`filter {"a":{"$numberInt":"1"}} replacement {"a":{"$numberInt":"2"}} upsert false`,
		},
		{
			"deleteOne", `"filter":{"a":1},`, &mooringv1.DeleteOneResponse{DeletedCount: one},
			200, `{"deletedCount":1}`, `{"deletedCount":{"$numberInt":"1"}}`, `filter {"a":{"$numberInt":"1"}}`,
		},
		{
			"deleteMany", `"filter":{},`, &mooringv1.DeleteManyResponse{DeletedCount: new(int64(7))},
			200, `{"deletedCount":7}`, `{"deletedCount":{"$numberInt":"7"}}`, `filter {}`,
		},
		{
			"aggregate", `"pipeline":[{"$match":{}},{"$limit":1}],`, &mooringv1.StreamAggregateResponse{Documents: []*mooringv1.Document{doc}},
			200, `{"documents":[` + docJSON + `]}`, `{"documents":[` + docEJSON + `]}`,
			`pipeline {"$match":{}} {"$limit":{"$numberInt":"1"}}`,
		},
	}
}

// describe returns the fields of a request that the tables show.
func describe(tb testing.TB, m proto.Message) string {
	tb.Helper()
	var parts []string
	show := func(name string, docs ...*mooringv1.Document) {
		text := name
		for _, d := range docs {
			if d == nil {
				return
			}
			out, err := extjson.Append(nil, d.GetBson(), extjson.Canonical)
			if err != nil {
				tb.Fatal(err)
			}
			text += " " + string(out)
		}
		if len(docs) > 0 {
			parts = append(parts, text)
		}
	}
	if r, ok := m.(interface{ GetFilter() *mooringv1.Document }); ok {
		show("filter", r.GetFilter())
	}
	if r, ok := m.(interface{ GetProjection() *mooringv1.Document }); ok {
		show("projection", r.GetProjection())
	}
	if r, ok := m.(interface{ GetSort() *mooringv1.Document }); ok {
		show("sort", r.GetSort())
	}
	if r, ok := m.(interface{ GetDocument() *mooringv1.Document }); ok {
		show("document", r.GetDocument())
	}
	if r, ok := m.(interface{ GetDocuments() []*mooringv1.Document }); ok {
		show("documents", r.GetDocuments()...)
	}
	if r, ok := m.(interface{ GetPipeline() []*mooringv1.Document }); ok {
		show("pipeline", r.GetPipeline()...)
	}
	if r, ok := m.(interface{ GetReplacement() *mooringv1.Document }); ok {
		show("replacement", r.GetReplacement())
	}
	if r, ok := m.(*mooringv1.StreamFindRequest); ok {
		parts = append(parts, fmt.Sprintf("skip %d limit %d", r.GetSkip(), r.GetLimit()))
	}
	fields := m.ProtoReflect().Descriptor().Fields()
	if f := fields.ByName("upsert"); f != nil && m.ProtoReflect().Has(f) {
		parts = append(parts, fmt.Sprintf("upsert %v", m.ProtoReflect().Get(f).Bool()))
	}
	return strings.Join(parts, " ")
}

// TestActions checks each action in both forms: the request that the service gets, the status and
// the body.
func TestActions(t *testing.T) {
	for _, c := range actions(t) {
		for _, form := range []struct{ accept, contentType, want string }{
			{"application/json", "application/json", c.json},
			{"", "application/json", c.json},
			{"application/ejson", "application/ejson", c.ejson},
		} {
			t.Run(c.name+" "+form.accept, func(t *testing.T) {
				b := &backend{response: c.response}
				w := post(newHandler(t, b), base+c.name, body(c.fields), "Accept", form.accept)
				if w.Code != c.status || w.Header().Get("Content-Type") != form.contentType ||
					w.Body.String() != form.want {
					t.Errorf("%d %s %s\nwant %d %s %s", w.Code, w.Header().Get("Content-Type"),
						w.Body, c.status, form.contentType, form.want)
				}
				if b.request == nil {
					t.Fatal("the service got no request")
				}
				if got := describe(t, b.request); got != c.request {
					t.Errorf("request %s\nwant %s", got, c.request)
				}
				if r, ok := b.request.(interface{ GetDatabase() string }); !ok ||
					r.GetDatabase() != "shop" {
					t.Errorf("database of %v", b.request)
				}
				if r, ok := b.request.(interface{ GetCollection() string }); !ok ||
					r.GetCollection() != "orders" {
					t.Errorf("collection of %v", b.request)
				}
			})
		}
	}
}

// failure is the body of an error.
type failure struct {
	Error string `json:"error"`
	Code  string `json:"error_code"`
	Link  string `json:"link"`
}

// TestFailures checks each error of each action, in both forms.
func TestFailures(t *testing.T) {
	key, keyed := withKey(t)
	b := &backend{}
	handlers := map[bool]http.Handler{false: newHandler(t, b), true: newHandler(t, b, keyed)}
	duplicate := &mongoerr.WriteException{
		WriteErrors: []mongoerr.WriteError{{Code: 11000, Message: "E11000 duplicate key"}},
	}
	for _, a := range actions(t) {
		good := body(a.fields)
		for _, c := range []struct {
			name, path, body string
			header           []string
			err              error // of the service
			keyed            bool
			status           int
			code, text       string
		}{
			{"no credential", base + a.name, good, nil, nil, true, 400, "InvalidParameter", "no authentication methods were specified"},
			{"email and password", base + a.name, good, []string{"email", "a@b", "password", "x"}, nil, true, 400, "MissingParameter", "email and password are not offered"},
			{"wrong key", base + a.name, good, []string{"api-key", "x"}, nil, true, 401, "InvalidSession", "invalid session"},
			{"wrong token", base + a.name, good, []string{"jwtTokenString", "x"}, nil, true, 401, "InvalidSession", "invalid session"},
			{"wrong bearer beside a right key", base + a.name, good, []string{"Authorization", "Bearer x", "apiKey", key}, nil, true, 401, "InvalidSession", "invalid session"},
			{"another origin", base + a.name, good, []string{"apiKey", key, "Sec-Fetch-Site", "cross-site"}, nil, true, 403, "CrossOrigin", "another origin"},
			{"policy", base + a.name, good, nil, &rpcerr.Error{Reason: rpcerr.PolicyRefused, Message: "no"}, false, 403, "NoMatchingRuleFound", "no"},
			{"rights of the server", base + a.name, good, nil, &mongoerr.CommandError{Code: 13, Name: "Unauthorized"}, false, 403, "NoMatchingRuleFound", ""},
			{"unknown action", base + a.name + "s", good, nil, nil, false, 404, "FunctionNotFound", "the actions are aggregate, deleteMany"},
			{"unknown version", "/app/x/endpoint/data/v2/action/" + a.name, good, nil, nil, false, 404, "FunctionNotFound", ""},
			{"quota", base + a.name, good, nil, &admission.Error{Cause: admission.OwnShare, What: "calls"}, false, 429, "TooManyRequests", "share"},
			{"overload", base + a.name, good, nil, &admission.Error{Cause: admission.Full, What: "calls"}, false, 503, "Overloaded", ""},
			{"database error", base + a.name, good, nil, &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "unknown operator"}, false, 400, "BadValue", "unknown operator"},
			{"no such namespace", base + a.name, good, nil, &mongoerr.CommandError{Code: 26, Name: "NamespaceNotFound"}, false, 400, "NamespaceNotFound", ""},
			{"duplicate key", base + a.name, good, nil, duplicate, false, 400, "DuplicateKey", "E11000"},
			{"deadline", base + a.name, good, nil, context.DeadlineExceeded, false, 504, "DeadlineExceeded", ""},
			{"no body", base + a.name, "", nil, nil, false, 400, "InvalidParameter", "not a JSON object"},
			{"malformed body", base + a.name, good[:len(good)-1], nil, nil, false, 400, "InvalidParameter", "expected"},
			{"text after the body", base + a.name, good + "{}", nil, nil, false, 400, "InvalidParameter", "unexpected text"},
			{"unknown field", base + a.name, body(a.fields + `"hint":{},`), nil, nil, false, 400, "InvalidParameter", "hint: this action does not have this field"},
			{"field twice", base + a.name, body(a.fields + `"database":"x",`), nil, nil, false, 400, "InvalidParameter", "database: the field is repeated"},
			{"field of another type", base + a.name, strings.Replace(good, `"shop"`, `7`, 1), nil, nil, false, 400, "InvalidParameter", "database: expected a string"},
			{"unknown data source", base + a.name, strings.Replace(good, `"main"`, `"Cluster0"`, 1), nil, nil, false, 400, "InvalidParameter", "known are main, mongodb-atlas"},
			{"unknown data source", base + a.name, strings.Replace(good, `"dataSource":"main",`, ``, 1), nil, nil, false, 400, "MissingParameter", "dataSource: this field is required"},
			{"no database", base + a.name, strings.Replace(good, `"database":"shop",`, ``, 1), nil, nil, false, 400, "MissingParameter", "database: this field is required"},
			{"null for a collection", base + a.name, strings.Replace(good, `"orders"`, `null`, 1), nil, nil, false, 400, "MissingParameter", "collection: this field is required"},
			{"form without a credential", base + a.name, good, []string{"Content-Type", "application/x-www-form-urlencoded"}, nil, false, 400, "InvalidParameter", "Content-Type"},
			{"no type without a credential", base + a.name, good, []string{"Content-Type", ""}, nil, false, 400, "InvalidParameter", "Content-Type"},
			{"another type", base + a.name, good, []string{"Content-Type", "application/xml", "api-key", key}, nil, true, 400, "InvalidParameter", "Content-Type"},
			{"another charset", base + a.name, good, []string{"Content-Type", "application/json; charset=latin1"}, nil, false, 400, "InvalidParameter", "UTF-8"},
			{"compressed body", base + a.name, good, []string{"Content-Encoding", "gzip"}, nil, false, 400, "InvalidParameter", "Content-Encoding"},
			{"wrong timeout", base + a.name, good, []string{"Request-Timeout", "soon"}, nil, false, 400, "InvalidParameter", "Request-Timeout"},
		} {
			for _, accept := range []string{"application/json", "application/ejson"} {
				t.Run(a.name+"/"+c.name+"/"+accept, func(t *testing.T) {
					b.response, b.err, b.request = a.response, c.err, nil
					w := post(handlers[c.keyed], c.path, c.body,
						append([]string{"Accept", accept}, c.header...)...)
					var got failure
					if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
						t.Fatalf("%v: %s", err, w.Body)
					}
					if w.Code != c.status || got.Code != c.code ||
						!strings.Contains(got.Error, c.text) || got.Link == "" {
						t.Errorf("%d %s\nwant %d %s %q", w.Code, w.Body, c.status, c.code, c.text)
					}
					if hasChallenge := w.Header().
						Get("Www-Authenticate") != ""; hasChallenge != (w.Code == 401) {
						t.Errorf("Www-Authenticate = %q of a %d",
							w.Header().Get("Www-Authenticate"), w.Code)
					}
					if c.err == nil && b.request != nil {
						t.Error("the service was called")
					}
				})
			}
		}
	}
}

// TestLegacyForms checks that older spellings of dates and binaries become what the usual ones do:
// the Atlas Data API took them.
func TestLegacyForms(t *testing.T) {
	const date, binary = `{"$date":{"$numberLong":"1762732800000"}}`,
		`{"$binary":{"base64":"AQID","subType":"05"}}`
	for legacy, usual := range map[string]string{
		`{"$date":1762732800000}`:                      date,
		`{"$date":"2025-11-10T00:00:00.000123+00:00"}`: date, // Python's isoformat
		`{"$date":"2025-11-10T01:00:00+0100"}`:         date,
		`{"$binary":"AQID","$type":"05"}`:              binary,
	} {
		for _, field := range []struct{ action, before, after, want string }{
			{"insertOne", `"document":{"a":`, `}`, `document {"a":` + usual + `}`},
			{"insertMany", `"documents":[{"a":[`, `]}]`, `documents {"a":[` + usual + `]}`},
			{"find", `"filter":{"a":{"$gt":`, `}}`, `filter {"a":{"$gt":` + usual + `}}`},
		} {
			b := &backend{}
			w := post(newHandler(t, b), "/action/"+field.action,
				body(field.before+legacy+field.after+","))
			if b.request == nil || !strings.Contains(describe(t, b.request), field.want) {
				t.Errorf("%s of %s: %d %s, %v", field.action, legacy, w.Code, w.Body, b.request)
			}
		}
	}
}

// TestFieldFailures checks the errors of single fields.
func TestFieldFailures(t *testing.T) {
	for _, c := range []struct{ action, fields, code, text string }{
		{"insertOne", ``, "MissingParameter", "document"},
		{"insertMany", ``, "MissingParameter", "documents"},
		{"insertMany", `"documents":[],`, "InvalidParameter", "documents: must have at least one"},
		{"insertMany", `"documents":[{},1],`, "InvalidParameter", "documents.1: expected an object"},
		{"insertMany", `"documents":{},`, "InvalidParameter", "documents: expected an array"},
		{"insertMany", `"documents":[{} {}],`, "InvalidParameter", "documents: expected"},
		{"updateOne", `"filter":{},`, "MissingParameter", "update"},
		{"updateOne", `"update":{},`, "MissingParameter", "filter"},
		{"updateOne", `"filter":{},"update":"x",`, "InvalidParameter", "update: expected an object"},
		{"updateOne", `"filter":{},"update":{},"upsert":1,`, "InvalidParameter", "upsert: expected true or false"},
		{"replaceOne", `"filter":{},`, "MissingParameter", "replacement"},
		{"deleteMany", ``, "MissingParameter", "filter"},
		{"aggregate", ``, "MissingParameter", "pipeline"},
		{"find", `"limit":50001,`, "InvalidParameter", "limit: must be a number from 1 to 50000"},
		{"find", `"limit":-1,`, "InvalidParameter", "limit: must be"},
		{"find", `"limit":"many",`, "InvalidParameter", "limit: expected an integer"},
		{"find", `"filter":{"a":{"$oid":"x"}},`, "InvalidParameter", "filter.a: malformed Extended JSON"},
		{"findOne", `"limit":1,`, "InvalidParameter", "limit: this action does not have this field"},
	} {
		w := post(newHandler(t, &backend{}), "/action/"+c.action, body(c.fields))
		var got failure
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 400 ||
			got.Code != c.code || !strings.HasPrefix(got.Error, c.text) {
			t.Errorf("%s %s: %d %s, want %s %q", c.action, c.fields, w.Code, w.Body, c.code, c.text)
		}
	}
}

// TestPreconditions checks that an action is refused, and not run, with a header that could exclude
// it, or have it run elsewhere.
func TestPreconditions(t *testing.T) {
	for _, name := range []string{
		"If-Match", "If-None-Match", "If-Unmodified-Since", "Mooring-Session",
		"Mooring-Transaction",
	} {
		for _, action := range []string{"updateOne", "deleteMany", "find"} {
			b := &backend{}
			w := post(newHandler(t, b), "/action/"+action, body(`"filter":{},`), name, `"a"`)
			var got failure
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 400 ||
				got.Code != "InvalidParameter" || !strings.HasPrefix(got.Error, name+": ") ||
				b.request != nil {
				t.Errorf("%s with %s: %d %s, called %v", action, name, w.Code, w.Body, b.request)
			}
		}
	}
}

// TestCredentials checks where credentials may be, and that one in a header allows a form and a
// missing type.
func TestCredentials(t *testing.T) {
	key, keyed := withKey(t)
	for _, header := range [][]string{
		{"Authorization", "Bearer " + key},
		{"apiKey", key},
		{"api-key", key},
		{"jwtTokenString", key},
		{"apiKey", key, "jwtTokenString", "wrong"},
		{"apiKey", key, "Content-Type", ""},
		{"apiKey", key, "Content-Type", "text/plain;charset=UTF-8"},
		{"jwtTokenString", key, "Content-Type", "application/x-www-form-urlencoded"},
		{"apiKey", key, "Content-Type", "application/ejson"},
	} {
		b := &backend{response: &mooringv1.FindOneResponse{}}
		w := post(newHandler(t, b, keyed), "/app/any/endpoint/data/beta/action/findOne", body(``),
			header...)
		if w.Code != 200 || w.Body.String() != `{"document":null}` || b.who != "key:shop" {
			t.Errorf("%v: %d %s as %q", header, w.Code, w.Body, b.who)
		}
	}
}

// TestOtherRequests checks what is not an action, and the other status of inserts.
func TestOtherRequests(t *testing.T) {
	h := newHandler(t, &backend{response: &mooringv1.InsertOneResponse{InsertedId: idValue(t)}},
		func(
			c *front.Config,
		) {
			c.APIs = []front.API{
				dataapi.New(dataapi.Config{Sources: []string{"main"}, InsertStatus: 200}),
			}
		})
	if w := post(h, base+"insertOne", body(`"document":{},`)); w.Code != 200 {
		t.Errorf("insertOne: %d, want 200", w.Code)
	}
	for path, want := range map[string]int{
		"/app/": 404, "/app/x": 404, "/action/": 404, "/action/find/x": 404, "/app//endpoint/data/v1/action/find": 404, "/action/find": 405, "/actions": 404,
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want || (want == 405) != (w.Header().Get("Allow") == "POST") {
			t.Errorf("GET %s: %d %s, want %d", path, w.Code, w.Header().Get("Allow"), want)
		}
	}
}

// TestLimits checks that a body over the limit is refused, and that one at the limit is not.
func TestLimits(t *testing.T) {
	good := body(`"filter":{},`)
	b := &backend{response: &mooringv1.FindOneResponse{}}
	h := newHandler(t, b, func(c *front.Config) { c.MaxBodyBytes = int64(len(good)) })
	for text, want := range map[string]string{good: "", good + " ": "TooLarge"} {
		w := post(h, base+"findOne", text)
		var got failure
		err := json.Unmarshal(w.Body.Bytes(), &got)
		if err != nil || got.Code != want || (w.Code == 200) != (want == "") {
			t.Errorf("%d bytes: %d %s, %v, want %q", len(text), w.Code, w.Body, err, want)
		}
	}
}

// TestStreams checks that all messages of a stream are one response, up to the limit, and that the
// stream has ended then.
func TestStreams(t *testing.T) {
	docs := func(from, to int) (list []*mooringv1.Document) {
		for i := from; i < to; i++ {
			list = append(list,
				payload.NewDocument(bson.NewBuilder(nil).Int32("n", int32(i)).Finish()))
		}
		return list
	}
	found := func(from, to int) *mooringv1.StreamFindResponse {
		return &mooringv1.StreamFindResponse{Documents: docs(from, to)}
	}
	aggregated := func(from, to int) *mooringv1.StreamAggregateResponse {
		return &mooringv1.StreamAggregateResponse{Documents: docs(from, to)}
	}
	read := func(w *httptest.ResponseRecorder) (n int, end int) {
		var got struct {
			Documents []struct {
				N int `json:"n"`
			} `json:"documents"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v", err)
		}
		for i, d := range got.Documents {
			if d.N != i {
				t.Fatalf("document %d is %d", i, d.N)
			}
		}
		return len(got.Documents), w.Code
	}
	b := &backend{response: found(0, 10), more: []any{found(10, 10), found(10, 30)}}
	if n, code := read(post(newHandler(t, b), base+"find", body(``))); n != 30 || code != 200 ||
		!b.ended {
		t.Errorf("find: %d documents, %d, ended %t", n, code, b.ended)
	}
	if limit := b.request.(*mooringv1.StreamFindRequest).GetLimit(); limit != 1000 {
		t.Errorf("limit = %d, want 1000", limit)
	}
	b = &backend{}
	if n, code := read(post(newHandler(t, b), base+"find", body(``))); n != 0 || code != 200 {
		t.Errorf("find without a result: %d documents, %d", n, code)
	}
	b = &backend{response: aggregated(0, 30_000), more: []any{
		aggregated(30_000, 60_000), aggregated(60_000, 90_000),
	}}
	if n, code := read(post(newHandler(t, b), base+"aggregate",
		body(`"pipeline":[],`))); n != 50_000 || code != 200 || !b.ended {
		t.Errorf("aggregate: %d documents, %d, ended %t", n, code, b.ended)
	}
	// A failure before anything is sent is an error; one after that ends the connection.
	b = &backend{response: found(0, 10), late: &mongoerr.SelectionError{}}
	if w := post(newHandler(t, b), base+"find", body(``)); w.Code != 503 || !b.ended {
		t.Errorf("a stream that fails: %d %s, ended %t", w.Code, w.Body, b.ended)
	}
	b = &backend{response: found(0, 40_000), late: &mongoerr.SelectionError{}}
	defer func() {
		if r := recover(); r != http.ErrAbortHandler || !b.ended { //nolint:errorlint // as net/http compares it
			t.Errorf("a stream that fails late: %v, ended %t", r, b.ended)
		}
	}()
	post(newHandler(t, b), base+"find", body(`"limit":50000,`))
}

// FuzzBody sends any body to each action. None is a server error, and none panics.
// deadlines records until when the client must take what is written.
type deadlines struct {
	*httptest.ResponseRecorder
	at   time.Time
	many int
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.at = t
	d.many++
	return nil
}

// TestNoDeadlineBetweenMessages checks that a response that waits for the next documents has no
// write deadline, which would end it over HTTP/2.
func TestNoDeadlineBetweenMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := document(t, `{"a":"`+strings.Repeat("x", 300<<10)+`"}`)
		found := &mooringv1.StreamFindResponse{Documents: []*mooringv1.Document{large}}
		client := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		rests := 0
		b := &backend{response: found, more: []any{found, found}, rest: func() {
			synctest.Wait() // until what has come is written
			if rests++; !client.at.IsZero() {
				t.Errorf("rest %d: the deadline is in %v", rests, time.Until(client.at))
			}
		}}
		h := newHandler(t, b, func(c *front.Config) {
			c.Admission = admission.New(admission.Config{})
		})
		r := httptest.NewRequest(http.MethodPost, base+"find", strings.NewReader(body(``)))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(client, r)
		if client.Code != 200 || rests != 2 || client.many < 6 {
			t.Errorf("%d, %d rests, %d deadlines", client.Code, rests, client.many)
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, a := range actions(f) {
		f.Add(a.name, []byte(body(a.fields)))
	}
	f.Add("find",
		[]byte(`{"dataSource":"main","database":"\ud83d","collection":"c","filter":{"a":{"$date":"x"}}}`))
	b := &backend{}
	h := newHandler(f, b)
	f.Fuzz(func(t *testing.T, action string, text []byte) {
		b.response = nil
		for _, a := range actions(t) {
			if a.name == action {
				b.response = a.response
			}
		}
		w := post(h, "/action/find", string(text))
		if b.response != nil {
			w = post(h, "/action/"+action, string(text))
		}
		if w.Code >= 500 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %q: %d %s", action, text, w.Code, w.Body)
		}
	})
}
