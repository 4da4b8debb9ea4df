package front

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/service/inproc"
)

// Serve runs a streaming RPC that has one request, as Conn().Serve does. to gets its messages. When
// the call ends, the waits of to for memory and for the client end soon: see Response.Hurry. If to
// could not take a message before that, Serve returns why, and not what the handler made of it.
func (x *Exchange) Serve(
	ctx context.Context, rpc string, request any, to inproc.Outlet,
) (trailer metadata.MD, err error) {
	o := outlet{Outlet: to, x: x}
	trailer, err = x.Conn().Serve(ctx, rpc, request, &o)
	if o.forget != nil {
		o.forget()
		x.Memory.within(x.r.Context()) //nolint:contextcheck // nothing else ends now
	}
	if o.failed != nil && (err == nil || !o.late) {
		return trailer, o.failed
	}
	return trailer, err
}

// outlet has the waits of an outlet end with its call.
type outlet struct {
	inproc.Outlet
	x      *Exchange
	forget func() bool // ends the watch over the context of the call; nil: there is none yet
	failed error       // why a message could not be taken
	late   bool        // the call had ended then, and its error says why
}

// Header passes the header on, for which the outlet may wait until its client has taken a sign of
// life. It comes before all messages.
func (o *outlet) Header(ctx context.Context, md metadata.MD) {
	o.forget = context.AfterFunc(ctx, o.x.Response.Hurry)
	o.x.Memory.within(ctx)
	o.Outlet.Header(ctx, md)
}

// Message passes a message on.
func (o *outlet) Message(ctx context.Context, m any) error {
	o.failed = o.Outlet.Message(ctx, m)
	o.late = ctx.Err() != nil
	return o.failed
}
