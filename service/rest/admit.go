package rest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// admit decides whether the request may be a call, and opens it. Nothing of the body is read
// before that.
func (c *call) admit(ctx context.Context) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	return c.open()
}

// enter does the part of admit that does not depend on the path.
func (c *call) enter(ctx context.Context) error {
	if err := c.checkHost(); err != nil {
		return err
	}
	if c.handler.isForeign(c.r) {
		return refuse(rpcerr.CrossOrigin,
			"a browser sends this request for a page of another origin")
	}
	if err := c.authenticate(ctx); err != nil {
		return err
	}
	c.openAccount()
	return nil
}

// openAccount opens the account of the call's client.
func (c *call) openAccount() {
	a := c.handler.config.Admission
	switch {
	case a == nil:
	case c.identity != nil && c.identity.Principal != "":
		a.Open(&c.account, admission.PrincipalOf(c.identity.Principal, netip.Addr{}))
	default:
		a.Open(&c.account, admission.PrincipalOf("", address(c.r)))
	}
}

// address returns where the client of a request is, the zero value if that is not known.
func address(r *http.Request) netip.Addr {
	client, _ := netip.ParseAddrPort(r.RemoteAddr)
	return client.Addr().Unmap()
}

// sameOrigin refuses requests that can change something and that a browser sends for a page of
// another origin.
var sameOrigin http.CrossOriginProtection

// checkHost refuses names that are not the gateway's.
func (c *call) checkHost() error {
	if names := c.handler.access.Load().hosts; names == nil || isOwnHost(c.r.Host, names) {
		return nil
	}
	return refuse(rpcerr.UnknownHost, "the gateway does not answer for the host "+
		strconv.Quote(c.r.Host)+": its operator can add the name to rest.hosts")
}

// isOwnHost reports whether a Host names the gateway: an IP address, localhost or one of the
// names. A page cannot point an IP address at another machine.
func isOwnHost(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		slices.ContainsFunc(names, func(name string) bool { return matchesHost(name, host) })
}

// matchesHost reports whether a host is a name of Config.Hosts, or one of the names below it.
func matchesHost(name, host string) bool {
	if parent, ok := strings.CutPrefix(name, "*"); ok {
		return strings.HasSuffix(host, parent) && len(host) > len(parent)
	}
	return host == name
}

// authenticate finds out who makes the call. Paths and methods that carry no call need no
// credential: the root, and what browsers ask before a call.
func (c *call) authenticate(ctx context.Context) (err error) {
	callers := c.handler.config.Callers
	ticket, hasTicket := ticketOf(c.r)
	switch {
	case hasTicket:
		c.ticket = ticket
		c.identity, c.watch, err = c.handler.openTicket(ticket)
	case callers == nil || isPreflight(c.r) || c.r.URL.Path == "/":
		return nil
	default:
		presented := fromRequest(c.r)
		if c.present != nil {
			c.present(presented)
		}
		c.identity, err = callers.Authenticate(ctx, presented)
	}
	if e, ok := errors.AsType[*caller.Error](err); ok {
		c.w.Header()["Www-Authenticate"] = challenges[e.Problem]
	}
	return err
}

// challenges holds the header that says how to authenticate (RFC 6750, 3).
var challenges = map[caller.Problem][]string{
	caller.Missing: {`Bearer realm="mooring"`},
	caller.Invalid: {`Bearer realm="mooring", error="invalid_token"`},
}

// fromRequest returns what a client presents with a request.
func fromRequest(r *http.Request) *caller.Presented {
	p := &caller.Presented{
		Authorization: r.Header["Authorization"],
		APIKey:        caller.Join(r.Header["Api-Key"], r.Header["Apikey"]),
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		p.Certificate = r.TLS.VerifiedChains[0][0]
	}
	p.Address = address(r)
	return p
}
