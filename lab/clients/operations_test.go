package clients_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/gen/openapi"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// object represents a JSON object.
type object = map[string]any

// TestOperations calls every operation of openapi.json, with its example unless the table says
// otherwise, and checks the response against the operation's schema. It also checks three
// failures of each.
func TestOperations(t *testing.T) {
	replicaSet := newDeployment(t)
	replicaSet.Disturb(knowMore)
	g := suite.Start(t, replicaSet.URI(false, nil))
	d := newDescription(t)
	s := &scenario{t: t, d: d, g: g, vars: map[string]string{}, called: map[string]bool{}}
	for _, step := range story {
		s.run(step)
	}
	for _, id := range slices.Sorted(maps.Keys(d.operations)) {
		if !s.called[id] {
			t.Errorf("no step calls %s", id)
		}
		s.fail(id)
	}
}

// knowMore answers the commands that the scripted replica set does not know, in the servers' words.
func knowMore(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
	switch cmd.Name {
	case "explain":
		return reply(`{"queryPlanner": {"namespace": "shop.orders"}, "ok": 1}`)
	case "createSearchIndexes":
		return reply(`{"indexesCreated": [{"id": "6524", "name": "default"}], "ok": 1}`)
	case "updateSearchIndex", "dropSearchIndex":
		return reply(`{"ok": 1}`)
	case "aggregate":
		if _, lists := cmd.Body.Lookup("pipeline", "0", "$listSearchIndexes"); lists {
			return reply(`{"cursor": {"id": 0, "ns": "shop.orders",
				"firstBatch": [{"id": "6524", "name": "default", "queryable": true}]}, "ok": 1}`)
		}
	}
	return next(cmd)
}

func reply(json string) fakemongo.Reply {
	doc, err := extjson.Parse(nil, []byte(json))
	if err != nil {
		panic("bug: " + err.Error())
	}
	return fakemongo.Document(doc)
}

// step is one call of the story.
type step struct {
	id    string
	path  map[string]string // in place of the example's
	query string            // in place of the example's
	body  string            // in place of the example's; {name} is a variable
	keep  map[string]string // variables to set, from fields of the response
	// status is the status that is wanted; 0 means 200.
	status int
}

var audit = map[string]string{"collection": "audit"}

// story lists the calls in an order in which each finds what it needs.
var story = []step{
	{id: "insertMany", body: `{"documents": [{"_id": 1}, {"_id": 2, "status": "open"}, {"_id": 7, "total": 5},
		{"_id": 8, "status": "open", "total": 6}, {"_id": 9}, {"_id": 50, "status": "canceled"}]}`},
	{id: "findOne"},
	{id: "findOne", body: `{"filter": {"_id": -1}}`},
	{id: "find", body: `{"batchSize": 2}`, keep: map[string]string{"cursor": "cursor"}},
	{id: "listHandles", query: "namespace=shop.orders", keep: map[string]string{"handle": "handles.0.id"}},
	{id: "nextPage", body: `{"cursor": "{cursor}", "batchSize": 2}`, keep: map[string]string{"cursor": "cursor"}},
	{id: "streamCursor", body: `{"cursor": "{cursor}"}`},
	{id: "find", body: `{"batchSize": 2}`, keep: map[string]string{"cursor": "cursor"}},
	{id: "closeCursor", body: `{"cursor": "{cursor}"}`},
	{id: "find", body: `{"batchSize": 2}`},
	{id: "listHandles", query: "batchSize=1", keep: map[string]string{"handle": "handles.0.id"}},
	{id: "killHandle", body: `{"id": "{handle}"}`},
	{id: "killHandle", status: 404},
	{id: "explainPolicy"},
	{id: "findByQuery"},
	{id: "streamFind"},
	{id: "streamFind", body: `{"filter": {"$nonsense": 1}}`, status: 400},
	{id: "streamFindByQuery"},
	{id: "aggregate"},
	{id: "streamAggregate"},
	{id: "aggregateDatabase", body: `{"pipeline": [{"$changeStream": {}}], "batchSize": 1}`},
	{id: "streamAggregateDatabase"},
	{id: "distinct", body: `{"fieldName": "status"}`},
	{id: "countDocuments"},
	{id: "estimatedDocumentCount"},
	{id: "insertOne"},
	{id: "insertOne", body: `{"document": {"_id": 7}}`, status: 409},
	{id: "insertOne", body: `{"document": {"_id": 60}, "writeConcern": {"w": 0}}`},
	{id: "insertMany"},
	{id: "putDocument", status: 201},
	{id: "putDocument"},
	{id: "getDocument"},
	{id: "patchDocument"},
	{id: "deleteDocument", status: 204},
	{id: "deleteDocument", status: 404},
	{
		id: "insertMany", body: `{"documents": [{"_id": 7}, {"_id": 70}], "ordered": false, "returnPartialSuccess": true}`,
		status: 207,
	},
	{id: "insertMany", body: `{"documents": [{"_id": 71}, {"_id": 7}]}`, status: 409},
	{id: "updateOne"},
	{id: "updateOne", body: `{"filter": {"_id": 80}, "update": {"$set": {"a": 1}}, "upsert": true}`},
	{id: "updateMany"},
	{id: "replaceOne"},
	{id: "deleteOne"},
	{id: "deleteMany"},
	{id: "findOneAndUpdate"},
	{id: "findOneAndReplace"},
	{id: "findOneAndDelete"},
	{id: "explainFind"},
	{id: "explainAggregate"},
	{id: "explainAggregateDatabase"},
	{id: "bulkWrite"},
	{id: "bulkWrite", body: `{"models": [{"insertOne": {"document": {"_id": 7}}}]}`, status: 409},
	{id: "bulkWriteNamespaces"},
	{id: "bulkWriteNamespaces", body: `{"verboseResults": true, "models": [
		{"namespace": "shop.orders", "insertOne": {"document": {"_id": 1005}}},
		{"namespace": "shop.orders", "updateOne": {"filter": {"_id": 7}, "update": {"$set": {"a": 1}}}},
		{"namespace": "shop.orders", "deleteOne": {"filter": {"_id": 1005}}}]}`},
	{id: "importDocuments"},
	{id: "importDocuments", query: "returnPartialSuccess=true", status: 207},
	{id: "runCommand"},
	{id: "runCursorCommand"},
	{id: "streamRunCursorCommand", body: `{"command": {"find": "orders", "filter": {"_id": 7}}}`},
	{id: "listDatabases"},
	{id: "listCollections", query: "nameOnly=false"},
	{id: "createCollection", path: map[string]string{"collection": "capped"}},
	// The same options are not an error since MongoDB 7.0.
	{id: "createCollection", path: map[string]string{"collection": "capped"}},
	{id: "createCollection", path: map[string]string{"collection": "capped"}, body: `{}`, status: 409},
	{id: "collMod"},
	{id: "createIndexes"},
	{id: "listIndexes"},
	{id: "dropIndexes"},
	{id: "listSearchIndexes"},
	{id: "createSearchIndexes"},
	{id: "updateSearchIndex"},
	{id: "dropSearchIndex"},
	{id: "startSession", keep: map[string]string{"session": "session"}},
	{id: "findOne", body: `{"session": "{session}"}`},
	{id: "endSession", body: `{"session": "{session}"}`},
	{id: "beginTransaction", keep: map[string]string{"transaction": "transaction"}},
	{id: "insertOne", path: audit, body: `{"document": {"_id": 1}, "transaction": "{transaction}", "statement": 1}`},
	{id: "commitTransaction", body: `{"transaction": "{transaction}"}`},
	{id: "beginTransaction", keep: map[string]string{"transaction": "transaction"}},
	{id: "abortTransaction", body: `{"transaction": "{transaction}"}`},
	{id: "runTransaction"},
	{id: "runTransaction", body: `{"operations": [{"findOne": {"database": "shop", "collection": "none"},
		"expect": {"found": true}}]}`, status: 412},
	{id: "watchCollection"},
	{id: "watchCollectionByQuery"},
	{id: "watchDatabase"},
	{id: "watchDatabaseByQuery"},
	{id: "watchDeployment"},
	{id: "watchDeploymentByQuery"},
	{id: "live"},
	{id: "liveByQuery"},
	{id: "createTicket", keep: map[string]string{"ticket": "url"}},
	{id: "watchTicket"},
	{id: "getTopology"},
	{id: "watchTopology"},
	{id: "listPools"},
	{id: "listNotableCalls"},
	{id: "renameCollection", path: audit},
	{id: "dropCollection"},
	{id: "dropDatabase"},
}

// scenario runs the story.
type scenario struct {
	t      *testing.T
	d      *description
	g      *gatewaytest.Gateway
	vars   map[string]string
	called map[string]bool // successfully
}

// request makes the request of a step: what the step does not say is the operation's example.
func (s *scenario) request(ctx context.Context, step step) *http.Request {
	op := s.d.operations[step.id]
	if op == nil {
		s.t.Fatalf("there is no operation %s", step.id)
	}
	path, query := op.path, url.Values{}
	for _, p := range op.parameters {
		name, _ := p["name"].(string)
		text := ""
		switch example := exampleOf(p).(type) {
		case nil:
			continue
		case string:
			text = example
		default:
			b, err := json.Marshal(example)
			if err != nil {
				s.t.Fatal(err)
			}
			text = string(b)
		}
		if p["in"] == "query" {
			query.Set(name, text)
			continue
		}
		if given, ok := step.path[name]; ok {
			text = given
		}
		if name == "ticket" {
			text = strings.TrimPrefix(s.vars["ticket"], "/v1/changeStreams/")
		}
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(text))
	}
	raw := query.Encode()
	if step.query != "" {
		raw = step.query
	}
	kind, body := op.body()
	if step.body != "" {
		body = step.body
		for name, value := range s.vars {
			body = strings.ReplaceAll(body, "{"+name+"}", value)
		}
	}
	req, err := http.NewRequestWithContext(ctx, op.method, s.g.REST+path+"?"+raw,
		strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	} else {
		req.Body = nil
	}
	return req
}

// run makes the call of a step and checks the response.
func (s *scenario) run(step step) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	resp, err := http.DefaultClient.Do(s.request(ctx, step))
	if err != nil {
		s.t.Fatalf("%s: %v", step.id, err)
	}
	defer resp.Body.Close()
	status := step.status
	if status == 0 {
		status = http.StatusOK
	}
	media := s.d.response(s.t, step.id, resp)
	if resp.StatusCode != status {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		s.t.Errorf("%s answers %d, want %d: %s", step.id, resp.StatusCode, status, b)
		return
	}
	s.called[step.id] = true
	if media == "" {
		return
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-ndjson") {
		s.lines(step.id, media, resp.Body)
		return
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s: %v", step.id, err)
	}
	s.d.check(s.t, step.id, media+"/schema", body)
	for name, field := range step.keep {
		s.vars[name] = lookup(s.t, body, field)
	}
}

// lines checks the lines of a stream. That of changes has no end; its first line is enough.
func (s *scenario) lines(id string, media pointer, body io.Reader) {
	s.t.Helper()
	endless := strings.HasPrefix(id, "watch") || strings.HasPrefix(id, "live")
	scanner := bufio.NewScanner(body)
	for scanner.Scan() {
		s.d.check(s.t, id, media+"/schema/contentSchema", scanner.Bytes())
		if endless || bytes.HasPrefix(scanner.Bytes(), []byte(`{"end"`)) {
			return
		}
	}
	s.t.Errorf("%s: the stream has no end: %v", id, scanner.Err())
}

// fail makes calls that are refused before anything runs: an Accept that nothing matches, an
// unknown parameter, and a body of another type.
func (s *scenario) fail(id string) {
	s.t.Helper()
	op := s.d.operations[id]
	for want, spoil := range map[int]func(*http.Request){
		http.StatusNotAcceptable:        func(r *http.Request) { r.Header.Set("Accept", "image/png") },
		http.StatusBadRequest:           func(r *http.Request) { r.URL.RawQuery = "$nonsense=1" },
		http.StatusUnsupportedMediaType: func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
	} {
		if want == http.StatusUnsupportedMediaType && op.request == nil {
			continue
		}
		r := s.request(s.t.Context(), step{id: id})
		spoil(r)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			s.t.Fatalf("%s: %v", id, err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want {
			s.t.Errorf("%s answers %d, want %d: %s", id, resp.StatusCode, want, body)
			continue
		}
		s.d.check(s.t, id, s.d.response(s.t, id, resp)+"/schema", body)
	}
}

// TestExamplesFitTheirSchemas checks the examples in openapi.json.
func TestExamplesFitTheirSchemas(t *testing.T) {
	d := newDescription(t)
	bodies, examples := 0, 0
	for id, op := range d.operations {
		for code := range op.responses {
			at, resolved := d.resolve(op.at + "/responses/" + escape(code))
			content, _ := resolved["content"].(object)
			for kind, m := range content {
				media, _ := m.(object)
				example, ok := media["example"]
				if !ok {
					continue
				}
				examples++
				where := at + "/content/" + escape(kind)
				text, isLines := example.(string)
				if !isLines {
					d.checkValue(t, id, where+"/schema", example)
					continue
				}
				for line := range strings.Lines(text) {
					d.check(t, id, where+"/schema/contentSchema", []byte(line))
				}
			}
		}
		kind, body := op.body()
		if kind == "application/json" {
			bodies++
			d.check(t, id, op.at+"/requestBody/content/"+escape(kind)+"/schema", []byte(body))
		}
	}
	if bodies < 40 || examples < 1000 {
		t.Errorf("%d operations have %d bodies and %d examples", len(d.operations), bodies,
			examples)
	}
}

// pointer is a JSON pointer into openapi.json.
type pointer string

func escape(key string) pointer {
	return pointer(strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
}

// description is openapi.json, with its schemas.
type description struct {
	doc        object
	compiler   *jsonschema.Compiler
	compiled   map[pointer]*jsonschema.Schema
	operations map[string]*operation
}

type operation struct {
	at           pointer
	method, path string
	parameters   []object
	responses    object
	request      object
}

const document = "openapi.json"

func newDescription(t *testing.T) *description {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(openapi.JSON))
	if err != nil {
		t.Fatal(err)
	}
	d := &description{
		compiler: jsonschema.NewCompiler(), compiled: map[pointer]*jsonschema.Schema{},
		operations: map[string]*operation{},
	}
	d.doc, _ = parsed.(object)
	closeSchemas(d.doc["components"])
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(document, d.doc); err != nil {
		t.Fatal(err)
	}
	paths, _ := d.doc["paths"].(object)
	for path, methods := range paths {
		methods, _ := methods.(object)
		for method, v := range methods {
			of, _ := v.(object)
			op := &operation{
				at:     "/paths/" + escape(path) + "/" + pointer(method),
				method: strings.ToUpper(method), path: path,
			}
			op.responses, _ = of["responses"].(object)
			op.request, _ = of["requestBody"].(object)
			list, _ := of["parameters"].([]any)
			for i := range list {
				_, p := d.resolve(op.at + pointer(fmt.Sprintf("/parameters/%d", i)))
				op.parameters = append(op.parameters, p)
			}
			id, _ := of["operationId"].(string)
			d.operations[id] = op
		}
	}
	return d
}

// closeSchemas closes each schema that lists its properties. Clients ignore what they do not know,
// but the gateway must not send what is not described.
func closeSchemas(in any) {
	switch v := in.(type) {
	case object:
		_, isSchema := v["properties"].(object)
		if _, said := v["additionalProperties"]; isSchema && !said {
			v["additionalProperties"] = false
		}
		for key, value := range v {
			if key != "example" {
				closeSchemas(value)
			}
		}
	case []any:
		for _, value := range v {
			closeSchemas(value)
		}
	}
}

// resolve follows a reference, and returns where it leads and what is there.
func (d *description) resolve(at pointer) (pointer, object) {
	var here any = d.doc
	for part := range strings.SplitSeq(string(at[1:]), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v := here.(type) {
		case object:
			here = v[part]
		case []any:
			var i int
			_, _ = fmt.Sscan(part, &i)
			here = v[i]
		}
	}
	of, _ := here.(object)
	if ref, ok := of["$ref"].(string); ok {
		return d.resolve(pointer(strings.TrimPrefix(ref, "#")))
	}
	return at, of
}

// response returns where the media type of a response is described; nothing if it has no body.
func (d *description) response(t *testing.T, id string, resp *http.Response) pointer {
	t.Helper()
	op := d.operations[id]
	code := fmt.Sprint(resp.StatusCode)
	if op.responses[code] == nil {
		t.Errorf("%s answers %s, which is not described", id, code)
		code = "default"
	}
	at, described := d.resolve(op.at + "/responses/" + escape(code))
	names, _ := described["headers"].(object)
	for name := range resp.Header {
		ours := strings.HasPrefix(name, "Mooring-") || name == "Retry-After" ||
			name == "Www-Authenticate"
		if ours && !slices.ContainsFunc(slices.Collect(maps.Keys(names)), func(n string) bool {
			return strings.EqualFold(n, name)
		}) {
			t.Errorf("%s answers with the header %s, which is not described", id, name)
		}
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	content, _ := described["content"].(object)
	if content == nil && kind == "" {
		return ""
	}
	if content[kind] == nil {
		t.Errorf("%s answers with %s, which is not described", id, kind)
		return ""
	}
	return at + "/content/" + escape(kind)
}

func (d *description) check(t *testing.T, id string, at pointer, text []byte) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Errorf("%s: %v: %s", id, err, text)
		return
	}
	d.checkValue(t, id, at, value)
}

func (d *description) checkValue(t *testing.T, id string, at pointer, value any) {
	t.Helper()
	schema := d.compiled[at]
	if schema == nil {
		var err error
		fragment := (&url.URL{Fragment: string(at)}).EscapedFragment()
		if schema, err = d.compiler.Compile(document + "#" + fragment); err != nil {
			t.Errorf("%s: %v", at, err)
			return
		}
		d.compiled[at] = schema
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v\n%v", id, err, value)
	}
}

// body returns the media type and the example of the request's body.
func (op *operation) body() (kind, text string) {
	content, _ := op.request["content"].(object)
	for _, kind := range []string{"application/json", "application/x-ndjson"} {
		media, _ := content[kind].(object)
		switch example := media["example"].(type) {
		case nil:
		case string:
			return kind, example
		default:
			b, _ := json.Marshal(example)
			return kind, string(b)
		}
	}
	return "", ""
}

// exampleOf returns the example of a parameter.
func exampleOf(p object) any {
	if content, ok := p["content"].(object); ok {
		media, _ := content["application/json"].(object)
		return media["example"]
	}
	return p["example"]
}

// lookup returns a text in a JSON body: documents.0.id.
func lookup(t *testing.T, body []byte, path string) string {
	t.Helper()
	var here any
	if err := json.Unmarshal(body, &here); err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(path, ".") {
		switch v := here.(type) {
		case object:
			here = v[part]
		case []any:
			var i int
			if _, _ = fmt.Sscan(part, &i); i >= len(v) {
				t.Fatalf("there is no %s in %s", path, body)
			}
			here = v[i]
		}
	}
	text, ok := here.(string)
	if !ok {
		t.Fatalf("there is no %s in %s", path, body)
	}
	return text
}
