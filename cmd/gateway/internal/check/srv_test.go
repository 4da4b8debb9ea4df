package check_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/certtest"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// serveDNS starts a DNS server with records in master-file syntax, which this process uses until
// the test ends.
func serveDNS(t *testing.T, zone string) {
	t.Helper()
	var records []dns.RR
	p := dns.NewZoneParser(strings.NewReader(zone), ".", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		records = append(records, rr)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	answer := func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Rcode = dns.RcodeNameError
		for _, rr := range records {
			if !strings.EqualFold(rr.Header().Name, q.Question[0].Name) {
				continue
			}
			m.Rcode = dns.RcodeSuccess
			if rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		_ = w.WriteMsg(m)
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &dns.Server{
		PacketConn: pc, Handler: dns.HandlerFunc(answer),
		NotifyStartedFunc: func() {
			close(started)
		},
	}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ActivateAndServe() })
	<-started
	system := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(
		ctx context.Context, _, _ string,
	) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = system
		_ = server.Shutdown()
		running.Wait()
	})
}

// TestSRV checks that hosts, the name of the set and encryption all come from DNS.
func TestSRV(t *testing.T) {
	ca := certtest.Authority(t, certtest.ECDSA)
	var n names
	var hosts []address.Address
	zone := `db.example.test. 60 IN TXT "replicaSet=rs&authSource=people"` + "\n"
	for _, name := range []string{"a.example.test", "b.example.test"} {
		mongo := fakemongo.NewTCPServer(t, nil)
		mongo.RequireAuth(&fakemongo.Auth{
			Users: []fakemongo.User{{Name: "ann", Password: "hunter2", Source: "people"}},
		})
		mongo.UseTLS(&tls.Config{Certificates: []tls.Certificate{ca.Issue(t, name).TLS(nil)}})
		me := address.Address(name + ":" + mongo.Address().Port())
		hosts = append(hosts, me)
		n = append(n, string(me), name)
		zone += fmt.Sprintf("_mongodb._tcp.db.example.test. 60 IN SRV 0 0 %s %s.\n%s. 60 IN A "+
			"127.0.0.1\n", me.Port(), name, name)
		mongo.Handle("hello", func(cmd *fakemongo.Command) fakemongo.Reply {
			return fakemongo.OK(func(b *bson.Builder) {
				b.Bool("ismaster", me == hosts[0]).Bool("secondary", me != hosts[0]).
					String("setName", "rs").String("me", string(me))
				b.OpenArray("hosts").String("", string(hosts[0])).String("", string(hosts[1])).
					Close()
				b.Int32("maxWireVersion", 25)
			})
		})
	}
	serveDNS(t, zone)
	_, text := run(t, "mongodb+srv://ann:hunter2@db.example.test/shop?tlsCAFile="+certtest.File(t, "ca.pem", ca.CertificateBlock()), n)
	for _, want := range []string{
		"connection string  mongodb+srv://***@db.example.test/shop?tlsCAFile=",
		"\nhosts              a.example.test (SRV records of db.example.test)\n                  " +
			" b.example.test\n" +
			"user               ***, with a password, authSource people, mechanism to be " +
			"negotiated\n",
		"replicaSet=rs (TXT record)\n",
		"authSource=people (TXT record)\n",
		"\na.example.test\n  kind             RSPrimary of the set rs as a.example.test\n  wire versions    0 to 25 (as MongoDB 8.0)\n",
		"  sessions         none\n",
		"  tls              TLS 1.3, TLS_AES_128_GCM_SHA256\n  certificate      CN=b.example.test for b.example.test\n",
		"  login            SCRAM-SHA-256: the server lists it for the user\n",
		"\ndeployment         ReplicaSetWithPrimary, set rs\n  writes           a.example.test\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("Print() lacks %q", want)
		}
	}
	if t.Failed() || strings.Contains(text, "hunter2") {
		t.Errorf("Print() wrote\n%s", text)
	}
}

func TestSRVFails(t *testing.T) {
	serveDNS(t, `
_mongodb._tcp.away.example.test. 60 IN SRV 0 0 27017 a.example.org.
_mongodb._tcp.odd.example.test.  60 IN SRV 0 0 27017 a.example.test.
odd.example.test.                60 IN TXT "tls=false"
`)
	for _, row := range []struct{ name, host, want string }{
		{"unknown", "none.example.test", "mongodb+srv://none.example.test: look up SRV records: lookup _mongodb._tcp.none.example.test."},
		{"foreign host", "away.example.test", `mongodb+srv://away.example.test: host "a.example.org." of an SRV record is not inside the domain "example.test"`},
		{"forbidden option", "odd.example.test", `mongodb+srv://odd.example.test: TXT record: option "tls" is not authSource, replicaSet or loadBalanced`},
	} {
		t.Run(row.name, func(t *testing.T) {
			report, text := run(t, "mongodb+srv://ann:hunter2@"+row.host+"/?appName=x", nil)
			if !strings.HasPrefix(report.Error, row.want) {
				t.Errorf("Error = %q, want %q", report.Error, row.want)
			}
			want := "hosts              the SRV records name no hosts: " + row.host +
				"\nuser               ***"
			if !strings.Contains(text, want) || !strings.Contains(text, "appName=x\n") ||
				strings.Contains(text, "hunter2") {
				t.Errorf("Print() wrote\n%s\nwant %q in it", text, want)
			}
		})
	}
}
