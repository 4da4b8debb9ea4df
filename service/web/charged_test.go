package web_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
)

// TestImportReleases sends more messages than there is memory for at once. What one of them takes
// is released before the next: what it inflates to, and its items.
func TestImportReleases(t *testing.T) {
	const many = 40
	large, items := &mooringv1.ImportRequest{Documents: []*mooringv1.Document{filter(70 << 10)}},
		&mooringv1.ImportRequest{}
	for range 100 {
		items.Documents = append(items.Documents, filter(1))
	}
	scarce := func(c *front.Config) {
		c.Admission = admission.New(admission.Config{Bytes: 1 << 20})
	}
	for name, m := range map[string]*mooringv1.ImportRequest{"inflated": large, "items": items} {
		var all []proto.Message
		for range many {
			all = append(all, m)
		}
		for _, f := range []form{streams[0], webs[0]} {
			b := &backend{}
			w := send(newHandler(t, b, scarce), "Import", f.contentType,
				f.request(t, coding.Gzip, all...), "Connect-Content-Encoding", "gzip",
				"Grpc-Encoding", "gzip")
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
			h := newHandler(t, b, func(c *front.Config) { c.Admission = a })
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
				w := send(newHandler(t, b, func(c *front.Config) { c.Admission = a }), "FindOne",
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

// pausing sends a message, and calls between before it sends another one.
type pausing struct {
	mooringv1.UnimplementedDocumentServiceServer

	document *mooringv1.Document
	between  func()
}

func (p *pausing) StreamFind(
	_ *mooringv1.StreamFindRequest, s grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	m := &mooringv1.StreamFindResponse{Documents: []*mooringv1.Document{p.document}}
	err := s.Send(m)
	p.between()
	return errors.Join(err, s.Send(m))
}

// TestStreamsRelease checks that a message of a stream is charged no more when it is written,
// however long the next one takes.
func TestStreamsRelease(t *testing.T) {
	const request = 100 // bytes, at most
	for _, f := range append(streams, webs...) {
		for _, how := range []coding.Coding{coding.Identity, coding.Zstd} {
			a, held := admission.New(admission.Config{Bytes: 16 << 20}), int64(-1)
			p := &pausing{
				document: filter(1 << 20), between: func() { held = a.Bytes().Held },
			}
			w := send(newHandlerOf(t, p, func(c *front.Config) { c.Admission = a }), "StreamFind",
				f.contentType, f.request(t, coding.Identity, &mooringv1.StreamFindRequest{}),
				"Connect-Accept-Encoding", how.String(), "Grpc-Accept-Encoding", how.String())
			if w.Code != http.StatusOK || held < 0 || held > request || a.Bytes().Held != 0 {
				t.Errorf("%s in %v: %d; %d bytes are charged between two messages, %d at the end",
					f.contentType, how, w.Code, held, a.Bytes().Held)
			}
		}
	}
}

// TestSmallMessagesNeedNoRoom checks that a small message of a stream is written without memory, as
// on gRPC: an idle stream would end with it.
func TestSmallMessagesNeedNoRoom(t *testing.T) {
	const budget = 1 << 20
	for _, f := range append(streams, webs...) {
		a := admission.New(admission.Config{Bytes: budget})
		var other admission.Account
		a.Open(&other, admission.PrincipalOf("other", netip.Addr{}))
		p := &pausing{document: filter(100), between: func() { other.Force(budget) }}
		w := send(newHandlerOf(t, p, func(c *front.Config) { c.Admission = a }), "StreamFind",
			f.contentType, f.request(t, coding.Identity, &mooringv1.StreamFindRequest{}))
		got := f.read(t, w, func() proto.Message { return &mooringv1.StreamFindResponse{} })
		if got.code != codes.OK || len(got.messages) != 2 {
			t.Errorf("%s: %d messages, %v %s, want 2", f.contentType, len(got.messages), got.code,
				got.message)
		}
	}
}

// pager answers with a page.
type pager struct {
	mooringv1.UnimplementedDocumentServiceServer
	mooringv1.UnimplementedCursorServiceServer

	document *mooringv1.Document
	closed   []string
}

func (p *pager) Find(context.Context, *mooringv1.FindRequest) (*mooringv1.FindResponse, error) {
	return &mooringv1.FindResponse{
		Documents: []*mooringv1.Document{p.document}, Cursor: new("token"),
	}, nil
}

func (p *pager) CloseCursor(
	_ context.Context, r *mooringv1.CloseCursorRequest,
) (*mooringv1.CloseCursorResponse, error) {
	p.closed = append(p.closed, r.GetCursor())
	return &mooringv1.CloseCursorResponse{}, nil
}

// TestNoRoomForPage checks that the cursor of a page for which there is no memory is closed: the
// client has no token of it.
func TestNoRoomForPage(t *testing.T) {
	for _, f := range append(unary, webs...) {
		for budget, want := range map[int64]struct {
			code   codes.Code
			closed string
		}{
			256 << 10: {codes.InvalidArgument, "[token]"}, 16 << 20: {codes.OK, "[]"},
		} {
			p := &pager{document: filter(512 << 10)}
			a := admission.New(admission.Config{Bytes: budget})
			w := send(newHandlerOf(t, p, func(c *front.Config) { c.Admission = a }), "Find",
				f.contentType, f.request(t, coding.Identity, &mooringv1.FindRequest{}))
			got := f.read(t, w, func() proto.Message { return &mooringv1.FindResponse{} })
			if closed := fmt.Sprint(p.closed); got.code != want.code || closed != want.closed ||
				a.Bytes().Held != 0 {
				t.Errorf("%s with %d bytes: %v %s, closed %s, want %v; %d are left", f.contentType,
					budget, got.code, got.message, closed, want, a.Bytes().Held)
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
		w := send(newHandler(t, b, func(c *front.Config) { c.Admission = a }), "FindOne",
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
			w := send(newHandler(t, b, func(c *front.Config) { c.Admission = a }), "FindOne",
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
	h := newHandler(t, &backend{}, func(c *front.Config) { c.MaxBodyBytes = 64 << 20 })
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

// TestFewItems checks from how many items on a message is charged with them.
func TestFewItems(t *testing.T) {
	const few = 32
	for n, want := range map[int]codes.Code{few: codes.OK, few + 1: codes.InvalidArgument} {
		m := &mooringv1.ImportRequest{}
		for range n {
			m.Documents = append(m.Documents, &mooringv1.Document{})
		}
		scarce := func(c *front.Config) {
			c.Admission = admission.New(admission.Config{Bytes: 16 << 10})
		}
		b, f := &backend{}, streams[0]
		w := send(newHandler(t, b, scarce), "Import", f.contentType,
			f.request(t, coding.Identity, m))
		got := f.read(t, w, func() proto.Message { return &mooringv1.ImportResponse{} })
		if got.code != want {
			t.Errorf("%d items: %+v, want %v", n, got, want)
		}
	}
}
