package web_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/web"
)

// backend answers a few calls, and records what it learns of them.
type backend struct {
	mooringv1.UnimplementedDocumentServiceServer

	err      error
	filter   bson.Raw
	encoding string
	deadline bool
	who      string
	imported int
	document *mooringv1.Document // of the response; nil: the filter
	during   func()              // called by FindOne; nil: nothing is
}

func (b *backend) learn(ctx context.Context) {
	b.encoding = strings.Join(metadata.ValueFromIncomingContext(ctx, "mooring-document-encoding"), ",")
	_, b.deadline = ctx.Deadline()
	if id := call.LocalFrom(ctx).Identity; id != nil {
		b.who = id.Principal
	}
}

func (b *backend) FindOne(ctx context.Context, r *mooringv1.FindOneRequest) (*mooringv1.FindOneResponse, error) {
	b.learn(ctx)
	b.filter = r.GetFilter().GetBson()
	if b.during != nil {
		b.during()
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs("mooring-session", "renewed", "other", "hidden"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("mooring-end", "yes"))
	if b.err != nil {
		return nil, b.err
	}
	if b.document != nil {
		return &mooringv1.FindOneResponse{Document: b.document}, nil
	}
	return &mooringv1.FindOneResponse{Document: r.GetFilter()}, nil
}

func (b *backend) StreamFind(r *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse]) error {
	b.learn(s.Context())
	for range 2 {
		if err := s.Send(&mooringv1.StreamFindResponse{Documents: []*mooringv1.Document{r.GetFilter()}}); err != nil {
			return err
		}
	}
	return b.err
}

func (b *backend) Import(s grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse]) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&mooringv1.ImportResponse{InsertedCount: new(int64(b.imported))})
		}
		if err != nil {
			return err
		}
		b.imported += len(r.GetDocuments())
	}
}

func explain(err error) error {
	if err == nil {
		return nil
	}
	return rpcerr.Explain(err, call.Call{})
}

func newHandler(tb testing.TB, b *backend, change ...func(*rest.Config)) http.Handler {
	tb.Helper()
	return newHandlerOf(tb, b, change...)
}

func newHandlerOf(tb testing.TB, service mooringv1.DocumentServiceServer, change ...func(*rest.Config)) http.Handler {
	tb.Helper()
	conn := inproc.NewConn(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		response, err := handler(ctx, req)
		return response, explain(err)
	}, func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return explain(handler(srv, ss))
	})
	mooringv1.RegisterDocumentServiceServer(conn, service)
	api, err := web.New(web.Config{
		Services: []string{mooringv1.DocumentService_ServiceDesc.ServiceName},
		MaxSizeOf: func(method string) int {
			if strings.HasSuffix(method, "/FindOne") {
				return 100 << 10
			}
			return 1 << 30
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	cfg := rest.Config{Conn: conn, Protocols: []rest.Protocol{api}, MaxBodyBytes: 1 << 20}
	for _, c := range change {
		c(&cfg)
	}
	h, err := rest.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// send sends a POST; header is name, value, name, value, …
func send(h http.Handler, method, contentType string, body []byte, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/mooring.v1.DocumentService/"+method, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// form is one of the forms of requests and responses.
type form struct {
	contentType string
	enveloped   bool
	json, text  bool
}

var (
	unary   = []form{{"application/proto", false, false, false}, {"application/json", false, true, false}}
	streams = []form{{"application/connect+proto", true, false, false}, {"application/connect+json", true, true, false}}
	webs    = []form{
		{"application/grpc-web+proto", true, false, false},
		{"application/grpc-web", true, false, false},
		{"application/grpc-web-text", true, false, true},
		{"application/grpc-web-text+proto", true, false, true},
	}
)

func (f form) isWeb() bool { return strings.HasPrefix(f.contentType, "application/grpc-web") }

func envelope(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

// request returns the body of a call with these messages, compressed if how says so.
func (f form) request(tb testing.TB, how coding.Coding, messages ...proto.Message) []byte {
	tb.Helper()
	var body []byte
	for _, m := range messages {
		data, err := proto.Marshal(m)
		if f.json {
			data, err = protojson.Marshal(m)
		}
		if err != nil {
			tb.Fatal(err)
		}
		flags := byte(0)
		if how != coding.Identity {
			data, flags = how.Append(nil, data), 1
		}
		if f.enveloped {
			data = envelope(flags, data)
		}
		if f.text { // each message is padded
			data = base64.StdEncoding.AppendEncode(nil, data)
		}
		body = append(body, data...)
	}
	return body
}

// result is what a client makes of a response.
type result struct {
	messages []proto.Message
	code     codes.Code
	message  string
	reason   string // of the ErrorInfo
	trailer  string // mooring-end
}

// read reads a response as a client does.
func (f form) read(t *testing.T, w *httptest.ResponseRecorder, empty func() proto.Message) (r result) {
	t.Helper()
	body := w.Body.Bytes()
	if f.text {
		var whole []byte
		for len(body) > 0 {
			n := len(body)
			if pad := bytes.IndexByte(body, '='); pad >= 0 {
				n = min(n, (pad/4+1)*4)
			}
			part, err := base64.StdEncoding.DecodeString(string(body[:n]))
			if err != nil {
				t.Fatal(err)
			}
			whole, body = append(whole, part...), body[n:]
		}
		body = whole
	}
	decode := func(data []byte) {
		m := empty()
		err := proto.Unmarshal(data, m)
		if f.json {
			err = protojson.Unmarshal(data, m)
		}
		if err != nil {
			t.Fatalf("%v: %q", err, data)
		}
		r.messages = append(r.messages, m)
	}
	if !f.enveloped {
		r.trailer = w.Header().Get("Trailer-Mooring-End")
		if w.Code != 200 {
			r.fail(t, body)
			return r
		}
		how, _ := coding.Of(w.Header().Get("Content-Encoding"))
		data, err := how.Inflate(body, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		decode(data)
		return r
	}
	name := "Connect-Content-Encoding"
	if f.isWeb() {
		name = "Grpc-Encoding"
	}
	how, _ := coding.Of(w.Header().Get(name))
	ended := false
	for len(body) > 0 {
		if len(body) < 5 || ended {
			t.Fatalf("%q after the end", body)
		}
		n := binary.BigEndian.Uint32(body[1:])
		flags, data := body[0], body[5:5+n]
		body = body[5+n:]
		if flags&1 != 0 {
			var err error
			if data, err = how.Inflate(data, 1<<20, nil); err != nil {
				t.Fatal(err)
			}
		}
		switch flags &^ 1 {
		case 0:
			decode(data)
		case 2:
			ended = true
			var end struct {
				Error    json.RawMessage `json:"error"`
				Metadata metadata.MD     `json:"metadata"`
			}
			if err := json.Unmarshal(data, &end); err != nil {
				t.Fatal(err)
			}
			r.trailer = strings.Join(end.Metadata["mooring-end"], "")
			if end.Error != nil {
				r.fail(t, end.Error)
			}
		case 0x80:
			ended = true
			r.readTrailers(t, data)
		default:
			t.Fatalf("flags %#x", flags)
		}
	}
	if !ended {
		t.Fatal("the stream has no end")
	}
	return r
}

func (r *result) fail(t *testing.T, text []byte) {
	t.Helper()
	var body struct {
		Code, Message string
		Details       []struct{ Type, Value string }
	}
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if strings.EqualFold(strings.ReplaceAll(body.Code, "_", ""), c.String()) {
			r.code = c
		}
	}
	r.message = body.Message
	for _, d := range body.Details {
		value, err := base64.RawStdEncoding.DecodeString(d.Value)
		if err != nil {
			t.Fatal(err)
		}
		info := &errdetails.ErrorInfo{}
		if d.Type == "google.rpc.ErrorInfo" && proto.Unmarshal(value, info) == nil {
			r.reason = info.GetReason()
		}
	}
}

func (r *result) readTrailers(t *testing.T, text []byte) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\r\n"), "\r\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "grpc-status":
			var n uint32
			if err := json.Unmarshal([]byte(value), &n); err != nil {
				t.Fatal(err)
			}
			r.code = codes.Code(n)
		case "grpc-message":
			message, err := url.PathUnescape(value)
			if err != nil || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
				t.Fatalf("grpc-message: %q, %v", value, err)
			}
			r.message = message
		case "grpc-status-details-bin":
			data, err := base64.RawStdEncoding.DecodeString(value)
			st := &spb.Status{}
			if err != nil || proto.Unmarshal(data, st) != nil {
				t.Fatalf("%v: %q", err, value)
			}
			for _, d := range st.GetDetails() {
				info := &errdetails.ErrorInfo{}
				if d.UnmarshalTo(info) == nil {
					r.reason = info.GetReason()
				}
			}
		case "mooring-end":
			r.trailer = value
		}
	}
}

func filter(bytes int) *mooringv1.Document {
	return payload.NewDocument(bson.NewBuilder(nil).String("a", strings.Repeat("x", bytes)).Finish())
}

// TestUnary makes a call in each form, with and without compression.
func TestUnary(t *testing.T) {
	for _, f := range append(unary, webs...) {
		for _, how := range []coding.Coding{coding.Identity, coding.Gzip, coding.Zstd} {
			t.Run(f.contentType+" "+how.String(), func(t *testing.T) {
				content, accept := "Content-Encoding", "Accept-Encoding"
				if f.isWeb() {
					content, accept = "Grpc-Encoding", "Grpc-Accept-Encoding"
				}
				b := &backend{}
				request := &mooringv1.FindOneRequest{Database: "shop", Filter: filter(5000)}
				w := send(newHandler(t, b), "FindOne", f.contentType, f.request(t, how, request),
					content, how.String(), accept, how.String(), "Mooring-Document-Encoding", "json", "Grpc-Timeout", "5S")
				got := f.read(t, w, func() proto.Message { return &mooringv1.FindOneResponse{} })
				if got.code != codes.OK || len(got.messages) != 1 || got.trailer != "yes" {
					t.Fatalf("%d, %+v", w.Code, got)
				}
				if d, _ := got.messages[0].(*mooringv1.FindOneResponse); !bytes.Equal(d.GetDocument().GetBson(), request.GetFilter().GetBson()) {
					t.Errorf("document = %v", d)
				}
				if used := w.Header().Get(content); (used == how.String()) != (how != coding.Identity) || how != coding.Identity && w.Body.Len() > 2000 {
					t.Errorf("%s = %q, %d bytes", content, used, w.Body.Len())
				}
				if b.encoding != "json" || !b.deadline || w.Header().Get("Mooring-Session") != "renewed" || w.Header().Get("Other") != "" {
					t.Errorf("backend %+v, header %v", b, w.Header())
				}
			})
		}
	}
}

// TestStreams reads a stream in each form, one that ends and one that fails.
func TestStreams(t *testing.T) {
	for _, f := range append(streams, webs...) {
		for _, failing := range []bool{false, true} {
			b := &backend{}
			if failing {
				b.err = &mongoerr.SelectionError{}
			}
			request := &mooringv1.StreamFindRequest{Filter: filter(3000)}
			w := send(newHandler(t, b), "StreamFind", f.contentType, f.request(t, coding.Identity, request),
				"Connect-Accept-Encoding", "gzip", "Grpc-Accept-Encoding", "zstd", "Connect-Timeout-Ms", "5000")
			got := f.read(t, w, func() proto.Message { return &mooringv1.StreamFindResponse{} })
			if w.Code != 200 || len(got.messages) != 2 || !b.deadline || w.Header().Get("X-Accel-Buffering") != "no" {
				t.Errorf("%s: %d, %+v", f.contentType, w.Code, got)
			}
			if failing != (got.code == codes.Unavailable) || failing != (got.reason == "NoSuitableServer") {
				t.Errorf("%s: failing %v, %+v", f.contentType, failing, got)
			}
			if w.Body.Len() > 2500 {
				t.Errorf("%s: %d bytes are not compressed", f.contentType, w.Body.Len())
			}
		}
	}
}

// TestClientStream sends three messages in each form.
func TestClientStream(t *testing.T) {
	m := &mooringv1.ImportRequest{Documents: []*mooringv1.Document{filter(10), filter(20)}}
	for _, f := range append(streams, webs...) {
		b := &backend{}
		w := send(newHandler(t, b), "Import", f.contentType, f.request(t, coding.Gzip, m, m, m), "Connect-Content-Encoding", "gzip", "Grpc-Encoding", "gzip")
		got := f.read(t, w, func() proto.Message { return &mooringv1.ImportResponse{} })
		if got.code != codes.OK || len(got.messages) != 1 || b.imported != 6 {
			t.Errorf("%s: %d imported, %+v", f.contentType, b.imported, got)
		}
		cut := f.request(t, coding.Gzip, m, m)
		w = send(newHandler(t, &backend{}), "Import", f.contentType, cut[:len(cut)-8], "Connect-Content-Encoding", "gzip", "Grpc-Encoding", "gzip")
		if got := f.read(t, w, func() proto.Message { return &mooringv1.ImportResponse{} }); got.code != codes.InvalidArgument {
			t.Errorf("%s, cut: %+v", f.contentType, got)
		}
	}
}

// TestImportReleases sends more messages than there is memory for at once. What one of them takes
// is released before the next: what it inflates to, and its items.
func TestImportReleases(t *testing.T) {
	const many = 40
	large, items := &mooringv1.ImportRequest{Documents: []*mooringv1.Document{filter(70 << 10)}}, &mooringv1.ImportRequest{}
	for range 100 {
		items.Documents = append(items.Documents, filter(1))
	}
	scarce := func(c *rest.Config) { c.Admission = admission.New(admission.Config{Bytes: 1 << 20}) }
	for name, m := range map[string]*mooringv1.ImportRequest{"inflated": large, "items": items} {
		var all []proto.Message
		for range many {
			all = append(all, m)
		}
		for _, f := range []form{streams[0], webs[0]} {
			b := &backend{}
			w := send(newHandler(t, b, scarce), "Import", f.contentType, f.request(t, coding.Gzip, all...), "Connect-Content-Encoding", "gzip", "Grpc-Encoding", "gzip")
			got := f.read(t, w, func() proto.Message { return &mooringv1.ImportResponse{} })
			if got.code != codes.OK || b.imported != many*len(m.GetDocuments()) {
				t.Errorf("%s in %s: %d imported, %+v", name, f.contentType, b.imported, got)
			}
		}
	}
}

// TestItemsAreCharged checks that a small message with many items, which are within their limit, is
// charged with what they take in memory: while the call runs, and no longer. Without that memory
// the message is refused.
func TestItemsAreCharged(t *testing.T) {
	const budget, items, cost = 4 << 20, 3000, 512
	request := &mooringv1.FindOneRequest{ReadPreference: &mooringv1.ReadPreference{}}
	for range items {
		request.ReadPreference.Tags = append(request.ReadPreference.Tags, &mooringv1.TagSet{})
	}
	for _, f := range append(unary, webs...) {
		t.Run(f.contentType, func(t *testing.T) {
			want := int64(items * cost)
			if f.json {
				want /= 4 // an item may have so many commas
			}
			a := admission.New(admission.Config{Bytes: budget})
			held := int64(0)
			b := &backend{during: func() { held = a.Bytes().Held }}
			h := newHandler(t, b, func(c *rest.Config) { c.Admission = a })
			whole := f.request(t, coding.Identity, request)
			call := func() result {
				return f.read(t, send(h, "FindOne", f.contentType, whole), func() proto.Message {
					return &mooringv1.FindOneResponse{}
				})
			}
			got := call()
			if got.code != codes.OK || held < want || a.Bytes().Held != 0 {
				t.Errorf("%+v: %d bytes were charged, want %d; %d are left", got, held, want,
					a.Bytes().Held)
			}
			address := httptest.NewRequest(http.MethodPost, "/", nil).RemoteAddr
			client := netip.MustParseAddrPort(address).Addr()
			var before admission.Account
			a.Open(&before, admission.PrincipalOf("", client))
			before.Force(budget - want)
			got = call()
			if got.code != codes.ResourceExhausted || got.reason != "QuotaExceeded" ||
				a.Bytes().Held != budget-want {
				t.Errorf("without room: %+v, %d bytes are left", got, a.Bytes().Held)
			}
			before.Close()
		})
	}
}

// TestCopiesAreCharged checks that a response message is charged with each copy of it that is made
// while it is written.
func TestCopiesAreCharged(t *testing.T) {
	const size, spare = 512 << 10, 100 << 10
	for _, f := range append(unary, webs...) {
		for _, how := range []coding.Coding{coding.Identity, coding.Zstd} {
			copies := int64(1)
			if how != coding.Identity {
				copies++
			}
			if f.enveloped {
				copies++
			}
			if f.text {
				copies += 2
			}
			if f.json {
				copies *= 2
			}
			for budget, want := range map[int64]codes.Code{
				copies*size - spare: codes.InvalidArgument, copies*size + spare: codes.OK,
			} {
				a := admission.New(admission.Config{Bytes: budget})
				b := &backend{document: filter(size)}
				request := f.request(t, coding.Identity, &mooringv1.FindOneRequest{})
				w := send(newHandler(t, b, func(c *rest.Config) { c.Admission = a }), "FindOne",
					f.contentType, request, "Accept-Encoding", how.String(),
					"Grpc-Accept-Encoding", how.String())
				got := f.read(t, w, func() proto.Message { return &mooringv1.FindOneResponse{} })
				if got.code != want || a.Bytes().Held != 0 {
					t.Errorf("%s in %v with %d bytes: %v %s, want %v; %d are left", f.contentType,
						how, budget, got.code, got.message, want, a.Bytes().Held)
				}
			}
		}
	}
}

// TestTextIsCharged checks that a body in base64 is charged with what it becomes.
func TestTextIsCharged(t *testing.T) {
	f := webs[2]
	body := f.request(t, coding.Identity, &mooringv1.FindOneRequest{Filter: filter(90 << 10)})
	for budget, want := range map[int64]codes.Code{
		300 << 10: codes.ResourceExhausted, 1 << 20: codes.OK,
	} {
		a := admission.New(admission.Config{Bytes: budget})
		b := &backend{document: filter(1)}
		w := send(newHandler(t, b, func(c *rest.Config) { c.Admission = a }), "FindOne",
			f.contentType, body)
		got := f.read(t, w, func() proto.Message { return &mooringv1.FindOneResponse{} })
		if got.code != want || a.Bytes().Held != 0 {
			t.Errorf("with %d bytes: %+v, want %v; %d are left", budget, got, want, a.Bytes().Held)
		}
	}
}

// TestWindowIsCharged checks that the window which a few bytes of zstd announce is charged, and
// released before the call.
func TestWindowIsCharged(t *testing.T) {
	// A frame with a window of 8 MiB and no text, which is an empty message.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3, 1, 0, 0}
	for budget, want := range map[int64]codes.Code{
		4 << 20: codes.InvalidArgument, 16 << 20: codes.OK,
	} {
		for _, f := range append(unary[:1:1], webs[0]) {
			a := admission.New(admission.Config{Bytes: budget})
			held := int64(0)
			b := &backend{during: func() { held = a.Bytes().Held }}
			body := frame
			if f.enveloped {
				body = envelope(1, frame)
			}
			w := send(newHandler(t, b, func(c *rest.Config) { c.Admission = a }), "FindOne",
				f.contentType, body, "Content-Encoding", "zstd", "Grpc-Encoding", "zstd")
			got := f.read(t, w, func() proto.Message { return &mooringv1.FindOneResponse{} })
			if got.code != want || held > 128<<10 || a.Bytes().Held != 0 {
				t.Errorf("%s with %d bytes: %+v, %d are charged in the call, %d are left",
					f.contentType, budget, got, held, a.Bytes().Held)
			}
		}
	}
}

// TestLengthThatLies sends an envelope that announces far more than the body has. Nothing is
// allocated for that.
func TestLengthThatLies(t *testing.T) {
	const announced = 32 << 20
	body := binary.BigEndian.AppendUint32([]byte{0}, announced)
	f := webs[0]
	h := newHandler(t, &backend{}, func(c *rest.Config) { c.MaxBodyBytes = 64 << 20 })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := send(h, "StreamFind", f.contentType, body)
	runtime.ReadMemStats(&after)
	if got := f.read(t, w, nil); got.code != codes.InvalidArgument {
		t.Errorf("%+v", got)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > announced/2 {
		t.Errorf("%d bytes were allocated for a body of %d", taken, len(body))
	}
}

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
	keyed := func(c *rest.Config) { c.Callers = caller.New(caller.Config{Keys: keys}) }
	hosts := func(c *rest.Config) { c.Hosts = []string{"gateway.example"} }
	poor := func(c *rest.Config) { c.Admission = admission.New(admission.Config{Bytes: 64 << 10}) }
	few := func(c *rest.Config) { c.MaxItems = 10 }
	tags := &mooringv1.ReadPreference{}
	for range 50 {
		tags.Tags = append(tags.Tags, &mooringv1.TagSet{Tags: map[string]string{"dc": "e\"ast"}})
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
			change func(*rest.Config)
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
			{"a body that is no gzip", nil, nil, f.request(t, coding.Zstd, good), []string{content, "gzip"}, codes.InvalidArgument, "InvalidArgument"},
			{"a body over the limit", nil, nil, make([]byte, 2<<20), nil, codes.InvalidArgument, "TooLarge"},
			{"a body that is no message", nil, nil, f.noMessage(), nil, codes.InvalidArgument, "InvalidArgument"},
		} {
			t.Run(f.contentType+"/"+c.name, func(t *testing.T) {
				b := &backend{err: c.err}
				var change []func(*rest.Config)
				if c.change != nil {
					change = append(change, c.change)
				}
				w := send(newHandler(t, b, change...), "FindOne", f.contentType, c.body, c.header...)
				got := f.read(t, w, func() proto.Message { return &mooringv1.FindOneResponse{} })
				if got.code != c.code || got.reason != c.reason || got.message == "" || len(got.messages) > 0 {
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
				if n := w.Header().Get("Content-Length"); !f.isWeb() && n != strconv.Itoa(w.Body.Len()) {
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

// TestFewItems checks from how many items on a message is charged with them.
func TestFewItems(t *testing.T) {
	const few = 32
	for n, want := range map[int]codes.Code{few: codes.OK, few + 1: codes.InvalidArgument} {
		m := &mooringv1.ImportRequest{}
		for range n {
			m.Documents = append(m.Documents, &mooringv1.Document{})
		}
		scarce := func(c *rest.Config) { c.Admission = admission.New(admission.Config{Bytes: 16 << 10}) }
		b, f := &backend{}, streams[0]
		w := send(newHandler(t, b, scarce), "Import", f.contentType, f.request(t, coding.Identity, m))
		got := f.read(t, w, func() proto.Message { return &mooringv1.ImportResponse{} })
		if got.code != want {
			t.Errorf("%d items: %+v, want %v", n, got, want)
		}
	}
}

// noMessage returns a body that cannot be decoded.
func (f form) noMessage() []byte {
	text := []byte("\xff\xff\xff no")
	if f.enveloped {
		text = envelope(0, text)
	}
	if f.text {
		text = base64.StdEncoding.AppendEncode(nil, text)
	}
	return text
}

// TestEnvelopes checks bodies whose envelopes are wrong.
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
		if got := f.read(t, w, nil); got.code != codes.InvalidArgument {
			t.Errorf("%s: %+v", name, got)
		}
	}
	f := webs[2]
	w := send(newHandler(t, &backend{}), "FindOne", f.contentType, []byte("***"))
	if got := f.read(t, w, nil); got.code != codes.InvalidArgument || !strings.Contains(got.message, "base64") {
		t.Errorf("no base64: %+v", got)
	}
}

// TestPreconditions checks that a call is refused with a header that could exclude it: the etag is
// a field of the request.
func TestPreconditions(t *testing.T) {
	for _, name := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
		w := send(newHandler(t, &backend{}), "FindOne", "application/json", []byte("{}"), name, `"a"`)
		var got result
		got.fail(t, w.Body.Bytes())
		if w.Code != 400 || got.reason != "InvalidArgument" {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestNoCalls checks requests that are no calls.
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
		r := httptest.NewRequest(c.httpMethod, "/mooring.v1.DocumentService/"+c.method, strings.NewReader("{}"))
		r.Header.Set("Content-Type", c.contentType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var got result
		got.fail(t, w.Body.Bytes())
		if w.Code != c.code || got.reason != c.reason || c.header != "" && !strings.HasPrefix(w.Header().Get(c.header), c.value) {
			t.Errorf("%s %s %s: %d %+v, want %d %s", c.httpMethod, c.method, c.contentType, w.Code, got, c.code, c.reason)
		}
	}
	for _, name := range []string{"mooring.v1.Nothing", "mooring.v1.Document"} {
		if _, err := web.New(web.Config{Services: []string{name}}); err == nil {
			t.Errorf("New of %s: no error", name)
		}
	}
}

// FuzzBody sends any body in any form. None is an internal error, and none panics.
func FuzzBody(f *testing.F) {
	all := append(append(append([]form{}, unary...), streams...), webs...)
	for i, form := range all {
		f.Add(uint8(i), uint8(0), form.request(f, coding.Identity, &mooringv1.FindOneRequest{Database: "d"}))
		f.Add(uint8(i), uint8(1), form.request(f, coding.Gzip, &mooringv1.FindOneRequest{Database: "d"}))
	}
	names := []string{"identity", "gzip", "zstd"}
	h := newHandler(f, &backend{})
	f.Fuzz(func(t *testing.T, which, how uint8, body []byte) {
		form, name := all[int(which)%len(all)], names[int(how)%len(names)]
		method := "FindOne"
		if strings.Contains(form.contentType, "connect") {
			method = "StreamFind"
		}
		w := send(h, method, form.contentType, body, "Content-Encoding", name, "Connect-Content-Encoding", name, "Grpc-Encoding", name)
		got := form.read(t, w, func() proto.Message {
			if method == "StreamFind" {
				return &mooringv1.StreamFindResponse{}
			}
			return &mooringv1.FindOneResponse{}
		})
		if got.code == codes.Internal || got.code == codes.Unknown || w.Code >= 500 && w.Code != 501 {
			t.Errorf("%s %q: %d, %+v", form.contentType, body, w.Code, got)
		}
	})
}
