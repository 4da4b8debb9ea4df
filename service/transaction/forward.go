package transaction

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// elsewhere describes a call whose transaction another replica keeps. That one makes the call.
type elsewhere struct {
	of    *Transactions
	claim claim
	// failed returns what the client gets if the owner has returned err.
	failed func(ctx context.Context, err error) (proto.Message, error)
}

var _ call.Elsewhere = (*elsewhere)(nil)

func (e *elsewhere) Error() string {
	return "the replica at " + e.claim.owner.Address + " keeps the transaction"
}

// elsewhere returns the error of a call whose transaction is not here. A call that another replica
// has forwarded goes no further.
func (s *Transactions) elsewhere(
	ctx context.Context, c claim, failed func(context.Context, error) (proto.Message, error),
) error {
	if call.From(ctx).Forwarded {
		return paging.ErrNotHere
	}
	return &elsewhere{of: s, claim: c, failed: failed}
}

// Route implements call.Elsewhere.
func (e *elsewhere) Route(
	ctx context.Context, _ func(context.Context) error, there call.There,
) (call.Reply, error) {
	owner := e.claim.owner
	reply, err := call.Reply{}, error(paging.ErrOwnerGone)
	if owner.Address != "" && owner.Address != e.of.self().Address {
		reply, err = there(ctx, owner)
		err = e.of.cfg.Cursors.OwnerError(ctx, owner, err)
	}
	if err != nil {
		reply.Response, err = e.failed(ctx, err)
		return reply, err
	}
	if reply.Stream != nil {
		reply.Stream = &relayed{Stream: reply.Stream, ctx: ctx, of: e}
	}
	return reply, nil
}

// relayed wraps a stream that the owner of a transaction sends.
type relayed struct {
	call.Stream
	ctx context.Context //nolint:containedctx // of the call, and no longer lived than this value
	of  *elsewhere
}

// Recv returns the next message, or the error that the client gets.
func (r *relayed) Recv() (proto.Message, error) {
	m, err := r.Stream.Recv()
	if err == nil || errors.Is(err, io.EOF) {
		return m, err
	}
	err = r.of.of.cfg.Cursors.OwnerError(r.ctx, r.of.claim.owner, err)
	return r.of.failed(r.ctx, err)
}

// operationFailed returns a function that returns the error of an operation whose owner has
// returned err.
func operationFailed(
	in call.InTransaction,
) func(ctx context.Context, err error) (proto.Message, error) {
	return func(_ context.Context, err error) (proto.Message, error) {
		return nil, operationError(in, err)
	}
}

// gaveUp reports whether err says that the call has ended before the owner answered: what the owner
// has done is not known then.
func gaveUp(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) ||
		ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// operationError returns the error of an operation whose owner has returned err.
func operationError(in call.InTransaction, err error) error {
	switch {
	case errors.Is(err, paging.ErrOwnerGone):
		return errOwnerGone
	case isStopping(err):
		return errOwnerStops
	case errors.Is(err, context.DeadlineExceeded):
		return &rpcerr.Error{
			Reason:  rpcerr.DeadlineExceeded,
			Message: "the gateway replica that keeps the transaction has not answered in time",
			Retry:   afterSilence(in), Err: err,
		}
	}
	if lost, ok := errors.AsType[*paging.UnreachableError](err); ok {
		e := &rpcerr.Error{
			Reason: rpcerr.ReplicaUnreachable, Message: err.Error(), Err: err,
			Retry: rpcerr.SameRequest,
		}
		if lost.Sent {
			e.Retry = afterSilence(in)
		}
		return e
	}
	return err
}

// afterSilence returns what a client may do whose operation may have been done.
func afterSilence(in call.InTransaction) rpcerr.Retry {
	if in.Statement == nil {
		return rpcerr.Transaction
	}
	return rpcerr.SameRequest
}

var errOwnerStops = &rpcerr.Error{
	Reason: rpcerr.TransactionAborted, Field: "transaction",
	Message: "the gateway replica that keeps the transaction is shutting down, and aborts it",
}

// isStopping reports whether a replica has refused a call because it is shutting down.
func isStopping(err error) bool {
	e, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	return ok && status.Code(e) == codes.Unavailable &&
		rpcerr.HTTP(e).Body.GetError().GetReason() == string(rpcerr.ShuttingDown)
}
