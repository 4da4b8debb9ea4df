package rest

import (
	"context"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	servicecall "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/inproc"
)

// run builds the request, makes the call, and writes what it returns. When run returns, the handler
// has ended. The error is that of the call, and not written.
func (c *call) run(ctx context.Context) error {
	request, err := c.route.build(c) //nolint:contextcheck // the body has the request's own
	if err != nil {
		return err
	}
	if err := c.complete(request); err != nil {
		return err
	}
	switch {
	case c.route.imports:
		return c.runImport(ctx, request.Interface())
	case c.route.stream:
		return c.runStream(ctx, request.Interface())
	}
	c.called = true
	reply := c.route.replyType.New().Interface()
	err = c.handler.config.Conn.Invoke(c.incoming(ctx), c.route.rpc, request.Interface(), reply,
		grpc.Header(&c.metadata))
	if err != nil {
		return err
	}
	return c.respond(ctx, reply)
}

// runStream writes each message of a stream.
func (c *call) runStream(ctx context.Context, request proto.Message) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.handler.config.Conn.NewStream(c.incoming(ctx),
		&grpc.StreamDesc{ServerStreams: true}, c.route.rpc)
	if err != nil {
		return err
	}
	c.called = true
	_ = stream.SendMsg(request) // if it fails, RecvMsg says why
	for {
		m := c.route.replyType.New().Interface()
		err := c.receive(stream, m)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := c.writeBatch(m); err != nil {
			cancel()
			for stream.RecvMsg(m) == nil { //nolint:revive // until the handler has ended
			}
			return err
		}
	}
}

// buildRequest returns the request of an annotated route: the body, if the route has one, and the
// variables of the path.
func (c *call) buildRequest() (message, error) {
	m := c.route.requestType.New()
	if c.route.bodies != nil {
		if err := c.decode(m); err != nil {
			return nil, err
		}
	}
	c.setPath(m)
	return m, nil
}

// setPath sets the fields that are variables of the path.
func (c *call) setPath(m message) {
	for _, v := range c.path {
		m.Set(c.route.request.byName[v.name].fd, protoreflect.ValueOfString(v.value))
	}
}

// complete sets the fields of a request that are neither in its body nor in its path.
func (c *call) complete(m message) error {
	if err := applyQuery(c.route, m, c.query); err != nil {
		return err
	}
	if r, ok := m.Interface().(*mooringv1.WatchRequest); ok && c.format.media == mediaSSE {
		if err := goOn(r, c.r.Header.Get(lastEventID)); err != nil {
			return err
		}
	}
	for _, token := range [...]struct{ header, field string }{
		{sessionHeader, "session"}, {transactionHeader, "transaction"},
	} {
		text := c.r.Header.Get(token.header)
		f := c.route.request.byName[token.field]
		switch {
		case text == "":
		case f == nil:
			return refuseField(token.header, "this call takes none")
		case m.Has(f.fd) && m.Get(f.fd).String() != text:
			return refuseField(token.header, "the body has another one")
		default:
			m.Set(f.fd, protoreflect.ValueOfString(text))
		}
	}
	return nil
}

// forwarded lists the headers that become metadata.
var forwarded = [...]struct{ header, key string }{
	{"Idempotency-Key", "idempotency-key"},
	{"Traceparent", "traceparent"},
	{"Tracestate", "tracestate"},
}

// incoming returns the context of a call on the in-process connection. It has the metadata of the
// request; no other header reaches a handler.
func (c *call) incoming(ctx context.Context) context.Context {
	return inproc.WithIncoming(ctx, servicecall.Local{
		RequestID: c.id(),
		Identity:  c.identity,
		Client:    address(c.r),
		Account:   c.charged(),
		// Browsers and functions seldom ask for more than the first page of a GET.
		Casual: c.route.method == http.MethodGet,
		Text:   c.format.media == mediaJSON || c.format.media == mediaEJSON,
		// The decoder reads bodies and queries, and sets a document only from JSON. The documents
		// of an import are passed on as they are, and a ticket may hold JSON.
		Built:  c.route.path != importPath && c.watch == nil,
		Ticket: c.ticket,
	}, c.forward(nil))
}

// forward adds the request's headers that become metadata to md, which may be nil.
func (c *call) forward(md metadata.MD) metadata.MD {
	for _, f := range forwarded {
		if v := c.r.Header[f.header]; v != nil {
			if md == nil {
				md = make(metadata.MD, len(forwarded))
			}
			md[f.key] = v
		}
	}
	return md
}

// charged returns the account for the interceptors, nil if nothing is limited.
func (c *call) charged() *admission.Account {
	if c.handler.config.Admission == nil {
		return nil
	}
	return &c.account
}
