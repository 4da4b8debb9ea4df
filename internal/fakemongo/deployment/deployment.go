// Package deployment is a deployment of fake servers: one of the unified test format's topologies,
// with fail points, sessions and transactions, and with collections that filter, sort and change
// documents as far as the specifications' tests need it. What it does not know it refuses, as a
// server does: it ignores nothing. It runs over net.Pipe, so that time can be fake.
package deployment

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// Topology names a topology as the format does.
type Topology string

// The topologies that there are.
const (
	Single       Topology = "single"
	ReplicaSet   Topology = "replicaset"
	Sharded      Topology = "sharded"
	LoadBalanced Topology = "load-balanced"
)

// Topologies are all of them.
var Topologies = []Topology{Single, ReplicaSet, Sharded, LoadBalanced}

// Version names the version of MongoDB that the servers report.
type Version string

// Versions are all of them, those that tests are run with first.
var Versions = []Version{"7.0.0", "4.2.0", "8.2.1", "8.0.0", "6.0.0"}

// configs are what is different about servers of a version: those before 4.4 do not stream hello
// replies.
var configs = map[Version]fakemongo.ClusterConfig{
	"8.2.1": {WireVersion: 27, Discard: true},
	"8.0.0": {WireVersion: 25, Discard: true},
	"7.0.0": {WireVersion: 21, Discard: true},
	"6.0.0": {WireVersion: 17, Discard: true},
	"4.2.0": {WireVersion: 8, Polled: true, Discard: true},
}

// The wire versions of the versions of MongoDB that brought something.
const (
	wire44 = 9
	wire50 = 13
	wire60 = 17
	wire70 = 21
	wire80 = 25
	wire81 = 26
)

var roles = map[Topology][]fakemongo.Role{
	Single:       {fakemongo.Standalone},
	ReplicaSet:   {fakemongo.Primary, fakemongo.Secondary, fakemongo.Secondary},
	Sharded:      {fakemongo.Mongos, fakemongo.Mongos},
	LoadBalanced: {fakemongo.Mongos, fakemongo.Mongos},
}

// The addresses of the load balancers: before one mongos, and before all.
const (
	oneBalanced address.Address = "balancer-of-one:27017"
	allBalanced address.Address = "balancer-of-all:27017"
)

// Deployment represents the servers of one topology, with one set of collections between them. All
// methods may be called at any time.
type Deployment struct {
	topology Topology
	cluster  *fakemongo.Cluster
	wire     int32
	clock    *clock
	store    *store
	hosts    []*host
	login    Login

	engine Engine // nil: the store runs the commands
	// whole says that the engine knows sessions, transactions and change streams itself.
	whole bool
	// terms is held while the engine learns of an election. mu may be taken under it.
	terms sync.Mutex
	// known is the term that the engine knows of, guarded by terms.
	known uint32

	mu       sync.Mutex
	next     int                 // the host that the load balancer takes next
	disturb  Disturbance         // nil: none
	sessions map[string]*session // by their names; a store's mutex may be taken under mu
	most     int                 // sessions; 0: no limit
	// holders are the transactions in progress that have changed a document.
	holders map[held]*transaction
	moved   map[string]timestamp // when a namespace moved to another shard

	failovers uint32 // of shards' primaries
}

// New makes a deployment that is reached through Dial. It ends with the test.
func New(t testing.TB, topology Topology, version Version) *Deployment {
	return newDeployment(t, topology, configs[version])
}

// Listen makes a deployment whose hosts listen on the loopback interface and record their
// commands. There is no load balancer in front of them. It ends with the test.
func Listen(t testing.TB, topology Topology, version Version) *Deployment {
	cfg := configs[version]
	cfg.TCP, cfg.Discard = true, false
	return newDeployment(t, topology, cfg)
}

// ListenUnrecorded makes the same deployment, but its hosts do not record their commands, so that
// it can last.
func ListenUnrecorded(t testing.TB, topology Topology, version Version) *Deployment {
	cfg := configs[version]
	cfg.TCP = true
	return newDeployment(t, topology, cfg)
}

func newDeployment(
	t testing.TB, topology Topology, cfg fakemongo.ClusterConfig,
) *Deployment {
	cfg.Transactions = true
	now := newClock()
	d := &Deployment{
		topology: topology, wire: cfg.WireVersion, clock: now, store: newStore(now),
		cluster:  fakemongo.NewCluster(t, cfg, roles[topology]...),
		sessions: map[string]*session{},
		holders:  map[held]*transaction{},
		moved:    map[string]timestamp{},
	}
	for i, h := range d.cluster.Hosts() {
		d.hosts = append(d.hosts, newHost(d, h, i))
		d.hosts[i].serve()
	}
	return d
}

// Cluster returns what the hosts are members of: it holds elections and removes members.
func (d *Deployment) Cluster() *fakemongo.Cluster { return d.cluster }

// Disturbance answers a command in another way; next is what would have answered it.
type Disturbance func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply

// Disturb has f see every command from now on, also hello, before fail points do.
func (d *Deployment) Disturb(f Disturbance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.disturb = f
}

// URI returns a connection string for the deployment. several says whether it names more than one
// mongos, where there are mongoses at all. The options of the topology itself are in it, unless
// they are in options, which stand beside it.
func (d *Deployment) URI(several bool, options map[string][]string) string {
	hosts, own := d.cluster.Seeds(), ""
	switch d.topology {
	case Single:
	case ReplicaSet:
		own = "replicaSet=rs"
	case Sharded:
		if !several {
			hosts = hosts[:1]
		}
	case LoadBalanced:
		own = "loadBalanced=true"
		hosts = []address.Address{oneBalanced}
		if several {
			hosts[0] = allBalanced
		}
	}
	if isSet(options, "directConnection", "true") {
		hosts = hosts[:1]
	}
	if name, _, _ := strings.Cut(own, "="); isSet(options, name, "") {
		own = ""
	}
	var names []string
	for _, h := range hosts {
		names = append(names, string(h))
	}
	return "mongodb://" + d.userinfo(options) + strings.Join(names, ",") + "/?" + own
}

// isSet tells whether the options have one of that name, in any case, and that value, if it is not
// empty.
func isSet(options map[string][]string, name, value string) bool {
	for key, values := range options {
		if strings.EqualFold(key, name) && (value == "" || slices.Contains(values, value)) {
			return true
		}
	}
	return false
}

// The network and the servers take a little time, so that what is under way at once has an order: a
// second connection is not there before the first has run a command.
const (
	dialTime    = time.Millisecond
	commandTime = time.Millisecond / 2
)

// Dial opens a connection to a server or through a load balancer.
func (d *Deployment) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case <-time.After(dialTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch address.Address(addr) {
	case oneBalanced:
		return d.cluster.Host(0).Dial(ctx, network, addr)
	case allBalanced:
		d.mu.Lock()
		h := d.cluster.Host(d.next % len(d.cluster.Hosts()))
		d.next++
		d.mu.Unlock()
		return h.Dial(ctx, network, addr)
	}
	return d.cluster.Dial(ctx, network, addr)
}

// SetDocuments makes a collection, "database.collection", with these contents and nothing else.
func (d *Deployment) SetDocuments(namespace string, docs ...bson.Raw) {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	d.store.doLocked(entry{namespace: namespace, apply: func(s *store) {
		s.collections[namespace] = newCollection(slices.Clone(docs))
	}})
}

// SetOptions gives a collection that SetDocuments has made the options of create. It must keep all
// its documents with them.
func (d *Deployment) SetOptions(namespace string, options bson.Raw) {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	d.store.doLocked(entry{namespace: namespace, apply: func(s *store) {
		c := s.collectionLocked(namespace)
		c.options, c.max = options, int(integer(options, "max"))
	}})
}

// Documents returns the contents of a collection, in the order of insertion. exists is false if
// there is no such collection.
func (d *Deployment) Documents(namespace string) (docs []bson.Raw, exists bool) {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	c, exists := d.store.collections[namespace]
	if !exists {
		return nil, false
	}
	return append([]bson.Raw(nil), c.docs...), true
}

// host represents one server, with its fail points and its cursors.
type host struct {
	deployment *Deployment
	*fakemongo.Host
	wire       int32
	failPoints failPoints

	// mu guards the fields below. The store's mutex may be taken while it is held, not the reverse.
	mu         sync.Mutex
	frozen     bool           // cannot become primary (replSetFreeze)
	appNames   map[int]string // of connections
	cursors    map[int64]*cursor
	lastCursor int64
}

func newHost(d *Deployment, h *fakemongo.Host, i int) *host {
	return &host{
		deployment: d, Host: h, wire: d.wire,
		failPoints: newFailPoints(),
		appNames:   map[int]string{}, cursors: map[int64]*cursor{}, lastCursor: int64(i+1) << 40,
	}
}

func (h *host) serve() {
	for name, command := range commands {
		h.handle(name, command)
	}
	h.Intercept(h.answer)
}

func (h *host) handle(name string, command command) {
	h.Handle(name, func(cmd *fakemongo.Command) fakemongo.Reply {
		r := h.run(cmd, command)
		if r.doc == nil {
			return fakemongo.Drop()
		}
		return fakemongo.Document(r.doc).After(r.delay)
	})
}

// run runs a command in its session. Its reply may be a refusal; without a document, the connection
// is closed.
func (h *host) run(cmd *fakemongo.Command, run command) reply {
	err := checkAPI(cmd)
	var req *request
	if err == nil {
		req, err = h.request(cmd)
	}
	var r reply
	if err == nil {
		r, err = run(h, req)
		if err == nil && req.transaction != nil {
			err = h.deployment.conflicts(req)
		}
		r.doc = withConcernError(cmd, r.doc)
	}
	if end, ended := errors.AsType[*fatal](err); ended {
		return reply{doc: end.reply}
	}
	if err != nil {
		refused := failure.Reply(err, false)
		r.doc = withLabels(refused, h.labels(cmd, failure.Code(integer(refused, "code")), false))
	}
	if req != nil {
		r.doc = h.afterwards(req, req.withSnapshot(r.doc))
	}
	return r
}

// answer lets fail points answer in the commands' stead. Servers that stream hello replies ask
// their fail points again before each of them; here a client that waits for news asks again.
func (h *host) answer(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
	cmd.ExhaustAllowed = false
	if h.deployment.topology != LoadBalanced { // no mongos knows of a load balancer by itself
		cmd.Body = bson.Without(cmd.Body, "loadBalanced")
	}
	if commandName(cmd.Name) != "isMaster" && cmd.Name != "hello" {
		time.Sleep(commandTime) //nolint:forbidigo // a server at work; time is fake
	}
	if name, ok := cmd.Body.Lookup("client", "application", "name"); ok {
		h.mu.Lock()
		h.appNames[cmd.Connection], _ = name.Str()
		h.mu.Unlock()
	}
	d := h.deployment
	d.mu.Lock()
	disturb := d.disturb
	d.mu.Unlock()
	answer := func(cmd *fakemongo.Command) fakemongo.Reply {
		r := h.failPoints.answer(h, cmd, next)
		if d.topology == Single || d.whole { // no cluster time, or the engine's own
			return r
		}
		return r.With(d.clock.times())
	}
	if disturb == nil {
		return answer(cmd)
	}
	return disturb(cmd, answer)
}

// appName returns the name of the application whose connection a command came on.
func (h *host) appName(cmd *fakemongo.Command) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.appNames[cmd.Connection]
}
