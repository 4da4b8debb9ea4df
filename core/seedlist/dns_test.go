package seedlist_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/mooringdb/mooring/core/seedlist"
)

// zone is what a DNS server knows, and how it fails. It can be changed at any time. It answers
// over the network, see serve, or as a Resolver, which also says how long records live.
type zone struct {
	mu      sync.Mutex
	records []dns.RR
	fail    error // of the Resolver
	hang    bool  // the Resolver answers nothing until the context ends
	lookups int   // for SRV records
	rcode   int   // of every answer over the network, unless success
	drop    bool  // queries over the network are not answered
}

var _ seedlist.Resolver = (*zone)(nil)

// newZone reads master-file syntax.
func newZone(t testing.TB, text string) *zone {
	t.Helper()
	return &zone{records: parseZone(t, text)}
}

func parseZone(t testing.TB, text string) (records []dns.RR) {
	t.Helper()
	p := dns.NewZoneParser(strings.NewReader(text), ".", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		records = append(records, rr)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	return records
}

// set replaces all that is known.
func (z *zone) set(t testing.TB, text string) {
	records := parseZone(t, text)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records = records
}

// change changes one of the zone's fields.
func (z *zone) change(f func(z *zone)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f(z)
}

func (z *zone) count() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.lookups
}

// find also says whether the name, or one below it, exists.
func (z *zone) find(name string, kind uint16) (found []dns.RR, exists bool) {
	for _, rr := range z.records {
		owner := strings.ToLower(rr.Header().Name)
		if dns.IsSubDomain(strings.ToLower(name), owner) {
			exists = true
		}
		if strings.EqualFold(name, owner) && rr.Header().Rrtype == kind {
			found = append(found, rr)
		}
	}
	return found, exists
}

func (z *zone) LookupSRV(ctx context.Context, name string) ([]seedlist.SRV, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.lookups++
	if z.hang {
		z.mu.Unlock()
		<-ctx.Done()
		z.mu.Lock()
		return nil, ctx.Err()
	}
	if z.fail != nil {
		return nil, z.fail
	}
	found, _ := z.find(name, dns.TypeSRV)
	var records []seedlist.SRV
	for _, rr := range found {
		srv := rr.(*dns.SRV)
		records = append(records, seedlist.SRV{
			Target: srv.Target, Port: srv.Port, TTL: time.Duration(srv.Hdr.Ttl) * time.Second,
		})
	}
	return records, nil
}

func (z *zone) LookupTXT(_ context.Context, name string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	found, _ := z.find(name, dns.TypeTXT)
	var records []string
	for _, rr := range found {
		records = append(records, strings.Join(rr.(*dns.TXT).Txt, ""))
	}
	return records, nil
}

// ServeDNS implements dns.Handler.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.drop {
		return
	}
	m := new(dns.Msg).SetRcode(q, z.rcode)
	m.Authoritative = true
	if z.rcode == dns.RcodeSuccess {
		found, exists := z.find(q.Question[0].Name, q.Question[0].Qtype)
		m.Answer = found
		if !exists {
			m.Rcode = dns.RcodeNameError
		}
	}
	if w.RemoteAddr().Network() == "udp" {
		m.Truncate(dns.MinMsgSize)
	}
	_ = w.WriteMsg(m)
}

// serve makes a DNS server of the zone on the loopback interface, over UDP and TCP, and gives the
// Resolver that asks it as System asks the machine's.
func (z *zone) serve(t testing.TB) seedlist.System {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // after the shutdowns, which are registered later
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: z}, {Listener: l, Handler: z}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		running.Go(func() { _ = s.ActivateAndServe() })
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return seedlist.System{Resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			addr := pc.LocalAddr()
			if strings.HasPrefix(network, "tcp") {
				addr = l.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr.String())
		},
	}}
}

// srv are SRV records of name, all with the target localhost.test.build.10gen.cc.
func srv(name string, ttl int, ports ...int) string {
	var b strings.Builder
	for _, port := range ports {
		fmt.Fprintf(&b, "%s. %d IN SRV 0 0 %d localhost.test.build.10gen.cc.\n", name,
			cmp.Or(ttl, 60), port)
	}
	return b.String()
}
