package rest_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/inproc"
)

// catcher is a handler of all services whose interceptor records a request and answers nothing.
type catcher struct {
	handler http.Handler
	request proto.Message
	local   call.Local
}

func newCatcher(tb testing.TB) *catcher {
	c := &catcher{}
	conn := inproc.NewConn(func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler,
	) (any, error) {
		c.request, _ = req.(proto.Message)
		c.local = call.LocalFrom(ctx)
		return nil, explain(errors.New("recorded"))
	}, nil)
	f := &fake{}
	mooringv1.RegisterCommandServiceServer(conn, f)
	mooringv1.RegisterDocumentServiceServer(conn, f)
	mooringv1.RegisterCursorServiceServer(conn, f)
	mooringv1.RegisterDeploymentServiceServer(conn, f)
	c.handler = newHandler(tb, f, func(config *config) { config.Conn = conn })
	return c
}

// builtCase is a request with documents. If path ends with "?" and a parameter of the query, the
// request is a GET and text the parameter; otherwise text is the body.
type builtCase struct {
	path, text string
	reaches    bool // the text is good, so that the request reaches the handler
}

// catch makes a request and returns the message that reaches the handler, or nil.
func (c *catcher) catch(path, text string) proto.Message {
	c.request = nil
	if path, parameter, isGet := strings.Cut(path, "?"); isGet {
		do(c.handler, "GET", path+"?"+url.Values{parameter: {text}}.Encode(), "")
	} else {
		do(c.handler, "POST", path, text)
	}
	return c.request
}

var builtCases = func() []builtCase {
	nested := func(n int, open, inner, closing string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(closing, n)
	}
	arrays := func(n int) string { return nested(n, "[", "", "]") }
	objects := func(n int) string { return nested(n, `{"a":`, "1", "}") }
	const everything = `{"a":1.5,"b":"é\u0000\ud83d\ude00","c":{},"d":[{"x":null},[]],` +
		`"e":{"$binary":{"base64":"AQID","subType":"02"}},"f":{"$oid":"56e1fc72e0c917e9c4714161"},` +
		`"g":true,"h":{"$date":"2012-12-24T12:15:30.501+01:00"},"j":{"$numberLong":"-5"},` +
		`"i":{"$regularExpression":{"pattern":"p","options":"xi"}},"k":{"$code":"f"},` +
		`"l":{"$scope":{"y":[1]},"$code":"g"},"m":{"$timestamp":{"t":1,"i":2}},"n":{"$minKey":1},` +
		`"o":{"$numberDecimal":"1E-6176"},"p":{"$uuid":"00112233-4455-6677-8899-aabbccddeeff"},` +
		`"q":{"$dbPointer":{"$ref":"r","$id":{"$oid":"56e1fc72e0c917e9c4714161"}}},` +
		`"r":{"$symbol":"s"},"s":{"$undefined":true},"t":{"$maxKey":1},"u":{"$numberDouble":"NaN"}}`
	const max = bson.MaxDepth
	return []builtCase{
		{documents + ":insertMany", `{"documents":[` + everything + `,{}]}`, true},
		{documents + ":insertMany", `{"documents":[` + objects(max) + `]}`, true},
		{documents + ":insertMany", `{"documents":[` + objects(max+1) + `]}`, false},
		{documents + ":insertMany", `{"documents":[{"a":` + arrays(max-1) + `}]}`, true},
		{documents + ":insertMany", `{"documents":[{"a":` + arrays(max) + `}]}`, false},
		{documents + ":insertMany", `{"documents":[{"a\u0000":1}]}`, false},
		{documents + ":insertMany", `{"documents":[{"a":"\xff"}]}`, false},
		{documents + ":insertMany", `{"documents":[{"a":"\ud83d"}]}`, false},
		{documents + ":insertMany", `{"documents":[{"$bson":"AAAA"}]}`, true},
		{documents + ":find", `{"filter":{"a":1},"sort":[["b",-1],["2",` + everything + `]],"hint":[["a",1]]}`, true},
		{documents + ":find", `{"sort":[["a",` + arrays(max-1) + `]]}`, true},
		{documents + ":find", `{"sort":[["a",` + arrays(max) + `]]}`, false},
		{documents + ":find", `{"sort":[["a",` + objects(max) + `]]}`, false},
		{documents + ":find", `{"sort":[["a\u0000",1]]}`, false},
		{documents + ":find", `{"comment":` + everything + `}`, true},
		{documents + ":find", `{"comment":"\u0000"}`, true},
		{documents + ":find", `{"comment":` + arrays(max-1) + `}`, true},
		{documents + ":find", `{"comment":` + arrays(max) + `}`, false},
		{documents + ":find", `{"comment":` + objects(max) + `}`, false},
		{documents + ":find", `{"filter":{"bson":"BQAAAAA="}}`, true},
		{documents + ":find", `{"filter":{"x":1}, "hint":{"name":"i"}, "collation":{"locale":"sv"}}`, true},
		{documents + ":aggregate", `{"pipeline":[{"$match":` + objects(max-1) + `},` + everything + `]}`, true},
		{documents + ":updateOne", `{"filter":{},"update":[{"$set":` + everything + `}],"arrayFilters":[{"x":1}]}`, true},
		{documents + ":updateOne", `{"filter":{},"update":{"$set":{"a":[[1]]}},"let":{"v":[]}}`, true},
		{documents + ":distinct", `{"fieldName":"a","filter":{"b":{"$in":[1,2]}}}`, true},
		{"/v1/databases/shop:runCommand", `{"command":{"insert":"a","documents":[` + everything + `]}}`, true},
		{documents + "?filter", objects(max), true},
		{documents + "?filter", objects(max + 1), false},
		{documents + "?sort", `[["a",` + arrays(max-1) + `]]`, true},
		{documents + "?sort", `[["a",` + arrays(max) + `]]`, false},
		{documents + "?hint", `[["a",1]]`, true},
		{documents + "?projection", everything, true},
		{documents + "?comment", "\xff", false},
	}
}()

// TestBuilt shows what lets handlers take BSON from REST as it is: each document and each value
// that reaches a handler is valid.
func TestBuilt(t *testing.T) {
	c := newCatcher(t)
	for _, row := range builtCases {
		m := c.catch(row.path, row.text)
		if (m != nil) != row.reaches {
			t.Errorf("%s %.80s reaches the handler: %v, want %v", row.path, row.text, m != nil,
				row.reaches)
		}
		if m == nil {
			continue
		}
		if n := checkBuilt(t, m.ProtoReflect()); n == 0 {
			t.Errorf("%s %.80s: no document", row.path, row.text)
		}
		if !c.local.Built {
			t.Errorf("%s %.80s: not built", row.path, row.text)
		}
	}
}

// FuzzBuilt does what TestBuilt does for any text and the paths of builtCases.
func FuzzBuilt(f *testing.F) {
	for i, row := range builtCases {
		f.Add(uint8(i), row.text)
	}
	c := newCatcher(f)
	f.Fuzz(func(t *testing.T, path uint8, text string) {
		if m := c.catch(builtCases[int(path)%len(builtCases)].path, text); m != nil {
			checkBuilt(t, m.ProtoReflect())
		}
	})
}

// checkBuilt checks every document and value in m, at any depth, and returns their number.
func checkBuilt(t *testing.T, m protoreflect.Message) (n int) {
	var raw bson.Raw
	switch m := m.Interface().(type) {
	case *mooringv1.Document:
		raw = m.GetBson()
	case *mooringv1.Value:
		raw = m.GetBson()
	default:
		m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case fd.Message() == nil || fd.IsMap():
			case fd.IsList():
				for i := range v.List().Len() {
					n += checkBuilt(t, v.List().Get(i).Message())
				}
			default:
				n += checkBuilt(t, v.Message())
			}
			return true
		})
		return n
	}
	if err := raw.Validate(); err != nil {
		t.Errorf("built %x: %v", []byte(raw), err)
	}
	return 1
}

// TestLocal checks what a handler learns of a request that is not metadata.
func TestLocal(t *testing.T) {
	c := newCatcher(t)
	for _, row := range []struct {
		method, accept string
		want           call.Local
	}{
		{"GET", "application/json", call.Local{Casual: true, Text: true}},
		{"GET", "application/bson", call.Local{Casual: true}},
		{"POST", "", call.Local{Text: true}},
		{"POST", "application/ejson", call.Local{Text: true}},
		{"POST", "application/bson", call.Local{}},
	} {
		row.want.RequestID, row.want.Built = "r1", true
		row.want.Client = netip.MustParseAddr("192.0.2.1") // of httptest's requests
		url := documents
		if row.method == "POST" {
			url += ":find"
		}
		c.local = call.Local{}
		do(c.handler, row.method, url, "", "Accept", row.accept, "Mooring-Request-Id", "r1",
			"Mooring-Casual", "x", "Mooring-Text", "x", "Mooring-Built", "x")
		if c.local.Lent == nil {
			t.Error("nothing says when the response is written")
		}
		if (c.local.Texts != nil) != row.want.Text {
			t.Errorf("%s as %q: texts: %v", row.method, row.accept, c.local.Texts)
		}
		c.local.Lent, c.local.Texts = nil, nil
		if c.local != row.want {
			t.Errorf("%s as %q: %+v, want %+v", row.method, row.accept, c.local, row.want)
		}
	}
}

// TestImportIsNotBuilt checks that the service validates the documents of an import, which REST
// passes on as the client has sent them.
func TestImportIsNotBuilt(t *testing.T) {
	for _, media := range []string{"application/bson", "application/x-ndjson"} {
		local := call.Local{Built: true}
		h := newImporter(t, func(ss importStream) error {
			local = call.LocalFrom(ss.Context())
			return ss.SendAndClose(&mooringv1.ImportResponse{})
		})
		if w := do(h, "POST", documents+":import", "", "Content-Type", media); w.Code != 200 ||
			local.Built {
			t.Errorf("%s: %d, %+v", media, w.Code, local)
		}
	}
}
