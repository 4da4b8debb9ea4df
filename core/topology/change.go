package topology

import (
	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/pool"
)

// change holds a change of the topology. It is made under topology.mu, and its events are delivered
// after that is released. A pool holds its own events of the change back (it is ready, it was
// cleared) until the sink has received the reason (SDAM Logging and Monitoring).
type change struct {
	topology *Topology
	held     []*server // whose pools hold something back, once for each time
	checks   []*server // to be checked now
}

// beginLocked begins a change of the current snapshot. ok is false if srv is no longer one of the
// servers.
func (t *Topology) beginLocked(srv *server) (current *snapshot, _ *change, ok bool) {
	current, _ = t.snapshot.Load()
	if t.state != stateRunning || current.server(srv.address) != srv {
		return nil, nil, false
	}
	return current, &change{topology: t}, true
}

// ready makes the pool of srv, which there must be, ready.
func (c *change) ready(srv *server) {
	if srv.pool.Load().Ready() {
		c.held = append(c.held, srv)
	}
}

func (c *change) clear(srv *server, opt pool.ClearOptions) {
	if p := srv.pool.Load(); p != nil && p.Clear(opt) {
		c.held = append(c.held, srv)
	}
}

// unlock releases topology.mu and delivers the queued events. The sink may be slow, or busy with
// another server's change: only the caller waits for it. Close waits until all events are
// delivered.
func (c *change) unlock() {
	t := c.topology
	t.running.Add(1) // Close, which waits for it, changes the state with the lock first
	defer t.running.Done()
	t.mu.Unlock()
	if len(c.held) == 0 {
		t.outbox.Deliver()
	} else {
		t.outbox.Flush()
	}
	for _, srv := range c.held {
		srv.pool.Load().Deliver()
	}
	for _, srv := range c.checks {
		srv.monitor.requestCheck()
	}
}

// apply applies the result of a check of srv. clearPool, if not nil, states how its pool is
// cleared.
func (t *Topology) apply(srv *server, s *description.Server, clearPool *pool.ClearOptions) {
	t.applyIf(srv, s, clearPool, func(*description.Server) bool { return true })
}

// applyIf does what apply does, if holds returns true under the lock.
func (t *Topology) applyIf(
	srv *server, s *description.Server, clearPool *pool.ClearOptions,
	holds func(current *description.Server) bool,
) {
	t.mu.Lock()
	current, change, ok := t.beginLocked(srv)
	if !ok || !holds(current.topology.Server(srv.address)) {
		t.mu.Unlock()
		return
	}
	next := current.topology.Apply(s)
	usable := next.Server(s.Address) == s && next.IsUsable(s.Address)
	if usable && srv.pool.Load() == nil {
		t.mu.Unlock()
		if srv.openPool() { // which emits; what was current may not be so any more
			t.applyIf(srv, s, clearPool, holds)
		}
		return
	}
	if s.IsAvailable() {
		t.noteProcess(srv, s)
	}
	if usable {
		change.ready(srv) // before others see that it can be selected
	}
	change.publishLocked(current, next, s.Address)
	if clearPool != nil {
		change.clear(srv, *clearPool)
	}
	change.unlock()
}

// fail applies an error of a connection of srv's pool.
func (t *Topology) fail(srv *server, f description.Failure) {
	t.mu.Lock()
	current, change, ok := t.beginLocked(srv)
	if !ok {
		t.mu.Unlock()
		return
	}
	f.Address, f.PoolGeneration = srv.address, srv.generation(f.Service)
	next, effect := current.topology.Fail(f)
	if effect == (description.Effect{}) {
		t.mu.Unlock()
		return
	}
	if !t.cfg.LoadBalanced { // whose description never changes
		change.publishLocked(current, next, srv.address)
	}
	if effect.ClearPool {
		change.clear(srv, pool.ClearOptions{Cause: f.Err, Service: f.Service})
	}
	if effect.CheckNow {
		change.checks = append(change.checks, srv)
	}
	if effect.CancelCheck {
		srv.monitor.outdated = true
		defer srv.monitor.cancelCheck() // after the events of the failure
	}
	change.unlock()
}

// measured stores the newest round-trip times in the description of a known server. Selection uses
// them; it is not an event.
func (t *Topology) measured(srv *server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	current, _, ok := t.beginLocked(srv)
	if !ok {
		return
	}
	average, least := srv.monitor.rtt.read()
	t.snapshot.Store(&snapshot{
		topology: current.topology.Measured(srv.address, average, least), servers: current.servers,
	})
}

// publishLocked makes next the topology, because of a new description of the server at cause: it
// queues events, starts monitors of new servers, ends removed servers, and wakes waiting
// selections.
func (c *change) publishLocked(
	current *snapshot, next description.Topology, cause address.Address,
) {
	t := c.topology
	changes := description.Changes(current.topology, next)
	for _, ch := range changes {
		if ch.Current == nil {
			current.server(ch.Previous.Address).monitor.concludeLocked()
		}
	}
	t.announceChange(current.topology, next, changes)
	t.snapshot.Store(&snapshot{topology: next, servers: t.followLocked(current, next, changes)})
	t.warnIfDeserted(next)
	for _, ch := range changes {
		if ch.Current == nil || ch.Current.IsAvailable() || ch.Previous == nil {
			continue
		}
		srv := current.server(ch.Current.Address)
		srv.monitor.rtt.restart()
		effect := ch.SideEffect(cause)
		if effect.ClearPool {
			c.clear(srv, pool.ClearOptions{Cause: ch.Current.LastError})
		}
		if effect.CheckNow {
			c.checks = append(c.checks, srv)
		}
	}
}

// followLocked returns the list of servers for the description. The events of the change are
// queued before, so that those of a new monitor come later.
func (t *Topology) followLocked(
	current *snapshot, next description.Topology, changes []description.Change,
) []*server {
	moved := false
	for _, c := range changes {
		moved = moved || c.Previous == nil || c.Current == nil
	}
	if !moved {
		return current.servers
	}
	servers := make([]*server, len(next.Servers))
	for i, s := range next.Servers {
		if servers[i] = current.server(s.Address); servers[i] == nil {
			servers[i] = newServer(t, s.Address)
			t.watch(servers[i])
		}
	}
	for _, c := range changes {
		if c.Current == nil {
			t.removeLocked(current.server(c.Previous.Address))
		}
	}
	return servers
}

// removeLocked ends a server that was removed, after its events are delivered. Its connections in
// use are closed when they are checked in.
func (t *Topology) removeLocked(srv *server) {
	if srv.stop != nil {
		srv.stop()
	}
	t.running.Go(func() {
		t.outbox.Flush()
		srv.closePool()
	})
}
