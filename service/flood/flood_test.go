package flood_test

import (
	"bytes"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/flood"
)

var (
	one     = netip.MustParseAddr("192.0.2.1")
	another = netip.MustParseAddr("192.0.2.2")
	nowhere netip.Addr // a Unix domain socket
)

// enter returns a connection that must be admitted, and says whether it was closed since.
func enter(t *testing.T, g *flood.Guard, from netip.Addr) (c *flood.Connection, closed *int) {
	t.Helper()
	closed = new(int)
	c, ok := g.Enter(from, func() { *closed++ })
	if !ok {
		t.Fatalf("a connection of %s is refused", from)
	}
	return c, closed
}

func TestConnections(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		g := flood.New(4, 2, slog.New(slog.NewTextHandler(&log, nil)), nil)
		refused := func(from netip.Addr) {
			t.Helper()
			if c, ok := g.Enter(from, nil); ok || c != nil {
				t.Errorf("one more connection of %s is admitted", from)
			}
		}
		first, _ := enter(t, g, one)
		enter(t, g, one)
		refused(one) // it has two
		enter(t, g, nowhere)
		enter(t, g, another)
		refused(nowhere) // there are four
		first.Leave()
		enter(t, g, nowhere) // which has no limit of its own
		refused(one)
		if n := strings.Count(log.String(), "connections refused"); n != 1 ||
			!strings.Contains(log.String(), "client=192.0.2.1") {
			t.Errorf("%d lines of the log for three refusals: %s", n, &log)
		}
		g.Set(0, 0)
		enter(t, g, one)
		g.Set(6, 0)
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
		enter(t, g, one)
		refused(one)
		if !strings.Contains(log.String(), "refused=3") {
			t.Errorf("the second line does not count those since the first: %s", &log)
		}
	})
}

// TestHeld checks the bounds on streams without a credential: of a connection, of an address, and
// in all.
func TestHeld(t *testing.T) {
	g := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
	fill := func(c *flood.Connection) (n int) {
		for c.Hold() {
			n++
		}
		return n
	}
	first, _ := enter(t, g, one)
	if n := fill(first); n != 32 {
		t.Errorf("a connection holds %d streams, want 32", n)
	}
	total := 32
	for range 100 {
		c, _ := enter(t, g, one)
		total += fill(c)
	}
	if total != 512 {
		t.Errorf("an address holds %d streams, want 512", total)
	}
	first.Release()
	other, _ := enter(t, g, one)
	if n := fill(other); n != 1 {
		t.Errorf("after one has ended, %d streams begin, want 1", n)
	}
	for i := range 1000 {
		c, _ := enter(t, g, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
		total += fill(c)
	}
	for range 2 {
		c, _ := enter(t, g, nowhere) // which may be that of many clients
		total += fill(c)
	}
	if total != 2048 {
		t.Errorf("all clients hold %d streams, want 2,048", total)
	}
}

// TestWaste checks when a connection is closed for calls of no use.
func TestWaste(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
		waste := func(c *flood.Connection, closed *int) (n int) {
			for *closed == 0 && n < 10_000 {
				c.Waste()
				n++
			}
			return n
		}
		c, closed := enter(t, g, one)
		if n := waste(c, closed); n != 1001 {
			t.Errorf("a connection is closed at the call of no use number %d, want 1,001", n)
		}
		if c.Waste(); *closed != 1 {
			t.Errorf("a connection is closed %d times", *closed)
		}
		c.Leave()
		c, closed = enter(t, g, one)
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		waste(c, closed)
		c.Leave()
		c, closed = enter(t, g, one)
		// Its address has wasted 1,001 and 1,001, less what two seconds give back.
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		if n := waste(c, closed); n != 1001 {
			t.Errorf("after a second it is closed at number %d, want 1,001", n)
		}
		c, closed = enter(t, g, one)
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // fake time
		for range 1000 {
			c.Waste()
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
		if n := waste(c, closed); n != 501 {
			t.Errorf("after a thousand and a second it is closed at number %d, want 501", n)
		}
		if c, _ := g.Enter(nowhere, nil); c == nil {
			t.Error("a client without an address is refused")
		}
	})
}

// TestWasteOfAddress checks that a client does not evade the bound by many connections, also one
// after the other, and that another's address has its own.
func TestWasteOfAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
		n := 0
		for range 1000 {
			c, closed := enter(t, g, one)
			for range 100 {
				if c.Waste(); *closed > 0 {
					break
				}
				n++
			}
			c.Leave()
		}
		if n != 4000 {
			t.Errorf("the connections of an address have %d calls of no use, want 4,000", n)
		}
		c, closed := enter(t, g, another)
		if c.Waste(); *closed > 0 {
			t.Error("the connection of another client is closed")
		}
		for range 5 { // which may be those of many clients
			c, closed := enter(t, g, nowhere)
			for range 10_000 {
				c.Waste()
			}
			if *closed > 0 {
				t.Error("a connection without an address is closed")
			}
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
		c, closed = enter(t, g, one)
		for range 1000 {
			c.Waste()
		}
		if *closed > 0 {
			t.Error("the address pays for what was two seconds ago")
		}
	})
}

// TestWasteOfNeighbours checks that what others at its address waste does not close the connection
// of a client whose credential counts, and that what it wastes itself does.
func TestWasteOfNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
		trusted, closed := enter(t, g, one)
		trusted.Trust()
		for range 10 {
			c, _ := enter(t, g, one)
			for range 1000 {
				c.Waste()
			}
		}
		if trusted.Waste(); *closed > 0 {
			t.Error("the connection is closed for what its neighbours waste")
		}
		stranger, cut := enter(t, g, one)
		if stranger.Waste(); *cut != 1 {
			t.Error("a client without a credential is not closed for what its address wastes")
		}
		for range 1000 {
			trusted.Waste()
		}
		if *closed != 1 {
			t.Errorf("after 1,001 calls of no use it is closed %d times, want once", *closed)
		}
	})
}

// TestNoGuard checks that a listener without a guard admits everything.
func TestNoGuard(t *testing.T) {
	var g *flood.Guard
	c, ok := g.Enter(one, nil)
	if !ok || !c.Hold() {
		t.Error("something is refused")
	}
	c.Trust()
	c.Waste()
	c.Release()
	c.Leave()
	if ctx := flood.NewContext(t.Context(), c); flood.From(ctx) != nil ||
		flood.From(t.Context()) != nil {
		t.Error("a context has a connection")
	}
}

// meter counts what a guard refuses and closes.
type meter map[string]int

func (m meter) Flood(what string) { m[what]++ }

// TestMeter checks that each refusal and each close is counted once, whatever the log has lines
// for.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter{}
		g := flood.New(2, 0, slog.New(slog.DiscardHandler), m)
		c, closed := enter(t, g, one)
		enter(t, g, another)
		for range 3 {
			_, _ = g.Enter(another, nil)
		}
		held := 0
		for c.Hold() {
			held++
		}
		c.Hold()
		for range 1500 {
			c.Waste()
		}
		if *closed != 1 || held != 32 {
			t.Fatalf("%d streams, closed %d times", held, *closed)
		}
		want := meter{flood.Connections: 3, flood.Streams: 2, flood.Calls: 1}
		if !maps.Equal(m, want) {
			t.Errorf("counted %v, want %v", m, want)
		}
	})
}

// TestAddressesAreBounded has connections of many addresses begin, waste a call and end, faster
// than the past is forgotten: the Guard remembers a bounded number of them, and those that are
// open.
func TestAddressesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
		var open []*flood.Connection
		for i := range 4 * flood.MostSources {
			c, _ := enter(t, g, netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
			c.Waste()
			if i%1000 == 0 {
				open = append(open, c)
				continue
			}
			c.Leave()
		}
		if n := g.Sources(); n < len(open) || n > len(open)+flood.MostSources {
			t.Errorf("%d addresses are remembered, of %d open connections", n, len(open))
		}
		for _, c := range open {
			c.Leave()
		}
	})
}

// TestSuspect checks which connections count as a flood, and for how long.
func TestSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := flood.New(0, 0, slog.New(slog.DiscardHandler), nil)
		c, _ := enter(t, g, one)
		trusted, _ := enter(t, g, one)
		trusted.Trust()
		for range 5 {
			if c.Suspect() {
				t.Fatal("a client is suspect before its address has wasted too much")
			}
			wasteful, _ := enter(t, g, one)
			for range 1000 {
				wasteful.Waste()
			}
		}
		other, _ := enter(t, g, another)
		if !c.Suspect() || trusted.Suspect() || other.Suspect() {
			t.Errorf("of an address that wastes: %t, with a credential: %t, of another address: %t",
				c.Suspect(), trusted.Suspect(), other.Suspect())
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
		if c.Suspect() {
			t.Error("the address is suspect two seconds later")
		}
	})
}
