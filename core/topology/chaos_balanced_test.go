package topology_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// balancedRound has services behind a load balancer crash, restart under other names, hang, cut
// connections and refuse commands. Whatever they do, the description stays what it was at the
// start, only services' connections are cleared, and soon after all are well, operations succeed.
func balancedRound(t *testing.T, seed uint64) (incidents int) {
	c := &chaos{t: t, random: rand.New(rand.NewPCG(seed, 0))}
	balanced := fakemongo.NewBalanced(t,
		fakemongo.BalancedConfig{Services: 3, Strict: true, Discard: true})
	var watched servicesAudit
	cfg := behindBalancer(balanced)
	cfg.Conn.ConnectTimeout = time.Second
	cfg.Sink = watched.sink(t, balanced)
	c.topo = start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i := range uint64(4) {
		work.Go(func() { c.work(ctx, rand.New(rand.NewPCG(seed, i+1))) })
	}
	incident := c.serviceTroubles(balanced, &watched)
	for range 6 {
		for range 5 + c.random.IntN(10) {
			incident[c.random.IntN(len(incident))](balanced.Service(c.random.IntN(3)))
			incidents++
			pass(time.Duration(c.random.IntN(2000)) * time.Millisecond)
		}
		c.healServices(balanced, &watched)
		pass(5 * time.Second)
		c.expectServices()
	}
	cancel()
	work.Wait()
	stop(t, c.topo)
	pass(2 * time.Second)
	synctest.Wait()
	for i, s := range balanced.Services() {
		if n := s.OpenConnections(); n != 0 {
			t.Errorf("seed %d: %d connections to service %d are left", seed, n, i)
		}
	}
	return incidents
}

func (c *chaos) serviceTroubles(
	b *fakemongo.Balanced, a *servicesAudit,
) []func(*fakemongo.Service) {
	dead := map[*fakemongo.Service]bool{}
	return []func(*fakemongo.Service){
		func(s *fakemongo.Service) {
			s.Kill()
			dead[s] = true
		},
		func(s *fakemongo.Service) {
			if dead[s] {
				s.Restart(c.t)
				a.know(b)
				dead[s] = false
			}
		},
		func(s *fakemongo.Service) { s.CutConnections() },
		func(s *fakemongo.Service) { s.Handle("ping", fakemongo.Always(fakemongo.Hang())) },
		func(s *fakemongo.Service) { s.Handle("ping", fakemongo.Always(fakemongo.Drop())) },
		func(s *fakemongo.Service) {
			s.Handle("ping",
				fakemongo.Always(fakemongo.Error(91, "ShutdownInProgress", "going down")))
		},
		func(s *fakemongo.Service) {
			s.Handle("ping",
				fakemongo.Always(fakemongo.Error(10107, "NotWritablePrimary", "not primary")))
		},
		func(s *fakemongo.Service) { s.Handle("ping", s.Default) },
	}
}

func (c *chaos) healServices(b *fakemongo.Balanced, a *servicesAudit) {
	for _, s := range b.Services() {
		s.Handle("ping", s.Default)
		s.Restart(c.t)
	}
	a.know(b)
	for _, s := range b.Services() {
		s.CutConnections() // those that hang
	}
}

// expectServices: nothing is known but the load balancer, and operations succeed again after, at
// most, one that finds each old connection broken.
func (c *chaos) expectServices() {
	got := c.topo.Description()
	if got.Kind != description.KindLoadBalanced || len(got.Servers) != 1 ||
		got.Servers[0].Kind != description.ServerLoadBalancer {
		c.t.Errorf("the topology is %v", got)
	}
	inRow := 0
	for attempt := 0; inRow < 6; attempt++ {
		s, err := c.topo.Select(c.t.Context(), selection.Write())
		if err == nil {
			err = ping(c.t.Context(), s)
		}
		if inRow++; err != nil {
			inRow = 0
		}
		if attempt == 30 {
			c.t.Fatalf("operations fail: %v", err)
		}
	}
}

// servicesAudit hears the events of a topology behind a load balancer.
type servicesAudit struct {
	mu      sync.Mutex
	changes int
	known   map[bson.ObjectID]bool
}

func (a *servicesAudit) know(b *fakemongo.Balanced) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range b.Services() {
		a.known[s.ID()] = true
	}
}

func (a *servicesAudit) sink(t *testing.T, b *fakemongo.Balanced) *event.Sink {
	a.known = map[bson.ObjectID]bool{}
	a.know(b)
	return &event.Sink{
		ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
			if a.changes++; a.changes > 1 {
				t.Errorf("the load balancer changed from %v to %v", e.Previous, e.New)
			}
		},
		ServerHeartbeatStarted: func(event.ServerHeartbeatStarted) {
			t.Error("the load balancer is monitored")
		},
		PoolCleared: func(e event.PoolCleared) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if !a.known[e.ServiceID] {
				t.Errorf("cleared for %x, which is not a service", e.ServiceID)
			}
		},
	}
}
