package servicetest_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/servicetest"
	"github.com/mooringdb/mooring/service/web"
)

// handler returns what serves REST, Connect and gRPC-Web.
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
		Conn: g.Local, Admission: a, APIs: []front.API{browsers, rest.New(rest.Config{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// paths has the RPCs whose paths on REST are no annotations.
var paths = map[protoreflect.FullName][2]string{
	"mooring.v1.DocumentResourceService.GetDocument":    {http.MethodGet, "documents/1"},
	"mooring.v1.DocumentResourceService.PutDocument":    {http.MethodPut, "documents/1"},
	"mooring.v1.DocumentResourceService.PatchDocument":  {http.MethodPatch, "documents/1"},
	"mooring.v1.DocumentResourceService.DeleteDocument": {http.MethodDelete, "documents/1"},
	"mooring.v1.DocumentService.Import":                 {http.MethodPost, "documents:import"},
}

// withoutREST has the RPCs that REST does not serve.
var withoutREST = map[protoreflect.FullName]bool{}

// variable matches a variable of a path.
var variable = regexp.MustCompile(`\{[^}]*\}`)

// restRequest returns a request of an RPC on REST, nil if there is none.
func restRequest(rpc protoreflect.MethodDescriptor) *http.Request {
	method, path := "", ""
	if own, ok := paths[rpc.FullName()]; ok {
		method, path = own[0], "/v1/databases/d/collections/c/"+own[1]
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
	body, content := "{}", "application/json"
	switch {
	case rpc.IsStreamingClient():
		content = "application/x-ndjson"
	case method == http.MethodGet || method == http.MethodDelete:
		body = ""
	}
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", content)
	return r
}

// connectRequest returns an empty request in the protocol of Connect.
func connectRequest(rpc protoreflect.MethodDescriptor) *http.Request {
	if rpc.IsStreamingClient() || rpc.IsStreamingServer() {
		return browserRequest(rpc, "application/connect+json", envelope("{}"))
	}
	return browserRequest(rpc, "application/json", []byte("{}"))
}

// webRequest returns an empty request of gRPC-Web.
func webRequest(rpc protoreflect.MethodDescriptor) *http.Request {
	return browserRequest(rpc, "application/grpc-web+proto", envelope(""))
}

func browserRequest(
	rpc protoreflect.MethodDescriptor, content string, body []byte,
) *http.Request {
	path := "/" + string(rpc.Parent().FullName()) + "/" + string(rpc.Name())
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+path, bytes.NewReader(body))
	r.Header.Set("Content-Type", content)
	return r
}

func envelope(message string) []byte {
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
	h.ServeHTTP(leaving{w, cancel}, r.WithContext(ctx))
	var all bytes.Buffer
	_ = w.Result().Header.Write(&all) // the buffer takes all
	all.Write(w.Body.Bytes())
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
