package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// driver counts the driver's events. The functions that run for each command make no allocation
// once the command has been seen on the server.
type driver struct {
	commands, waits, creations            *prometheus.HistogramVec
	timeouts, failures, closed, cleared   *prometheus.CounterVec
	heartbeats                            *prometheus.CounterVec
	perServer                             []interface{ DeletePartialMatch(prometheus.Labels) int }
	elections, changes, retries, waited   prometheus.Counter
	changeEvents, changeResumes, seedlist prometheus.Counter
	changeLag                             prometheus.Observer
	originals, compressed                 *prometheus.CounterVec

	// servers holds the servers of the deployment. mu guards its replacement, and the beginning of
	// series of a server: none begins after the server has left.
	mu      sync.Mutex
	servers atomic.Pointer[map[address.Address]*server]
}

// server holds the series of one server.
type server struct {
	address  string
	commands [len(commandNames) + 1][len(outcomes)]atomic.Pointer[prometheus.Observer]
	wait     prometheus.Observer
	creation prometheus.Observer
}

// The labels of servers, of the semantic conventions of databases.
const (
	labelServer = "server_address"
	labelPool   = "db_client_connection_pool_name"
)

// outcomes are the values of error_type of a command.
var outcomes = [...]string{"", "server", "network", "timeout", "canceled"}

// outcome returns the index in outcomes.
func outcome(err error) int {
	switch {
	case err == nil:
		return 0
	case mongoerr.IsCanceled(err):
		return 4
	case mongoerr.IsTimeout(err):
		return 3
	case mongoerr.IsNetwork(err):
		return 2
	}
	return 1
}

func (d *driver) init(m *Metrics) {
	d.servers.Store(&map[address.Address]*server{})
	d.commands = m.histogram("db_client_operation_duration_seconds",
		"How long commands took, from the request to the reply, by command, server and kind of "+
			"error: none, server (an error reply), network, timeout or canceled.",
		"db_operation_name", labelServer, "error_type")
	d.waits = m.histogram("db_client_connection_wait_time_seconds",
		"How long commands waited for a connection.", labelPool)
	d.creations = m.histogram("db_client_connection_create_time_seconds",
		"How long it took to make a connection, with TLS and login.", labelPool)
	d.timeouts = m.counter("db_client_connection_timeouts_total",
		"Commands that got no connection in time.", labelPool)
	d.failures = m.counter("mooring_pool_checkout_failures_total",
		"Commands that got no connection, by reason: timeout, connectionError or poolClosed.",
		labelPool, "reason")
	d.closed = m.counter("mooring_pool_connections_closed_total",
		"Connections that were closed, by reason: error, stale, idle or poolClosed.",
		labelPool, "reason")
	d.cleared = m.counter("mooring_pool_cleared_total",
		"How often all connections of a pool were given up after an error.", labelPool)
	d.heartbeats = m.counter("mooring_server_heartbeat_failures_total",
		"Checks of a server that failed.", labelServer)
	d.perServer = append(d.perServer, d.commands, d.waits, d.creations, d.timeouts, d.failures,
		d.closed, d.cleared, d.heartbeats)

	single := func(name, help string) prometheus.Counter {
		return m.counter(name, help).WithLabelValues()
	}
	d.elections = single("mooring_elections_total", "New primaries that were seen.")
	d.changes = single("mooring_topology_changes_total",
		"Changes of the description of the deployment.")
	d.retries = single("mooring_operation_retries_total",
		"Further attempts of operations after an error.")
	d.waited = single("mooring_operation_backoff_seconds_total",
		"The time that operations waited before further attempts.")
	d.changeEvents = single("mooring_change_events_total",
		"Events that change streams have received.")
	d.changeResumes = single("mooring_change_stream_resumes_total",
		"How often change streams went on over another cursor.")
	d.changeLag = m.histogram("mooring_change_stream_lag_seconds",
		"The age of the newest event of a batch when the batch arrived, by both clocks.").
		WithLabelValues()
	d.seedlist = single("mooring_seedlist_problems_total",
		"Lookups of SRV records that failed, or whose records were refused.")
	d.originals = m.counter("mooring_compression_original_bytes_total",
		"Bytes of messages that were sent or received compressed, without compression.",
		"compressor", "direction")
	d.compressed = m.counter("mooring_compression_wire_bytes_total",
		"Bytes of the same messages on the wire.", "compressor", "direction")
}

// server returns the series of a server of the deployment; nil: the server has left.
func (d *driver) server(a address.Address) *server { return (*d.servers.Load())[a] }

func (d *driver) joined(a address.Address) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := maps.Clone(*d.servers.Load())
	s := &server{address: a.String()}
	s.wait = d.waits.WithLabelValues(s.address)
	s.creation = d.creations.WithLabelValues(s.address)
	for _, v := range []*prometheus.CounterVec{d.timeouts, d.cleared, d.heartbeats} {
		v.WithLabelValues(s.address) // 0, so that a rate has a beginning
	}
	all[a] = s
	d.servers.Store(&all)
}

// left removes the series of a server.
func (d *driver) left(a address.Address) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := maps.Clone(*d.servers.Load())
	delete(all, a)
	d.servers.Store(&all)
	for _, v := range d.perServer {
		v.DeletePartialMatch(prometheus.Labels{labelServer: a.String()})
		v.DeletePartialMatch(prometheus.Labels{labelPool: a.String()})
	}
}

func (d *driver) command(e *event.Command, err error, took time.Duration) {
	s := d.server(e.Address)
	if s == nil {
		return
	}
	name, kind := commandIndex(e.Name), outcome(err)
	observer := s.commands[name][kind].Load()
	if observer == nil {
		if observer = d.begin(s, e.Address, name, kind); observer == nil {
			return
		}
	}
	(*observer).Observe(took.Seconds())
}

// begin returns the series of a command, which it makes; nil: the server has left.
func (d *driver) begin(s *server, a address.Address, name, kind int) *prometheus.Observer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server(a) != s {
		return nil
	}
	observer := d.commands.WithLabelValues(commandName(name), s.address, outcomes[kind])
	s.commands[name][kind].Store(&observer)
	return &observer
}

// count counts an event of a server's pool.
func (d *driver) count(v *prometheus.CounterVec, a address.Address, reason ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.server(a); s != nil {
		v.WithLabelValues(append([]string{s.address}, reason...)...).Inc()
	}
}

// Sink returns a sink that counts the driver's events.
func (m *Metrics) Sink() *event.Sink {
	d := &m.driver
	return &event.Sink{
		ServerOpening: func(e event.ServerOpening) { d.joined(e.Address) },
		ServerClosed:  func(e event.ServerClosed) { d.left(e.Address) },
		CommandSucceeded: func(e event.CommandSucceeded) {
			d.command(&e.Command, nil, e.Duration)
		},
		CommandFailed: func(e event.CommandFailed) { d.command(&e.Command, e.Err, e.Duration) },
		ConnectionCheckedOut: func(e event.ConnectionCheckedOut) {
			if s := d.server(e.Address); s != nil {
				s.wait.Observe(e.Duration.Seconds())
			}
		},
		ConnectionCheckOutFailed: func(e event.ConnectionCheckOutFailed) {
			d.count(d.failures, e.Address, string(e.Reason))
			if e.Reason == event.CheckOutTimeout {
				d.count(d.timeouts, e.Address)
			}
		},
		ConnectionReady: func(e event.ConnectionReady) {
			if s := d.server(e.Address); s != nil {
				s.creation.Observe(e.Duration.Seconds())
			}
		},
		ConnectionClosed: func(e event.ConnectionClosed) {
			d.count(d.closed, e.Address, string(e.Reason))
		},
		PoolCleared: func(e event.PoolCleared) { d.count(d.cleared, e.Address) },
		ServerHeartbeatFailed: func(e event.ServerHeartbeatFailed) {
			d.count(d.heartbeats, e.Address)
		},
		TopologyDescriptionChanged: func(e event.TopologyDescriptionChanged) {
			d.changes.Inc()
			if isElection(&e) {
				d.elections.Inc()
			}
		},
		OperationRetried: func(e event.OperationRetried) {
			d.retries.Inc()
			d.waited.Add(e.Wait.Seconds())
		},
		ChangesReceived: func(e event.ChangesReceived) {
			d.changeEvents.Add(float64(e.Events))
			if !e.WallTime.IsZero() {
				d.changeLag.Observe(max(0, e.ReceivedAt.Sub(e.WallTime).Seconds()))
			}
		},
		ChangeStreamResumed: func(event.ChangeStreamResumed) { d.changeResumes.Inc() },
		SeedlistProblem:     func(event.SeedlistProblem) { d.seedlist.Inc() },
		MessageCompressed: func(e event.MessageCompressed) {
			direction := "sent"
			if e.Received {
				direction = "received"
			}
			d.originals.WithLabelValues(e.Compressor, direction).Add(float64(e.Original))
			d.compressed.WithLabelValues(e.Compressor, direction).Add(float64(e.Compressed))
		},
	}
}

// isElection reports whether the deployment has a primary that was elected since. A primary that
// the gateway has lost and found again is none.
func isElection(e *event.TopologyDescriptionChanged) bool {
	now := primary(&e.New)
	if now == nil {
		return false
	}
	if before := primary(&e.Previous); before != nil {
		return before.Address != now.Address || before.ElectionID != now.ElectionID
	}
	return now.ElectionID.IsZero() || now.ElectionID != e.Previous.MaxElectionID
}

func primary(t *description.Topology) *description.Server {
	for _, s := range t.Servers {
		if s.Kind == description.ServerRSPrimary {
			return s
		}
	}
	return nil
}
