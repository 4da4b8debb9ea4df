package web_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
)

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
					content, how.String(), accept, how.String(), "Mooring-Document-Encoding",
					"json", "Grpc-Timeout", "5S")
				got := f.read(t, w, func() proto.Message { return &mooringv1.FindOneResponse{} })
				if got.code != codes.OK || len(got.messages) != 1 || got.trailer != "yes" {
					t.Fatalf("%d, %+v", w.Code, got)
				}
				if d, _ := got.messages[0].(*mooringv1.FindOneResponse); !bytes.Equal(
					d.GetDocument().GetBson(), request.GetFilter().GetBson()) {
					t.Errorf("document = %v", d)
				}
				if used := w.Header().
					Get(content); (used == how.String()) != (how != coding.Identity) ||
					how != coding.Identity && w.Body.Len() > 2000 {
					t.Errorf("%s = %q, %d bytes", content, used, w.Body.Len())
				}
				if b.encoding != "json" || !b.deadline ||
					w.Header().Get("Mooring-Session") != "renewed" ||
					w.Header().Get("Other") != "" {
					t.Errorf("backend %+v, header %v", b, w.Header())
				}
			})
		}
	}
}

// TestMetadataOfFailures checks that a call that fails has the header and the trailer that its
// handler has set.
func TestMetadataOfFailures(t *testing.T) {
	for _, f := range append(unary, webs...) {
		b := &backend{err: &mongoerr.SelectionError{}}
		w := send(newHandler(t, b), "FindOne", f.contentType,
			f.request(t, coding.Identity, &mooringv1.FindOneRequest{}))
		got := f.read(t, w, func() proto.Message { return &mooringv1.FindOneResponse{} })
		if got.code != codes.Unavailable || got.trailer != "yes" {
			t.Errorf("%s: %d, %+v", f.contentType, w.Code, got)
		}
		if w.Header().Get("Mooring-Session") != "renewed" || w.Header().Get("Other") != "" {
			t.Errorf("%s: header %v", f.contentType, w.Header())
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
			w := send(newHandler(t, b), "StreamFind", f.contentType,
				f.request(t, coding.Identity, request),
				"Connect-Accept-Encoding", "gzip", "Grpc-Accept-Encoding", "zstd",
				"Connect-Timeout-Ms", "5000")
			got := f.read(t, w, func() proto.Message { return &mooringv1.StreamFindResponse{} })
			if w.Code != 200 || len(got.messages) != 2 || !b.deadline ||
				w.Header().Get("X-Accel-Buffering") != "no" {
				t.Errorf("%s: %d, %+v", f.contentType, w.Code, got)
			}
			if failing != (got.code == codes.Unavailable) ||
				failing != (got.reason == "NoSuitableServer") {
				t.Errorf("%s: failing %v, %+v", f.contentType, failing, got)
			}
			if w.Body.Len() > 2500 {
				t.Errorf("%s: %d bytes are not compressed", f.contentType, w.Body.Len())
			}
		}
	}
}

// TestMinCompressed checks from which size a response is compressed, in each form.
func TestMinCompressed(t *testing.T) {
	for _, f := range slices.Concat(unary, webs) {
		for _, least := range []int{0, 1 << 10} {
			h := newHandler(t, &backend{}, func(c *front.Config) { c.MinCompressed = least })
			request := f.request(t, coding.Identity,
				&mooringv1.FindOneRequest{Filter: filter(1200)})
			w := send(h, "FindOne", f.contentType, request, "Accept-Encoding", "gzip",
				"Grpc-Accept-Encoding", "gzip")
			if n := w.Body.Len(); (least == 0) != (n > 1200) {
				t.Errorf("%s, from %d bytes: %d bytes", f.contentType, least, n)
			}
		}
	}
}

// TestClientStream sends three messages in each form.
func TestClientStream(t *testing.T) {
	m := &mooringv1.ImportRequest{Documents: []*mooringv1.Document{filter(10), filter(20)}}
	for _, f := range append(streams, webs...) {
		b := &backend{}
		w := send(newHandler(t, b), "Import", f.contentType, f.request(t, coding.Gzip, m, m, m),
			"Connect-Content-Encoding", "gzip", "Grpc-Encoding", "gzip")
		got := f.read(t, w, func() proto.Message { return &mooringv1.ImportResponse{} })
		if got.code != codes.OK || len(got.messages) != 1 || b.imported != 6 {
			t.Errorf("%s: %d imported, %+v", f.contentType, b.imported, got)
		}
		cut := f.request(t, coding.Gzip, m, m)
		w = send(newHandler(t, &backend{}), "Import", f.contentType, cut[:len(cut)-8],
			"Connect-Content-Encoding", "gzip", "Grpc-Encoding", "gzip")
		if got := f.read(t, w, func() proto.Message {
			return &mooringv1.ImportResponse{}
		}); got.code != codes.InvalidArgument {
			t.Errorf("%s, cut: %+v", f.contentType, got)
		}
	}
}

// FuzzBody sends any body in any form. None is an internal error, and none panics.
func FuzzBody(f *testing.F) {
	all := append(append(append([]form{}, unary...), streams...), webs...)
	for i, form := range all {
		f.Add(uint8(i), uint8(0),
			form.request(f, coding.Identity, &mooringv1.FindOneRequest{Database: "d"}))
		f.Add(uint8(i), uint8(1),
			form.request(f, coding.Gzip, &mooringv1.FindOneRequest{Database: "d"}))
	}
	names := []string{"identity", "gzip", "zstd"}
	h := newHandler(f, &backend{})
	f.Fuzz(func(t *testing.T, which, how uint8, body []byte) {
		form, name := all[int(which)%len(all)], names[int(how)%len(names)]
		method := "FindOne"
		if strings.Contains(form.contentType, "connect") {
			method = "StreamFind"
		}
		w := send(h, method, form.contentType, body, "Content-Encoding", name,
			"Connect-Content-Encoding", name, "Grpc-Encoding", name)
		got := form.read(t, w, func() proto.Message {
			if method == "StreamFind" {
				return &mooringv1.StreamFindResponse{}
			}
			return &mooringv1.FindOneResponse{}
		})
		if got.code == codes.Internal || got.code == codes.Unknown ||
			w.Code >= 500 && w.Code != 501 {
			t.Errorf("%s %q: %d, %+v", form.contentType, body, w.Code, got)
		}
	})
}
