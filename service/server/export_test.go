package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/clientaddr"
	"github.com/mooringdb/mooring/service/flood"
)

// Proxied returns a listener behind proxies.
func Proxied(l net.Listener, p *clientaddr.Proxies, log *slog.Logger) net.Listener {
	return newProxied(l, p, log)
}

// MostHeaders is mostHeaders.
const MostHeaders = mostHeaders

// Network is network.
var Network = network

// Guarded returns a listener with a guard, whose connections all come from one address.
func Guarded(l net.Listener, g *flood.Guard) net.Listener {
	return (&clients{Listener: fromOne{l}, guard: g}).start()
}

type fromOne struct{ net.Listener }

func (l fromOne) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fromOneConn{nc}, nil
}

type fromOneConn struct{ net.Conn }

func (fromOneConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
}

// SetREST replaces the handler of REST.
func SetREST(s *Server, h http.Handler) { s.parts.REST = h }

// Lengths counts the lengths in what is read in pieces.
func Lengths(pieces []string) int64 {
	var l lengths
	for _, p := range pieces {
		l.scan([]byte(p))
	}
	return l.n.Load()
}

// SetCheck replaces the check of grpc when the server starts.
func (s *Server) SetCheck(check func(context.Context) error) { s.check = check }

// Open opens the stream of a call.
func Open(ctx context.Context, cfg *GRPCConfig, ss grpc.ServerStream, method string) error {
	_, err := cfg.open(ctx, ss, method)
	return err
}

// Queue gives grpc a message on the wire by the transport stream of a call.
func Queue(ctx context.Context) error {
	raw, err := transportOf(ctx)
	if err != nil {
		return err
	}
	return (&stream{raw: raw}).queue(0, nil)
}

// Trace observes one call of a server.
func Trace(ctx context.Context, cfg *GRPCConfig, method string) {
	_, end := cfg.trace(ctx, method)
	end(nil)
}

// Tapped returns a connection of an address, as refuseEarly sees it: the context of its calls, and
// what closes it.
func Tapped(ctx context.Context, nc net.Conn, g *flood.Guard, from netip.Addr) (
	_ context.Context, end func() error,
) {
	l := &clients{open: map[*client]struct{}{}}
	c := &client{Conn: nc, of: l}
	c.cost, _ = g.Enter(from, func() { _ = c.Close() })
	return peer.NewContext(ctx, &peer.Peer{Addr: &clientAddr{nc.RemoteAddr(), c}}), c.Close
}

// RefuseEarly is refuseEarly.
var RefuseEarly = refuseEarly

// Kept returns what the stream of a call keeps of its only response, which is charged or is not.
func Kept(response mem.Buffer, charged bool) mem.Buffer {
	o := outgoing{last: true}
	if charged {
		o.account = &admission.Account{}
	}
	_ = o.slice(response)
	return o.place[0]
}
