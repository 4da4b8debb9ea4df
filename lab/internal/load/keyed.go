package load

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// keyed sends an API key with each call, if there is one.
type keyed struct {
	mooringv1.DocumentServiceClient
	key string
}

func (k keyed) FindOne(
	ctx context.Context, req *mooringv1.FindOneRequest, opts ...grpc.CallOption,
) (*mooringv1.FindOneResponse, error) {
	return k.DocumentServiceClient.FindOne(k.with(ctx), req, opts...)
}

func (k keyed) Find(
	ctx context.Context, req *mooringv1.FindRequest, opts ...grpc.CallOption,
) (*mooringv1.FindResponse, error) {
	return k.DocumentServiceClient.Find(k.with(ctx), req, opts...)
}

func (k keyed) with(ctx context.Context) context.Context {
	if k.key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+k.key)
}
