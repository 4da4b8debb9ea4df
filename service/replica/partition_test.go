package replica_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
)

// pipes is a network within the process. What is sent over it arrives until it is cut.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	cut    atomic.Bool
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

// dial connects to the listener.
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.accept <- &pipeEnd{far, p}:
		return &pipeEnd{near, p}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pipeEnd loses what is written once the network is cut.
type pipeEnd struct {
	net.Conn
	of *pipes
}

func (e *pipeEnd) Write(b []byte) (int, error) {
	if e.of.cut.Load() {
		return len(b), nil
	}
	return e.Conn.Write(b)
}

// TestPartition: a silent loss of a replica is noticed, although an answer may take as long as a
// getMore does.
func TestPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newPipes()
		join := func(address string, p replica.Pager, l net.Listener) *replica.Transport {
			n := replica.New(replica.Config{
				Keys: ring(t, "a"), Advertise: address, Log: slog.New(slog.DiscardHandler),
			})
			n.BindTo(l, network.dial)
			(&node{Transport: n}).serve(p)
			return n
		}
		holder := join("10.0.0.1:1", &fake{answer: func(ctx context.Context) error {
			network.cut.Store(true)
			<-ctx.Done()
			return context.Cause(ctx)
		}}, network)
		asker := join("10.0.0.2:1", &fake{}, newPipes())
		begun := time.Now()
		err := ask(t.Context(), asker, "10.0.0.1:1")
		lost, ok := errors.AsType[*paging.UnreachableError](err)
		if took := time.Since(begun); !ok || !lost.Sent || took != 13*time.Second {
			t.Errorf("a call = %v after %s, want *UnreachableError, sent, after 13 s", err, took)
		}
		for _, n := range []*replica.Transport{asker, holder} {
			if err := n.Close(t.Context()); err != nil {
				t.Errorf("Close = %v", err)
			}
		}
	})
}

// TestSilentAfterGoodbye: the address of a replica that has said that it ends is silent then, as
// that of a Pod is. It counts as one that refuses connections, until a replica has come back. One
// that came back without a word does not count as gone.
func TestSilentAfterGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there, here := newPipes(), newPipes()
		join := func(
			address, other string, p replica.Pager, l net.Listener,
			dial func(context.Context, string, string) (net.Conn, error),
		) *replica.Transport {
			n := replica.New(replica.Config{
				Keys: ring(t, "a"), Advertise: address, Log: slog.New(slog.DiscardHandler),
				Others: []string{other},
			})
			n.BindTo(l, dial)
			(&node{Transport: n}).serve(p)
			return n
		}
		var silent atomic.Bool
		asker := join("10.0.0.2:1", "10.0.0.1:1", &fake{}, here,
			func(ctx context.Context, network, address string) (net.Conn, error) {
				if silent.Load() {
					return nil, syscall.EHOSTUNREACH
				}
				return there.dial(ctx, network, address)
			})
		self := page.Replica{Address: "10.0.0.1:1", Instance: page.Instance{1}}
		ended := yes()
		ended.self = self
		owner := join(self.Address, "10.0.0.2:1", ended, there, here.dial)
		if err := askOwner(t.Context(), asker, self); err != nil {
			t.Fatal(err)
		}
		if err := owner.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
		silent.Store(true)
		check := func(to page.Replica, refused bool) {
			t.Helper()
			err := askOwner(t.Context(), asker, to)
			lost, ok := errors.AsType[*paging.UnreachableError](err)
			if !ok || lost.Sent || lost.Refused != refused {
				t.Errorf("a call = %v, want *UnreachableError, not sent, refused: %v", err, refused)
			}
		}
		check(self, true)
		check(page.Replica{Address: self.Address, Instance: page.Instance{2}}, false)
		check(page.Replica{Address: self.Address}, false)
		asker.Learn(self.Address) // it has come back, and is lost now
		check(self, false)
		if err := asker.Close(t.Context()); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
}
