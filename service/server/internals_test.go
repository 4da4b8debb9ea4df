package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/service/server"
)

// changed is a transport stream of a version of grpc that reads in another way.
type changed struct{ grpc.ServerTransportStream }

// reading is one that still reads as the gateway expects.
type reading struct{ changed }

func (reading) ReadMessageHeader([]byte) error    { return nil }
func (reading) Read(int) (mem.BufferSlice, error) { return nil, nil }
func (reading) WriteStatus(*status.Status) error  { return nil }
func (reading) RecvCompress() string              { return "" }

// fewer writes with fewer arguments, other with another one, and results with more results.
type (
	fewer   struct{ reading }
	other   struct{ reading }
	results struct{ reading }
)

func (fewer) Write([]byte, mem.BufferSlice) error               { return nil }
func (other) Write([]byte, []byte, any) error                   { return nil }
func (results) Write([]byte, mem.BufferSlice, any) (int, error) { return 0, nil }

// TestOtherGRPC checks that calls over a grpc whose transport stream has other methods fail with an
// error that says so, and that none of them panics.
func TestOtherGRPC(t *testing.T) {
	const want = "this gateway does not work with grpc " + grpc.Version
	with := func(ss grpc.ServerTransportStream) context.Context {
		return grpc.NewContextWithServerTransportStream(t.Context(), ss)
	}
	for _, method := range []string{
		"/mooring.v1.DocumentService/Find", "/grpc.health.v1.Health/Watch",
	} {
		err := server.Open(with(changed{}), &server.GRPCConfig{}, nil, method)
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), want) {
			t.Errorf("%s with other methods: %v, want %q", method, err, want)
		}
		if err := server.Open(with(reading{}), &server.GRPCConfig{}, nil, method); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, ss := range []grpc.ServerTransportStream{reading{}, fewer{}, other{}, results{}} {
		if err := server.Queue(with(ss)); status.Code(err) != codes.Internal ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("a compressed message over %T: %v, want %q", ss, err, want)
		}
	}
}

// TestStartChecksGRPC checks that this version of grpc fits, and that the server does not start
// with one that does not.
func TestStartChecksGRPC(t *testing.T) {
	if err := server.CheckGRPC(t.Context()); err != nil {
		t.Errorf("CheckGRPC = %v", err)
	}
	r := newRig(t, nil)
	misfit := errors.New("this gateway does not fit")
	r.SetCheck(func(context.Context) error { return misfit })
	if err := r.Start(t.Context()); !errors.Is(err, misfit) ||
		r.Addresses() != (server.Addresses{}) {
		t.Errorf("Start = %v, and it listens on %v", err, r.Addresses())
	}
}

// TestStreamsKeepNoLargeResponse checks that a response that is charged goes with the bytes of it
// that grpc has, and not with the stream of its call.
func TestStreamsKeepNoLargeResponse(t *testing.T) {
	text := mem.SliceBuffer("text")
	if kept := server.Kept(text, true); kept != nil {
		t.Errorf("it keeps %q of a large one", kept.ReadOnlyData())
	}
	if server.Kept(text, false) == nil {
		t.Error("a small one takes an allocation of its own")
	}
}
