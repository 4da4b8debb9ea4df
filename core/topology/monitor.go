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

// monitor checks one server repeatedly, on a connection of its own (Server Monitoring). If the
// server can stream, checks follow one another without rest, and each waits for the next reply;
// otherwise the monitor polls. The goroutine of run owns the first group of fields; other
// goroutines call requestCheck and cancelCheck.
type monitor struct {
	topology *Topology
	server   *server
	dial     conn.Config

	conn        *conn.Conn             // nil until the next check makes one
	connections uint64                 // that were made, for events
	last        description.ServerKind // what the last check found
	// version is the topologyVersion of the last reply on conn; nil if the server cannot stream.
	version *description.TopologyVersion
	opening opening // how the next conn begins

	rtt roundTrips

	wake chan struct{} // a check is wanted; capacity 1

	// topology.mu guards the running check: started, and its end not told.
	running *event.Heartbeat
	since   time.Time
	// outdated says that a failure which cancels the running check was published after it began.
	outdated bool

	// mu guards the fields below.
	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the check that is running, else nil
	// distrust is set if cancelCheck was called while no check ran: the next check makes a new
	// connection.
	distrust bool
}

// errCheckCanceled ends a check of a server after an application's connection to it broke.
var errCheckCanceled = errors.New("check canceled: an application's connection failed")

// errServerRemoved ends a check of a server that is no longer part of the deployment.
var errServerRemoved = errors.New("check canceled: the server was removed")

func newMonitor(t *Topology, srv *server) *monitor {
	return &monitor{
		topology: t, server: srv, dial: monitoring(t.cfg.Conn), wake: make(chan struct{}, 1),
	}
}

// monitoring returns the configuration of a monitor's connections, and of those that measure round
// trips, for a configuration of applications' connections. It has no socketTimeoutMS and no
// credential, since monitors do not authenticate (Server Monitoring, "Monitors MUST NOT
// authenticate").
func monitoring(cfg conn.Config) conn.Config {
	cfg.SocketTimeout, cfg.Auth = 0, nil
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = conn.DefaultConnectTimeout
	}
	return cfg
}

// requestCheck asks for a check as soon as the minimum interval has passed.
func (m *monitor) requestCheck() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// cancelCheck ends the running check. Its result is ignored, and the next check is not any sooner.
// The monitor's connection is closed in any case, as Server Monitoring requires: it may be broken
// like the application's.
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

// rest blocks until the next check is due: after an interval, or earlier on request, but never
// before the minimum interval.
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

// check asks the server once and tells the topology. It reports whether to ask again without rest:
// if the server streams, or if it answered before and may have restarted or dropped only this
// connection.
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
		//nolint:contextcheck // a pool outlives the check that opens it
		return m.failed(fact, duration, err, canceled)
	}
	m.stream(ctx, s.TopologyVersion)
	s.AverageRTT, s.MinRTT = m.rtt.read()
	s.LastUpdateTime = time.Now()
	m.last = s.Kind
	answers := false
	select {
	case <-m.wake: // this check answers the request for one
		answers = true
	default:
	}
	m.concluded(func() {
		emit(m.topology,
			func(s *event.Sink) func(event.ServerHeartbeatSucceeded) {
				return s.ServerHeartbeatSucceeded
			},
			event.ServerHeartbeatSucceeded{Heartbeat: fact, Duration: duration, Reply: reply})
	})
	m.topology.outbox.Flush() // before a pool tells that it was made
	// The reply may have come before the failure that cancels the check is known here.
	ignored := false
	//nolint:contextcheck // a pool outlives the check that opens it
	m.topology.applyIf(m.server, &s, nil, func(*description.Server) bool {
		ignored = canceled || m.outdated
		return !ignored
	})
	if ignored {
		m.disconnect()
		m.last = description.ServerUnknown
		if answers {
			m.requestCheck()
		}
		return false
	}
	return m.version != nil || m.conn.Following()
}

// stream begins to stream, or ends it, as the newest reply allows. While the monitor streams, the
// duration of a check says nothing, so that round trips are measured separately.
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

// failed handles a check that failed.
func (m *monitor) failed(
	fact event.Heartbeat, duration time.Duration, err error, canceled bool,
) (again bool) {
	m.disconnect()
	m.concluded(func() { m.tellFailed(fact, duration, err) })
	m.topology.outbox.Deliver()
	m.rtt.reset()
	known := m.last != description.ServerUnknown
	m.last = description.ServerUnknown
	if canceled { // the caller of cancelCheck has published the failure
		return false
	}
	network := mongoerr.IsNetwork(err)
	m.topology.apply(m.server, description.Unknown(m.server.address, err), &pool.ClearOptions{
		Cause: err, InterruptInUse: network && mongoerr.IsTimeout(err),
	})
	return known && network
}

// cancelable returns a context for the check that begins, which cancelCheck ends until done is
// called. distrusted reports whether cancelCheck was called since the last check: the connection
// is then not to be used. No call of cancelCheck is lost between the two.
func (m *monitor) cancelable(
	ctx context.Context,
) (_ context.Context, distrusted bool, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	m.cancel = cancel
	distrusted, m.distrust = m.distrust, false
	m.mu.Unlock()
	return ctx, distrusted, func() {
		m.mu.Lock()
		m.cancel = nil
		// The cancellation may have come after the reply.
		m.distrust = m.distrust || errors.Is(context.Cause(ctx), errCheckCanceled)
		m.mu.Unlock()
		cancel(nil)
	}
}

// hello asks the server. If there is no connection, it makes one, and the hello of the handshake
// is the check. It measures the round trip of replies that the server does not delay.
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

// awaits reports whether the server delays the reply to the next check until something changes.
func (m *monitor) awaits() bool {
	return m.conn != nil && (m.version != nil || m.conn.Following())
}

// withTimeout bounds a hello by connectTimeoutMS and the time that the server may delay its reply.
func (m *monitor) withTimeout(
	ctx context.Context, besides time.Duration,
) (context.Context, context.CancelFunc) {
	if m.dial.ConnectTimeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, m.dial.ConnectTimeout+besides, errHelloTimeout)
}

var errHelloTimeout = helloTimeout{}

type helloTimeout struct{}

func (helloTimeout) Error() string { return "no answer within connectTimeoutMS" }

// Timeout returns true, as for net.Error.
func (helloTimeout) Timeout() bool { return true }

// disconnect closes the connection. Nothing measures round trips until another connection streams.
func (m *monitor) disconnect() {
	m.rtt.stop()
	if m.conn != nil {
		_ = m.conn.Close() // there is nothing to do about an error
		m.conn = nil
	}
	m.version = nil
}

// heartbeat returns what the events of the check that begins have in common.
func (m *monitor) heartbeat() event.Heartbeat {
	fact := event.Heartbeat{
		TopologyID: m.topology.id, Address: m.server.address,
		Awaited: m.awaits(),
	}
	if m.conn == nil {
		m.connections++
	} else {
		fact.ServerConnectionID = m.conn.ServerConnectionID()
	}
	fact.ConnectionID = m.connections
	return fact
}

// started emits the event of the check before its socket is opened. It reports whether the check
// is to run: the server, or the topology, may have ended.
func (m *monitor) started(fact event.Heartbeat) bool {
	t := m.topology
	t.mu.Lock()
	_, _, ok := t.beginLocked(m.server)
	if ok {
		emit(t,
			func(s *event.Sink) func(event.ServerHeartbeatStarted) {
				return s.ServerHeartbeatStarted
			},
			event.ServerHeartbeatStarted{Heartbeat: fact})
		m.running, m.since, m.outdated = &fact, time.Now(), false
	}
	t.mu.Unlock()
	if ok {
		t.outbox.Flush()
	}
	return ok
}

// concluded emits the event of the end of the running check, unless it was emitted already.
func (m *monitor) concluded(tell func()) {
	m.topology.mu.Lock()
	defer m.topology.mu.Unlock()
	if m.running != nil {
		m.running = nil
		tell()
	}
}

// concludeLocked emits the failure of the running check, if there is one, since no event of a
// server follows that of its end.
func (m *monitor) concludeLocked() {
	if m.running != nil {
		m.tellFailed(*m.running, time.Since(m.since), errServerRemoved)
		m.running = nil
	}
}

func (m *monitor) tellFailed(fact event.Heartbeat, duration time.Duration, err error) {
	emit(m.topology,
		func(s *event.Sink) func(event.ServerHeartbeatFailed) { return s.ServerHeartbeatFailed },
		event.ServerHeartbeatFailed{Heartbeat: fact, Duration: duration, Err: err})
}
