package web_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// importer inserts each message at once, or waits for more of them.
type importer struct {
	mooringv1.UnimplementedDocumentServiceServer

	inserts bool
}

func (i *importer) Import(
	s grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse],
) error {
	inserted := int64(0)
	for {
		r, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return s.SendAndClose(&mooringv1.ImportResponse{InsertedCount: &inserted})
		case err != nil && inserted > 0:
			done := rpcerr.Result{InsertedCount: &inserted}
			return &rpcerr.PartialError{Err: context.Cause(s.Context()), Result: done}
		case err != nil:
			return err
		case i.inserts:
			inserted += int64(len(r.GetDocuments()))
		}
	}
}

// TestBrokenOff has an import end before its second message, for each reason that says that a call
// may be made again: after the first message it may not, and what is inserted is told.
func TestBrokenOff(t *testing.T) {
	first := &mooringv1.ImportRequest{Documents: []*mooringv1.Document{filter(10), filter(10)}}
	second := "\x00\x00\x08\x00\x00x" // the beginning of 512 KiB
	for _, f := range []form{streams[0], webs[0]} {
		whole := string(f.request(t, coding.Identity, first))
		for name, row := range map[string]struct {
			full          bool // there is no memory for the second message
			header        string
			before        string // of the second message
			inserts       bool
			reason, retry string
			inserted      int64
		}{
			"silence":                         {before: whole, inserts: true, reason: "BodyTimeout", retry: "never", inserted: 2},
			"silence, before a batch is full": {before: whole, reason: "BodyTimeout", retry: "never"},
			"silence in the first message":    {reason: "BodyTimeout", retry: "same-request"},
			"no memory":                       {full: true, before: whole, inserts: true, reason: "Overloaded", retry: "never", inserted: 2},
			"no memory for the first message": {full: true, reason: "Overloaded", retry: "same-request"},
			"the deadline": {
				header: "Connect-Timeout-Ms: 1000\r\n", before: whole, inserts: true,
				reason: "DeadlineExceeded", retry: "never", inserted: 2,
			},
			"the deadline in the first message": {
				header: "Connect-Timeout-Ms: 1000\r\n", reason: "DeadlineExceeded",
				retry: "same-request",
			},
		} {
			t.Run(f.contentType+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := admission.New(admission.Config{Bytes: 1 << 20})
					if row.full {
						var others admission.Account
						a.Open(&others, admission.Principal{Name: "others"})
						others.Force(1<<20 - 64<<10)
						defer others.Close()
					}
					h := newHandlerOf(t, &importer{inserts: row.inserts}, func(c *front.Config) {
						c.Admission = a
					})
					got := f.read(t, exchange(t, h, fmt.Sprintf(
						"POST /mooring.v1.DocumentService/Import HTTP/1.1\r\nHost: x\r\n"+
							"Content-Type: %s\r\nContent-Length: 1000000\r\n%s\r\n%s%s",
						f.contentType, row.header, row.before, second)), nil)
					if got.reason != row.reason || got.retry != row.retry ||
						got.done.GetInsertedCount() != row.inserted {
						t.Errorf("%+v, want %+v", got, row)
					}
				})
			})
		}
	}
}

// slowServer takes longer for each message of an import than a client has for one.
type slowServer struct{ backend }

func (s *slowServer) Import(
	ss grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse],
) error {
	return s.backend.Import(slowStream{ss})
}

type slowStream struct {
	grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse]
}

func (s slowStream) Recv() (*mooringv1.ImportRequest, error) {
	m, err := s.ClientStreamingServer.Recv()
	time.Sleep(40 * time.Second) //nolint:forbidigo // fake time
	return m, err
}

// TestSlowServerOfAnImport has an import over HTTP/2 whose server is slow: that time is not the
// client's.
func TestSlowServerOfAnImport(t *testing.T) {
	const many = 40 // more than net/http reads ahead
	all := make([]proto.Message, many)
	for i := range all {
		all[i] = &mooringv1.ImportRequest{Documents: []*mooringv1.Document{filter(70 << 10)}}
	}
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	for _, f := range []form{streams[0], webs[0]} {
		synctest.Test(t, func(t *testing.T) {
			near, end := dial(newHandlerOf(t, &slowServer{}), func(s *http.Server) {
				s.Protocols = protocols
			})
			defer end()
			client := &http.Transport{
				Protocols: protocols,
				DialContext: func(context.Context, string, string) (net.Conn, error) {
					return near, nil
				},
			}
			defer client.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				"http://db/mooring.v1.DocumentService/Import",
				bytes.NewReader(f.request(t, coding.Identity, all...)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", f.contentType)
			reply, err := client.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			got := f.read(t, recorded(t, reply), func() proto.Message {
				return &mooringv1.ImportResponse{}
			})
			if got.code != codes.OK || len(got.messages) != 1 || reply.ProtoMajor != 2 {
				t.Errorf("%s, %s: %+v", f.contentType, reply.Proto, got)
			}
		})
	}
}

// exchange sends the beginning of a request, and returns the answer.
func exchange(t *testing.T, h http.Handler, request string) *httptest.ResponseRecorder {
	t.Helper()
	near, end := dial(h)
	defer end()
	go func() { _, _ = io.WriteString(near, request) }()
	reply, err := http.ReadResponse(bufio.NewReader(near), nil)
	if err != nil {
		t.Fatal(err)
	}
	return recorded(t, reply)
}

// recorded reads an answer.
func recorded(t *testing.T, reply *http.Response) *httptest.ResponseRecorder {
	t.Helper()
	defer func() { _ = reply.Body.Close() }()
	w := httptest.NewRecorder()
	if _, err := w.Body.ReadFrom(reply.Body); err != nil {
		t.Fatal(err)
	}
	w.Code = reply.StatusCode
	for name, values := range reply.Header {
		w.Header()[name] = values
	}
	return w
}

// TestNoRoomWhenTheImportEnds has the service end an import whose next message waits for memory.
// The answer comes at once, and says why.
func TestNoRoomWhenTheImportEnds(t *testing.T) {
	for _, f := range []form{streams[0], webs[0]} {
		synctest.Test(t, func(t *testing.T) {
			a := admission.New(admission.Config{Bytes: 8 << 20, Patience: time.Minute})
			var all admission.Account
			a.Open(&all, admission.Principal{})
			all.Force(8 << 20)
			defer all.Close()
			h := newHandlerOf(t, withdrawn{}, func(c *front.Config) { c.Admission = a })
			begun := time.Now()
			got := f.read(t, send(h, "Import", f.contentType, f.request(t, coding.Identity,
				&mooringv1.ImportRequest{Documents: []*mooringv1.Document{filter(1 << 10)}})), nil)
			if took := time.Since(begun); took != time.Second ||
				got.code != codes.PermissionDenied {
				t.Errorf("%s: %+v after %v", f.contentType, got, took)
			}
		})
	}
}

// withdrawn ends an import after a second.
type withdrawn struct {
	mooringv1.UnimplementedDocumentServiceServer
}

func (withdrawn) Import(
	grpc.ClientStreamingServer[mooringv1.ImportRequest, mooringv1.ImportResponse],
) error {
	time.Sleep(time.Second) //nolint:forbidigo // fake time
	return status.Error(codes.PermissionDenied, "withdrawn")
}
