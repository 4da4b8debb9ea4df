package cursor_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

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
		lb := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
		lb.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		var over atomic.Pointer[context.CancelFunc]
		c := newClient(t, parse(t, lb.URI("")), client.Options{Dialer: func(
			ctx context.Context, network, addr string,
		) (net.Conn, error) {
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

// TestPanicInsideTheDriver checks a getMore that ends by a panic of what is below the cursor: the
// batch that it lost is not skipped silently, and Close returns the connection of a pinned
// cursor.
func TestPanicInsideTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lb := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1})
		lb.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		var over atomic.Pointer[context.CancelFunc]
		c := newClient(t, parse(t, lb.URI("")), client.Options{Dialer: func(
			ctx context.Context, network, addr string,
		) (net.Conn, error) {
			nc, err := lb.Dial(ctx, network, addr)
			return reading{nc, &over}, err
		}})
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		cur := find(t, c, client.FindOptions{BatchSize: new(int32(2))})
		_, _ = cur.Next(t.Context())
		var fail context.CancelFunc = func() { panic("bug: in a test") }
		over.Store(&fail)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("there was no panic")
				}
			}()
			_, _ = cur.Next(t.Context())
		}()
		if b, err := cur.Next(t.Context()); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("Next() after a panic = %v, %v: a batch is missing", b, err)
		}
		_ = cur.Close(t.Context())
		if p := c.Pools()[0]; p.InUse != 0 {
			t.Errorf("pool after Close = %+v, want nothing in use", p)
		}
	})
}
