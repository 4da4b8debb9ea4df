package fakemongo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/wire"
)

// Role names what a host of a cluster says it is.
type Role uint8

// The roles. All but the first two are a replica set's.
const (
	Standalone Role = iota
	Mongos
	Primary
	Secondary
	Arbiter
	Hidden     // it holds data, but not for clients
	Recovering // neither primary nor secondary
	Ghost      // it was not, or is no longer, given a configuration
)

// ClusterConfig says what a cluster is like. The zero value streams hello replies, over net.Pipe.
type ClusterConfig struct {
	SetName     string // "rs" if empty
	TCP         bool   // hosts listen on the loopback interface
	Polled      bool   // hosts know no topologyVersion, as before MongoDB 4.4
	WireVersion int32  // 21 if zero
	Discard     bool   // commands are not recorded, and inserted documents not kept
	// The handlers know which transactions there are; otherwise a host refuses the commands of
	// those that it does not know.
	Transactions bool
}

// Cluster represents a deployment of several hosts: one replica set, some mongoses, or whatever
// the roles say. What happens to it is up to the test: elections, step-downs, reconfigurations,
// hosts that hang, lie, drop connections or disappear. All methods may be called at any time.
type Cluster struct {
	t   testing.TB
	cfg ClusterConfig

	// mu guards the fields below, and the hosts' state.
	mu         sync.Mutex
	changed    chan struct{} // closed, and replaced, at each change
	hosts      []*Host       // all that ever were
	setVersion int32
	term       uint32

	transactions *transactions // of the members of the set
}

// Host holds one server of a cluster. The methods of its Server work as usual: handlers, cut
// connections, SetDown.
type Host struct {
	*Server
	cluster *Cluster

	// Guarded by cluster.mu.

	role      Role
	member    bool // it is in the replica set's configuration
	tags      [][2]string
	lag       time.Duration // of its last write
	process   bson.ObjectID
	counter   int64
	term      uint32 // that it was elected for
	hanging   bool
	delay     time.Duration // of hello
	lie       func(*Command) Reply
	streams   int // awaitable hellos that are being answered
	violation string
}

// NewCluster makes a cluster with a host for each role. It ends with the test.
func NewCluster(t testing.TB, cfg ClusterConfig, roles ...Role) *Cluster {
	if cfg.SetName == "" {
		cfg.SetName = "rs"
	}
	if cfg.WireVersion == 0 {
		cfg.WireVersion = 21
	}
	c := &Cluster{
		t: t, cfg: cfg, changed: make(chan struct{}), setVersion: 1,
		transactions: newTransactions(),
	}
	for _, role := range roles {
		c.addHost(role)
	}
	return c
}

// Hosts returns all hosts in the order of their creation, including those that were removed.
func (c *Cluster) Hosts() []*Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.hosts)
}

// Host returns the one of that number, counted from 0.
func (c *Cluster) Host(i int) *Host { return c.Hosts()[i] }

// Seeds returns the addresses of all hosts.
func (c *Cluster) Seeds() []address.Address {
	var seeds []address.Address
	for _, h := range c.Hosts() {
		seeds = append(seeds, h.Address())
	}
	return seeds
}

// URI returns a connection string of all hosts; options are what follows the question mark.
func (c *Cluster) URI(options string) string {
	uri := "mongodb://"
	for i, seed := range c.Seeds() {
		if i > 0 {
			uri += ","
		}
		uri += string(seed)
	}
	return uri + "/?" + options
}

// Dial opens a connection over net.Pipe to the host of that address.
func (c *Cluster) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for _, h := range c.Hosts() {
		if string(h.Address()) == addr {
			return h.Dial(ctx, network, addr)
		}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such host")}
}

// Add brings a new host, which is a member of the set if its role is.
func (c *Cluster) Add(role Role) *Host {
	h := c.addHost(role)
	c.change(func() { c.setVersion++ })
	return h
}

func (c *Cluster) addHost(role Role) *Host {
	s := NewServer
	if c.cfg.TCP {
		s = NewTCPServer
	}
	h := &Host{Server: s(c.t, nil), cluster: c, role: role, process: bson.NewObjectID()}
	h.discard = c.cfg.Discard
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cfg.TCP {
		h.addr = address.Address(fmt.Sprintf("%s:27017", hostName(len(c.hosts))))
	}
	h.lastCursor = firstCursor(len(c.hosts))
	h.member = role >= Primary && role != Ghost
	switch {
	case c.cfg.Transactions:
		h.transactions = nil
	case h.member:
		h.transactions = c.transactions
	}
	if role == Primary {
		c.term++
		h.term = c.term
	}
	c.hosts = append(c.hosts, h)
	h.Handle("hello", h.hello)
	for _, name := range writes {
		h.Handle(name, h.write)
	}
	for _, name := range reads {
		h.Handle(name, h.read)
	}
	return h
}

// hostName returns the letters a to z, then h26 and so on.
func hostName(i int) string {
	if i < 26 {
		return string(rune('a' + i))
	}
	return fmt.Sprintf("h%d", i)
}

// change makes a change of the cluster, which every host tells of.
func (c *Cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	for _, h := range c.hosts {
		h.counter++
	}
	c.wakeLocked()
}

// wakeLocked wakes the goroutines that wait for a change.
func (c *Cluster) wakeLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Elect makes h the primary and the old primary a secondary. Every hello after it returns says so.
func (c *Cluster) Elect(h *Host) {
	c.change(func() {
		for _, other := range c.hosts {
			if other.role == Primary {
				other.role = Secondary
			}
		}
		c.electLocked(h)
	})
}

// ElectUnnoticed makes h the primary while the old one, for a while, does not know that it is
// deposed.
func (c *Cluster) ElectUnnoticed(h *Host) { c.change(func() { c.electLocked(h) }) }

func (c *Cluster) electLocked(h *Host) {
	c.term++
	h.role, h.term = Primary, c.term
	c.transactions.abort()
}

// StepDown leaves the set without a primary.
func (c *Cluster) StepDown() {
	c.change(func() {
		for _, h := range c.hosts {
			if h.role == Primary {
				h.role = Secondary
			}
		}
	})
}

// Primary returns the host that was elected last and has the role still, or nil.
func (c *Cluster) Primary() *Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.primaryLocked()
}

func (c *Cluster) primaryLocked() *Host {
	for _, h := range c.hosts {
		if h.role == Primary && h.member && h.term == c.term {
			return h
		}
	}
	return nil
}

// Term returns the number of the last election.
func (c *Cluster) Term() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}

// Remove takes h out of the set's configuration; it goes on as a ghost.
func (c *Cluster) Remove(h *Host) {
	c.change(func() {
		c.setVersion++
		h.member, h.role = false, Ghost
	})
}

// Elect calls Cluster.Elect for h.
func (h *Host) Elect() { h.cluster.Elect(h) }

// SetRole makes h be something else.
func (h *Host) SetRole(role Role) {
	h.cluster.change(func() { h.role = role })
}

// SetTags changes the tags of a member: name, value, name, value, …
func (h *Host) SetTags(pairs ...string) {
	h.cluster.change(func() {
		h.tags = nil
		for pair := range slices.Chunk(pairs, 2) {
			h.tags = append(h.tags, [2]string{pair[0], pair[1]})
		}
	})
}

// SetLag says how long ago h's last write is, at any time.
func (h *Host) SetLag(lag time.Duration) { h.cluster.change(func() { h.lag = lag }) }

// Role returns what h is now, and whether it is in the set's configuration.
func (h *Host) Role() (role Role, member bool) {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	return h.role, h.member
}

// Hang keeps h from answering hello, and what needs its role, until it is called with false.
func (h *Host) Hang(hanging bool) {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	h.hanging = hanging
	h.cluster.wakeLocked()
}

// Lie has h answer hello by that handler; with nil it is honest again. Hello replies that are
// being awaited are cut.
func (h *Host) Lie(handler Handler) {
	h.cluster.mu.Lock()
	h.lie = handler
	h.cluster.mu.Unlock()
	h.CutConnections()
}

// Slow delays h's answers to hello, those that are awaited excepted.
func (h *Host) Slow(delay time.Duration) {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	h.delay = delay
}

// WriteHandler answers a command as h answers a write: by its role.
func (h *Host) WriteHandler() Handler { return h.write }

// Process returns the id of the host's process, which is its serviceId behind a load balancer.
func (h *Host) Process() bson.ObjectID {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	return h.process
}

// Restart ends all connections, and counts the topologyVersion from 0 for a new process.
func (h *Host) Restart() {
	h.cluster.mu.Lock()
	h.process, h.counter = bson.NewObjectID(), 0
	h.cluster.wakeLocked()
	h.cluster.mu.Unlock()
	h.CutConnections()
}

// Streams counts the awaitable hellos that h is answering.
func (h *Host) Streams() int {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	return h.streams
}

// Violation says what a client did that no client may do, or is empty.
func (h *Host) Violation() string {
	h.cluster.mu.Lock()
	defer h.cluster.mu.Unlock()
	return h.violation
}

// helloLocked returns what h says of itself.
func (h *Host) helloLocked(cmd *Command) bson.Raw {
	b := new(bson.Builder)
	primary := "isWritablePrimary"
	if cmd.Name != "hello" {
		primary = "ismaster"
	}
	b.Bool("helloOk", true).Bool(primary, h.role <= Primary)
	switch h.role {
	case Standalone:
	case Mongos:
		b.String("msg", "isdbgrid")
		if v, _ := field(cmd.Body, "loadBalanced").Bool(); v {
			b.ObjectID("serviceId", h.process)
		}
	case Ghost:
		b.Bool("isreplicaset", true).Bool("secondary", false)
	case Primary, Secondary, Arbiter, Hidden, Recovering:
		h.appendMemberLocked(b)
	}
	b.Int32("maxBsonObjectSize", 16<<20).Int32("maxMessageSizeBytes",
		wire.MaxMessage).Int32("maxWriteBatchSize", 100_000)
	if h.role != Arbiter {
		b.Int32("logicalSessionTimeoutMinutes", 30)
	}
	b.Int32("connectionId", int32(cmd.Connection)).Int32("minWireVersion",
		0).Int32("maxWireVersion", h.cluster.cfg.WireVersion)
	if !h.cluster.cfg.Polled {
		h.appendVersionLocked(b)
	}
	return b.Double("ok", 1).Finish()
}

func (h *Host) appendVersionLocked(b *bson.Builder) {
	b.OpenDocument("topologyVersion").ObjectID("processId", h.process).Int64("counter",
		h.counter).Close()
}

func (h *Host) appendMemberLocked(b *bson.Builder) {
	c := h.cluster
	b.Bool("secondary", h.role == Secondary || h.role == Hidden)
	if h.role == Hidden {
		b.Bool("hidden", true)
	}
	if h.role == Arbiter {
		b.Bool("arbiterOnly", true)
	}
	b.String("setName", c.cfg.SetName).Int32("setVersion", c.setVersion).String("me",
		string(h.addr))
	for _, list := range []struct {
		name     string
		arbiters bool
	}{{"hosts", false}, {"arbiters", true}} {
		b.OpenArray(list.name)
		for _, m := range c.hosts {
			if m.member && m.role != Hidden && (m.role == Arbiter) == list.arbiters {
				b.String("", string(m.addr))
			}
		}
		b.Close()
	}
	if p := c.primaryLocked(); p != nil {
		b.String("primary", string(p.addr))
	}
	if h.role == Primary {
		var id bson.ObjectID
		binary.BigEndian.PutUint32(id[:], 0x7fffffff)
		binary.BigEndian.PutUint32(id[8:], h.term)
		b.ObjectID("electionId", id)
	}
	if len(h.tags) > 0 {
		b.OpenDocument("tags")
		for _, tag := range h.tags {
			b.String(tag[0], tag[1])
		}
		b.Close()
	}
	b.OpenDocument("lastWrite").DateTime("lastWriteDate",
		time.Now().Add(-h.lag).UnixMilli()).Close()
}

// The commands that a host answers according to its role.
var (
	writes = []string{"insert", "update", "delete", "findAndModify"}
	reads  = []string{"find", "aggregate", "count", "distinct"}
)

func (h *Host) write(cmd *Command) Reply {
	if role := h.waitForRole(); role > Primary {
		return h.refuse(10107, "NotWritablePrimary", "not primary")
	}
	return h.Default(cmd)
}

func (h *Host) read(cmd *Command) Reply {
	switch role := h.waitForRole(); {
	case role <= Primary:
	case role > Secondary:
		return h.refuse(13436, "NotPrimaryOrSecondary",
			"node is not in primary or recovering state")
	default:
		preference, _ := field(cmd.Body, "$readPreference").Document()
		if mode, _ := field(preference, "mode").Str(); mode == "" || mode == "primary" {
			return h.refuse(13435, "NotPrimaryNoSecondaryOk", "not primary and secondaryOk=false")
		}
	}
	return h.Default(cmd)
}

// waitForRole returns h's role. It blocks while the role is to hang.
func (h *Host) waitForRole() Role {
	for {
		h.cluster.mu.Lock()
		role, hanging, changed := h.role, h.hanging, h.cluster.changed
		h.cluster.mu.Unlock()
		if !hanging {
			return role
		}
		select {
		case <-changed:
		case <-h.done:
			return role
		}
	}
}

// refuse returns an error that tells the client that h has changed.
func (h *Host) refuse(code int32, name, message string) Reply {
	b := new(bson.Builder)
	b.Double("ok", 0).String("errmsg", message).Int32("code", code).String("codeName", name)
	if !h.cluster.cfg.Polled {
		h.cluster.mu.Lock()
		h.appendVersionLocked(b)
		h.cluster.mu.Unlock()
	}
	return Document(b.Finish())
}
