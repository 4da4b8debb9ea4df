package request

import (
	"context"

	"google.golang.org/protobuf/proto"
)

// Plain checks a request that cannot be part of a session or transaction. It refuses fields that
// this version does not know, and metadata that asks for a feature the call does not have.
func Plain(ctx context.Context, req proto.Message) error {
	r := &Reader{}
	r.Known("", req)
	r.metadata(ctx)
	return r.err
}
