package fakemongo_test

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// balanced opens a connection through the balancer.
func balanced(t *testing.T, b *fakemongo.Balanced) *conn.Conn {
	t.Helper()
	c, err := conn.Dial(t.Context(), b.Address(), conn.Config{Dialer: b.Dial, LoadBalanced: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestBalancedServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
		b.SetDocuments("db.c", fakemongo.Numbered(100, 10, 3)...)
		first, second := balanced(t, b), balanced(t, b)
		for i, c := range []*conn.Conn{first, second, balanced(t, b)} {
			if got, want := c.Description().ServiceID, b.Service(i%2).ID(); got != want {
				t.Errorf("connection %d leads to %v, want %v", i, got, want)
			}
		}
		reply := run(t, first, nil, func(b *bson.Builder) {
			b.String("find", "c").Int32("batchSize", 4)
		})
		id := number(t, reply, "cursor", "id")
		getMore := func(c *conn.Conn) bson.Raw {
			return run(t, c, nil, func(b *bson.Builder) {
				b.Int64("getMore", id).String("collection", "c")
			})
		}
		run(t, second, nil, func(b *bson.Builder) { b.String("find", "c").Int32("batchSize", 4) })
		if reply := getMore(second); number(t, reply, "code") != 43 {
			t.Errorf("getMore of another service's cursor = %v, want CursorNotFound", reply)
		}
		if reply := getMore(first); size(reply, "nextBatch") != 6 ||
			number(t, reply, "cursor", "nextBatch", "0", "_id") != 104 {
			t.Errorf("getMore = %v", reply)
		}
		if b.OpenCursors() != 1 {
			t.Errorf("%d cursors are open, want 1", b.OpenCursors())
		}
	})
}

func TestKilledService(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{TCP: tcp})
		b.SetDocuments("db.c", fakemongo.Numbered(0, 10, 0)...)
		s := b.Service(0)
		dialer := conn.Config{Dialer: s.Dial}
		if tcp {
			dialer.Dialer = new(net.Dialer).DialContext
		}
		connect := func() (*conn.Conn, error) {
			dialer.LoadBalanced = true
			return conn.Dial(t.Context(), s.Address(), dialer)
		}
		before, err := connect()
		if err != nil {
			t.Fatal(err)
		}
		id := before.Description().ServiceID
		reply := run(t, before, nil, func(b *bson.Builder) {
			b.String("find", "c").Int32("batchSize", 4)
		})
		cursor := number(t, reply, "cursor", "id")
		s.Kill()
		if _, err := connect(); err == nil {
			t.Errorf("TCP %v: a killed service takes connections", tcp)
		}
		if c := balanced(t, b); c.Description().ServiceID != b.Service(1).ID() {
			t.Errorf("TCP %v: the balancer leads to a killed service", tcp)
		}
		s.Restart(t)
		after, err := connect()
		if err != nil {
			t.Fatal(err)
		}
		if got := after.Description().ServiceID; got == id || got != s.ID() {
			t.Errorf("TCP %v: serviceId %v after a restart, it was %v", tcp, got, id)
		}
		reply = run(t, after, nil, func(b *bson.Builder) {
			b.Int64("getMore", cursor).String("collection", "c")
		})
		if number(t, reply, "code") != 43 {
			t.Errorf("TCP %v: getMore after a restart = %v, want CursorNotFound", tcp, reply)
		}
		_, _ = before.Close(), after.Close()
	}
}

func TestStrictService(t *testing.T) {
	b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Strict: true})
	balanced(t, b)
	if _, err := conn.Dial(t.Context(), b.Address(), conn.Config{Dialer: b.Dial}); err == nil ||
		!strings.Contains(err.Error(), "load balancing") {
		t.Errorf("Dial without loadBalanced = %v, want LoadBalancerSupportMismatch", err)
	}
	lax := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
	c, err := conn.Dial(t.Context(), lax.Address(), conn.Config{Dialer: lax.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if id := c.Description().ServiceID; id != (bson.ObjectID{}) {
		t.Errorf("serviceId %v without being asked", id)
	}
}
