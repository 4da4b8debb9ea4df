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

// named are the errors of paging and handle that come back as themselves, by their names between
// replicas. The names stay: the other replica may be of another version.
var named = map[string]error{
	"cursor_not_found":        paging.ErrCursorNotFound,
	"cursor_token_reused":     paging.ErrCursorTokenReused,
	"cursor_position_unknown": paging.ErrCursorPositionUnknown,
	"token_version":           paging.ErrTokenVersion,
	"owner_gone":              paging.ErrOwnerGone,
	"closing":                 handle.ErrClosing,
	"handle_not_found":        handle.ErrNotFound,
	"token_too_long":          paging.ErrTokenTooLong,
	"not_here":                paging.ErrNotHere,
	"self":                    errSelf,
	"deployment":              errForeign,
	"message":                 errMessage,
}

// errSelf refuses a call that a replica has made to itself: one of the addresses where it looks
// for others is its own.
var errSelf = errors.New("this replica is the one that asks")

// errForeign refuses a call of a replica that serves another deployment, or does not say which.
var errForeign = errors.New("the two replicas serve different MongoDB deployments (uri)")

// RemoteError is what went wrong where another replica has worked for this one. To a client it
// looks as if it had happened here.
type RemoteError struct {
	Address string
	status  *status.Status
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("gateway replica at %s: %s", e.Address, e.status.Message())
}

// GRPCStatus is what the other replica would have told a client.
func (e *RemoteError) GRPCStatus() *status.Status { return e.status }

// refusal is how an error travels: as a client would see it, and its name if it has one.
func refusal(err error) error {
	detail := &replicav1.Refusal{}
	for name, target := range named {
		if errors.Is(err, target) {
			detail.Name = name
		}
	}
	p := rpcerr.Status(err).Proto()
	if detail.Name != "" {
		p.Code = int32(codes.FailedPrecondition) // nothing that the log of requests would take for a fault of ours
	}
	packed, packErr := anypb.New(detail)
	if packErr != nil { // cannot be: it is our own
		return err
	}
	p.Details = append(p.Details, packed)
	return status.FromProto(p).Err()
}

// explain is the reverse: what the error of a call to address was. via is what the call has noted
// of its connection.
func explain(ctx context.Context, address string, via *peer.Peer, err error) error {
	p := status.Convert(err).Proto()
	for i, packed := range p.GetDetails() {
		detail := &replicav1.Refusal{}
		if !packed.MessageIs(detail) || packed.UnmarshalTo(detail) != nil {
			continue
		}
		switch target := named[detail.GetName()]; {
		case errors.Is(target, errSelf), errors.Is(target, errForeign), errors.Is(target, errMessage):
			return &paging.UnreachableError{Address: address, Err: target} // it has done nothing
		case target != nil:
			return target
		}
		p.Details = append(p.Details[:i:i], p.Details[i+1:]...)
		return &RemoteError{Address: address, status: status.FromProto(p)}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if status.Code(err) == codes.DeadlineExceeded && deadlinePassed(ctx) { // gRPC's timer was the first
		return context.DeadlineExceeded
	}
	return &paging.UnreachableError{Address: address, Sent: via.Addr != nil, Err: errors.New(status.Convert(err).Message())}
}

func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}
