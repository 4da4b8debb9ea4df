package interceptor

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/payload"
)

// Replicas has calls of clients made at other replicas.
type Replicas interface {
	// Forward makes a call at another replica. If the replica does not answer, the error is a
	// *paging.UnreachableError; if ctx has ended, it is the cause of ctx instead. The sentinels of
	// paging and handle come back as themselves. Once Forward has returned, only the stream that
	// it has returned depends on ctx.
	Forward(ctx context.Context, f *call.Forwarding) (call.Reply, error)
}

// routes says what the calls of each route do.
var routes = map[mooringv1.Method_Route]struct {
	leaves   bool // another replica may make the call
	transact bool // it runs in the transaction that it names
	late     bool // it may come from another replica after the gate has closed: see pass.isLate
}{
	mooringv1.Method_ROUTE_TRANSACTION: {leaves: true, transact: true},
	mooringv1.Method_ROUTE_OUTCOME:     {leaves: true}, // it ends its transaction instead
	mooringv1.Method_ROUTE_CURSOR:      {leaves: true, transact: true, late: true},
	mooringv1.Method_ROUTE_HANDLE:      {leaves: true, late: true},
}

// routeOf returns the route of a method. Methods that are not the API's have none.
func routeOf(name string) mooringv1.Method_Route {
	if m := method.Of(name); m != nil {
		return m.Route
	}
	return mooringv1.Method_ROUTE_UNSPECIFIED
}

// route has a call made by another replica if that holds what the call needs: the transaction or
// the cursor of its token, or the handle that it kills. The handler says so by its error.
func (x *Chain) route(ctx context.Context, c *pass) error {
	if !routes[routeOf(c.method)].leaves {
		return c.next(ctx)
	}
	rest := c.steps
	err := c.next(ctx)
	if away, ok := errors.AsType[call.Elsewhere](err); ok {
		return x.leave(ctx, c, rest, away)
	}
	return err
}

// leave has another replica make a call, whose remaining steps have found that it has to.
func (x *Chain) leave(
	ctx context.Context, c *pass, rest []step, away call.Elsewhere,
) error {
	here := func(ctx context.Context) error {
		c.steps = rest
		return c.next(ctx)
	}
	c.replay, _ = c.request.(proto.Message)
	whole := ctx
	reply, err := away.Route(ctx, here, func(
		ctx context.Context, to page.Replica,
	) (call.Reply, error) {
		if c.stream != nil {
			return x.begin(whole, ctx, c, to)
		}
		return x.forward(ctx, c, to)
	})
	switch {
	case err != nil:
		return err
	case reply.Stream != nil:
		return c.relay(ctx, reply.Stream)
	case reply.Response != nil:
		c.response = reply.Response
		c.finish(c.response)
	}
	return nil
}

// begin begins a stream at another replica. The stream lives as long as the whole call; ctx ends
// only its beginning.
func (x *Chain) begin(
	whole, ctx context.Context, c *pass, to page.Replica,
) (call.Reply, error) {
	inner, cancel := context.WithCancelCause(whole)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	reply, err := x.forward(inner, c, to)
	if !stop() && err == nil {
		reply.Drop()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(nil)
		return call.Reply{}, err
	}
	reply.Stream = begun{reply.Stream, cancel}
	return reply, nil
}

// begun wraps a stream with a context of its own.
type begun struct {
	call.Stream
	cancel context.CancelCauseFunc
}

// Close ends the stream, and its context.
func (b begun) Close() {
	b.Stream.Close()
	b.cancel(nil)
}

// relay sends the client what another replica's stream brings.
func (c *pass) relay(ctx context.Context, from call.Stream) error {
	defer from.Close()
	admission.From(ctx).GoOn() // the client would have a part of the result
	to := &stream{ServerStream: c.wire, ctx: ctx, call: c}
	defer func() { to.sends.close() }()
	for {
		m, err := from.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := to.SendMsg(m); err != nil {
			return err
		}
	}
}

// passedOn lists the metadata of clients that handlers know.
var passedOn = []string{
	call.TransactionKey, "mooring-session", payload.EncodingKey, call.IdempotencyKey,
}

// forward makes a call at another replica.
func (x *Chain) forward(ctx context.Context, c *pass, to page.Replica) (call.Reply, error) {
	if x.cfg.Replicas == nil {
		return call.Reply{}, &paging.UnreachableError{
			Address: to.Address, Refused: true, Err: errors.New("there are no other replicas"),
		}
	}
	output := method.Of(c.method).Descriptor.Output().FullName() // of the API: it has a route
	answer, err := protoregistry.GlobalTypes.FindMessageByName(output)
	if err != nil {
		return call.Reply{}, err
	}
	f := &call.Forwarding{
		To: to, Method: c.method, Streams: c.stream != nil, Answer: answer,
		Local: call.Local{
			RequestID: c.call.RequestID, Identity: c.call.Identity, Client: c.call.Client,
			Casual: c.call.Casual, Whole: c.call.Whole, Text: c.call.Text, Quiet: c.call.Quiet,
			Forwarded: true, Owner: to.Instance,
			Taken: call.Taken(&c.call), //nolint:contextcheck // of the call
		},
		Metadata: metadata.MD{},
	}
	f.Request, _ = c.request.(proto.Message) // always
	for _, key := range passedOn {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			f.Metadata[key] = values
		}
	}
	if c.isOnce() {
		c.call.Account.GoOn() // for its response, as in finish
	}
	return x.cfg.Replicas.Forward(ctx, f)
}
