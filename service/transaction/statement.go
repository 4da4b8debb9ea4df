package transaction

import (
	"context"
	"crypto/sha256"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

const (
	// maxRemembered is the size of the largest response that is remembered for a repeated
	// statement.
	maxRemembered = 1 << 20
	// leastSpared is the size of the smallest response that is not remembered if there is no room.
	// Those of most writes are smaller, and always remembered.
	leastSpared = 64 << 10
)

// statements numbers the operations of a transaction, and remembers the result of the last one. A
// client whose operation got no answer repeats it with its number. It is a value.
type statements struct {
	last   int32
	call   [sha256.Size]byte // the last operation
	result result
}

// result holds how an operation ended.
type result struct {
	kept     bool
	response []byte
	empty    proto.Message // of the response's type
	err      error
}

// run runs an operation, or returns the result of the last one if this is that one again.
func (o *open) run(
	ctx context.Context, in call.InTransaction, handler call.Handler,
) (proto.Message, error) {
	if in.Statement == nil {
		return handler(ctx)
	}
	before := o.statements
	again, err := o.count(in)
	switch {
	case err != nil:
		return nil, err
	case again:
		return o.statements.result.get()
	}
	response, err := handler(ctx)
	o.ended(before, response, explain(ctx, err))
	return response, err
}

// stream counts a stream, whose result is not remembered. The caller calls ended with the error
// that ends the stream.
func (o *open) stream(
	in call.InTransaction,
) (ended func(ctx context.Context, err error), err error) {
	if in.Statement == nil {
		return func(context.Context, error) {}, nil
	}
	before := o.statements
	again, err := o.count(in)
	if again {
		_, err = o.statements.result.get()
	}
	return func(ctx context.Context, err error) {
		if err != nil {
			o.ended(before, nil, explain(ctx, err))
		}
	}, err
}

// explain explains the error of an operation, to be remembered; nil for nil. The call that repeats
// the operation has an encoding of its own, and conceals what its client may not see: whether this
// one is terse is not decided yet.
func explain(ctx context.Context, err error) *rpcerr.Failure {
	if err == nil {
		return nil
	}
	of := *call.From(ctx)
	of.Encoding, of.Terse = payload.BSON, false
	return rpcerr.Explain(err, of)
}

// count counts an operation, unless it is the last one again.
func (o *open) count(in call.InTransaction) (again bool, err error) {
	this, err := identify(in)
	if err != nil {
		return false, err
	}
	o.statements, again, err = o.statements.next(*in.Statement, this)
	return again, err
}

// next counts an operation by its number, unless it is the last one again.
func (s statements) next(
	n int32, this [sha256.Size]byte,
) (next statements, again bool, err error) {
	switch {
	case n == s.last && n > 0 && this == s.call:
		return s, true, nil
	case n == s.last && n > 0:
		return s, false, outOfOrder("%d was another operation", n)
	case n != s.last+1:
		return s, false, outOfOrder("is %d, the next is %d", n, s.last+1)
	}
	return statements{last: n, call: this}, false, nil
}

// ended remembers how the last operation has ended. If its client is told to make the same call
// again, nothing was done, and that operation is the next one again, as it was before.
func (o *open) ended(before statements, response proto.Message, failure *rpcerr.Failure) {
	if failure != nil && failure.Retry() == rpcerr.SameRequest {
		o.statements = before
		return
	}
	o.remembers.Shrink(o.remembers.Held() - o.charged)
	o.statements.result = o.keep(response, failure)
}

func outOfOrder(format string, args ...any) error {
	return &rpcerr.Error{
		Reason: rpcerr.StatementOutOfOrder, Field: "statement",
		Message: fmt.Sprintf(format, args...),
	}
}

// The numbers of the fields of all requests that a repeated operation may have anew.
const (
	sessionField     = 3
	transactionField = 4
)

// identify returns a sum of an operation: its method, and its request without tokens.
func identify(in call.InTransaction) (sum [sha256.Size]byte, err error) {
	m := in.Request.ProtoReflect()
	rest := m.New()
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Number() != sessionField && fd.Number() != transactionField {
			rest.Set(fd, v)
		}
		return true
	})
	b, err := proto.MarshalOptions{Deterministic: true}.
		MarshalAppend([]byte(in.Method), rest.Interface())
	return sha256.Sum256(b), err
}

// keep returns what is remembered of a result: its error as a status, which is short, or its
// response unless that is too large. That its client has left is not a result: other clients would
// be told that they had.
func (o *open) keep(response proto.Message, failure *rpcerr.Failure) result {
	switch {
	case failure != nil && failure.Code() == codes.Canceled:
		return result{}
	case failure != nil:
		return result{kept: true, err: failure.GRPCStatus().Err()}
	}
	size := proto.Size(response)
	switch {
	case size < leastSpared:
		o.remembers.Force(int64(size))
	case size > maxRemembered || !o.remembers.Spare(int64(size)):
		return result{}
	}
	b, err := proto.Marshal(response)
	if err != nil {
		return result{}
	}
	return result{kept: true, response: b, empty: response.ProtoReflect().New().Interface()}
}

// get returns the result again.
func (r *result) get() (proto.Message, error) {
	switch {
	case !r.kept:
		return nil, &rpcerr.Error{
			Reason: rpcerr.StatementResultLost, Field: "statement",
			Message: "the operation was run, but its result is not available: it " +
				"was too large, or a stream, or there was no memory for it, or " +
				"it took too long after its client had disconnected",
		}
	case r.err != nil:
		return nil, r.err
	}
	m := r.empty.ProtoReflect().New().Interface()
	err := proto.Unmarshal(r.response, m)
	return m, err
}
