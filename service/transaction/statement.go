package transaction

import (
	"context"
	"crypto/sha256"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// maxRemembered is the size of the largest response that is remembered for a repeated statement.
const maxRemembered = 1 << 20

// statements numbers the operations of a transaction, and remembers the result of the last one. A
// client whose operation got no answer repeats it with its number.
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
func (s *statements) run(
	ctx context.Context, in call.InTransaction, handler call.Handler,
) (proto.Message, error) {
	if in.Statement == nil {
		return handler(ctx)
	}
	this, err := identify(in)
	if err != nil {
		return nil, err
	}
	again, err := s.next(*in.Statement, this)
	switch {
	case err != nil:
		return nil, err
	case again:
		return s.result.get()
	}
	response, err := handler(ctx)
	s.result = keep(response, err)
	return response, err
}

// stream counts a stream, whose result is not remembered.
func (s *statements) stream(in call.InTransaction) error {
	if in.Statement == nil {
		return nil
	}
	this, err := identify(in)
	if err != nil {
		return err
	}
	again, err := s.next(*in.Statement, this)
	if again {
		_, err = s.result.get()
	}
	return err
}

// next checks the number of an operation, and reports whether it is the last one again.
func (s *statements) next(n int32, this [sha256.Size]byte) (again bool, err error) {
	switch {
	case n == s.last && n > 0 && this == s.call:
		return true, nil
	case n == s.last && n > 0:
		return false, outOfOrder("statement %d was another operation", n)
	case n != s.last+1:
		return false, outOfOrder("is %d, and %d is the next", n, s.last+1)
	}
	s.last, s.call, s.result = n, this, result{}
	return false, nil
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

// keep returns what is remembered of a result: its error, or its response unless that is too large.
func keep(response proto.Message, err error) result {
	if err != nil {
		return result{kept: true, err: err}
	}
	if proto.Size(response) > maxRemembered {
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
			Message: "the operation was run, and its result is not remembered: " +
				"it was too large, or a stream",
		}
	case r.err != nil:
		return nil, r.err
	}
	m := r.empty.ProtoReflect().New().Interface()
	err := proto.Unmarshal(r.response, m)
	return m, err
}
