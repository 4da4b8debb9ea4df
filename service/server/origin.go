package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/mooringdb/mooring/service/clientaddr"
)

// The client of a request is decided here, before anything else sees the request: its remote
// address becomes what a listed proxy names. So the throttle, shares, limits, logs, spans
// and the audit log have one address, and none of them reads a header.

// nameClient changes the remote address of a request to its client's.
func nameClient(p *clientaddr.Proxies, r *http.Request) {
	header := p.Reads()
	if header == clientaddr.NoHeader {
		return
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return // a Unix domain socket
	}
	client := p.Client(from.Addr(), r.Header[http.CanonicalHeaderKey(string(header))])
	if client != from.Addr().Unmap().WithZone("") {
		r.RemoteAddr = netip.AddrPortFrom(client, 0).String()
	}
}

// nameCaller returns the context of a call of gRPC with the address of its client.
func nameCaller(ctx context.Context, p *clientaddr.Proxies) context.Context {
	header := p.Reads()
	if header == clientaddr.NoHeader {
		return ctx
	}
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ctx
	}
	a, ok := from.Addr.(*clientAddr)
	if !ok || !p.Lists(a.AddrPort().Addr()) {
		return ctx
	}
	lines := metadata.ValueFromIncomingContext(ctx, strings.ToLower(string(header)))
	client := p.Client(a.AddrPort().Addr(), lines)
	named := *from
	named.Addr = &clientAddr{net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 0)), a.client}
	return peer.NewContext(ctx, &named)
}
