package web_test

import (
	"bytes"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/web"
)

// TestFailures checks each error in each form: the code, the reason, and that nothing is called.
func TestFailures(t *testing.T) {
	_, line, err := caller.NewKey("shop", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	keyed := func(c *front.Config) { c.Callers = caller.New(caller.Config{Keys: keys}) }
	hosts := func(c *front.Config) { c.Hosts = []string{"gateway.example"} }
	poor := func(c *front.Config) { c.Admission = admission.New(admission.Config{Bytes: 64 << 10}) }
	few := func(c *front.Config) { c.MaxItems = 10 }
	tags := &mooringv1.ReadPreference{}
	for range 50 {
		tags.Tags = append(tags.Tags, &mooringv1.TagSet{Tags: map[string]string{"dc": "e\"ast"}})
	}
	some := &mooringv1.ReadPreference{Tags: make([]*mooringv1.TagSet, 20)}
	for i := range some.Tags {
		some.Tags[i] = &mooringv1.TagSet{}
	}
	good := &mooringv1.FindOneRequest{Filter: filter(10)}
	for _, f := range append(unary, webs...) {
		content := "Content-Encoding"
		if f.isWeb() {
			content = "Grpc-Encoding"
		}
		whole := f.request(t, coding.Identity, good)
		for _, c := range []struct {
			name   string
			change func(*front.Config)
			err    error
			body   []byte
			header []string
			code   codes.Code
			reason string
		}{
			{"no credential", keyed, nil, whole, nil, codes.Unauthenticated, "Unauthenticated"},
			{"a wrong credential", keyed, nil, whole, []string{"Api-Key", "x"}, codes.Unauthenticated, "Unauthenticated"},
			{"a foreign page", nil, nil, whole, []string{"Sec-Fetch-Site", "cross-site"}, codes.PermissionDenied, "CrossOrigin"},
			{"another host", hosts, nil, whole, nil, codes.PermissionDenied, "UnknownHost"},
			{"a failure", nil, &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "100 % no ä"}, whole, nil, codes.InvalidArgument, "BadValue"},
			{"a timeout that is none", nil, nil, whole, []string{"Connect-Timeout-Ms", "soon"}, codes.InvalidArgument, "InvalidArgument"},
			{"another timeout that is none", nil, nil, whole, []string{"Grpc-Timeout", "5"}, codes.InvalidArgument, "InvalidArgument"},
			{"an unknown coding", nil, nil, whole, []string{content, "br"}, codes.Unimplemented, "Unimplemented"},
			{"a message that is too large", nil, nil, f.request(t, coding.Identity, &mooringv1.FindOneRequest{Filter: filter(200 << 10)}), nil, codes.ResourceExhausted, "MessageTooLarge"},
			{"a message that inflates", nil, nil, f.request(t, coding.Gzip, &mooringv1.FindOneRequest{Filter: filter(200 << 10)}), []string{content, "gzip"}, codes.ResourceExhausted, "MessageTooLarge"},
			{"no memory to inflate", poor, nil, f.request(t, coding.Zstd, &mooringv1.FindOneRequest{Filter: filter(70 << 10)}), []string{content, "zstd"}, codes.InvalidArgument, "TooLarge"},
			{"too many items", few, nil, f.request(t, coding.Identity, &mooringv1.FindOneRequest{ReadPreference: tags}), nil, codes.ResourceExhausted, "MessageTooLarge"},
			{"a few items too many", few, nil, f.request(t, coding.Identity, &mooringv1.FindOneRequest{ReadPreference: some}), nil, codes.ResourceExhausted, "MessageTooLarge"},
			{"a body that is not gzip", nil, nil, f.request(t, coding.Zstd, good), []string{content, "gzip"}, codes.InvalidArgument, "InvalidArgument"},
			{"a body over the limit", nil, nil, make([]byte, 2<<20), nil, codes.InvalidArgument, "TooLarge"},
			{"a body that is not a message", nil, nil, f.noMessage(), nil, codes.InvalidArgument, "InvalidArgument"},
		} {
			t.Run(f.contentType+"/"+c.name, func(t *testing.T) {
				b := &backend{err: c.err}
				var change []func(*front.Config)
				if c.change != nil {
					change = append(change, c.change)
				}
				w := send(newHandler(t, b, change...), "FindOne", f.contentType, c.body,
					c.header...)
				got := f.read(t, w, func() proto.Message { return &mooringv1.FindOneResponse{} })
				if got.code != c.code || got.reason != c.reason || got.message == "" ||
					len(got.messages) > 0 {
					t.Errorf("%d, %+v\nwant %v %s", w.Code, got, c.code, c.reason)
				}
				if c.err == nil && b.filter != nil {
					t.Error("the service was called")
				}
				if c.err != nil && !strings.Contains(got.message, "100 % no ä") {
					t.Errorf("message %q", got.message)
				}
				if f.isWeb() && w.Code != 200 {
					t.Errorf("status %d", w.Code)
				}
				if n := w.Header().Get("Content-Length"); !f.isWeb() &&
					n != strconv.Itoa(w.Body.Len()) {
					t.Errorf("Content-Length %q of %d bytes", n, w.Body.Len())
				}
			})
		}
	}
}

// TestRetryAfter checks that a failure says when to try again, if that makes sense.
func TestRetryAfter(t *testing.T) {
	for _, f := range append(unary, webs...) {
		for want, err := range map[string]error{
			"1": &mongoerr.SelectionError{},
			"":  &mongoerr.CommandError{Code: 2, Name: "BadValue", Message: "no"},
		} {
			body := f.request(t, coding.Identity, &mooringv1.FindOneRequest{})
			w := send(newHandler(t, &backend{err: err}), "FindOne", f.contentType, body)
			if got := w.Header().Get("Retry-After"); got != want {
				t.Errorf("%s, %v: Retry-After %q, want %q", f.contentType, err, got, want)
			}
		}
	}
}

// TestEnvelopes checks bodies whose envelopes are wrong. gRPC and Connect have UNIMPLEMENTED for a
// number of requests that is not the method's.
func TestEnvelopes(t *testing.T) {
	message, err := proto.Marshal(&mooringv1.FindOneRequest{})
	if err != nil {
		t.Fatal(err)
	}
	whole := envelope(0, message)
	for name, body := range map[string][]byte{
		"nothing": nil, "half a header": whole[:3], "a longer length": envelope(0, []byte("x"))[:5], "two messages": append(bytes.Clone(whole), whole...),
		"other flags": envelope(4, message), "compressed without a header": envelope(1, message),
	} {
		f := webs[0]
		w := send(newHandler(t, &backend{}), "FindOne", f.contentType, body)
		want := codes.InvalidArgument
		if name == "nothing" || name == "two messages" {
			want = codes.Unimplemented
		}
		if got := f.read(t, w, nil); got.code != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f := webs[2]
	w := send(newHandler(t, &backend{}), "FindOne", f.contentType, []byte("***"))
	if got := f.read(t, w, nil); got.code != codes.InvalidArgument ||
		!strings.Contains(got.message, "base64") {
		t.Errorf("no base64: %+v", got)
	}
}

// TestPreconditions checks that a call is refused with a header that could exclude it: the etag is
// a field of the request.
func TestPreconditions(t *testing.T) {
	for _, name := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
		w := send(newHandler(t, &backend{}), "FindOne", "application/json", []byte("{}"), name,
			`"a"`)
		var got result
		got.fail(t, w.Body.Bytes())
		if w.Code != 400 || got.reason != "InvalidArgument" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestNoCalls checks requests that are not calls.
func TestNoCalls(t *testing.T) {
	h := newHandler(t, &backend{})
	for _, c := range []struct {
		httpMethod, method, contentType string
		code                            int
		reason, header, value           string
	}{
		{"POST", "Nothing", "application/json", 501, "Unimplemented", "", ""},
		{"GET", "FindOne", "application/json", 405, "MethodNotAllowed", "Allow", "POST"},
		{"POST", "FindOne", "", 415, "UnsupportedMediaType", "Accept-Post", "application/proto, application/json, application/grpc-web+proto, application/grpc-web-text+proto"},
		{"POST", "FindOne", "text/plain", 415, "UnsupportedMediaType", "Accept-Post", ""},
		{"POST", "FindOne", "application/json; charset=latin1", 415, "UnsupportedMediaType", "", ""},
		{"POST", "FindOne", "application/grpc", 415, "UnsupportedMediaType", "", ""},
		{"POST", "FindOne", "application/connect+json", 415, "UnsupportedMediaType", "", ""},
		{"POST", "StreamFind", "application/json", 415, "UnsupportedMediaType", "Accept-Post", ""},
	} {
		r := httptest.NewRequest(c.httpMethod, "/mooring.v1.DocumentService/"+c.method,
			strings.NewReader("{}"))
		r.Header.Set("Content-Type", c.contentType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var got result
		got.fail(t, w.Body.Bytes())
		if w.Code != c.code || got.reason != c.reason ||
			c.header != "" && !strings.HasPrefix(w.Header().Get(c.header), c.value) {
			t.Errorf("%s %s %s: %d %+v, want %d %s", c.httpMethod, c.method, c.contentType, w.Code,
				got, c.code, c.reason)
		}
	}
	for _, name := range []string{"mooring.v1.Nothing", "mooring.v1.Document"} {
		if _, err := web.New(web.Config{Services: []string{name}}); err == nil {
			t.Errorf("New of %s: no error", name)
		}
	}
}
