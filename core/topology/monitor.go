package topology

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
)

// monitor checks one server, over and over, on a connection of its own (Server Monitoring). Where the server can say when
// something changed, it streams: checks follow one another without rest, each waiting for the server's next word; else it
// polls. One goroutine, run, owns the first group of fields; others talk to it by requestCheck and cancelCheck.
type monitor struct {
	topology *Topology
	server   *server
	dial     conn.Config

	conn        *conn.Conn                   // nil until the next check makes one
	connections uint64                       // that were made, for events
	last        description.ServerKind       // what the last check found
	version     *description.TopologyVersion // what the last reply on conn said; nil where it cannot be streamed from
	opening     opening                      // how the next conn begins

	rtt roundTrips

	wake chan struct{} // a check is wanted; capacity 1

	// topology.mu guards the running check: started, and its end not told.
	running *event.Heartbeat
	since   time.Time

	// mu guards the fields below.
	mu       sync.Mutex
	cancel   context.CancelCauseFunc // of the check that is running, else nil
	distrust bool                    // a cancellation came when no check was running: the next one takes a new connection
}

// errCheckCanceled ends a check of a server that an application has found to be gone.
var errCheckCanceled = errors.New("check canceled: an application's connection failed")

// errServerRemoved ends a check of a server that is no longer part of the deployment.
var errServerRemoved = errors.New("check canceled: the server was removed")

func newMonitor(t *Topology, srv *server) *monitor {
	return &monitor{topology: t, server: srv, dial: monitoring(t.cfg.Conn), wake: make(chan struct{}, 1)}
}

// monitoring returns how a monitor's connections are made, those that measure round trips included. It takes out what is
// for applications only: socketTimeoutMS, and the credential (Server Monitoring, "Monitors MUST NOT authenticate").
func monitoring(cfg conn.Config) conn.Config {
	cfg.SocketTimeout, cfg.Auth = 0, nil
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = conn.DefaultConnectTimeout
	}
	return cfg
}

// requestCheck asks for a check as soon as the server has had its rest.
func (m *monitor) requestCheck() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// cancelCheck ends the running check. Its outcome counts for nothing, and the next check is not any sooner. The monitor's
// connection is given up in any case, as Server Monitoring asks: what an application's connection met may have befallen it, too.
func (m *monitor) cancelCheck() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cancel == nil {
		m.distrust = true
		return
	}
	m.cancel(errCheckCanceled)
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
	more := m.topology.cfg.HeartbeatInterval - minHeartbeatInterval
	if more <= 0 {
		return
	}
	timer.Reset(more)
	select {
	case <-timer.C:
	case <-m.wake:
	case <-ctx.Done():
	}
}

// check asks the server once and tells the topology. It reports whether to ask again without rest: the server streams,
// or it was there a moment ago, and may have restarted or dropped just this connection.
func (m *monitor) check(ctx context.Context) (again bool) {
	checking, distrusted, done := m.cancelable(ctx)
	if distrusted || m.conn != nil && !m.conn.Alive() {
		m.disconnect()
	}
	fact := m.heartbeat()
	if !m.started(fact) {
		done()
		return false
	}
	start := time.Now()
	reply, err := m.hello(checking)
	duration := time.Since(start)
	canceled := checking.Err() != nil
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
	m.stream(ctx, s.TopologyVersion)
	s.AverageRTT, s.MinRTT = m.rtt.read()
	s.LastUpdateTime = time.Now()
	m.last = s.Kind
	select {
	case <-m.wake: // this check is the one that was asked for
	default:
	}
	m.concluded(func() {
		emit(m.topology.outbox, func(s *event.Sink) func(event.ServerHeartbeatSucceeded) { return s.ServerHeartbeatSucceeded },
			event.ServerHeartbeatSucceeded{Heartbeat: fact, Duration: duration, Reply: reply})
	})
	m.topology.outbox.flush()           // before a pool tells that it was made
	m.topology.apply(m.server, &s, nil) //nolint:contextcheck // a pool outlives the check that opens it
	return m.version != nil || m.conn.Following()
}

// stream goes over to streaming, or back to polling, as the newest reply allows. While streaming, checks take as long as
// nothing happens, so that round trips are measured apart.
func (m *monitor) stream(ctx context.Context, version *description.TopologyVersion) {
	if m.topology.cfg.Polling {
		return
	}
	m.version = version
	if version == nil {
		m.rtt.stop()
		return
	}
	m.rtt.start(ctx, m)
}

// failed deals with a check that brought nothing.
func (m *monitor) failed(fact event.Heartbeat, duration time.Duration, err error, canceled bool) (again bool) {
	m.disconnect()
	m.concluded(func() { m.tellFailed(fact, duration, err) })
	m.topology.outbox.deliver()
	m.rtt.reset()
	known := m.last != description.ServerUnknown
	m.last = description.ServerUnknown
	if canceled { // whoever canceled it has seen to the rest
		return false
	}
	network := mongoerr.IsNetwork(err)
	m.topology.apply(m.server, description.Unknown(m.server.address, err), &pool.ClearOptions{
		Cause: err, InterruptInUse: network && mongoerr.IsTimeout(err),
	})
	return known && network
}

// cancelable returns a context for the check that begins, which cancelCheck ends until done is
// called. distrusted reports whether cancelCheck was called since the last check: the connection is
// then not to be used. No call of cancelCheck is lost between the two.
func (m *monitor) cancelable(ctx context.Context) (_ context.Context, distrusted bool, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	m.cancel = cancel
	distrusted, m.distrust = m.distrust, false
	m.mu.Unlock()
	return ctx, distrusted, func() {
		m.mu.Lock()
		m.cancel = nil
		m.distrust = m.distrust || errors.Is(context.Cause(ctx), errCheckCanceled) // it may have come after the answer
		m.mu.Unlock()
		cancel(nil)
	}
}

// hello asks the server, on a new connection if there is none: then the handshake's hello is the check. The time of a
// round trip is taken of those replies that the server does not hold back.
func (m *monitor) hello(ctx context.Context) (bson.Raw, error) {
	if m.conn == nil {
		dial := m.dial
		dial.Query = m.opening == openQuery
		c, err := conn.Dial(ctx, m.server.address, dial)
		if m.dial.ServerAPI == nil { // which OP_QUERY could not declare
			m.opening = m.opening.after(c, err)
		}
		if err != nil {
			return nil, err
		}
		m.conn = c
		m.rtt.add(c.Description().AverageRTT)
		return c.HelloReply(), nil
	}
	if m.awaits() {
		interval := m.topology.cfg.HeartbeatInterval
		ctx, cancel := m.withTimeout(ctx, interval)
		defer cancel()
		return m.conn.AwaitHello(ctx, m.version, interval)
	}
	ctx, cancel := m.withTimeout(ctx, 0)
	defer cancel()
	start := time.Now()
	reply, err := m.conn.Hello(ctx)
	if err == nil {
		m.rtt.add(time.Since(start))
	}
	return reply, err
}

// awaits tells whether the next check waits for the server's next word.
func (m *monitor) awaits() bool {
	return m.conn != nil && (m.version != nil || m.conn.Following())
}

// withTimeout bounds a hello by connectTimeoutMS, and the time that the server may take besides.
func (m *monitor) withTimeout(ctx context.Context, besides time.Duration) (context.Context, context.CancelFunc) {
	if m.dial.ConnectTimeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, m.dial.ConnectTimeout+besides, errHelloTimeout)
}

var errHelloTimeout = helloTimeout{}

type helloTimeout struct{}

func (helloTimeout) Error() string { return "no answer within connectTimeoutMS" }

// Timeout says that it is one, as net.Error does.
func (helloTimeout) Timeout() bool { return true }

// disconnect gives the connection up. Until the next one streams, nothing measures round trips beside it.
func (m *monitor) disconnect() {
	m.rtt.stop()
	if m.conn != nil {
		_ = m.conn.Close() // there is nothing to do about an error
		m.conn = nil
	}
	m.version = nil
}

// heartbeat is what the events of the check that begins now have in common.
func (m *monitor) heartbeat() event.Heartbeat {
	fact := event.Heartbeat{TopologyID: m.topology.id, Address: m.server.address, Awaited: m.awaits()}
	if m.conn == nil {
		m.connections++
	} else {
		fact.ServerConnectionID = m.conn.ServerConnectionID()
	}
	fact.ConnectionID = m.connections
	return fact
}

// started tells of the check before its socket is opened. It reports whether there is to be one: the end of a server that
// was removed, or of all, may have been told by now.
func (m *monitor) started(fact event.Heartbeat) bool {
	t := m.topology
	t.mu.Lock()
	_, _, ok := t.beginLocked(m.server)
	if ok {
		emit(t.outbox, func(s *event.Sink) func(event.ServerHeartbeatStarted) { return s.ServerHeartbeatStarted },
			event.ServerHeartbeatStarted{Heartbeat: fact})
		m.running, m.since = &fact, time.Now()
	}
	t.mu.Unlock()
	if ok {
		t.outbox.flush()
	}
	return ok
}

// concluded tells how the running check ended, if that is still to be told.
func (m *monitor) concluded(tell func()) {
	m.topology.mu.Lock()
	defer m.topology.mu.Unlock()
	if m.running != nil {
		m.running = nil
		tell()
	}
}

// concludeLocked tells that the running check, if there is one, is given up: for nothing is told of a server after its end.
func (m *monitor) concludeLocked() {
	if m.running != nil {
		m.tellFailed(*m.running, time.Since(m.since), errServerRemoved)
		m.running = nil
	}
}

func (m *monitor) tellFailed(fact event.Heartbeat, duration time.Duration, err error) {
	emit(m.topology.outbox, func(s *event.Sink) func(event.ServerHeartbeatFailed) { return s.ServerHeartbeatFailed },
		event.ServerHeartbeatFailed{Heartbeat: fact, Duration: duration, Err: err})
}
