package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// SOCKS5 Support, prose tests: a proxy on port 1080 that wants credentials and one on 1081 that
// does not; only they know the servers. Each string is given as one, and as a plain one with the
// same options beside it.
func TestSOCKS5Prose(t *testing.T) {
	const (
		mapped     = "mongodb://mapped.test:12345/?directConnection=true"
		replicaSet = "mongodb://rs1.test:27017,rs2.test:27017/?replicaSet=rs"
	)
	tests := []struct {
		uri, proxy string
		ok         bool
	}{
		{mapped, "proxyHost=localhost&proxyPort=1080", false},
		{mapped, "proxyHost=localhost&proxyPort=1081", true},
		{replicaSet, "proxyHost=localhost&proxyPort=1080", false},
		{replicaSet, "proxyHost=localhost&proxyPort=1081", true},
		{mapped, "proxyHost=localhost&proxyPort=1080&proxyUsername=nonexistentuser&proxyPassword=badauth", false},
		{mapped, "proxyHost=localhost&proxyPort=1081&proxyUsername=nonexistentuser&proxyPassword=badauth", true},
		{replicaSet, "proxyHost=localhost&proxyPort=1081&proxyUsername=nonexistentuser&proxyPassword=badauth", true},
		{mapped, "proxyHost=localhost&proxyPort=1080&proxyUsername=username&proxyPassword=p4ssw0rd", true},
		{mapped, "proxyHost=localhost&proxyPort=1081&proxyUsername=username&proxyPassword=p4ssw0rd", true},
		{replicaSet, "proxyHost=localhost&proxyPort=1080&proxyUsername=username&proxyPassword=p4ssw0rd", true},
		{replicaSet, "proxyHost=localhost&proxyPort=1081&proxyUsername=username&proxyPassword=p4ssw0rd", true},
	}
	for i, tt := range tests {
		t.Run(fmt.Sprintf("%d", i+1), func(t *testing.T) {
			for _, way := range []string{"string", "options"} {
				synctest.Test(t, func(t *testing.T) {
					var cfg connstring.Config
					var err error
					if way == "string" {
						cfg, err = connstring.Parse(tt.uri + "&" + tt.proxy)
					} else {
						options := map[string][]string{}
						for pair := range strings.SplitSeq(tt.proxy, "&") {
							name, value, _ := strings.Cut(pair, "=")
							options[name] = []string{value}
						}
						cfg, err = connstring.ParseWith(tt.uri, options)
					}
					if err != nil {
						t.Fatal(err)
					}
					checkThroughProxies(t, cfg, tt.ok)
				})
			}
		})
	}
}

func checkThroughProxies(t *testing.T, cfg connstring.Config, ok bool) {
	t.Helper()
	servers := map[string]*fakemongo.Server{
		"mapped.test:12345": fakemongo.NewServer(t, nil),
		"rs1.test:27017":    fakemongo.NewServer(t, fakemongo.Handlers{"hello": rsMember(true)}),
		"rs2.test:27017":    fakemongo.NewServer(t, fakemongo.Handlers{"hello": rsMember(false)}),
	}
	withAuth, open := fakemongo.NewProxy(t, servers), fakemongo.NewProxy(t, servers)
	withAuth.Username, withAuth.Password = "username", "p4ssw0rd"
	j := &failures{}
	cfg.ServerSelectionTimeout = new(2 * time.Second)
	c, err := client.New(cfg, client.Options{Sink: j.sink(), Dialer: func(
		ctx context.Context, network, addr string,
	) (net.Conn, error) {
		switch addr {
		case "localhost:1080":
			return withAuth.Dial(ctx, network, addr)
		case "localhost:1081":
			return open.Dial(ctx, network, addr)
		}
		t.Errorf("dialed %s: past the proxy", addr)
		return nil, errors.New("no way")
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = c.Ping(t.Context())
	if (err == nil) != ok {
		t.Errorf("Ping() = %v, want success: %v", err, ok)
	}
	if closeErr := c.Close(context.Background()); closeErr != nil {
		t.Error(closeErr)
	}
	// Events, and what is made of them, never name the proxy.
	for _, text := range append(j.texts, fmt.Sprint(err)) {
		for _, no := range []string{"1080", "1081", "localhost", "badauth", "p4ssw0rd"} {
			if strings.Contains(text, no) {
				t.Errorf("%q has %q in it", text, no)
			}
		}
	}
	if !ok && len(j.texts) == 0 {
		t.Error("no event told of the failure")
	}
	for _, p := range []*fakemongo.Proxy{withAuth, open} {
		for _, r := range p.Requests() {
			if r.Address != "" && servers[r.Address] == nil {
				t.Errorf("the proxy was asked for %q: not the name as it was given", r.Address)
			}
		}
	}
}

// failures are the texts of what events say of failures.
type failures struct {
	mu    sync.Mutex
	texts []string
}

func (f *failures) sink() *event.Sink {
	add := func(addr address.Address, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.texts = append(f.texts, fmt.Sprintf("%v: %v", addr, err))
	}
	return &event.Sink{
		ServerHeartbeatFailed: func(e event.ServerHeartbeatFailed) { add(e.Address, e.Err) },
		ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
			add(e.Address, e.New.LastError)
		},
	}
}

func rsMember(primary bool) fakemongo.Handler {
	return fakemongo.Always(fakemongo.OK(func(b *bson.Builder) {
		b.Bool("helloOk", true).Int32("maxWireVersion", 21).Bool("isWritablePrimary", primary).
			Bool("secondary", !primary)
		b.String("setName", "rs").Int32("setVersion", 1)
		b.OpenArray("hosts").String("", "rs1.test:27017").String("", "rs2.test:27017").Close()
	}))
}

// A real proxy, Debian's microsocks, where it is installed.
func TestSOCKS5Microsocks(t *testing.T) {
	path, err := exec.LookPath("microsocks")
	if err != nil {
		t.Skip("microsocks is not installed (apt-get install microsocks)")
	}
	srv := fakemongo.NewTCPServer(t, nil)
	srv.SetDocuments("shop.orders", doc(t, `{"_id":1}`))
	for _, tt := range []struct {
		name, user, password string
		args                 []string
		ok                   bool
	}{
		{name: "open", ok: true},
		{name: "credentials", args: []string{"-u", "u", "-P", "p"}, user: "u", password: "p", ok: true},
		{name: "wrong credentials", args: []string{"-u", "u", "-P", "p"}, user: "u", password: "x"},
		{name: "credentials missing", args: []string{"-u", "u", "-P", "p"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port := freePort(t)
			cmd := exec.Command(path,
				append([]string{"-i", "127.0.0.1", "-p", port}, tt.args...)...)
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			awaitPort(t, port)
			options := map[string][]string{
				"proxyHost": {"127.0.0.1"}, "proxyPort": {port}, "serverSelectionTimeoutMS": {"1000"},
			}
			if tt.user != "" {
				options["proxyUsername"], options["proxyPassword"] = []string{tt.user},
					[]string{tt.password}
			}
			// A name, which the proxy has to look up.
			cfg, err := connstring.ParseWith("mongodb://localhost:"+srv.Address().Port()+"/?directConnection=true", options)
			if err != nil {
				t.Fatal(err)
			}
			c := startWith(t, cfg, client.Options{})
			found, ok, err := c.FindOne(t.Context(), orders, client.FindOptions{})
			if tt.ok {
				if err != nil || !ok || text(t, found) != `{"_id":1}` {
					t.Errorf("FindOne() = %v, %v, %v", found, ok, err)
				}
				return
			}
			if s := c.Topology().Server(cfg.Hosts[0]); err == nil || s == nil ||
				!isProxyError(s.LastError) {
				t.Errorf("FindOne() = %v, want a failure at the proxy", err)
			}
		})
	}
}

func isProxyError(err error) bool {
	_, ok := errors.AsType[*conn.ProxyError](err)
	return ok
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// awaitPort waits for a program that does not say when it listens.
func awaitPort(t *testing.T, port string) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if nc, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			_ = nc.Close()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("nothing listens on port %s", port)
		case <-tick.C:
		}
	}
}
