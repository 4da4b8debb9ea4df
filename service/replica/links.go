package replica

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// links adds to mutual TLS for gRPC the set of connections that were made with it, so that
// connections of a removed key can be closed.
type links struct {
	credentials.TransportCredentials
	shared *linkSet
	// made is called with the peer's public key before a connection that this side makes is used.
	// It is nil on the side that listens.
	made func(peer string)
}

// linkSet holds the open connections of both sides.
type linkSet struct {
	identity *identity
	log      *slog.Logger
	refusals *notices // by the peer's host

	// mu guards the field below. Nothing blocks while it is held.
	mu   sync.Mutex
	open map[*link]struct{}
}

// link wraps one connection.
type link struct {
	net.Conn
	peer string // the peer's public key
	of   *linkSet
}

func newLinks(id *identity, log *slog.Logger) *links {
	return &links{
		TransportCredentials: credentials.NewTLS(id.config()),
		shared: &linkSet{
			identity: id, log: log, refusals: newNotices(warnEvery), open: map[*link]struct{}{},
		},
	}
}

var _ credentials.TransportCredentials = (*links)(nil)

// ClientHandshake runs the handshake of the replica that connects.
func (l *links) ClientHandshake(
	ctx context.Context, _ string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := l.TransportCredentials.ClientHandshake(ctx, serverName, raw)
	if state, ok := info.(credentials.TLSInfo); ok && l.made != nil {
		l.made(peerKey(state.State))
	}
	return l.shared.add(raw, secure, info, err)
}

// ServerHandshake runs the handshake of the replica that listens.
func (l *links) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := l.TransportCredentials.ServerHandshake(raw)
	return l.shared.add(raw, secure, info, err)
}

// Clone returns a copy that shares the set of connections.
func (l *links) Clone() credentials.TransportCredentials {
	return &links{l.TransportCredentials.Clone(), l.shared, l.made}
}

// with returns credentials that share the set of connections, for a connection that is told its
// peer's key.
func (l *links) with(made func(peer string)) credentials.TransportCredentials {
	return &links{l.TransportCredentials, l.shared, made}
}

// add adds a connection whose handshake has ended.
func (s *linkSet) add(
	raw, secure net.Conn, info credentials.AuthInfo, err error,
) (net.Conn, credentials.AuthInfo, error) {
	if err != nil {
		s.refused(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	state, _ := info.(credentials.TLSInfo)
	l := &link{secure, peerKey(state.State), s}
	s.mu.Lock()
	s.open[l] = struct{}{}
	s.mu.Unlock()
	s.closeStale() // the keys may have changed during the handshake
	return l, info, nil
}

// closeStale closes the connections whose peers have presented a removed key.
func (s *linkSet) closeStale() {
	var stale []*link
	s.mu.Lock()
	for l := range s.open {
		if !s.identity.knows(l.peer) {
			stale = append(stale, l)
		}
	}
	s.mu.Unlock()
	for _, l := range stale {
		s.log.Info("closing a connection made with a removed handle key",
			"replica", l.RemoteAddr().String())
		_ = l.Close() // the connection is not needed any more
	}
}

// warnEvery is the least time between two warnings about one host, which may try again and again.
const warnEvery = 10 * time.Second

// refused logs a failed handshake. Keys that differ are a fault of the configuration, or an
// attack, and are a warning. All other causes (a port scanner, a peer that shuts down) are for
// debugging.
func (s *linkSet) refused(from net.Addr, err error) {
	problem := ""
	remote, ok := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errForeignKey):
		problem = "it does not have any of our handle keys"
	case ok && remote.Op == "remote error":
		problem = "it accepts none of our handle keys, or is not a replica"
	}
	if problem == "" {
		s.log.Debug("handshake with a replica", "replica", from.String(), "err", err)
		return
	}
	if s.refusals.may(hostOf(from)) {
		s.log.Warn("a replica was refused",
			"replica", from.String(), "problem", problem, "err", err)
	}
}

// hostOf returns an address without its port, which differs for each connection.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// Close closes the connection and removes it from the set.
func (l *link) Close() error {
	l.of.mu.Lock()
	delete(l.of.open, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}
