package rest

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/protobuf/proto"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
)

// A ticket takes the place of a credential and of a request: a GET of its path opens the stream
// that it was made for, as the client that has asked for it. A path is logged without its ticket.

const (
	ticketPath   = "/v1/changeStreams/{ticket}"
	ticketPrefix = "/v1/changeStreams/"
)

// Tickets opens tickets.
type Tickets interface {
	// Open returns whose ticket it is, nil if clients are not authenticated, and the stream that
	// it opens: a *WatchRequest or a *LiveRequest. Its errors are *caller.Error.
	Open(ticket string) (*caller.Identity, proto.Message, error)
}

// ticketOf returns the ticket in a request's path. It reads the escaped path, as the routes do, so
// that each request which reaches their handler has a ticket.
func ticketOf(r *http.Request) (ticket string, ok bool) {
	segment, ok := strings.CutPrefix(r.URL.EscapedPath(), ticketPrefix)
	if !ok || r.Method != http.MethodGet || strings.Contains(segment, "/") {
		return "", false
	}
	ticket, err := url.PathUnescape(segment)
	return ticket, err == nil
}

// withoutTicket returns a path for the log. It knows the paths of tickets in any case, since a path
// that no route has is logged, too.
func withoutTicket(path string) string {
	const parent = "changestreams/"
	for at := 0; at+len(parent) <= len(path); at++ {
		if strings.EqualFold(path[at:at+len(parent)], parent) {
			return path[:at+len(parent)] + "…"
		}
	}
	return path
}

var errNoTickets = &caller.Error{
	Problem: caller.Invalid, Message: "this gateway has no tickets",
}

// identify returns who makes the call: who the ticket in its path belongs to, or else who presents
// a credential.
func (c *call) identify(ctx context.Context) (identity *caller.Identity, err error) {
	ticket, ok := ticketOf(c.r)
	switch {
	case !ok:
		return c.x.Identify(ctx, nil)
	case c.api.tickets == nil:
		return nil, errNoTickets
	}
	c.ticket = ticket
	identity, c.ticketed, err = c.api.tickets.Open(ticket)
	return identity, err
}

// ticketRoute returns the route of the tickets of a method, which has no annotation because its
// request is not in the path. It takes no query parameters and no session.
func ticketRoute(plans planner, method string) *route {
	r := newRoute(plans, methodOf(mooringv1.File_mooring_v1_change_stream_service_proto, method))
	r.method, r.path, r.request = http.MethodGet, ticketPath, &plan{}
	r.build = func(c *call) (message, error) { return c.ticketed.ProtoReflect(), nil }
	return r
}
