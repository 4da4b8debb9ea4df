package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// What grpc exports reads a message in one piece and says nothing of its progress. So this package
// uses methods of grpc's transport stream, whose type only grpc can name, and which another version
// of grpc may not have. This file alone finds them. It checks them when the server starts, and
// again for each call.

// transportStream lists the methods of grpc's transport stream that read a message in pieces and
// end a call whose handler is blocked.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	WriteStatus(st *status.Status) error
	RecvCompress() string
}

// transportOf returns the transport stream of a call.
func transportOf(ctx context.Context) (transportStream, error) {
	ss := grpc.ServerTransportStreamFromContext(ctx)
	if raw, ok := ss.(transportStream); ok {
		return raw, nil
	}
	return nil, internalsError(ss, "ReadMessageHeader, Read, WriteStatus and RecvCompress")
}

// writerOf returns what gives grpc a message as it is on the wire: the Write of the transport
// stream, which has a third argument, and does not use it.
func writerOf(raw transportStream) (func(header []byte, data mem.BufferSlice) error, error) {
	write := reflect.ValueOf(raw).MethodByName("Write")
	if !write.IsValid() || !isWrite(write.Type()) {
		return nil, internalsError(raw, "Write(header, data, options) error")
	}
	unused := reflect.Zero(write.Type().In(2))
	return func(header []byte, data mem.BufferSlice) error {
		result := write.Call([]reflect.Value{
			reflect.ValueOf(header), reflect.ValueOf(data), unused,
		})
		err, _ := result[0].Interface().(error)
		return err
	}, nil
}

func isWrite(t reflect.Type) bool {
	return !t.IsVariadic() && t.NumIn() == 3 && t.NumOut() == 1 &&
		t.In(0) == reflect.TypeFor[[]byte]() && t.In(1) == reflect.TypeFor[mem.BufferSlice]() &&
		t.Out(0) == reflect.TypeFor[error]()
}

// internalsError says that grpc's transport stream has not the methods that are needed.
func internalsError(ss any, methods string) error {
	return &rpcerr.Error{
		Reason: rpcerr.Internal,
		Message: fmt.Sprintf("this gateway does not work with grpc %s: its %T lacks the methods %s",
			grpc.Version, ss, methods),
	}
}

// CheckGRPC returns an error if grpc is a version whose transport stream has other methods than
// those that this package uses. It makes a call within the process to see one.
func CheckGRPC(ctx context.Context) error {
	err := errors.New("bug: server: grpc has not called the handler")
	//nolint:contextcheck // a handler has the context of its stream
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		var raw transportStream
		if raw, err = transportOf(ss.Context()); err == nil {
			_, err = writerOf(raw)
		}
		return nil
	}))
	defer g.Stop()
	r, wrong := http.NewRequestWithContext(ctx, http.MethodPost, "/mooring.Check/Check",
		http.NoBody)
	if wrong != nil {
		return wrong
	}
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	r.Header.Set("Content-Type", "application/grpc")
	g.ServeHTTP(discard{}, r)
	return err
}

// discard stands for a response that no client gets.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}
func (discard) Flush()                      {}
