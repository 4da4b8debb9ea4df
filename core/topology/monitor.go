package topology

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/topology/description"
)

// monitor checks one server, over and over, on a connection of its own (Server Monitoring, "polling protocol"). One
// goroutine, run, owns the first group of fields; others talk to it by requestCheck and cancelCheck.
type monitor struct {
	topology *Topology
	server   *server
	dial     conn.Config

	conn        *conn.Conn // nil until the next check makes one
	connections uint64     // that were made, for events
	rtt         description.RTT
	last        description.ServerKind // what the last check found

	wake chan struct{} // a check is wanted; capacity 1

	// mu guards the field below.
	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the check that is running, else nil
}

// errCheckCanceled ends a check of a server that an application has found to be gone.
var errCheckCanceled = errors.New("check canceled: an application's connection failed")

func newMonitor(t *Topology, srv *server) *monitor {
	m := &monitor{topology: t, server: srv, dial: t.cfg.Conn, wake: make(chan struct{}, 1)}
	m.dial.SocketTimeout = 0 // it is for operations
	if m.dial.ConnectTimeout == 0 {
		m.dial.ConnectTimeout = conn.DefaultConnectTimeout
	}
	return m
}

// requestCheck asks for a check as soon as the server has had its rest.
func (m *monitor) requestCheck() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// cancelCheck ends the running check. Its outcome counts for nothing, and the next check is not any sooner.
func (m *monitor) cancelCheck() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cancel != nil {
		m.cancel(errCheckCanceled)
	}
}

func (m *monitor) run(ctx context.Context) {
	defer m.disconnect()
	for ctx.Err() == nil {
		if again := m.check(ctx); !again {
			m.rest(ctx)
		}
	}
}

// rest waits for the next check: an interval, or on request less, but never less than the minimum.
func (m *monitor) rest(ctx context.Context) {
	timer := time.NewTimer(minHeartbeatInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	timer.Reset(m.topology.cfg.HeartbeatInterval - minHeartbeatInterval)
	select {
	case <-timer.C:
	case <-m.wake:
	case <-ctx.Done():
	}
}

// check asks the server once and tells the topology. It reports whether to ask again without rest: a server that was
// there a moment ago may have restarted, or dropped just this connection.
func (m *monitor) check(ctx context.Context) (again bool) {
	ctx, done := m.cancelable(ctx)
	fact := m.heartbeat()
	m.started(fact)
	start := time.Now()
	reply, sample, err := m.hello(ctx)
	duration := time.Since(start)
	canceled := ctx.Err() != nil
	done()

	if m.conn != nil {
		fact.ServerConnectionID = m.conn.ServerConnectionID()
	}
	var s description.Server
	if err == nil {
		s = description.NewServer(m.server.address, reply, 0)
		err = s.LastError
	}
	if err != nil {
		return m.failed(fact, duration, err, canceled) //nolint:contextcheck // a pool outlives the check that opens it
	}
	m.rtt = m.rtt.Add(sample)
	s.AverageRTT, s.MinRTT = m.rtt.Average(), m.rtt.Min()
	s.LastUpdateTime = time.Now()
	m.last = s.Kind
	select {
	case <-m.wake: // this check is the one that was asked for
	default:
	}
	emit(m.topology.outbox, func(s *event.Sink) func(event.ServerHeartbeatSucceeded) { return s.ServerHeartbeatSucceeded },
		event.ServerHeartbeatSucceeded{Heartbeat: fact, Duration: duration, Reply: reply})
	m.topology.outbox.deliver()         // before a pool tells that it was made
	m.topology.apply(m.server, &s, nil) //nolint:contextcheck // a pool outlives the check that opens it
	return false
}

// failed deals with a check that brought nothing.
func (m *monitor) failed(fact event.Heartbeat, duration time.Duration, err error, canceled bool) (again bool) {
	m.disconnect()
	emit(m.topology.outbox, func(s *event.Sink) func(event.ServerHeartbeatFailed) { return s.ServerHeartbeatFailed },
		event.ServerHeartbeatFailed{Heartbeat: fact, Duration: duration, Err: err})
	m.rtt = description.RTT{}
	known := m.last != description.ServerUnknown
	m.last = description.ServerUnknown
	if canceled { // whoever canceled it has seen to the rest
		m.topology.outbox.deliver()
		return false
	}
	network := mongoerr.IsNetwork(err)
	m.topology.apply(m.server, description.Unknown(m.server.address, err), &pool.ClearOptions{
		Cause: err, InterruptInUse: network && mongoerr.IsTimeout(err),
	})
	return known && network
}

// cancelable lets cancelCheck reach the check that runs under the context, until done.
func (m *monitor) cancelable(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	m.cancel = cancel
	m.mu.Unlock()
	return ctx, func() {
		m.mu.Lock()
		m.cancel = nil
		m.mu.Unlock()
		cancel(nil)
	}
}

// hello asks the server, on a new connection if there is none: then the handshake's hello is the check. sample is the
// time of the round trip alone.
func (m *monitor) hello(ctx context.Context) (reply bson.Raw, sample time.Duration, err error) {
	if m.conn == nil {
		c, err := conn.Dial(ctx, m.server.address, m.dial)
		if err != nil {
			return nil, 0, err
		}
		m.conn = c
		return c.HelloReply(), c.Description().AverageRTT, nil
	}
	if m.dial.ConnectTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, m.dial.ConnectTimeout, errHelloTimeout)
		defer cancel()
	}
	start := time.Now()
	reply, err = m.conn.Hello(ctx)
	return reply, time.Since(start), err
}

var errHelloTimeout = errors.New("no answer within connectTimeoutMS")

func (m *monitor) disconnect() {
	if m.conn != nil {
		_ = m.conn.Close() // there is nothing to do about an error
		m.conn = nil
	}
}

// heartbeat is what the events of the check that begins now have in common.
func (m *monitor) heartbeat() event.Heartbeat {
	fact := event.Heartbeat{TopologyID: m.topology.id, Address: m.server.address}
	if m.conn == nil {
		m.connections++
	} else {
		fact.ServerConnectionID = m.conn.ServerConnectionID()
	}
	fact.ConnectionID = m.connections
	return fact
}

// started tells of the check before its socket is opened.
func (m *monitor) started(fact event.Heartbeat) {
	emit(m.topology.outbox, func(s *event.Sink) func(event.ServerHeartbeatStarted) { return s.ServerHeartbeatStarted },
		event.ServerHeartbeatStarted{Heartbeat: fact})
	m.topology.outbox.deliver()
}
