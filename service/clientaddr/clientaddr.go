// Package clientaddr decides where a client is: at the address of its connection or, if a listed
// proxy has made the connection, at the address that the proxy names. A proxy names it in a header
// of the PROXY protocol before the first byte of the connection, or in a header of each request:
// Forwarded (RFC 7239) or X-Forwarded-For.
//
// Everything here is a pure function on values. The package does no I/O: service/server reads the
// connections and the headers. It does not say who a client is; service/caller does.
package clientaddr

import (
	"net/netip"
	"slices"
	"strings"
)

// Header says in which header of a request listed proxies name the client.
type Header string

// The headers. Only one counts: a proxy passes on what it does not know, so a client could fill in
// the other one.
const (
	NoHeader      Header = ""
	Forwarded     Header = "Forwarded"
	XForwardedFor Header = "X-Forwarded-For"
)

// Headers returns all headers that can be chosen.
func Headers() []Header { return []Header{Forwarded, XForwardedFor} }

// Proxies says whose word on a client's address counts. A nil value lists no proxy. It does not
// change.
type Proxies struct {
	// Networks holds the addresses of the proxies.
	Networks []netip.Prefix
	// Header is where they name the clients of their requests; NoHeader: nowhere.
	Header Header
}

// Reads returns the header that names clients; NoHeader if there is none.
func (p *Proxies) Reads() Header {
	if p == nil {
		return NoHeader
	}
	return p.Header
}

// Lists reports whether an address is that of a listed proxy.
func (p *Proxies) Lists(a netip.Addr) bool {
	if p == nil || !a.IsValid() {
		return false
	}
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// Client returns the address of the client of a request. from is the address at the other end of
// the connection, and lines has the values of the header p.Header in their order.
//
// Each proxy appends the address that it was called from. So Client reads from the right, and goes
// one step further as long as the address that it has is that of a listed proxy. What stands left
// of the first other address is the client's own word and never read. If a listed proxy names no
// address, Client returns the proxy's.
func (p *Proxies) Client(from netip.Addr, lines []string) netip.Addr {
	from = from.Unmap().WithZone("")
	if p.Reads() == NoHeader {
		return from
	}
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			if !p.Lists(from) {
				return from
			}
			var element string
			line, element, more = cutLast(line)
			if element = strings.Trim(element, space); element == "" {
				continue // lists may have empty elements (RFC 9110, 5.6.1)
			}
			named, ok := p.Header.address(element)
			if !ok {
				return from
			}
			from = named
		}
	}
	return from
}

// address returns the address in an element of the header.
func (h Header) address(element string) (netip.Addr, bool) {
	if h == Forwarded {
		return forwardedFor(element)
	}
	return node(element)
}

// networkBits is the length of the IPv6 networks that count as one client.
const networkBits = 64

// Network returns what is counted as one client without a name: an IPv4 address or an IPv6 network
// (/64), since one machine has so many IPv6 addresses. It returns the zero value for none, as the
// clients of a Unix domain socket have.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	p, _ := a.Prefix(networkBits) // the length is a valid one
	return p.Addr()
}
