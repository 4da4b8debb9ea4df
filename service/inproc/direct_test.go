package inproc_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// outlet records what a handler sends.
type outlet struct {
	header   metadata.MD
	headers  int
	ended    bool // the context of the header had
	messages int
	err      error // of Message
}

func (o *outlet) Header(ctx context.Context, md metadata.MD) {
	o.header, o.headers, o.ended = md, o.headers+1, ctx.Err() != nil
}

func (o *outlet) Message(_ context.Context, m any) error {
	if _, ok := m.(*mooringv1.StreamFindResponse); ok && o.headers == 1 {
		o.messages++
	}
	return o.err
}

func TestServe(t *testing.T) {
	const name = mooringv1.DocumentService_StreamFind_FullMethodName
	f := &fake{}
	conn := newConn(f)
	request := &mooringv1.StreamFindRequest{Limit: new(int64(2))}
	f.streamFind = func(r *mooringv1.StreamFindRequest, s findStream) error {
		_ = s.SetHeader(metadata.Pairs("h", incoming(s.Context(), "k")))
		s.SetTrailer(metadata.Pairs("t", "1"))
		if err := s.RecvMsg(&mooringv1.StreamFindRequest{}); !errors.Is(err, io.EOF) {
			t.Errorf("a second request: %v", err)
		}
		for range r.GetLimit() {
			if err := s.Send(&mooringv1.StreamFindResponse{}); err != nil {
				return err
			}
		}
		return nil
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "k", "v")
	to := &outlet{}
	trailer, err := conn.Serve(ctx, name, request, to)
	if err != nil || len(trailer.Get("t")) != 1 {
		t.Fatalf("trailer %v, %v", trailer, err)
	}
	if to.messages != 2 || to.headers != 1 || to.header.Get("h")[0] != "v" || to.ended {
		t.Errorf("%d messages, %d headers, the last %v, after the end: %t", to.messages, to.headers,
			to.header, to.ended)
	}
	to = &outlet{}
	_, err = conn.Serve(ctx, name, &mooringv1.StreamFindRequest{}, to)
	if err != nil || to.headers != 1 || !to.ended {
		t.Errorf("no message: %v, %d headers, after the end: %t", err, to.headers, to.ended)
	}
	to = &outlet{err: io.ErrClosedPipe}
	if _, err := conn.Serve(ctx, name, request, to); err == nil || to.messages != 1 {
		t.Errorf("a message that fails: %v after %d", err, to.messages)
	}
	over, cancel := context.WithCancel(ctx)
	f.streamFind = func(_ *mooringv1.StreamFindRequest, s findStream) error {
		cancel()
		return s.Send(&mooringv1.StreamFindResponse{})
	}
	to = &outlet{}
	_, err = conn.Serve(over, name, request, to)
	if status.Code(err) != codes.Canceled || to.messages != 0 || to.headers != 1 {
		t.Errorf("after the end: %v, %d messages, %d headers", err, to.messages, to.headers)
	}
	if _, err := conn.Serve(over, name, request, to); status.Code(err) != codes.Canceled {
		t.Errorf("a call that is over: %v", err)
	}
	const unary = mooringv1.DocumentService_FindOne_FullMethodName
	if _, err := conn.Serve(ctx, unary, request, to); status.Code(err) != codes.Unimplemented {
		t.Errorf("a call that is not a stream: %v", err)
	}
	f.streamFind = func(*mooringv1.StreamFindRequest, findStream) error { panic("boom") }
	defer func() {
		if p := recover(); p != "boom" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, _ = conn.Serve(ctx, name, request, &outlet{})
}
