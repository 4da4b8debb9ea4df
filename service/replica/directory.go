package replica

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/service/page"
)

const (
	// resolveTTL is how long an answer of DNS is used: Pods come and go.
	resolveTTL = 5 * time.Second
	// againTTL replaces resolveTTL for a cursor that no known replica has.
	againTTL = 250 * time.Millisecond
	// resolveTimeout bounds one lookup.
	resolveTimeout = 2 * time.Second
	// selfTTL is how long an address where this replica has met itself counts as its own. An
	// address that several replicas share, which is a misconfiguration, leads elsewhere the next
	// time.
	selfTTL = 30 * time.Second
	// heardTTL is how long an address that no name stands for is used after it was last learned.
	heardTTL = 10 * time.Minute
	// maxHeard bounds the known addresses beside those of names.
	maxHeard = 256
	// maxAddress is the length of the longest address that is learned: that of a name of DNS, and a
	// port.
	maxAddress = 253 + 6
	// maxOthers bounds the replicas that are asked, so that asking all of them stays bounded.
	maxOthers = 64
)

// directory knows where the other replicas are: the addresses that names stand for now, and those
// that it has learned, without this replica's own addresses.
type directory struct {
	configured []string // host:port
	lookupHost func(ctx context.Context, host string) ([]string, error)

	// mu guards the fields below. Nothing blocks while it is held.
	mu    sync.Mutex
	own   string               // the advertised address
	met   map[string]time.Time // by address: when this replica has met itself there
	names map[string]answer
	heard map[string]time.Time // by address: when its replica has called, or was last reported
	left  map[string]leaving   // by address: how its replica has left in order
}

// leaving says when a replica has left. goodbye is the process that has said so itself; zero: DNS
// alone has.
type leaving struct {
	at      time.Time
	goodbye page.Instance
}

// answer holds what DNS has said of a name. When a lookup fails, the earlier answer stays in use.
type answer struct {
	hosts []string
	at    time.Time
}

func newDirectory(
	configured []string, lookup func(context.Context, string) ([]string, error),
) *directory {
	return &directory{
		configured: configured, lookupHost: lookup,
		met: map[string]time.Time{}, names: map[string]answer{}, heard: map[string]time.Time{},
		left: map[string]leaving{},
	}
}

// isOwn sets the address that this replica advertises.
func (d *directory) isOwn(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own = address
}

// metSelf records that a call to an address has come to this replica.
func (d *directory) metSelf(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.met, func(_ string, at time.Time) bool { return time.Since(at) >= selfTTL })
	if len(d.met) < maxHeard {
		d.met[address] = time.Now()
	}
}

// isSelfLocked reports whether an address counts as this replica's own.
func (d *directory) isSelfLocked(address string) bool {
	at, met := d.met[address]
	return address == d.own || met && time.Since(at) < selfTTL
}

// learn adds the address of another replica: that of an incoming call, which a replica that has
// come back makes, or, as a report, one that a replica has reported.
func (d *directory) learn(address string, report bool) (fresh bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" || len(address) > maxAddress {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if report && d.hasLeftLocked(address) {
		return false // the replica that reports it has not heard of that
	}
	delete(d.left, address)
	if _, known := d.heard[address]; known || len(d.heard) < maxHeard {
		d.heard[address] = time.Now()
		return !known && !d.isSelfLocked(address)
	}
	return false
}

// forget removes an address at which no replica listens any more.
func (d *directory) forget(address string) (known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.forgetLocked(address)
}

func (d *directory) forgetLocked(address string) (known bool) {
	_, known = d.heard[address]
	delete(d.heard, address)
	return known
}

// leave records that the replica at an address ends, and forgets the address. It reports whether
// the address was known.
func (d *directory) leave(address string) (known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaveLocked(address)
	return d.forgetLocked(address)
}

// goodbye records which process has said that it ends, after leave.
func (d *directory) goodbye(address string, from page.Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l, left := d.left[address]; left {
		l.goodbye = from
		d.left[address] = l
	}
}

func (d *directory) leaveLocked(address string) {
	maps.DeleteFunc(d.left, func(_ string, l leaving) bool { return time.Since(l.at) > heardTTL })
	if len(d.left) < maxHeard && len(address) <= maxAddress {
		d.left[address] = leaving{time.Now(), d.left[address].goodbye}
	}
}

// hasLeft reports whether the replica at an address has left: it has said so, or a name stood for
// its address and does no more. Calls to such an address fail as expected. It is forgotten after
// heardTTL: an address that is configured still should have a replica.
func (d *directory) hasLeft(address string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hasLeftLocked(address)
}

func (d *directory) hasLeftLocked(address string) bool {
	l, left := d.left[address]
	return left && time.Since(l.at) <= heardTTL
}

// saidGoodbye reports whether a replica has said that it ends, and none has come back to its
// address: its process holds nothing any more. Another process that is there by now may.
func (d *directory) saidGoodbye(r page.Replica) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return r.Instance != page.Instance{} && d.hasLeftLocked(r.Address) &&
		d.left[r.Address].goodbye == r.Instance
}

// renamed records which addresses have left a name, and which have joined it.
func (d *directory) renamed(port string, before, now []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, host := range before {
		if !slices.Contains(now, host) {
			d.leaveLocked(net.JoinHostPort(host, port))
		}
	}
	for _, host := range now {
		if !slices.Contains(before, host) {
			delete(d.left, net.JoinHostPort(host, port))
		}
	}
}

// heardLocked returns the learned addresses that have not expired.
func (d *directory) heardLocked() []string {
	maps.DeleteFunc(d.heard, func(_ string, at time.Time) bool { return time.Since(at) > heardTTL })
	return slices.Collect(maps.Keys(d.heard))
}

// heardOf returns the number of learned addresses of other replicas. Replicas also report this
// replica's own address to it.
func (d *directory) heardOf() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(slices.DeleteFunc(d.heardLocked(), d.isSelfLocked))
}

// known returns all addresses that need no lookup of a name, this replica's own among them.
func (d *directory) known() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.heardLocked()
	if d.own != "" {
		all = append(all, d.own)
	}
	return all
}

// others returns the addresses of the other replicas, in random order, so that callers do not all
// begin with the same replica. If again is set, it looks up names although they were looked up a
// short time ago.
func (d *directory) others(ctx context.Context, again bool) []string {
	found := make([][]string, len(d.configured))
	var wg sync.WaitGroup
	for i, configured := range d.configured {
		wg.Go(func() { found[i] = d.resolve(ctx, configured, again) })
	}
	wg.Wait()
	all := slices.Concat(found...)
	d.mu.Lock()
	all = append(all, d.heardLocked()...)
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), d.isSelfLocked)
	d.mu.Unlock()
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:min(len(all), maxOthers)]
}

// resolve returns the addresses that one entry stands for. A name of this replica itself has no
// other replica behind it.
func (d *directory) resolve(ctx context.Context, configured string, again bool) []string {
	host, port, err := net.SplitHostPort(configured)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	own, known := d.isSelfLocked(configured), d.names[host]
	d.mu.Unlock()
	if own {
		return nil
	}
	if net.ParseIP(host) != nil {
		return []string{configured}
	}
	ttl := resolveTTL
	if again {
		ttl = againTTL
	}
	if known.at.IsZero() || time.Since(known.at) > ttl {
		before := known.hosts
		known = d.lookup(ctx, host, known)
		d.renamed(port, before, known.hosts)
	}
	addresses := make([]string, len(known.hosts))
	for i, h := range known.hosts {
		addresses[i] = net.JoinHostPort(h, port)
	}
	return addresses
}

func (d *directory) lookup(ctx context.Context, host string, before answer) answer {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	hosts, err := d.lookupHost(ctx, host)
	if ctx.Err() != nil && err != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return before // the caller has gone: the error says nothing about the name
	}
	if err != nil {
		hosts = before.hosts
	}
	now := answer{hosts: hosts, at: time.Now()}
	d.mu.Lock()
	d.names[host] = now
	d.mu.Unlock()
	return now
}
