package interceptor_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/service/interceptor"
)

// The cost of the interceptors around a handler that does nothing.
func BenchmarkUnary(b *testing.B) {
	x := interceptor.New(interceptor.Config{}).Unary()
	ctx := metadata.NewIncomingContext(b.Context(),
		metadata.Pairs(":authority", "a", "content-type", "application/grpc", "user-agent", "u"))
	info := &grpc.UnaryServerInfo{FullMethod: "/s/M"}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x(ctx, nil, info, handler); err != nil {
			b.Fatal(err)
		}
	}
}
