package seedlist

import (
	"context"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
)

const (
	// minInterval is between two lookups, however short the records live, and where that is not
	// known.
	minInterval = time.Minute

	// defaultHeartbeat is heartbeatFrequencyMS where it is not configured.
	defaultHeartbeat = 10 * time.Second

	// maxLookup bounds a lookup by a resolver that has no limit of its own.
	maxLookup = 30 * time.Second
)

// Changes returns the hosts to add to current and those to remove, so that it is what the SRV
// records say. With limit above zero, hosts are added, in random order, only until there are that
// many; a host that is still valid always stays. shuffle is rand.Shuffle.
func Changes(
	current, valid []address.Address, limit int, shuffle func(n int, swap func(i, j int)),
) (add, remove []address.Address) {
	kept := 0
	for _, host := range current {
		if slices.Contains(valid, host) {
			kept++
		} else {
			remove = append(remove, host)
		}
	}
	for _, host := range valid {
		if !slices.Contains(current, host) {
			add = append(add, host)
		}
	}
	if limit <= 0 || limit >= len(valid) {
		return add, remove
	}
	shuffle(len(add), func(i, j int) { add[i], add[j] = add[j], add[i] })
	return add[:min(len(add), max(0, limit-kept))], remove
}

// Interval returns the time from the end of the scan to the next one: as long as the records are
// valid but at least a minute, and a heartbeat's interval after a scan without a usable host. A
// nil or zero heartbeat is the default one.
func (s Scan) Interval(heartbeat *time.Duration) time.Duration {
	switch {
	case len(s.Hosts) > 0:
		return max(s.TTL, minInterval)
	case heartbeat == nil || *heartbeat <= 0:
		return defaultHeartbeat
	default:
		return *heartbeat
	}
}

// Poller looks the SRV records up repeatedly. The caller sets its fields before Run.
type Poller struct {
	Resolver Resolver          // nil: System
	Config   connstring.Config // as Resolve made it
	Interval time.Duration     // until the first lookup, from Resolve; 0: a minute

	// Wanted reports whether the deployment may still be polled: while its kind is unknown or
	// sharded. It is called before each lookup. Once it returns false, polling ends, since no
	// other kind becomes one of these again.
	Wanted func() bool

	// Found receives the valid hosts of each lookup that found any. The caller decides with
	// Changes what follows, if anything: the kind may have become known meanwhile.
	Found func(hosts []address.Address)

	// Problem, if not nil, receives why a lookup failed and which hosts were refused. Both are
	// harmless.
	Problem func(error)
}

// Run polls until ctx ends or polling is not wanted any more. It returns at once if the string was
// not mongodb+srv or the deployment is behind a load balancer.
func (p *Poller) Run(ctx context.Context) {
	if !p.Config.SRV || p.Config.LoadBalanced {
		return
	}
	interval := max(p.Interval, minInterval)
	for wait(ctx, interval) && p.Wanted() {
		scan := p.scan(ctx)
		if ctx.Err() != nil {
			return
		}
		for _, problem := range scan.Problems {
			if p.Problem != nil {
				p.Problem(problem)
			}
		}
		if len(scan.Hosts) > 0 {
			p.Found(scan.Hosts)
		}
		interval = scan.Interval(p.Config.HeartbeatInterval)
	}
}

func (p *Poller) scan(ctx context.Context) Scan {
	ctx, cancel := context.WithTimeout(ctx, maxLookup)
	defer cancel()
	return look(ctx, or(p.Resolver), p.Config)
}

// wait reports whether the time passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
