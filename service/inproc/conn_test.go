package inproc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// fake implements a service that answers what a test gives it.
type fake struct {
	mooringv1.UnimplementedDocumentServiceServer

	findOne    func(context.Context, *mooringv1.FindOneRequest) (*mooringv1.FindOneResponse, error)
	streamFind func(*mooringv1.StreamFindRequest, findStream) error
}

type findStream = grpc.ServerStreamingServer[mooringv1.StreamFindResponse]

func (f *fake) FindOne(
	ctx context.Context, r *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	return f.findOne(ctx, r)
}

func (f *fake) StreamFind(r *mooringv1.StreamFindRequest, s findStream) error {
	return f.streamFind(r, s)
}

// newConn returns a Conn with interceptors that only call the handler.
func newConn(f *fake) *inproc.Conn {
	conn := inproc.NewConn(
		func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
		) (any, error) {
			return handler(ctx, req)
		},
		func(
			srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler,
		) error {
			return handler(srv, ss)
		},
	)
	mooringv1.RegisterDocumentServiceServer(conn, f)
	return conn
}

func incoming(ctx context.Context, key string) string {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, key), ",")
}

func number(n int32) bson.Raw { return bson.NewBuilder(nil).Int32("n", n).Finish() }

// TestErrorsStayWhole checks that a caller gets the error itself, and not only its status.
func TestErrorsStayWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := &mongoerr.WriteException{}
		client := mooringv1.NewDocumentServiceClient(newConn(&fake{
			findOne: func(
				context.Context, *mooringv1.FindOneRequest,
			) (*mooringv1.FindOneResponse, error) {
				return nil, rpcerr.Explain(cause, call.Call{Local: call.Local{RequestID: "r1"}})
			},
			streamFind: func(*mooringv1.StreamFindRequest, findStream) error { return cause },
		}))
		_, err := client.FindOne(t.Context(), nil)
		if !errors.Is(err, cause) || rpcerr.HTTP(err).Body.GetError().GetRequestId() != "r1" {
			t.Errorf("unary: %v", err)
		}
		stream, err := client.StreamFind(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, cause) ||
			status.Code(err) != codes.FailedPrecondition {
			t.Errorf("stream: %v", err)
		}
	})
}

func TestUnaryCall(t *testing.T) {
	var seen []string
	request := &mooringv1.FindOneRequest{Database: "shop", Filter: payload.NewDocument(number(1))}
	document := payload.NewDocument(number(2))
	conn := inproc.NewConn(func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (any, error) {
		seen = append(seen, info.FullMethod, incoming(ctx, "k"))
		if req != any(request) {
			t.Error("the request was copied")
		}
		return handler(ctx, req)
	}, nil)
	f := &fake{findOne: func(
		ctx context.Context, r *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		method, _ := grpc.Method(ctx)
		seen = append(seen, method, r.GetDatabase())
		if md, ok := metadata.FromOutgoingContext(ctx); ok && len(md) > 0 {
			t.Errorf("the caller's metadata would be sent on: %v", md)
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs("h", "1"))
		_ = grpc.SendHeader(ctx, metadata.Pairs("h", "2"))
		if grpc.SetHeader(ctx, metadata.Pairs("h", "3")) == nil {
			t.Error("a header was set after it was sent")
		}
		_ = grpc.SetTrailer(ctx, metadata.Pairs("t", "1"))
		return &mooringv1.FindOneResponse{Document: document, Session: new("s")}, nil
	}}
	mooringv1.RegisterDocumentServiceServer(conn, f)
	var header, trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "k", "v")
	resp, err := mooringv1.NewDocumentServiceClient(conn).
		FindOne(ctx, request, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || resp.GetDocument() != document || resp.GetSession() != "s" {
		t.Fatalf("%v, %v", resp, err)
	}
	const name = mooringv1.DocumentService_FindOne_FullMethodName
	if len(seen) != 4 || seen[0] != name || seen[1] != "v" || seen[2] != name || seen[3] != "shop" {
		t.Errorf("seen %q", seen)
	}
	if h := header.Get("h"); len(h) != 2 || len(trailer.Get("t")) != 1 {
		t.Errorf("header %v, trailer %v", header, trailer)
	}
}

// TestLocal checks that a handler learns what its caller says with WithIncoming, and that the
// handler's own calls do not inherit it.
func TestLocal(t *testing.T) {
	var conn *inproc.Conn
	var got []call.Local
	conn = newConn(&fake{
		findOne: func(
			ctx context.Context, _ *mooringv1.FindOneRequest,
		) (*mooringv1.FindOneResponse, error) {
			got = append(got, call.LocalFrom(ctx))
			if len(got) == 1 {
				return mooringv1.NewDocumentServiceClient(conn).FindOne(ctx, nil)
			}
			return nil, nil
		},
		streamFind: func(_ *mooringv1.StreamFindRequest, s findStream) error {
			got = append(got, call.LocalFrom(s.Context()))
			return nil
		},
	})
	client := mooringv1.NewDocumentServiceClient(conn)
	local := call.Local{RequestID: "r1", Casual: true, Text: true, Built: true}
	md := metadata.Pairs("k", "v")
	if _, err := client.FindOne(inproc.WithIncoming(t.Context(), local, md), nil); err != nil {
		t.Fatal(err)
	}
	stream, err := client.StreamFind(inproc.WithIncoming(t.Context(), local, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if want := []call.Local{local, {}, local}; !slices.Equal(got, want) {
		t.Errorf("handlers learn %+v, want %+v", got, want)
	}
}

func TestUnaryErrors(t *testing.T) {
	f := &fake{}
	conn := inproc.NewConn(nil, nil)
	mooringv1.RegisterDocumentServiceServer(conn, f)
	client := mooringv1.NewDocumentServiceClient(conn)
	f.findOne = func(
		context.Context, *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		return nil, context.DeadlineExceeded
	}
	if _, err := client.FindOne(t.Context(), nil); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a context's error became %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.FindOne(cancelled, nil); status.Code(err) != codes.Canceled {
		t.Errorf("after cancel: %v", err)
	}
	if _, err := client.StreamFind(cancelled, nil); status.Code(err) != codes.Canceled {
		t.Errorf("stream after cancel: %v", err)
	}
	if _, err := mooringv1.NewCommandServiceClient(conn).
		RunCommand(t.Context(), nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown method: %v", err)
	}
	f.findOne = func(
		context.Context, *mooringv1.FindOneRequest,
	) (*mooringv1.FindOneResponse, error) {
		panic("boom")
	}
	defer func() {
		if p := recover(); p != "boom" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, _ = client.FindOne(t.Context(), nil)
}

func TestStreamCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{streamFind: func(r *mooringv1.StreamFindRequest, s findStream) error {
			_ = s.SetHeader(metadata.Pairs("h", incoming(s.Context(), "k")))
			s.SetTrailer(metadata.Pairs("t", "1"))
			for range r.GetLimit() {
				if err := s.Send(&mooringv1.StreamFindResponse{
					Documents: []*mooringv1.Document{payload.NewDocument(number(3))},
				}); err != nil {
					return err
				}
			}
			return nil
		}}
		client := mooringv1.NewDocumentServiceClient(newConn(f))
		stream, err := client.StreamFind(metadata.AppendToOutgoingContext(t.Context(), "k", "v"),
			&mooringv1.StreamFindRequest{Limit: new(int64(2))})
		if err != nil {
			t.Fatal(err)
		}
		header, err := stream.Header()
		if err != nil || header.Get("h")[0] != "v" {
			t.Errorf("header %v, %v", header, err)
		}
		n := 0
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(m.GetDocuments()) != 1 {
				t.Fatal(m, err)
			}
			n++
		}
		if n != 2 || len(stream.Trailer().Get("t")) != 1 {
			t.Errorf("%d messages, trailer %v", n, stream.Trailer())
		}
	})
}

// TestNoInterceptors checks that a Conn without interceptors runs the handlers themselves.
func TestNoInterceptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inproc.NewConn(nil, nil)
		mooringv1.RegisterDocumentServiceServer(c, &fake{
			streamFind: func(*mooringv1.StreamFindRequest, findStream) error { return nil },
		})
		stream, err := mooringv1.NewDocumentServiceClient(c).
			StreamFind(t.Context(), &mooringv1.StreamFindRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("Recv = %v, %v; want EOF", m, err)
		}
	})
}

func TestStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		client := mooringv1.NewDocumentServiceClient(newConn(f))
		open := func(ctx context.Context) grpc.ServerStreamingClient[mooringv1.StreamFindResponse] {
			s, err := client.StreamFind(ctx, &mooringv1.StreamFindRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		f.streamFind = func(_ *mooringv1.StreamFindRequest, s findStream) error {
			<-s.Context().Done()
			time.Sleep(time.Second) //nolint:forbidigo // fake time
			return s.Context().Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if _, err := open(ctx).Recv(); status.Code(err) != codes.DeadlineExceeded ||
			time.Since(begun) != time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		f.streamFind = func(_ *mooringv1.StreamFindRequest, s findStream) error {
			return s.Send(&mooringv1.StreamFindResponse{})
		}
		ctx, cancel = context.WithCancel(t.Context())
		stream := open(ctx)
		synctest.Wait()
		cancel() // no goroutine receives: the handler's send must end
		synctest.Wait()
		if _, err := stream.Recv(); status.Code(err) != codes.Canceled && err != nil {
			t.Errorf("after cancel: %v", err)
		}
		f.streamFind = func(*mooringv1.StreamFindRequest, findStream) error { panic("boom") }
		stream = open(t.Context())
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _ = stream.Recv()
	})
}
