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
)

const (
	// resolveTTL is how long what DNS said is believed: Pods come and go.
	resolveTTL = 5 * time.Second
	// resolveTimeout bounds one lookup.
	resolveTimeout = 2 * time.Second
	// selfTTL is how long it is believed that an address where this replica has met itself is its own: one that several replicas share, which
	// it should not be, leads elsewhere the next time.
	selfTTL = 30 * time.Second
	// maxOthers is how many replicas are known at most, so that asking all of them stays bounded.
	maxOthers = 64
)

// directory knows where the other replicas are: the addresses that names stand for now, without this replica's own.
type directory struct {
	peers      []string // host:port
	lookupHost func(ctx context.Context, host string) ([]string, error)

	// mu guards the fields below. Nothing blocks while it is held.
	mu    sync.Mutex
	own   string               // the advertised address
	met   map[string]time.Time // when this replica has met itself, at which addresses
	names map[string]answer
}

// answer is what DNS has said of a name. When it fails, what it said before counts on.
type answer struct {
	hosts []string
	at    time.Time
}

func newDirectory(peers []string, lookup func(context.Context, string) ([]string, error)) *directory {
	return &directory{peers: peers, lookupHost: lookup, met: map[string]time.Time{}, names: map[string]answer{}}
}

// isOwn notes which address this replica advertises.
func (d *directory) isOwn(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.own = address
}

// metSelf notes that a call to an address has come to this replica.
func (d *directory) metSelf(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.met, func(_ string, at time.Time) bool { return time.Since(at) >= selfTTL })
	d.met[address] = time.Now()
}

// isSelfLocked says whether an address is taken for this replica.
func (d *directory) isSelfLocked(address string) bool {
	at, met := d.met[address]
	return address == d.own || met && time.Since(at) < selfTTL
}

// others are the addresses of the other replicas, in no order, so that not all turn to the same one first.
func (d *directory) others(ctx context.Context) []string {
	found := make([][]string, len(d.peers))
	var wg sync.WaitGroup
	for i, peer := range d.peers {
		wg.Go(func() { found[i] = d.resolve(ctx, peer) })
	}
	wg.Wait()
	all := slices.Concat(found...)
	slices.Sort(all)
	all = slices.Compact(all)
	d.mu.Lock()
	all = slices.DeleteFunc(all, d.isSelfLocked)
	d.mu.Unlock()
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:min(len(all), maxOthers)]
}

// resolve returns the addresses that one entry stands for. A name that this replica itself has is nobody else's.
func (d *directory) resolve(ctx context.Context, peer string) []string {
	host, port, err := net.SplitHostPort(peer)
	if err != nil {
		return nil
	}
	d.mu.Lock()
	own, known := d.isSelfLocked(peer), d.names[host]
	d.mu.Unlock()
	if own {
		return nil
	}
	if net.ParseIP(host) != nil {
		return []string{peer}
	}
	if known.at.IsZero() || time.Since(known.at) > resolveTTL {
		known = d.lookup(ctx, host, known)
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
		return before // the caller has gone: that says nothing of the name
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
