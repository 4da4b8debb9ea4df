package interceptor

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// transactional describes the requests that can run in a transaction.
type transactional interface {
	proto.Message
	GetTransaction() string
}

// numbered describes those that can have a number in it.
type numbered interface{ GetStatement() int32 }

// transaction returns the transaction of a call, by its request and its metadata. ok is false if it
// has none.
func (x *Chain) transaction(
	ctx context.Context, name string, request any,
) (in call.InTransaction, ok bool, err error) {
	req, ok := request.(transactional)
	if !ok || x.cfg.Transactions == nil || !routes[routeOf(name)].transact {
		return in, false, nil
	}
	in = call.InTransaction{Token: req.GetTransaction(), Method: name, Request: req}
	for _, other := range metadata.ValueFromIncomingContext(ctx, call.TransactionKey) {
		if in.Token != "" && other != in.Token {
			return in, false, &rpcerr.Error{
				Reason: rpcerr.InvalidArgument, Field: call.TransactionKey,
				Message: "the request has another transaction",
			}
		}
		in.Token = other
	}
	fd := req.ProtoReflect().Descriptor().Fields().ByName("statement")
	if n, ok := request.(numbered); ok && req.ProtoReflect().Has(fd) {
		in.Statement = new(n.GetStatement())
	}
	return in, in.Token != "", nil
}

// transact runs a unary call in its transaction, if it has one. A stream joins its own with its
// first message: see stream.RecvMsg.
func (x *Chain) transact(ctx context.Context, c *pass) error {
	if c.stream != nil {
		return c.next(ctx)
	}
	in, ok, err := x.transaction(ctx, c.method, c.request)
	switch {
	case err != nil:
		return err
	case !ok:
		return c.next(ctx)
	}
	handler := func(ctx context.Context) (proto.Message, error) {
		if err := c.next(ctx); err != nil {
			return nil, err
		}
		response, _ := c.response.(proto.Message) // always
		return response, nil
	}
	response, err := x.cfg.Transactions.Run(ctx, in, handler)
	if err == nil {
		c.response = response
	}
	return err
}

// join joins the transaction of a stream whose first message is m, if it has one.
func (s *stream) join(m any) error {
	chain := s.call.chain
	in, ok, err := chain.transaction(s.ctx, s.call.method, m)
	switch {
	case err != nil || !ok:
		return err
	case s.call.receives:
		return &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: "transaction",
			Message: "a client stream does not take it: use InsertMany",
		}
	}
	joined, leave, err := chain.cfg.Transactions.Join(s.ctx, in)
	if err == nil {
		s.ctx, s.leave = joined, leave
	}
	return err
}
