package seedlist_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/core/wire"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/spectest"
)

const suite = "initial-dns-seedlist-discovery"

// options are how the tests see the fields.
var options = map[string]func(*connstring.Config) any{
	"authSource":       func(c *connstring.Config) any { return c.AuthSource },
	"directConnection": func(c *connstring.Config) any { return c.DirectConnection },
	"loadBalanced":     func(c *connstring.Config) any { return c.LoadBalanced },
	"replicaSet":       func(c *connstring.Config) any { return c.ReplicaSet },
	"srvMaxHosts":      func(c *connstring.Config) any { return c.SRVMaxHosts },
	"srvServiceName":   func(c *connstring.Config) any { return c.SRVServiceName },
	"ssl":              func(c *connstring.Config) any { return c.UseTLS() },
	"user":             func(c *connstring.Config) any { return c.Username },
	"password":         func(c *connstring.Config) any { return c.Password },
	"db":               func(c *connstring.Config) any { return c.Database },
	"defaultDatabase":  func(c *connstring.Config) any { return c.Database },
	"auth_database":    func(c *connstring.Config) any { return c.Database },
}

type specCase struct {
	URI           string
	Seeds         []address.Address
	NumSeeds      *int
	Hosts         []address.Address
	NumHosts      *int
	Options       map[string]any
	ParsedOptions map[string]any `json:"parsed_options"`
	Error         bool
	Ping          *bool
}

// The DNS server and its answers are real, over the network; what the hosts then say is scripted,
// without TLS.
func TestSpecifications(t *testing.T) {
	files := spectest.Files(t, suite)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(spectest.Dir(t, suite)), "dns-zone.txt"))
	if err != nil {
		t.Fatalf("the suite is there, but not its DNS records: %v", err)
	}
	resolver := newZone(t, string(text)).serve(t)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c specCase
		if err := json.Unmarshal(data, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		folder := filepath.Base(filepath.Dir(file))
		name := folder + "/" + strings.TrimSuffix(filepath.Base(file), ".json")
		spectest.Case(t, suite, file, name, func(t *testing.T) {
			got, err := resolve(t, resolver, c.URI)
			if (err != nil) != c.Error {
				t.Fatalf("%s: %v, want an error: %v", c.URI, err, c.Error)
			}
			if err == nil {
				c.check(t, &got)
				c.checkHosts(t, &got, folder)
			}
		})
	}
}

func resolve(t *testing.T, r seedlist.Resolver, uri string) (connstring.Config, error) {
	t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		return cfg, err
	}
	cfg, _, err = seedlist.Resolve(t.Context(), r, cfg)
	return cfg, err
}

func (c specCase) check(t *testing.T, got *connstring.Config) {
	switch {
	case c.NumSeeds != nil:
		if len(got.Hosts) != *c.NumSeeds {
			t.Errorf("%s: seeds %v, want %d", c.URI, got.Hosts, *c.NumSeeds)
		}
		for _, seed := range got.Hosts {
			if c.Seeds != nil && !slices.Contains(c.Seeds, seed) {
				t.Errorf("%s: seed %v, want some of %v", c.URI, seed, c.Seeds)
			}
		}
	case !same(got.Hosts, c.Seeds):
		t.Errorf("%s: seeds %v, want %v", c.URI, got.Hosts, c.Seeds)
	}
	for _, set := range []map[string]any{c.Options, c.ParsedOptions} {
		for name, want := range set {
			get, ok := options[name]
			if !ok {
				t.Errorf("%s: nothing is known of the option %q", c.URI, name)
				continue
			}
			if g, w := asJSON(t, get(got)), asJSON(t, want); g != w {
				t.Errorf("%s: %s = %s, want %s", c.URI, name, g, w)
			}
		}
	}
}

// checkHosts discovers the deployment of the test's folder from the seeds, and pings it.
func (c specCase) checkHosts(t *testing.T, got *connstring.Config, folder string) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	topo, err := topology.New(topology.Config{
		Seeds: got.Hosts, ReplicaSet: got.ReplicaSet, LoadBalanced: got.LoadBalanced,
		Conn: conn.Config{Dialer: deployment(t, folder), LoadBalanced: got.LoadBalanced},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := topo.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = topo.Close(context.WithoutCancel(ctx)) }()
	for {
		d, changed := topo.Watch()
		if c.isThere(&d) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%s: the deployment is %v, want hosts %v", c.URI, d, c.Hosts)
		}
	}
	if c.Ping == nil || *c.Ping {
		if err := ping(ctx, topo); err != nil {
			t.Errorf("%s: ping = %v", c.URI, err)
		}
	}
}

func (c specCase) isThere(d *description.Topology) bool {
	var hosts []address.Address
	for _, s := range d.Servers {
		if s.Kind != description.ServerUnknown {
			hosts = append(hosts, s.Address)
		}
	}
	if c.NumHosts != nil {
		return len(hosts) == *c.NumHosts && len(d.Servers) == *c.NumHosts
	}
	return same(hosts, c.Hosts) && len(d.Servers) == len(c.Hosts)
}

func ping(ctx context.Context, topo *topology.Topology) error {
	s, err := topo.Select(ctx, selection.Write())
	if err != nil {
		return err
	}
	c, err := s.CheckOut(ctx)
	if err != nil {
		return err
	}
	b := bson.NewBuilder(wire.BeginMsg(nil, 0))
	b.Int32("ping", 1).String("$db", "admin").Finish()
	msg := b.Bytes()
	wire.EndMsg(msg)
	_, err = c.Resource().RoundTrip(ctx, msg)
	s.CheckIn(c, err)
	return err
}

// deployment returns the dialer of the deployment that a folder's tests are written for. It
// ignores the hosts' names.
func deployment(
	t *testing.T, folder string,
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	t.Helper()
	servers := map[string]*fakemongo.Server{}
	for _, port := range []string{"27017", "27018", "27019", "8000"} {
		servers[port] = fakemongo.NewServer(t, fakemongo.Handlers{"hello": hello(folder, port)})
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return servers[port].Dial(ctx, network, addr)
	}
}

func hello(folder, port string) fakemongo.Handler {
	return func(cmd *fakemongo.Command) fakemongo.Reply {
		if folder != "replica-set" {
			return fakemongo.Hello(cmd, func(b *bson.Builder) {
				b.String("msg", "isdbgrid")
				if folder == "load-balanced" {
					b.ObjectID("serviceId", bson.ObjectID{1})
				}
			})
		}
		return fakemongo.OK(func(b *bson.Builder) {
			b.Bool("helloOk", true).Int32("maxWireVersion", 21)
			b.Bool("isWritablePrimary", port == "27017").Bool("ismaster", port == "27017").
				Bool("secondary", port != "27017")
			b.String("setName", "repl0").Int32("setVersion", 1).OpenArray("hosts")
			for _, host := range []string{"localhost:27017", "localhost:27018", "localhost:27019"} {
				b.String("", host)
			}
			b.Close()
		})
	}
}

// same compares as sets.
func same(a, b []address.Address) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
