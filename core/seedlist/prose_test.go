package seedlist_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/seedlist"
)

// The prose tests of initial DNS seedlist discovery.
func TestInitialDNSProse(t *testing.T) {
	tests := []struct {
		name, host, target string
		ok                 bool
	}{
		{"1. Allow SRVs with fewer than 3 parts", "localhost", "a.localhost", true},
		{"1. Allow SRVs with fewer than 3 parts", "mongo.local", "a.mongo.local", true},
		{"2. Throw when return address does not end with SRV domain", "localhost", "localhost.mongodb", false},
		{"2. Throw when return address does not end with SRV domain", "mongo.local", "test_1.evil.local", false},
		{"2. Throw when return address does not end with SRV domain", "blogs.mongodb.com", "blogs.evil.com", false},
		{"3. Throw when return address is identical to SRV hostname", "localhost", "localhost", false},
		{"3. Throw when return address is identical to SRV hostname", "mongo.local", "mongo.local", false},
		{"4. Throw when return address does not contain . separating shared part of domain", "localhost", "test_1.cluster_1localhost", false},
		{"4. Throw when return address does not contain . separating shared part of domain", "mongo.local", "test_1.my_hostmongo.local", false},
		{"4. Throw when return address does not contain . separating shared part of domain", "blogs.mongodb.com", "cluster.testmongodb.com", false},
	}
	for _, tt := range tests {
		t.Run(tt.name+"/"+tt.host, func(t *testing.T) {
			z := newZone(t,
				fmt.Sprintf("_mongodb._tcp.%s. IN SRV 0 0 27017 %s.", tt.host, tt.target))
			_, err := resolve(t, z.serve(t), "mongodb+srv://"+tt.host)
			if host, _ := errors.AsType[*seedlist.HostError](err); (err == nil) != tt.ok ||
				(host == nil) != tt.ok {
				t.Errorf("Resolve = %v, want no HostError: %v", err, tt.ok)
			}
		})
	}
}

// cluster is the topology of the polling tests: a list of hosts.
type cluster struct {
	mu       sync.Mutex
	limit    int
	hosts    []address.Address
	updates  int
	problems []error
	settled  bool // as if its kind were known, and not sharded
}

func (c *cluster) isWanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.settled
}

func (c *cluster) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = true
}

func (c *cluster) found(hosts []address.Address) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add, remove := seedlist.Changes(c.hosts, hosts, c.limit, rand.Shuffle)
	c.hosts = slices.DeleteFunc(c.hosts, func(h address.Address) bool {
		return slices.Contains(remove, h)
	})
	c.hosts = append(c.hosts, add...)
	c.updates++
}

func (c *cluster) problem(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, err)
}

// ports are those of the hosts, sorted.
func (c *cluster) ports() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ports []string
	for _, h := range c.hosts {
		ports = append(ports, h.Port())
	}
	slices.Sort(ports)
	return strings.Join(ports, " ")
}

// poll resolves uri and polls until the test's end. It needs a bubble.
func poll(t *testing.T, z *zone, uri string) *cluster {
	t.Helper()
	cfg, err := connstring.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	cfg, interval, err := seedlist.Resolve(t.Context(), z, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{hosts: cfg.Hosts}
	if cfg.SRVMaxHosts != nil {
		c.limit = int(*cfg.SRVMaxHosts)
	}
	p := &seedlist.Poller{
		Resolver: z, Config: cfg, Interval: interval, Wanted: c.isWanted, Found: c.found,
		Problem: c.problem,
	}
	var running sync.WaitGroup
	running.Go(func() { p.Run(t.Context()) })
	t.Cleanup(running.Wait)
	return c
}

// pass lets time pass, and a bit more, so that what happens then is over.
func pass(d time.Duration) {
	time.Sleep(d + time.Millisecond) //nolint:forbidigo // fake time
	synctest.Wait()
}

const (
	test1  = "_mongodb._tcp.test1.test.build.10gen.cc"
	test3  = "_mongodb._tcp.test3.test.build.10gen.cc"
	test22 = "_customname._tcp.test22.test.build.10gen.cc"
)

// The prose tests of polling SRV records.
func TestPollingSRVProse(t *testing.T) {
	to := func(records string) func(*testing.T, *zone) {
		return func(t *testing.T, z *zone) { z.set(t, records) }
	}
	tests := []struct {
		name, uri, records string
		change             func(*testing.T, *zone)
		want               string // ports; one of the alternatives, with |
	}{
		{"1. Addition of a new DNS record", "test1", srv(test1, 0, 27017, 27018), to(srv(test1, 0, 27017, 27018, 27019)), "27017 27018 27019"},
		{"2. Removal of an existing DNS record", "test1", srv(test1, 0, 27017, 27018), to(srv(test1, 0, 27017)), "27017"},
		{"3. Replacement of a DNS record", "test1", srv(test1, 0, 27017, 27018), to(srv(test1, 0, 27017, 27019)), "27017 27019"},
		{"4. Replacement of all existing DNS records with one new record", "test1", srv(test1, 0, 27017, 27018), to(srv(test1, 0, 27019)), "27019"},
		{"5. Replacement of all existing DNS records with multiple new records", "test1", srv(test1, 0, 27017, 27018), to(srv(test1, 0, 27019, 27020)), "27019 27020"},
		{"6. DNS record lookup timeout error", "test1", srv(test1, 0, 27017, 27018), func(_ *testing.T, z *zone) { z.change(func(z *zone) { z.hang = true }) }, "27017 27018"},
		{"7. DNS record lookup failure", "test1", srv(test1, 0, 27017, 27018), func(_ *testing.T, z *zone) { z.change(func(z *zone) { z.fail = errors.New("no such host") }) }, "27017 27018"},
		{"8. Removal of all existing DNS SRV records", "test1", srv(test1, 0, 27017, 27018), to(""), "27017 27018"},
		{"9. Test that SRV polling is not done for load balanced clusters", "test3/?loadBalanced=true", srv(test3, 0, 27017), to(srv(test3, 0, 27017, 27018)), "27017"},
		{"10. All DNS records are selected (srvMaxHosts = 0)", "test1/?srvMaxHosts=0", srv(test1, 0, 27017, 27018), to(srv(test1, 0, 27017, 27019, 27020)), "27017 27019 27020"},
		{"11. All DNS records are selected (srvMaxHosts >= records)", "test1/?srvMaxHosts=2", srv(test1, 0, 27017, 27018), to(srv(test1, 0, 27019, 27020)), "27019 27020"},
		{"12. New DNS records are randomly selected (srvMaxHosts > 0)", "test1/?srvMaxHosts=2", srv(test1, 0, 27017, 27018), to(srv(test1, 0, 27017, 27019, 27020)), "27017 27019|27017 27020"},
		{"13. DNS record with custom service name can be found", "test22/?srvServiceName=customname", srv(test22, 0, 27017, 27018), to(srv(test22, 0, 27019, 27020)), "27019 27020"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := newZone(t, tt.records)
				host, query, _ := strings.Cut(tt.uri, "/")
				c := poll(t, z, "mongodb+srv://"+host+".test.build.10gen.cc/"+query)
				before := c.ports()
				tt.change(t, z)
				pass(time.Minute - time.Second)
				if got := c.ports(); got != before {
					t.Errorf("hosts after less than a minute: %s, want %s", got, before)
				}
				pass(time.Minute)
				if got := c.ports(); !slices.Contains(strings.Split(tt.want, "|"), got) {
					t.Errorf("hosts %s, want %s", got, tt.want)
				}
			})
		})
	}
}
