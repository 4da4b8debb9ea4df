package rest

import (
	"bytes"
	"context"
	"net/http"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	servicecall "github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/payload"
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
	case c.stream != nil:
		return c.stream.run(ctx, request.Interface())
	}
	if c.query.Has(countParam) {
		if err := c.count(ctx, request.Interface()); err != nil {
			return err
		}
	}
	reply, err := c.x.Conn().Call(c.incoming(ctx), c.route.rpc, request.Interface())
	c.metadata = reply.Header
	if err != nil {
		return err
	}
	return c.respond(ctx, request.Interface(), reply.Message.(proto.Message))
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
		c.route.request.byName[v.name].setText(m, v.value)
	}
}

// complete sets the fields of a request that are neither in its body nor in its path.
func (c *call) complete(m message) error {
	if err := applyQuery(c.route, m, c.query, &c.make); err != nil {
		return err
	}
	if err := c.applyConditions(m); err != nil {
		return err
	}
	if r, ok := m.Interface().(*mooringv1.WatchRequest); ok && c.format.Type == media.SSE {
		if err := goOn(r, c.r.Header.Get(lastEventID)); err != nil {
			return err
		}
	}
	for _, token := range [...]struct{ header, field string }{
		{front.SessionHeader, "session"}, {front.TransactionHeader, "transaction"},
	} {
		text := c.r.Header.Get(token.header)
		f := c.route.request.byName[token.field]
		switch {
		case text == "":
		case f == nil:
			return refuseField(token.header, "this call does not take it")
		case m.Has(f.fd) && m.Get(f.fd).String() != text:
			return refuseField(token.header, "the body has another value")
		default:
			m.Set(f.fd, protoreflect.ValueOfString(text))
		}
	}
	return nil
}

// incoming returns the context of a call on the connection within the process.
func (c *call) incoming(ctx context.Context) context.Context {
	local := servicecall.Local{
		// Browsers and functions seldom ask for more than the first page of a GET.
		Casual: c.route.method == http.MethodGet,
		Text:   c.format.Type == media.JSON || c.format.Type == media.EJSON,
		// The decoder reads bodies and queries, and sets a document only from JSON. The documents
		// of an import are passed on as they are, and a ticket may hold JSON.
		Built:  !c.route.imports && c.ticketed == nil,
		Ticket: c.ticket,
	}
	if local.Text {
		c.texts.c = c
		local.Texts = &c.texts
	}
	return c.x.Incoming(ctx, nil, local)
}

// decode reads the body into a request.
func (c *call) decode(m message) error {
	body, err := c.x.Body.ReadAll()
	if err != nil {
		return err
	}
	defer body.Free()
	if len(bytes.TrimSpace(body.B)) == 0 {
		return nil // as {}
	}
	c.make = payload.NewMaker(&c.x.Memory, len(body.B))
	return c.x.Work(len(body.B), func() error {
		return decode(c.route.request, m, body.B, &c.make,
			itemLimit{c.x.MaxItems(), &c.x.Memory})
	})
}
