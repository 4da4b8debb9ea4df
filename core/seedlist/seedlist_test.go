package seedlist_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/seedlist"
)

func addresses(ports ...int) []address.Address {
	all := []address.Address{}
	for _, port := range ports {
		all = append(all, address.Address(fmt.Sprintf("h:%d", port)))
	}
	return all
}

func TestChanges(t *testing.T) {
	tests := []struct {
		name           string
		current, valid []address.Address
		limit          int
		add, remove    []address.Address
	}{
		{"nothing", addresses(1, 2), addresses(2, 1), 0, nil, nil},
		{"first", nil, addresses(1, 2), 0, addresses(1, 2), nil},
		{"some of each", addresses(1, 2), addresses(2, 3), 0, addresses(3), addresses(1)},
		{"limit as large as the records", addresses(1, 2), addresses(3, 4), 2, addresses(3, 4), addresses(1, 2)},
		{"limit reached", addresses(1, 2), addresses(1, 2, 3), 2, nil, nil},
		{"limit lowered", addresses(1, 2), addresses(1, 2, 3), 1, nil, nil},
		{"one place", addresses(1, 2), addresses(1, 3, 4), 2, addresses(4), addresses(2)},
		{"limit with nothing before", nil, addresses(1, 2, 3), 2, addresses(3, 2), nil},
	}
	reverse := func(n int, swap func(i, j int)) {
		for i := range n / 2 {
			swap(i, n-1-i)
		}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			add, remove := seedlist.Changes(tt.current, tt.valid, tt.limit, reverse)
			if !slices.Equal(add, tt.add) || !slices.Equal(remove, tt.remove) {
				t.Errorf("Changes = %v, %v, want %v, %v", add, remove, tt.add, tt.remove)
			}
		})
	}
}

// Whatever the records, kept hosts stay, the limit holds, and each new host has its chance.
func TestChangesAreFair(t *testing.T) {
	seen := map[address.Address]int{}
	for range 1000 {
		add, remove := seedlist.Changes(addresses(1, 9), addresses(1, 2, 3, 4, 5), 3, rand.Shuffle)
		if len(add) != 2 || add[0] == add[1] || !slices.Equal(remove, addresses(9)) {
			t.Fatalf("Changes = %v, %v", add, remove)
		}
		for _, h := range add {
			seen[h]++
		}
	}
	for _, h := range addresses(2, 3, 4, 5) {
		if seen[h] < 400 || seen[h] > 600 {
			t.Errorf("%v was chosen %d times of 1000, want about 500", h, seen[h])
		}
	}
}

func TestInterval(t *testing.T) {
	heartbeat := 25 * time.Second
	tests := []struct {
		name      string
		scan      seedlist.Scan
		heartbeat *time.Duration
		want      time.Duration
	}{
		{"as long as the records live", seedlist.Scan{Hosts: addresses(1), TTL: time.Hour}, &heartbeat, time.Hour},
		{"not less than a minute", seedlist.Scan{Hosts: addresses(1), TTL: 5 * time.Second}, &heartbeat, time.Minute},
		{"a minute where that is not known", seedlist.Scan{Hosts: addresses(1)}, nil, time.Minute},
		{"a heartbeat after a failure", seedlist.Scan{}, &heartbeat, 25 * time.Second},
		{"the default heartbeat", seedlist.Scan{}, nil, 10 * time.Second},
	}
	for _, tt := range tests {
		if got := tt.scan.Interval(tt.heartbeat); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Run("not SRV", func(t *testing.T) {
		got, err := resolve(t, nil, "mongodb://a,b")
		if err != nil || len(got.Hosts) != 2 {
			t.Errorf("Resolve = %v, %v", got, err)
		}
	})
	t.Run("case, trailing dots and doubles", func(t *testing.T) {
		z := newZone(t,
			"_MongoDB._tcp.C.Example.Com. IN SRV 1 2 1 "+
				"H.Example.COM.\n_mongodb._tcp.c.example.com. IN SRV 3 4 1 h.example.com.")
		got, err := resolve(t, z, "mongodb+srv://c.EXAMPLE.com.")
		if err != nil || !slices.Equal(got.Hosts, []address.Address{"h.example.com:1"}) {
			t.Errorf("Resolve = %v, %v", got.Hosts, err)
		}
	})
	t.Run("the lowest TTL counts", func(t *testing.T) {
		z := newZone(t, srv(test1, 600, 1)+srv(test1, 300, 2))
		cfg, _ := connstring.Parse("mongodb+srv://test1.test.build.10gen.cc")
		if _, interval, err := seedlist.Resolve(t.Context(), z, cfg); err != nil ||
			interval != 5*time.Minute {
			t.Errorf("interval %v, %v, want 5m", interval, err)
		}
	})
	t.Run("an error shows no password", func(t *testing.T) {
		_, err := resolve(t, newZone(t, ""), "mongodb+srv://user:hunter2@example.com")
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "mongodb+srv://example.com: there are no SRV records of _mongodb._tcp.example.com") {
			t.Errorf("Resolve = %v", err)
		}
	})
}

// Hosts that a Resolver without checks of its own may hand on.
func TestHostileHosts(t *testing.T) {
	for _, target := range []string{
		"", ".", "a.b.c.", ".b.c", "evil.com:1.b.c", "evil.com/.b.c", "user@evil.com.b.c", "a b.b.c", "[::1].b.c", "a.\x00.b.c", "127.0.0.1", "b.c", "xb.c",
	} {
		r := fixed{[]seedlist.SRV{{Target: target, Port: 1}, {Target: "ok.b.c", Port: 1}}}
		got, err := resolve(t, r, "mongodb+srv://a.b.c")
		if target == "a.b.c." {
			if err != nil {
				t.Errorf("%q: %v, want it to be accepted", target, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%q: %v, want an error", target, got.Hosts)
		}
	}
	if _, err := resolve(t, fixed{[]seedlist.SRV{{Target: "a.b.c", Port: 0}}}, "mongodb+srv://a.b.c"); err == nil {
		t.Error("port 0: no error")
	}
}

// fixed answers every SRV query with the same.
type fixed struct{ records []seedlist.SRV }

func (f fixed) LookupSRV(context.Context, string) ([]seedlist.SRV, error) { return f.records, nil }
func (f fixed) LookupTXT(context.Context, string) ([]string, error)       { return nil, nil }

func TestTXTRecords(t *testing.T) {
	const records = "_mongodb._tcp.a.b.c. IN SRV 0 0 1 h.b.c.\n"
	long := strings.Repeat("x", 300)
	tests := []struct{ name, txt, want, err string }{
		{"none", "", "", ""},
		{"one", `a.b.c. IN TXT "replicaSet=rs"`, "rs", ""},
		{"strings are joined", `a.b.c. IN TXT "repl" "icaSet=" "r" "s"`, "rs", ""},
		{"longer than a string and than a UDP answer", fmt.Sprintf("a.b.c. IN TXT %q %q %q", "replicaSet="+long[:200], long[:200], long[:200]), long[:200] + long[:200] + long[:200], ""},
		{"empty", `a.b.c. IN TXT ""`, "", ""},
		{"two", "a.b.c. IN TXT \"replicaSet=rs\"\na.b.c. IN TXT \"authSource=x\"", "", "2 TXT records"},
		{"with a prefix", `_mongodb._tcp.a.b.c. IN TXT "replicaSet=rs"`, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := resolve(t, newZone(t, records+tt.txt).serve(t), "mongodb+srv://a.b.c")
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("Resolve = %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got.ReplicaSet != tt.want {
				t.Errorf("Resolve = %q, %v, want %q", got.ReplicaSet, err, tt.want)
			}
		})
	}
}

// A server that fails is told apart from one that knows of no record: options must not be lost
// silently.
func TestSystemFailures(t *testing.T) {
	const records = "_mongodb._tcp.a.b.c. IN SRV 0 0 1 h.b.c.\na.b.c. IN TXT \"replicaSet=rs\""
	t.Run("SERVFAIL", func(t *testing.T) {
		z := newZone(t, records)
		r := z.serve(t)
		z.change(func(z *zone) { z.rcode = dns.RcodeServerFailure })
		if _, err := r.LookupTXT(t.Context(), "a.b.c."); err == nil {
			t.Error("LookupTXT: no error")
		}
		if _, err := resolve(t, r, "mongodb+srv://a.b.c"); err == nil {
			t.Error("Resolve: no error")
		}
	})
	t.Run("no such name", func(t *testing.T) {
		r := newZone(t, records).serve(t)
		if txt, err := r.LookupTXT(t.Context(), "x.b.c."); err != nil || len(txt) != 0 {
			t.Errorf("LookupTXT = %q, %v", txt, err)
		}
		_, err := resolve(t, r, "mongodb+srv://x.b.c")
		if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound {
			t.Errorf("Resolve = %v, want the reason", err)
		}
	})
	t.Run("no answer", func(t *testing.T) {
		z := newZone(t, records)
		r := z.serve(t)
		z.change(func(z *zone) { z.drop = true })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		cfg, _ := connstring.Parse("mongodb+srv://a.b.c")
		if _, _, err := seedlist.Resolve(ctx, r, cfg); err == nil {
			t.Error("Resolve: no error")
		}
	})
	t.Run("some records are unusable", func(t *testing.T) {
		r := newZone(t,
			"_mongodb._tcp.a.b.c. IN SRV 0 0 1 h.b.c.\n_mongodb._tcp.a.b.c. IN SRV 0 0 1 "+
				"h\\032h.b.c.").serve(t)
		if found, err := r.LookupSRV(t.Context(), "_mongodb._tcp.a.b.c."); err == nil ||
			len(found) != 1 {
			t.Errorf("LookupSRV = %v, %v, want one record and an error", found, err)
		}
		if _, err := resolve(t, r, "mongodb+srv://a.b.c"); err == nil {
			t.Error("Resolve: no error")
		}
	})
}

// After a failure the next lookup comes after a heartbeat, after success not before a minute or
// the records' life.
func TestPollerIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone(t, srv(test1, 120, 27017))
		c := poll(t, z, "mongodb+srv://test1.test.build.10gen.cc/?heartbeatFrequencyMS=5000")
		lookups := func(want int, when string) {
			t.Helper()
			if got := z.count(); got != want {
				t.Fatalf("%s: %d lookups, want %d", when, got, want)
			}
		}
		lookups(1, "at first")
		pass(119 * time.Second)
		lookups(1, "before the records end")
		z.change(func(z *zone) { z.fail = errors.New("down") })
		pass(time.Second)
		lookups(2, "after they ended")
		pass(5 * time.Second)
		lookups(3, "a heartbeat after a failure")
		z.change(func(z *zone) { z.fail = nil })
		z.set(t, srv(test1, 1, 27018)+test1+". 1 IN SRV 0 0 27019 evil.com.")
		pass(5 * time.Second)
		lookups(4, "another heartbeat later")
		if c.ports() != "27018" {
			t.Errorf("hosts %s, want the one that is valid", c.ports())
		}
		pass(59 * time.Second)
		lookups(4, "less than a minute after success")
		pass(time.Second)
		lookups(5, "a minute after success")
		c.mu.Lock()
		defer c.mu.Unlock()
		if host, ok := errors.AsType[*seedlist.HostError](c.problems[len(c.problems)-1]); !ok ||
			host.Host != "evil.com." {
			t.Errorf("problems %v, want the refused host last", c.problems)
		}
		if c.updates != 2 {
			t.Errorf("%d updates, want 2", c.updates)
		}
	})
}

func TestPollerGivesUpOnSlowLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone(t, srv(test1, 0, 27017))
		c := poll(t, z, "mongodb+srv://test1.test.build.10gen.cc")
		z.change(func(z *zone) { z.hang = true })
		pass(time.Minute + 30*time.Second)
		z.change(func(z *zone) { z.hang = false })
		z.set(t, srv(test1, 0, 27018))
		pass(10 * time.Second)
		if c.ports() != "27018" {
			t.Errorf("hosts %s, want the new one", c.ports())
		}
	})
}

// Once the kind is known, and not sharded, polling is over; likewise when its context ends, even
// inside a lookup.
func TestPollerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone(t, srv(test1, 0, 27017))
		c := poll(t, z, "mongodb+srv://test1.test.build.10gen.cc")
		c.settle()
		pass(time.Hour)
		if z.count() != 1 {
			t.Errorf("%d lookups of a replica set, want 1", z.count())
		}
	})
	for _, uri := range []string{
		"mongodb://a", "mongodb+srv://test1.test.build.10gen.cc/?loadBalanced=true",
	} {
		cfg, err := connstring.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		(&seedlist.Poller{Config: cfg}).Run(t.Context()) // returns
	}
	synctest.Test(t, func(t *testing.T) {
		z := newZone(t, srv(test1, 0, 27017))
		cfg, _ := connstring.Parse("mongodb+srv://test1.test.build.10gen.cc")
		ctx, cancel := context.WithCancel(t.Context())
		p := &seedlist.Poller{Resolver: z, Config: cfg, Wanted: func() bool {
			return true
		}, Problem: func(err error) { t.Errorf("problem: %v", err) }}
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		z.change(func(z *zone) { z.hang = true })
		pass(time.Minute)
		begin := time.Now()
		cancel()
		running.Wait()
		if took := time.Since(begin); took > 0 {
			t.Errorf("Run ended after %v", took)
		}
	})
}
