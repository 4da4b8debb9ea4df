package request

import (
	"context"

	"google.golang.org/protobuf/proto"
)

// Plain checks a request that no session or transaction can be part of: fields that this version
// does not know, and metadata that promises what the call would not keep, are refused.
func Plain(ctx context.Context, req proto.Message) error {
	r := &Reader{}
	r.known("", req)
	r.metadata(ctx)
	return r.err
}
