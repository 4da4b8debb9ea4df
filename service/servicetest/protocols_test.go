package servicetest_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/dataapi"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/servicetest"
	"github.com/mooringdb/mooring/service/web"
)

// handler returns what serves REST, the Data API, Connect and gRPC-Web.
func handler(t *testing.T, g *servicetest.Gateway, a *admission.Admission) *front.Handler {
	t.Helper()
	var services []string
	for _, rpc := range methods() {
		services = append(services, string(rpc.Parent().FullName()))
	}
	browsers, err := web.New(web.Config{Services: slices.Compact(services)})
	if err != nil {
		t.Fatal(err)
	}
	h, err := front.New(front.Config{
		Conn: g.Local, Admission: a, APIs: []front.API{
			browsers, dataapi.New(dataapi.Config{Sources: []string{"main"}}), rest.New(rest.Config{}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// paths has the RPCs whose paths on REST are not annotations.
var paths = map[protoreflect.FullName][2]string{
	"mooring.v1.DocumentResourceService.GetDocument":    {http.MethodGet, "documents/1"},
	"mooring.v1.DocumentResourceService.PutDocument":    {http.MethodPut, "documents/1"},
	"mooring.v1.DocumentResourceService.PatchDocument":  {http.MethodPatch, "documents/1"},
	"mooring.v1.DocumentResourceService.DeleteDocument": {http.MethodDelete, "documents/1"},
	"mooring.v1.DocumentService.Import":                 {http.MethodPost, "documents:import"},
}

// variable matches a variable of a path.
var variable = regexp.MustCompile(`\{[^}]*\}`)

// restRequest returns a call of an RPC on REST, nil if there is none.
func restRequest(rpc protoreflect.MethodDescriptor, m proto.Message) *http.Request {
	method, path := "", ""
	body := inPlace(m.ProtoReflect())
	if own, ok := paths[rpc.FullName()]; ok {
		method, path = own[0], "/v1/databases/d/collections/c/"+own[1]
		body = only(body)
	} else {
		rule, _ := proto.GetExtension(rpc.Options(), annotations.E_Http).(*annotations.HttpRule)
		for _, of := range [][2]string{
			{http.MethodPost, rule.GetPost()},
			{http.MethodGet, rule.GetGet()},
			{http.MethodPut, rule.GetPut()},
			{http.MethodPatch, rule.GetPatch()},
			{http.MethodDelete, rule.GetDelete()},
		} {
			if path == "" {
				method, path = of[0], variable.ReplaceAllString(of[1], "x")
			}
		}
	}
	if path == "" {
		return nil
	}
	text, content := encoded(body), "application/json"
	switch {
	case rpc.IsStreamingClient():
		content = "application/x-ndjson"
	case method == http.MethodGet || method == http.MethodDelete:
		text = nil
	}
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, bytes.NewReader(text))
	r.Header.Set("Content-Type", content)
	return r
}

// dataAPIRequest returns a call of an RPC in the Data API, nil if there is none.
func dataAPIRequest(rpc protoreflect.MethodDescriptor, m proto.Message) *http.Request {
	if !actions[rpc.FullName()] {
		return nil
	}
	body, _ := inPlace(m.ProtoReflect()).(map[string]any)
	body["dataSource"], body["database"], body["collection"] = "main", "d", "c"
	if rpc.Name() == "Aggregate" && body["pipeline"] == nil {
		body["pipeline"] = []any{}
	}
	action := strings.ToLower(string(rpc.Name()[:1])) + string(rpc.Name()[1:])
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/action/"+action,
		bytes.NewReader(encoded(body)))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// actions has the RPCs that are actions of the Data API.
var actions = map[protoreflect.FullName]bool{
	"mooring.v1.DocumentService.Aggregate":  true,
	"mooring.v1.DocumentService.DeleteMany": true,
	"mooring.v1.DocumentService.DeleteOne":  true,
	"mooring.v1.DocumentService.Find":       true,
	"mooring.v1.DocumentService.FindOne":    true,
	"mooring.v1.DocumentService.InsertMany": true,
	"mooring.v1.DocumentService.InsertOne":  true,
	"mooring.v1.DocumentService.ReplaceOne": true,
	"mooring.v1.DocumentService.UpdateMany": true,
	"mooring.v1.DocumentService.UpdateOne":  true,
}

// inPlace returns a message as REST has it: documents and the choices of some fields stand in their
// places, and what the path names is left out.
func inPlace(m protoreflect.Message) any {
	fields := map[string]any{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "database" || f.Name() == "collection":
		case f.Message() == nil:
			fields[f.JSONName()] = v.Interface()
		case f.IsMap():
		case f.IsList():
			all := []any{}
			for i := range v.List().Len() {
				all = append(all, inPlace(v.List().Get(i).Message()))
			}
			fields[f.JSONName()] = all
		default:
			fields[f.JSONName()] = inPlace(v.Message())
		}
		return true
	})
	switch m.Descriptor().Name() {
	case "Document", "Value":
		text, _ := fields["json"].(string)
		return json.RawMessage(cmp.Or(text, "null"))
	case "Update", "Pipeline", "Hint", "W":
		return only(fields)
	}
	return fields
}

// only returns the one field of a body that is no more than that; of another body, all of it.
func only(body any) any {
	fields, _ := body.(map[string]any)
	for _, one := range fields {
		if len(fields) == 1 {
			return one
		}
	}
	return body
}

func encoded(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return text
}

// connectRequest returns a call in the protocol of Connect.
func connectRequest(rpc protoreflect.MethodDescriptor, m proto.Message) *http.Request {
	text, err := protojson.Marshal(m)
	if err != nil {
		panic(err)
	}
	if rpc.IsStreamingClient() || rpc.IsStreamingServer() {
		return browserRequest(rpc, "application/connect+json", envelope(text))
	}
	return browserRequest(rpc, "application/json", text)
}

// webRequest returns a call of gRPC-Web.
func webRequest(rpc protoreflect.MethodDescriptor, m proto.Message) *http.Request {
	message, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return browserRequest(rpc, "application/grpc-web+proto", envelope(message))
}

func browserRequest(
	rpc protoreflect.MethodDescriptor, content string, body []byte,
) *http.Request {
	path := "/" + string(rpc.Parent().FullName()) + "/" + string(rpc.Name())
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+path, bytes.NewReader(body))
	r.Header.Set("Content-Type", content)
	return r
}

func envelope(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// isRefused matches how the protocols of browsers say that a limit has refused a call.
var isRefused = regexp.MustCompile(
	`"code": ?"(resource_exhausted|unavailable)"|(?i)grpc-status: ?(8|14)\b`)

// details matches the details of an error of gRPC-Web.
var details = regexp.MustCompile(`(?i)grpc-status-details-bin: ?([A-Za-z0-9+/_-]+)`)

// leaving is a client that leaves when it has got something.
type leaving struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

func (l leaving) Write(b []byte) (int, error) {
	defer l.leave()
	return l.ResponseRecorder.Write(b)
}

// serve serves a request, and returns what its client learns.
func serve(h http.Handler, r *http.Request) (got answer) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if err := recover(); err != nil && err != http.ErrAbortHandler { //nolint:errorlint // as net/http does
				panic(err)
			}
		}()
		h.ServeHTTP(leaving{w, cancel}, r.WithContext(ctx))
	}()
	var all bytes.Buffer
	_ = w.Result().Header.Write(&all) // the buffer takes all
	const ofARefusal = 64 << 10       // no more is read of an answer
	all.Write(w.Body.Next(ofARefusal))
	got.refused = w.Code == http.StatusTooManyRequests ||
		w.Code == http.StatusServiceUnavailable || isRefused.Match(all.Bytes())
	got.says = w.Header().Get("Retry-After") != "" ||
		bytes.Contains(all.Bytes(), []byte("google.rpc.RetryInfo"))
	for _, found := range details.FindAllSubmatch(all.Bytes(), -1) {
		text, err := base64.RawStdEncoding.DecodeString(string(found[1]))
		got.says = got.says || err == nil && bytes.Contains(text, []byte("google.rpc.RetryInfo"))
	}
	return got
}
