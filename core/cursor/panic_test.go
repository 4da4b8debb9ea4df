package cursor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/internal/mongotest"
)

// panicky is a client whose sink panics when a command of the name has succeeded.
type panicky struct {
	*client.Client
	name string
}

func newPanicky(t *testing.T, cfg connstring.Config, opt client.Options) *panicky {
	t.Helper()
	p := &panicky{}
	opt.Sink = &event.Sink{CommandSucceeded: func(e event.CommandSucceeded) {
		if e.Name == p.name {
			panic("bug: in a test")
		}
	}}
	p.Client = newClient(t, cfg, opt)
	return p
}

func newClient(t *testing.T, cfg connstring.Config, opt client.Options) *client.Client {
	t.Helper()
	c, err := client.New(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, uri string) connstring.Config {
	t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// during makes the command panic while call runs.
func (p *panicky) during(t *testing.T, name string, call func()) {
	t.Helper()
	p.name = name
	defer func() {
		if p.name = ""; recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	call()
}

// A panic anywhere gives the connection back, or leaves it to whoever closes the cursor; and no
// batch is skipped unseen.
func TestPanicOfPinnedCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lb := mongotest.NewBalanced(t, mongotest.BalancedConfig{Services: 1})
		lb.SetDocuments("shop.orders", mongotest.Numbered(0, 9, 0)...)
		c := newPanicky(t, parse(t, lb.URI("")), client.Options{Dialer: lb.Dial})
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		check := func(when string, inUse, getMores, kills int) {
			t.Helper()
			s := lb.Service(0)
			if n, m, k := c.Pools()[0].InUse, len(s.Commands("getMore")), len(s.Commands("killCursors")); n != inUse || m != getMores || k != kills {
				t.Errorf("%s: %d connections are out, %d getMores, %d killCursors, want %d, %d and %d", when, n, m, k, inUse, getMores, kills)
			}
		}
		c.during(t, "find", func() { find(t, c.Client, client.FindOptions{BatchSize: new(int32(2))}) })
		check("after a panic of find", 0, 0, 0)

		cur := find(t, c.Client, client.FindOptions{BatchSize: new(int32(2))})
		_, _ = cur.Next(t.Context())
		c.during(t, "getMore", func() { _, _ = cur.Next(t.Context()) })
		if b, err := cur.Next(t.Context()); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("Next() after a panic = %v, %v: a batch is missing", b, err)
		}
		check("after a panic of getMore", 1, 1, 0)
		_ = cur.Close(t.Context())
		check("after Close", 0, 1, 0)

		cur = find(t, c.Client, client.FindOptions{BatchSize: new(int32(2))})
		c.during(t, "killCursors", func() { _ = cur.Close(t.Context()) })
		check("after a panic of killCursors", 0, 1, 1)
	})
}

func TestPanicOfGetMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mongotest.NewServer(t, nil)
		srv.SetDocuments("shop.orders", mongotest.Numbered(0, 9, 0)...)
		c := newPanicky(t, connstring.Config{Hosts: []address.Address{srv.Address()}}, client.Options{Dialer: srv.Dial})
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		cur := find(t, c.Client, client.FindOptions{BatchSize: new(int32(2))})
		_, _ = cur.Next(t.Context())
		c.during(t, "getMore", func() { _, _ = cur.Next(t.Context()) })
		if b, err := cur.Next(t.Context()); err == nil || errors.Is(err, io.EOF) || len(srv.Commands("getMore")) != 1 {
			t.Errorf("Next() after a panic = %v, %v: a batch is missing", b, err)
		}
		if _ = cur.Close(t.Context()); srv.KilledCursors() != 1 {
			t.Errorf("%d cursors killed, want 1", srv.KilledCursors())
		}
	})
}

// reading is a transport that calls a hook when the next read is over.
type reading struct {
	net.Conn
	over *atomic.Pointer[context.CancelFunc]
}

func (r reading) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	if hook := r.over.Swap(nil); hook != nil {
		(*hook)()
	}
	return n, err
}

// A call that has its batch when its context ends has done no harm: the cursor goes on for the
// next call.
func TestContextThatEndsAfterTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lb := mongotest.NewBalanced(t, mongotest.BalancedConfig{})
		lb.SetDocuments("shop.orders", mongotest.Numbered(0, 9, 0)...)
		var over atomic.Pointer[context.CancelFunc]
		c := newClient(t, parse(t, lb.URI("")), client.Options{Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := lb.Dial(ctx, network, addr)
			return reading{nc, &over}, err
		}})
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		ending := func() context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			over.Store(&cancel)
			return ctx
		}
		if err := c.Ping(t.Context()); err != nil { // so that the connection is there
			t.Fatal(err)
		}
		ctx := ending()
		cur, err := c.Find(ctx, orders, client.FindOptions{BatchSize: new(int32(2))})
		if err != nil || ctx.Err() == nil {
			t.Fatalf("Find() = %v, its context %v", err, ctx.Err())
		}
		n := 0
		for !cur.Done() {
			b, err := cur.Next(ending())
			if err != nil {
				t.Fatalf("Next() after %d documents = %v", n, err)
			}
			n += len(b.Documents)
		}
		if n != 9 || c.Pools()[0].Total != 1 {
			t.Errorf("%d documents over %d connections, want 9 over 1", n, c.Pools()[0].Total)
		}
	})
}
