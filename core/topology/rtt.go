package topology

import (
	"context"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
)

// roundTrips measures the time that one server takes to answer. While its monitor streams, and
// only then, a goroutine measures on a connection of its own (Server Monitoring, "Measuring RTT").
// The goroutine emits nothing, and its errors change nothing but the times in the server's
// description.
type roundTrips struct {
	cancel context.CancelFunc // of the goroutine, else nil; owned by the monitor

	// mu guards the fields below.
	mu    sync.Mutex
	rtt   description.RTT
	stale bool // the server was unavailable since: the next sample is the first
}

func (r *roundTrips) add(sample time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale {
		r.rtt, r.stale = description.RTT{}, false
	}
	r.rtt = r.rtt.Add(sample)
}

// restart has the next sample replace the earlier ones, since the server was unavailable. Until
// then the times stay, unlike after reset: a server that streams may report that it is available
// before it is measured, and must not count as the fastest.
func (r *roundTrips) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = true
}

// reset drops the samples of a server that is gone.
func (r *roundTrips) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rtt, r.stale = description.RTT{}, false
}

func (r *roundTrips) read() (average, least time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rtt.Average(), r.rtt.Min()
}

// start begins to measure, unless that is done already, until stop or the end of ctx.
func (r *roundTrips) start(ctx context.Context, m *monitor) {
	if r.cancel != nil {
		return
	}
	ctx, r.cancel = context.WithCancel(ctx)
	m.topology.running.Go(func() { r.measure(ctx, m) })
}

func (r *roundTrips) stop() {
	if r.cancel != nil {
		r.cancel()
		r.cancel = nil
	}
}

func (r *roundTrips) measure(ctx context.Context, m *monitor) {
	var c *conn.Conn
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	timer := time.NewTimer(m.topology.cfg.HeartbeatInterval)
	defer timer.Stop()
	for {
		c = r.sample(ctx, m, c)
		timer.Reset(m.topology.cfg.HeartbeatInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample makes one measurement, on a new connection if there is none. It returns the connection if
// it is usable.
func (r *roundTrips) sample(ctx context.Context, m *monitor, c *conn.Conn) *conn.Conn {
	if c == nil {
		c, err := conn.Dial(ctx, m.server.address, m.dial)
		if err != nil {
			return nil
		}
		r.add(c.Description().AverageRTT)
		m.topology.measured(m.server)
		return c
	}
	ctx, cancel := m.withTimeout(ctx, 0)
	defer cancel()
	start := time.Now()
	if _, err := c.Hello(ctx); err != nil {
		_ = c.Close()
		return nil
	}
	r.add(time.Since(start))
	m.topology.measured(m.server)
	return c
}
