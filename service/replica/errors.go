package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// named maps names between replicas to the errors of paging and handle that a caller gets back
// unchanged. The names stay, since the other replica may be of another version.
var named = map[string]error{
	"cursor_not_found":        paging.ErrCursorNotFound,
	"cursor_token_reused":     paging.ErrCursorTokenReused,
	"cursor_evicted":          paging.ErrCursorEvicted,
	"cursor_position_unknown": paging.ErrCursorPositionUnknown,
	"token_version":           paging.ErrTokenVersion,
	"owner_gone":              paging.ErrOwnerGone,
	"closing":                 handle.ErrClosing,
	"handle_not_found":        handle.ErrNotFound,
	"other_transaction":       paging.ErrOtherTransaction,
	"not_here":                paging.ErrNotHere,
	"self":                    errSelf,
	"deployment":              errForeign,
	"message":                 errMessage,
}

// movedName is the name of a *paging.MovedError.
const movedName = "moved"

// errSelf refuses a call that a replica has made to itself: one of the addresses where it looks
// for other replicas is its own.
var errSelf = errors.New("this replica is the one that asks")

// errForeign refuses a call of a replica that serves another deployment, or does not name one.
var errForeign = errors.New("the two replicas serve different MongoDB deployments (uri)")

// RemoteError wraps an error of the work that another replica has done for this replica. To a
// client it looks like an error of this replica.
type RemoteError struct {
	Address string
	status  *status.Status
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("gateway replica at %s: %s", e.Address, e.status.Message())
}

// GRPCStatus returns the status that the other replica would have sent to a client.
func (e *RemoteError) GRPCStatus() *status.Status { return e.status }

// refusal converts an error for another replica: its status for a client, and its name if it has
// one.
func refusal(err error) error {
	detail := &replicav1.Refusal{}
	for name, target := range named {
		if errors.Is(err, target) {
			detail.Name = name
		}
	}
	if moved, ok := errors.AsType[*paging.MovedError](err); ok {
		detail.Name, detail.Moved = movedName, newReplica(moved.To)
	}
	p := rpcerr.Status(err).Proto()
	if detail.Name != "" {
		// the log of requests must not count it as a fault
		p.Code = int32(codes.FailedPrecondition)
	}
	packed, packErr := anypb.New(detail)
	if packErr != nil { // cannot happen: the message is this package's own
		return err
	}
	p.Details = append(p.Details, packed)
	return status.FromProto(p).Err()
}

// explain reverses refusal: it returns the error of a call to address. via is the connection that
// the call has recorded.
func explain(ctx context.Context, address string, via *peer.Peer, err error) error {
	p := status.Convert(err).Proto()
	for i, packed := range p.GetDetails() {
		detail := &replicav1.Refusal{}
		if !packed.MessageIs(detail) || packed.UnmarshalTo(detail) != nil {
			continue
		}
		var r reader
		moved := r.replica(detail.GetMoved())
		switch target := named[detail.GetName()]; {
		case detail.GetName() == movedName && r.err == nil:
			return &paging.MovedError{To: moved}
		case errors.Is(target, errSelf), errors.Is(target, errForeign),
			errors.Is(target, errMessage):
			// the replica has done nothing
			return &paging.UnreachableError{Address: address, Err: target}
		case target != nil:
			return target
		}
		p.Details = append(p.Details[:i:i], p.Details[i+1:]...)
		return &RemoteError{Address: address, status: status.FromProto(p)}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// gRPC's timer fired first
	if status.Code(err) == codes.DeadlineExceeded && deadlinePassed(ctx) {
		return context.DeadlineExceeded
	}
	return &paging.UnreachableError{
		Address: address, Sent: via.Addr != nil, Err: errors.New(status.Convert(err).Message()),
	}
}

func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}
