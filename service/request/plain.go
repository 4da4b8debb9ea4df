package request

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Plain checks a request that cannot be part of a session or transaction: see ReadPlain.
func Plain(ctx context.Context, req proto.Message) error { return ReadPlain(ctx, req).Err() }

// ReadPlain returns a Reader of a request that cannot be part of a session or transaction. It
// refuses fields that this version does not know, and metadata that asks for a feature the call
// does not have.
func ReadPlain(ctx context.Context, req proto.Message) *Reader {
	r := newReader(ctx)
	r.Known("", req)
	if len(metadata.ValueFromIncomingContext(ctx, sessionKey)) > 0 {
		r.Refuse(sessionKey, "this call takes none")
	}
	r.RefuseTransaction(ctx)
	r.refuseKey(ctx)
	return r
}
