package request

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/projection"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// write describes the requests of writes.
type write interface {
	handles
	GetDatabase() string
	GetCollection() string
}

// ReadWrite returns a Reader of the request of a write that the server can repeat safely. If the
// call has an idempotency key, the options that the Reader's tables read make it exactly-once.
func ReadWrite(ctx context.Context, req write, statement *int32) *Reader {
	r := read(ctx, req, statement)
	keys := metadata.ValueFromIncomingContext(ctx, call.IdempotencyKey)
	switch {
	case len(keys) == 0 || r.err != nil:
		return r
	case len(keys) > 1:
		r.Refuse(call.IdempotencyKey, "is repeated")
		return r
	case r.Session != nil, r.Transaction != nil:
		r.RefuseKey("a call in a session or a transaction does not take a key")
		return r
	case r.Idempotency == nil:
		r.unbuilt(call.IdempotencyKey)
		return r
	}
	if err := r.beginExact(req, keys[0]); err != nil {
		r.fail(err)
	}
	return r
}

// beginExact makes the call an exactly-once write. The request's database and collection are in its
// digest.
func (r *Reader) beginExact(req write, key string) error {
	if r.Asked == nil {
		asked, err := call.DigestOf(req)
		if err != nil {
			return err
		}
		r.Asked = &asked
	}
	operation := string(req.ProtoReflect().Descriptor().FullName())
	exact, err := r.Idempotency.Begin(r.Principal, key, operation, *r.Asked)
	r.Exact = exact
	return err
}

// IsExact reports whether the call is an exactly-once write.
func (r *Reader) IsExact() bool { return r.Exact != nil }

// Answer returns what the client gets of the document that a write has answered with: what the
// policy allows, by the projection that was sent. A server that has made the write before answers
// with the document as it was then, and applies no projection.
func (r *Reader) Answer(
	req proto.Message, res client.FindOneAndResult, sent bson.Raw,
) (*mooringv1.Document, error) {
	doc := res.Document
	if doc != nil && r.Answers != nil {
		var err error
		if doc, err = r.Answers.Answer(req, doc, res.Repeated); err != nil {
			return nil, err
		}
	}
	if doc != nil && res.Repeated {
		if p, err := projection.Compile(sent); err == nil {
			doc = p.Apply(doc)
		}
	}
	return r.Encoding.Document(doc)
}

// refuseKey refuses an idempotency key.
func (r *Reader) refuseKey(ctx context.Context) {
	if len(metadata.ValueFromIncomingContext(ctx, call.IdempotencyKey)) > 0 {
		r.RefuseKey("this call does not take a key")
	}
}

// RefuseKey makes a call with an idempotency key fail.
func (r *Reader) RefuseKey(why string) {
	r.fail(&rpcerr.Error{
		Reason: rpcerr.IdempotencyKeyUnsupported, Field: call.IdempotencyKey, Message: why,
	})
}

// WithID returns a document that is inserted. If the call is exactly-once and the document has no
// _id, it gets one in front that is the same each time.
func (r *Reader) WithID(document int, doc bson.Raw) bson.Raw {
	if r.Exact == nil || r.err != nil || doc.Has("_id") {
		return doc
	}
	b := bson.NewBuilder(make([]byte, 0, len(doc)+len("0_id0")+len(bson.ObjectID{})))
	return b.ObjectID("_id", r.Exact.NewID(document)).AppendElements(doc).Finish()
}
