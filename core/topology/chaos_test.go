package topology_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// TestChaos has everything happen to a deployment that can: elections, also unnoticed ones,
// step-downs, reconfigurations, hosts that hang, lie, restart, drop connections and disappear, and
// SRV records that change, while operations run; each fourth one stands behind a load balancer. At
// each quiet point what is published must be what is there, and each event must have followed from
// the one before, a pool's from a description's. At the end no goroutine and no connection may be
// left. Time is fake.
//
// MOORING_CHAOS is how long to go on (10m; make chaos), MOORING_CHAOS_SEED where to begin: each
// round is one seed further, and a failure names its seed.
func TestChaos(t *testing.T) {
	duration, seed := time.Duration(0), uint64(1)
	if v := os.Getenv("MOORING_CHAOS"); v != "" {
		var err error
		if duration, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
		seed = uint64(time.Now().UnixNano())
	}
	if v := os.Getenv("MOORING_CHAOS_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	rounds, steps := 0, 0
	defer func() { // also when a round fails, which ends the test
		if t.Failed() {
			t.Logf("to repeat: MOORING_CHAOS_SEED=%d", seed+uint64(rounds))
		}
	}()
	for begin := time.Now(); !t.Failed() && (rounds < 6 || time.Since(begin) < duration); rounds++ {
		round := chaosRound
		if (seed+uint64(rounds))%4 == 0 {
			round = balancedRound
		}
		synctest.Test(t, func(t *testing.T) { steps += round(t, seed+uint64(rounds)) })
	}
	t.Logf("%d rounds, %d incidents, seeds from %d", rounds, steps, seed)
}

// chaos is one deployment in trouble.
type chaos struct {
	t       *testing.T
	random  *rand.Rand
	cluster *fakemongo.Cluster
	topo    *topology.Topology
	audit   audit
	heals   time.Duration // after all is well, until all is known
	log     []string

	records *records // of a sharded cluster
	liar    *fakemongo.Host
	removed bool // a member, since the last quiet point
}

func chaosRound(t *testing.T, seed uint64) (incidents int) {
	c := &chaos{t: t, random: rand.New(rand.NewPCG(seed, 0)), audit: audit{t: t}}
	interval := []time.Duration{
		500 * time.Millisecond, 3 * time.Second, 10 * time.Second,
	}[c.random.IntN(3)]
	cfg := topology.Config{
		HeartbeatInterval: interval, ServerSelectionTimeout: 5 * time.Second,
		Polling: c.random.IntN(4) == 0, Sink: c.audit.sink(),
	}
	cfg.Conn.ConnectTimeout = time.Second
	c.heals = 2*interval + 5*time.Second
	clusterConfig := fakemongo.ClusterConfig{Polled: c.random.IntN(4) == 0, Discard: true}
	var incident []func()
	if c.random.IntN(3) > 0 {
		incident = c.beReplicaSet(&cfg, clusterConfig)
	} else {
		incident = c.beSharded(&cfg, clusterConfig)
	}
	c.topo = start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i := range uint64(4) {
		work.Go(func() { c.work(ctx, rand.New(rand.NewPCG(seed, i+1))) })
	}
	for quiet := range 6 {
		c.quietPoint(fmt.Sprintf("seed %d, quiet point %d", seed, quiet))
		c.log = nil
		for range 5 + c.random.IntN(10) {
			incident[c.random.IntN(len(incident))]()
			incidents++
			if c.random.IntN(3) > 0 {
				pass(time.Duration(c.random.IntN(3000)) * time.Millisecond)
			}
		}
	}
	cancel()
	work.Wait()
	stop(t, c.topo)
	c.heal() // a host that hangs does not notice that a connection is closed
	pass(2 * time.Second)
	synctest.Wait()
	c.audit.expectEnd()
	for _, h := range c.cluster.Hosts() {
		if n := h.OpenConnections(); n != 0 {
			t.Errorf("seed %d: %d connections to %s are left", seed, n, h.Address())
		}
		if v := h.Violation(); v != "" {
			t.Errorf("seed %d: %s: %s", seed, h.Address(), v)
		}
	}
	return incidents
}

// work is an application that writes.
func (c *chaos) work(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		if s, err := c.topo.Select(ctx, selection.Write()); err == nil {
			opCtx, cancel := ctx, context.CancelFunc(func() {})
			if random.IntN(4) == 0 {
				opCtx, cancel = context.WithTimeout(ctx,
					time.Duration(random.IntN(50))*time.Millisecond)
			}
			_ = ping(opCtx, s) // failing is what it is for
			cancel()
		}
		pass(time.Duration(random.IntN(1000)) * time.Millisecond)
	}
}

func (c *chaos) note(format string, args ...any) {
	c.log = append(c.log, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// onAny is an incident of one host.
func (c *chaos) onAny(name string, f func(h *fakemongo.Host)) func() {
	return func() {
		hosts := c.cluster.Hosts()
		h := hosts[c.random.IntN(len(hosts))]
		c.note("%s: %s", h.Address(), name)
		f(h)
	}
}

// troubles can happen to any host.
func (c *chaos) troubles() []func() {
	return []func(){
		c.onAny("hang", func(h *fakemongo.Host) { h.Hang(true) }),
		c.onAny("answer", func(h *fakemongo.Host) { h.Hang(false) }),
		c.onAny("cut", func(h *fakemongo.Host) { h.CutConnections() }),
		c.onAny("restart", (*fakemongo.Host).Restart),
		c.onAny("down", func(h *fakemongo.Host) { h.SetDown(true) }),
		c.onAny("up", func(h *fakemongo.Host) { h.SetDown(false) }),
		c.onAny("slow", func(h *fakemongo.Host) { h.Slow(time.Duration(c.random.IntN(1500)) * time.Millisecond) }),
		c.onAny("lie", func(h *fakemongo.Host) {
			if c.liar == nil { // one host may lie; if all did, no driver could know the deployment
				c.liar = h
				h.Lie(lies[c.random.IntN(len(lies))])
			}
		}),
	}
}

// lies are hellos that no honest member sends.
var lies = []fakemongo.Handler{
	fakemongo.Always(fakemongo.Drop()),
	fakemongo.Always(fakemongo.Hang()),
	fakemongo.Always(fakemongo.Garbage([]byte("garbage that is longer than a header"))),
	fakemongo.Always(fakemongo.Error(91, "ShutdownInProgress", "going down")),
	fakemongo.Always(fakemongo.Document(bson.NewBuilder(nil).Double("ok", 1).Int32("setName", 7).Finish())),
	fakemongo.Always(fakemongo.OK(func(b *bson.Builder) { b.Bool("isWritablePrimary", true).Int32("maxWireVersion", 21) })),
	fakemongo.Always(fakemongo.OK(func(b *bson.Builder) { b.Bool("isreplicaset", true).Int32("maxWireVersion", 21) })),
	fakemongo.Always(fakemongo.OK(func(b *bson.Builder) {
		b.Bool("secondary", true).String("setName", "another").Int32("maxWireVersion", 21)
	})),
	fakemongo.Always(fakemongo.OK(func(b *bson.Builder) { // a primary of long ago
		b.Bool("isWritablePrimary", true).String("setName", "rs").Int32("maxWireVersion", 21)
		b.OpenArray("hosts").String("", "nowhere:27017").Close()
	})),
	fakemongo.Always(fakemongo.OK(func(b *bson.Builder) { b.Int32("minWireVersion", 99).Int32("maxWireVersion", 99) })),
}

func (c *chaos) beReplicaSet(cfg *topology.Config, clusterConfig fakemongo.ClusterConfig) []func() {
	roles := []fakemongo.Role{fakemongo.Primary, fakemongo.Secondary, fakemongo.Secondary}
	roles = append(roles, []fakemongo.Role{
		fakemongo.Arbiter, fakemongo.Hidden, fakemongo.Recovering, fakemongo.Secondary,
	}[:c.random.IntN(5)]...)
	c.cluster = fakemongo.NewCluster(c.t, clusterConfig, roles...)
	for _, h := range c.cluster.Hosts() {
		h.Handle("ping", h.WriteHandler())
	}
	cfg.Seeds, cfg.ReplicaSet = c.cluster.Seeds(), "rs"
	cfg.Conn.Dialer = c.cluster.Dial
	onElectable := func(name string, f func(h *fakemongo.Host)) func() {
		return func() {
			h := c.electable()
			c.note("%s: %s", h.Address(), name)
			f(h)
		}
	}
	return append(c.troubles(),
		onElectable("elect", c.cluster.Elect),
		onElectable("elect", c.cluster.Elect),
		onElectable("elect unnoticed", c.cluster.ElectUnnoticed),
		func() { c.note("step down"); c.cluster.StepDown() },
		func() {
			h := c.cluster.Add(fakemongo.Secondary)
			h.Handle("ping", h.WriteHandler())
			c.note("%s: added", h.Address())
		},
		func() {
			if !c.removed && c.members() > 3 { // else no host that the driver knows might be left
				c.removed = true
				h := c.electable()
				c.note("%s: removed", h.Address())
				c.cluster.Remove(h)
			}
		},
	)
}

// electable is a primary or secondary.
func (c *chaos) electable() *fakemongo.Host {
	hosts := slices.DeleteFunc(c.cluster.Hosts(), func(h *fakemongo.Host) bool {
		role, member := h.Role()
		return !member || role != fakemongo.Primary && role != fakemongo.Secondary
	})
	return hosts[c.random.IntN(len(hosts))]
}

func (c *chaos) members() (n int) {
	for _, h := range c.cluster.Hosts() {
		if role, member := h.Role(); member &&
			(role == fakemongo.Primary || role == fakemongo.Secondary) {
			n++
		}
	}
	return n
}

func (c *chaos) beSharded(cfg *topology.Config, clusterConfig fakemongo.ClusterConfig) []func() {
	c.cluster = fakemongo.NewCluster(c.t, clusterConfig,
		slices.Repeat([]fakemongo.Role{fakemongo.Mongos}, 6)...)
	names := map[string]string{}
	var all []string
	for _, h := range c.cluster.Hosts() {
		names[h.Address().Host()+".example.com:27017"] = string(h.Address())
		all = append(all, string(h.Address()))
	}
	c.records = &records{hosts: all[:3]}
	srv, err := connstring.Parse("mongodb+srv://cluster.example.com/?tls=false&heartbeatFrequencyMS=" +
		strconv.FormatInt(cfg.HeartbeatInterval.Milliseconds(), 10))
	if err != nil {
		c.t.Fatal(err)
	}
	srv, interval, err := seedlist.Resolve(c.t.Context(), c.records, srv)
	if err != nil {
		c.t.Fatal(err)
	}
	cfg.Seeds = srv.Hosts
	cfg.SRV = &seedlist.Poller{Resolver: c.records, Config: srv, Interval: interval}
	cfg.Conn.Dialer = redirect(c.cluster, names)
	c.heals += 2 * time.Minute
	return append(c.troubles(),
		func() {
			hosts := slices.Clone(all)
			c.random.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			hosts = hosts[:1+c.random.IntN(len(hosts))]
			c.note("records: %v", hosts)
			c.records.set(nil, hosts...)
		},
		func() { c.note("records: error"); c.records.fail(errors.New("server failure")) },
		func() { pass(time.Duration(c.random.IntN(90)) * time.Second) },
	)
}

// fail makes lookups fail, or work again.
func (r *records) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// heal ends all troubles of hosts.
func (c *chaos) heal() {
	primary := c.cluster.Primary()
	for _, h := range c.cluster.Hosts() {
		h.Hang(false)
		h.Slow(0)
		h.SetDown(false)
		if role, _ := h.Role(); role == fakemongo.Primary && h != primary {
			h.SetRole(fakemongo.Secondary) // it has noticed by now
		}
	}
	if c.liar != nil {
		c.liar.Lie(nil)
		c.liar = nil
	}
	c.removed = false
}

// quietPoint heals everything, waits, and compares.
func (c *chaos) quietPoint(name string) {
	c.heal()
	if c.records != nil {
		c.records.fail(nil)
	} else if c.cluster.Primary() == nil && c.random.IntN(2) == 0 {
		c.cluster.Elect(c.electable())
	}
	pass(c.heals)
	synctest.Wait()
	got := c.topo.Description()
	want, kind := c.model(got)
	seen := map[address.Address]description.ServerKind{}
	for _, s := range got.Servers {
		seen[s.Address] = s.Kind
	}
	if !maps.Equal(seen, want) || got.Kind != kind {
		c.t.Errorf("%s: the topology is %v, want %v of %v; after:\n\t%s", name, got, kind, want,
			strings.Join(c.log, "\n\t"))
	}
	c.audit.expect(got)
	if kind != description.KindReplicaSetNoPrimary {
		s, err := c.topo.Select(c.t.Context(), selection.Write())
		if err == nil {
			err = ping(c.t.Context(), s)
		}
		if err != nil {
			c.t.Errorf("%s: an operation failed: %v; after:\n\t%s", name, err,
				strings.Join(c.log, "\n\t"))
		}
	}
}

var kindOf = map[fakemongo.Role]description.ServerKind{
	fakemongo.Mongos: description.ServerMongos, fakemongo.Primary: description.ServerRSPrimary,
	fakemongo.Secondary: description.ServerRSSecondary, fakemongo.Arbiter: description.ServerRSArbiter,
	fakemongo.Hidden: description.ServerRSOther, fakemongo.Recovering: description.ServerRSOther, fakemongo.Ghost: description.ServerRSGhost,
}

// model returns what the driver must know. Only a primary says which hosts are not members, or not
// any more. Without a primary such hosts stay if they are known.
func (c *chaos) model(
	got description.Topology,
) (want map[address.Address]description.ServerKind, kind description.Kind) {
	want = map[address.Address]description.ServerKind{}
	if c.records != nil {
		for _, host := range c.records.hosts {
			want[address.Address(address.Address(host).Host()+
				".example.com:27017")] = description.ServerMongos
		}
		return want, description.KindSharded
	}
	kind = description.KindReplicaSetNoPrimary
	if c.cluster.Primary() != nil {
		kind = description.KindReplicaSetWithPrimary
	}
	for _, h := range c.cluster.Hosts() {
		role, member := h.Role()
		listed := member && role != fakemongo.Hidden
		if listed || kind == description.KindReplicaSetNoPrimary && got.Server(h.Address()) != nil {
			want[h.Address()] = kindOf[role]
		}
	}
	if kind == description.KindReplicaSetNoPrimary { // this host never was a member, either
		for _, s := range got.Servers {
			if s.Address == "nowhere:27017" {
				want[s.Address] = description.ServerUnknown
			}
		}
	}
	return want, kind
}

// audit follows the events: each must continue from the one before.
type audit struct {
	t *testing.T

	mu       sync.Mutex
	topology description.Topology
	servers  map[address.Address]*description.Server
	checks   map[address.Address]bool
	reasons  map[poolFact]int // that no pool has drawn the consequence of
	started  bool
	ended    bool
}

func (a *audit) sink() *event.Sink {
	a.servers, a.checks, a.reasons = map[address.Address]*description.Server{},
		map[address.Address]bool{}, map[poolFact]int{}
	return &event.Sink{
		TopologyOpening: func(event.TopologyOpening) { a.locked(func() { a.started = true }) },
		TopologyDescriptionChanged: func(e event.TopologyDescriptionChanged) {
			a.locked(func() {
				if !a.topology.Equal(e.Previous) {
					a.t.Errorf("the topology changed from %v, it was %v", e.Previous, a.topology)
				}
				if e.Previous.Equal(e.New) {
					a.t.Errorf("told that %v did not change", e.New)
				}
				a.topology = e.New
			})
		},
		TopologyClosed: func(event.TopologyClosed) { a.locked(func() { a.ended = true }) },
		ServerOpening: func(e event.ServerOpening) {
			a.locked(func() {
				if a.servers[e.Address] != nil {
					a.t.Errorf("%s opened twice", e.Address)
				}
				a.servers[e.Address] = description.Unknown(e.Address, nil)
			})
		},
		ServerClosed: func(e event.ServerClosed) {
			a.locked(func() {
				if a.servers[e.Address] == nil {
					a.t.Errorf("%s closed, it was not open", e.Address)
				}
				delete(a.servers, e.Address)
			})
		},
		ServerDescriptionChanged: func(e event.ServerDescriptionChanged) {
			a.locked(func() {
				if last := a.servers[e.Address]; last == nil || !last.Equal(e.Previous) {
					a.t.Errorf("%s changed from %v, it was %v", e.Address, e.Previous, last)
				}
				a.servers[e.Address] = e.New
				if e.Previous.IsAvailable() != e.New.IsAvailable() {
					a.reasons[poolFact{e.Address, e.New.IsAvailable()}]++
				}
			})
		},
		PoolReady:   func(e event.PoolReady) { a.consequence(poolFact{e.Address, true}) },
		PoolCleared: func(e event.PoolCleared) { a.consequence(poolFact{e.Address, false}) },
		ServerHeartbeatStarted: func(e event.ServerHeartbeatStarted) {
			a.locked(func() {
				if a.servers[e.Address] == nil {
					a.t.Errorf("a check of %s, which is not open", e.Address)
				}
				a.checks[e.Address] = true
			})
		},
		ServerHeartbeatSucceeded: func(e event.ServerHeartbeatSucceeded) { a.checked(e.Address) },
		ServerHeartbeatFailed:    func(e event.ServerHeartbeatFailed) { a.checked(e.Address) },
	}
}

// poolFact is that a server's pool is ready, or that it was cleared; or the reason for that.
type poolFact struct {
	address address.Address
	ready   bool
}

// consequence is a pool's fact: each must have its reason, told before (EVT-008).
func (a *audit) consequence(f poolFact) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reasons[f]--; a.reasons[f] < 0 {
		a.t.Errorf("pool of %s, ready %v: nothing was told that this could follow from", f.address,
			f.ready)
	}
}

func (a *audit) locked(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		a.t.Error("an event after the topology's end")
	}
	f()
}

func (a *audit) checked(addr address.Address) {
	a.locked(func() {
		if !a.checks[addr] {
			a.t.Errorf("a check of %s ended that was not begun", addr)
		}
	})
}

// expect compares what the events told with what there is.
func (a *audit) expect(got description.Topology) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.topology.Equal(got) {
		a.t.Errorf("the events tell of %v, there is %v", a.topology, got)
	}
	for _, s := range got.Servers {
		if told := a.servers[s.Address]; told == nil || !told.Equal(s) {
			a.t.Errorf("the events tell of %v, there is %v", told, s)
		}
	}
}

func (a *audit) expectEnd() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started || !a.ended || len(a.servers) > 0 {
		a.t.Errorf("at the end: started %v, ended %v, servers %v", a.started, a.ended, a.servers)
	}
}
