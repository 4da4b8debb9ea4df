package replica_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
)

// names is a DNS in which every name stands for the same addresses, or for none.
type names struct {
	mu     sync.Mutex
	hosts  []string
	asked  int
	hangs  bool
	before func() // called before each answer
}

func (d *names) lookup(ctx context.Context, host string) ([]string, error) {
	d.mu.Lock()
	hosts := d.hosts
	d.asked++
	hangs, before := d.hangs, d.before
	d.mu.Unlock()
	if before != nil {
		before()
	}
	if hangs {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if len(hosts) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return hosts, nil
}

// set replaces the addresses that DNS returns.
func (d *names) set(addresses ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = addresses
}

func sorted(n interface {
	Others(context.Context, bool) []string
}, ctx context.Context,
) []string {
	all := n.Others(ctx, false)
	slices.Sort(all)
	return all
}

// TestOthers: a name stands for all its addresses, which stay in use for some seconds, and longer
// if DNS fails.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns := &names{}
		n := replica.New(replica.Config{
			Keys: ring(t, "a"), Others: []string{"peers.svc:7", "10.0.0.9:7", "[fd00::9]:8"},
			LookupHost: dns.lookup, Log: slog.New(slog.DiscardHandler),
		})
		expect := func(when string, want ...string) {
			t.Helper()
			if got := sorted(n, t.Context()); !slices.Equal(got, want) {
				t.Errorf("%s: Others = %q, want %q", when, got, want)
			}
		}
		expect("unknown name", "10.0.0.9:7", "[fd00::9]:8")
		time.Sleep(6 * time.Second) //nolint:forbidigo // in a bubble
		dns.set("10.0.0.1", "10.0.0.2", "10.0.0.9", "fd00::1")
		expect("all addresses, each once", "10.0.0.1:7", "10.0.0.2:7", "10.0.0.9:7", "[fd00::1]:7",
			"[fd00::9]:8")
		dns.set("10.0.0.3")
		asked := dns.asked
		expect("cached", "10.0.0.1:7", "10.0.0.2:7", "10.0.0.9:7", "[fd00::1]:7", "[fd00::9]:8")
		if dns.asked != asked {
			t.Error("DNS was asked again at once")
		}
		time.Sleep(6 * time.Second) //nolint:forbidigo // in a bubble
		expect("after a while", "10.0.0.3:7", "10.0.0.9:7", "[fd00::9]:8")
		dns.set()
		time.Sleep(6 * time.Second) //nolint:forbidigo // in a bubble
		expect("DNS fails", "10.0.0.3:7", "10.0.0.9:7", "[fd00::9]:8")

		// A DNS server that does not answer blocks callers for a bounded time.
		dns.hangs = true
		time.Sleep(6 * time.Second) //nolint:forbidigo // in a bubble
		begun := time.Now()
		expect("DNS hangs", "10.0.0.3:7", "10.0.0.9:7", "[fd00::9]:8")
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Others took %s", took)
		}
		// A canceled lookup says nothing about the name: the next caller looks it up again.
		dns.hangs = false
		dns.set("10.0.0.4")
		time.Sleep(6 * time.Second) //nolint:forbidigo // in a bubble
		gone, cancel := context.WithCancel(t.Context())
		dns.before = cancel
		dns.hangs = true
		_ = n.Others(gone, false)
		dns.before, dns.hangs = nil, false
		expect("the next one", "10.0.0.4:7", "10.0.0.9:7", "[fd00::9]:8")
	})
}

func TestOthersAreBounded(t *testing.T) {
	dns := &names{}
	var hosts []string
	for i := range 200 {
		hosts = append(hosts, net.IPv4(10, 0, 1, byte(i)).String())
	}
	dns.set(hosts...)
	n := replica.New(replica.Config{
		Keys: ring(t, "a"), Others: []string{"peers.svc:7"}, LookupHost: dns.lookup,
		Log: slog.New(slog.DiscardHandler),
	})
	if got := n.Others(t.Context(), false); len(got) != replica.MaxOthers {
		t.Errorf("Others = %d, want %d", len(got), replica.MaxOthers)
	}
}

// TestSelfIsNoOther: a replica knows itself by the advertised address, or else by asking.
func TestSelfIsNoOther(t *testing.T) {
	dns := &names{}
	peer := start(t, "a", yes())
	_, port, _ := net.SplitHostPort(peer.Advertised())
	other := net.JoinHostPort("127.0.0.1", port)
	accepted := 0
	self := bind(t, "a", knowing("peers.svc:"+port, other), func(c *replica.Config) {
		c.LookupHost, c.Address, c.Advertise = dns.lookup, "127.0.0.2:"+port, "127.0.0.2:"+port
	})
	self.Serve(&fake{accept: func(paging.Record) error {
		accepted++
		return nil
	}})
	dns.set("127.0.0.1", "127.0.0.2")
	if got := sorted(self, t.Context()); !slices.Equal(got, []string{other}) {
		t.Errorf("Others = %q, want %q alone", got, other)
	}

	// The replica advertises a name, and DNS returns the address.
	free := bind(t, "a")
	_, port, _ = net.SplitHostPort(free.Address())
	free.stop()
	named := bind(t, "a", at("127.0.0.1:"+port), knowing("peers.svc:"+port), func(
		c *replica.Config,
	) {
		c.LookupHost, c.Advertise = dns.lookup, "me.example:0"
	})
	named.Serve(&fake{accept: func(paging.Record) error {
		accepted++
		return nil
	}})
	own := named.Address()
	host, _, _ := net.SplitHostPort(own)
	if want := net.JoinHostPort("me.example", port); named.Advertised() != want {
		t.Errorf("Advertised = %s, want %s", named.Advertised(), want)
	}
	dns.set(host)
	if got := sorted(named, t.Context()); !slices.Equal(got, []string{own}) {
		t.Fatalf("Others = %q, want its own address, which it does not know yet", got)
	}
	_, err := named.Push(t.Context(), own, slices.Values([]paging.Record{{}}))
	if e, ok := errors.AsType[*paging.UnreachableError](err); !ok || e.Sent || accepted != 0 {
		t.Errorf("Push to itself = %v, accepted %d; want *UnreachableError, not sent, and none",
			err, accepted)
	}
	if err := named.ask(t.Context(), own); err == nil {
		t.Error("a call of itself = nil")
	}
	if got := named.Others(t.Context(), false); len(got) != 0 {
		t.Errorf("Others = %q although it has met itself there", got)
	}
}

// TestMetSelfIsForAWhile: where several replicas share an address, as behind a Service that is not
// headless, a call that comes back hides the others for a bounded time.
func TestMetSelfIsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shared = "10.96.0.1:7"
		n := replica.New(replica.Config{
			Keys: ring(t, "a"), Others: []string{shared}, Log: slog.New(slog.DiscardHandler),
		})
		for range 2 {
			n.MetSelf(shared)
			time.Sleep(replica.SelfTTL - 1) //nolint:forbidigo // in a bubble
			if got := n.Others(t.Context(), false); len(got) != 0 {
				t.Errorf("Others = %q although it has met itself there", got)
			}
			time.Sleep(time.Nanosecond) //nolint:forbidigo // in a bubble
			if got := n.Others(t.Context(), false); !slices.Equal(got, []string{shared}) {
				t.Errorf("Others = %q after a while, want %s again", got, shared)
			}
		}
	})
}

// TestSharedAddress: the connection on which a replica has met itself is not used again.
func TestSharedAddress(t *testing.T) {
	n := start(t, "a", yes())
	service := newProxy(t, n.Advertised())
	if err := n.ask(t.Context(), service.address()); err == nil {
		t.Fatal("a call of itself = nil")
	}
	other := start(t, "a", yes())
	service.lead(other.Advertised())
	if err := n.ask(t.Context(), service.address()); err != nil {
		t.Errorf("a call at the shared address, which leads to another one now = %v", err)
	}
}
