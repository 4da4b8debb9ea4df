package topology_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// records are the SRV records of a name, by ports of cluster.example.com.
type records struct {
	mu    sync.Mutex
	hosts []string // "a:27017"
	err   error
	asked []string
}

func (r *records) set(err error, hosts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts, r.err = hosts, err
}

func (r *records) LookupSRV(_ context.Context, name string) (found []seedlist.SRV, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, name)
	for _, host := range r.hosts {
		addr := address.Address(host)
		var port uint16
		if _, err := fmt.Sscan(addr.Port(), &port); err != nil {
			return nil, err
		}
		found = append(found, seedlist.SRV{Target: addr.Host() + ".example.com.", Port: port})
	}
	return found, r.err
}

func (r *records) LookupTXT(context.Context, string) ([]string, error) { return nil, nil }

func (r *records) lookups() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asked)
}

// polled is a topology of mongoses whose addresses come from DNS.
type polled struct {
	records *records
	cluster *fakemongo.Cluster
	topo    *topology.Topology
	journal journal
}

// startPolled starts with a and b, while the records name c and d, too, when there are four
// mongoses.
func startPolled(t *testing.T, role fakemongo.Role, options string) *polled {
	t.Helper()
	cluster := fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, role, role, role, role)
	names := map[string]string{}
	for _, h := range cluster.Hosts() {
		names[h.Address().Host()+".example.com:27017"] = string(h.Address())
	}
	cfg, err := connstring.Parse("mongodb+srv://cluster.example.com/?tls=false&" + options)
	if err != nil {
		t.Fatal(err)
	}
	p := &polled{records: &records{hosts: []string{"a:27017", "b:27017"}}, cluster: cluster}
	resolved, interval, err := seedlist.Resolve(t.Context(), p.records, cfg)
	if err != nil {
		t.Fatal(err)
	}
	dial := conn.Config{}
	dial.Dialer = redirect(cluster, names)
	p.topo = start(t, topology.Config{
		Seeds: resolved.Hosts, LoadBalanced: resolved.LoadBalanced, Conn: dial,
		SRV: &seedlist.Poller{Resolver: p.records, Config: resolved, Interval: interval},
		Sink: &event.Sink{
			SeedlistProblem: func(e event.SeedlistProblem) {
				p.journal.add("%s: %v", e.Host, e.Err)
			},
			ServerClosed: func(e event.ServerClosed) {
				p.journal.add("closed %s", e.Address.Host())
			},
			ServerOpening: func(e event.ServerOpening) {
				p.journal.add("opening %s", e.Address.Host())
			},
		},
	})
	pass(time.Second)
	synctest.Wait()
	p.journal.take()
	return p
}

func (p *polled) hosts() (all []string) {
	for _, s := range p.topo.Description().Servers {
		all = append(all, s.Address.Host()[:1])
	}
	return all
}

// TestPollingSRVRecords are the prose tests of that name: what the records say after a minute is
// what is known then.
func TestPollingSRVRecords(t *testing.T) {
	lookupError := errors.New("no such host")
	for name, test := range map[string]struct {
		options string
		err     error
		records []string
		want    []string
		events  []string
	}{
		"1 add a record":             {records: []string{"a:27017", "b:27017", "c:27017"}, want: []string{"a", "b", "c"}, events: []string{"opening c.example.com"}},
		"2 remove a record":          {records: []string{"a:27017"}, want: []string{"a"}, events: []string{"closed b.example.com"}},
		"3 replace a record":         {records: []string{"a:27017", "c:27017"}, want: []string{"a", "c"}, events: []string{"closed b.example.com", "opening c.example.com"}},
		"4 replace all by one":       {records: []string{"c:27017"}, want: []string{"c"}},
		"5 replace all by two":       {records: []string{"c:27017", "d:27017"}, want: []string{"c", "d"}},
		"6, 7 lookup fails":          {err: lookupError, want: []string{"a", "b"}, events: []string{"cluster.example.com: look up SRV records: no such host"}},
		"8 no records":               {want: []string{"a", "b"}, events: []string{"cluster.example.com: there are no SRV records of _mongodb._tcp.cluster.example.com"}},
		"9 load balanced":            {options: "loadBalanced=true", records: []string{"c:27017"}, want: []string{"a"}, events: []string{}},
		"10 srvMaxHosts is zero":     {options: "srvMaxHosts=0", records: []string{"a:27017", "c:27017", "d:27017"}, want: []string{"a", "c", "d"}},
		"11 srvMaxHosts is no limit": {options: "srvMaxHosts=2", records: []string{"c:27017", "d:27017"}, want: []string{"c", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var p *polled
				if test.options == "loadBalanced=true" {
					p = startLoadBalanced(t)
				} else {
					p = startPolled(t, fakemongo.Mongos, test.options)
				}
				defer stop(t, p.topo)
				p.records.set(test.err, test.records...)
				pass(time.Minute)
				synctest.Wait()
				if got := p.hosts(); !slices.Equal(got, test.want) {
					t.Errorf("hosts = %v, want %v", got, test.want)
				}
				if got := p.journal.take(); test.events != nil && !slices.Equal(got, test.events) {
					t.Errorf("events = %q, want %q", got, test.events)
				}
			})
		})
	}
}

// startLoadBalanced is a topology that must not look anything up.
func startLoadBalanced(t *testing.T) *polled {
	t.Helper()
	p := &polled{records: &records{}}
	p.topo = start(t, topology.Config{
		Seeds: []address.Address{"a.example.com:27017"}, LoadBalanced: true,
		Conn: conn.Config{Dialer: unreachable},
		SRV: &seedlist.Poller{
			Resolver: p.records, Config: connstring.Config{SRV: true, LoadBalanced: true},
		},
	})
	return p
}

// TestPollingSRVKeepsHostsUnderALimit is the prose test 12: of what is still valid nothing is
// given up.
func TestPollingSRVKeepsHostsUnderALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPolled(t, fakemongo.Mongos, "srvMaxHosts=2")
		defer stop(t, p.topo)
		p.records.set(nil, "a:27017", "c:27017", "d:27017")
		pass(time.Minute)
		synctest.Wait()
		if got := p.hosts(); len(got) != 2 || got[0] != "a" {
			t.Errorf("hosts = %v, want a and one more", got)
		}
	})
}

// TestPollingSRVServiceName is the prose test 13.
func TestPollingSRVServiceName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPolled(t, fakemongo.Mongos, "srvServiceName=customname")
		defer stop(t, p.topo)
		pass(time.Minute)
		synctest.Wait()
		if want := "_customname._tcp.cluster.example.com."; !slices.Contains(p.records.asked[1:],
			want) {
			t.Errorf("asked for %v, want %s", p.records.asked, want)
		}
	})
}

func TestPollingSRVAfterAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPolled(t, fakemongo.Mongos, "")
		defer stop(t, p.topo)
		p.records.set(errors.New("timeout"))
		before := p.records.lookups()
		pass(59*time.Second + 30*time.Second) // one after the minute, then one each 10 s
		synctest.Wait()
		if got := p.records.lookups() - before; got != 4 {
			t.Errorf("%d lookups, want 4", got)
		}
		p.records.set(nil, "a:27017")
		pass(10 * time.Second)
		synctest.Wait()
		if got := p.hosts(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("hosts = %v, want a", got)
		}
	})
}

// TestPollingSRVEndsWithAnotherKind checks that polling ends once the deployment is a replica set,
// whose hellos list its members.
func TestPollingSRVEndsWithAnotherKind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPolled(t, fakemongo.Secondary, "")
		defer stop(t, p.topo)
		if kind := p.topo.Description().Kind; kind != description.KindReplicaSetNoPrimary {
			t.Fatalf("kind = %v", kind)
		}
		before := p.records.lookups()
		pass(10 * time.Minute)
		if n := p.records.lookups() - before; n != 0 {
			t.Errorf("%d lookups of a replica set's records", n)
		}
	})
}
