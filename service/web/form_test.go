package web_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/payload"
)

// form is one of the forms of requests and responses.
type form struct {
	contentType string
	enveloped   bool
	json, text  bool
}

var (
	unary = []form{
		{"application/proto", false, false, false}, {"application/json", false, true, false},
	}
	streams = []form{
		{"application/connect+proto", true, false, false}, {"application/connect+json", true, true, false},
	}
	webs = []form{
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
	retry    string
	done     *mooringv1.BulkWriteResult
	trailer  string // mooring-end
}

// read reads a response as a client does.
func (f form) read(t *testing.T, w *httptest.ResponseRecorder,
	empty func() proto.Message,
) (r result) {
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
		r.detail(t, &anypb.Any{TypeUrl: "/" + d.Type, Value: value})
	}
}

// detail reads a detail of an error.
func (r *result) detail(t *testing.T, d *anypb.Any) {
	t.Helper()
	m, err := d.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	switch m := m.(type) {
	case *errdetails.ErrorInfo:
		r.reason, r.retry = m.GetReason(), m.GetMetadata()["retry"]
	case *mooringv1.BulkWriteResult:
		r.done = m
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
			if err != nil || strings.ContainsFunc(value, func(c rune) bool {
				return c < ' ' || c > '~'
			}) {
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
				r.detail(t, d)
			}
		case "mooring-end":
			r.trailer = value
		}
	}
}

func filter(bytes int) *mooringv1.Document {
	return payload.NewDocument(bson.NewBuilder(nil).String("a", strings.Repeat("x", bytes)).
		Finish())
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
