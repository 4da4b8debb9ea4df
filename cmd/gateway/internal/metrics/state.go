package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/replica"
)

// Sources holds the functions that return the present state of the gateway's parts. Each may be
// nil, and is called for each scrape.
type Sources struct {
	Topology func() description.Topology
	Pools    func() []topology.PoolStats
	// IdleSessions counts the server sessions that no operation uses.
	IdleSessions func() int
	Handles      func() map[handle.Kind]int
	Admission    func() map[string]admission.Usage // by the name of the resource
	InFlight     func() int
	// ChangeStreams counts the change streams and their cursors.
	ChangeStreams func() changestream.Stats
	// Ready and Login return the reason that the gateway is not ready, and that it cannot log in.
	Ready, Login func() error
	// Stopping reports whether the gateway has been told to stop.
	Stopping func() bool
	// Certificate returns the end of the listeners' certificate; nil: they have none.
	Certificate func() time.Time
	// Files says whether the newest texts of the files that the gateway reads again are in use, by
	// what the files are for.
	Files func() map[string]watch.Outcome
	// Replicas counts the calls to other replicas; nil: there are none.
	Replicas func() replica.Stats
}

// state collects what the sources say.
type state struct {
	sources atomic.Pointer[Sources]

	topologyKind, serverUp, serverKind, rtt             *prometheus.Desc
	connections, pending, pinned, limit, least, waiting *prometheus.Desc
	sessions, handles                                   *prometheus.Desc
	used, budget, queued, refusals                      *prometheus.Desc
	inFlight, ready, stopping, login, certificate       *prometheus.Desc
	changeStreams, changeCursors, changeBytes           *prometheus.Desc
	reloaded, reloadTime                                *prometheus.Desc
	replicas, replicaCalls, replicaFailures             *prometheus.Desc
}

// SetSources sets what the state is read from.
func (m *Metrics) SetSources(s Sources) { m.state.sources.Store(&s) }

func newState(m *Metrics) *state {
	desc := func(kind, name, help string, labels ...string) *prometheus.Desc {
		m.add(kind, name, help, labels)
		return prometheus.NewDesc(name, help, labels, nil)
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return desc("gauge", name, help, labels...)
	}
	s := &state{
		topologyKind: gauge("mooring_topology_kind",
			"The kind of the deployment as the gateway sees it; always 1.", "kind"),
		serverUp: gauge("mooring_server_up",
			"1 if the last check of the server succeeded, else 0.", labelServer),
		serverKind: gauge("mooring_server_kind", "The kind of the server; always 1.",
			labelServer, "kind"),
		rtt: gauge("mooring_server_rtt_seconds",
			"The average round-trip time of the checks of the server.", labelServer),
		connections: gauge("mooring_pool_connections",
			"Connections of a pool by state: idle or used.",
			labelPool, "db_client_connection_state"),
		pending: gauge("mooring_pool_connections_pending",
			"Connections of a pool that are being made.", labelPool),
		pinned: gauge("mooring_pool_connections_pinned",
			"Connections in use that are bound to a cursor or a transaction.", labelPool, "by"),
		limit: gauge("db_client_connection_max",
			"The most connections that a pool may have; 0: there is no limit.", labelPool),
		least: gauge("db_client_connection_idle_min",
			"The fewest connections that a pool keeps.", labelPool),
		waiting: gauge("db_client_connection_pending_requests",
			"Commands that wait for a connection.", labelPool),
		sessions: gauge("mooring_server_sessions_idle",
			"Server sessions that no operation uses."),
		handles: gauge("mooring_handles",
			"Cursors and transactions that wait for the next call, or serve one, by kind.", "kind"),
		used: gauge("mooring_admission_used",
			"What is held of a resource: bytes of memory, calls, streams, change streams, "+
				"their cursors, handles (open cursors and transactions), or abandoned "+
				"operations, whose clients have gone.", "resource"),
		budget: gauge("mooring_admission_limit",
			"The most of a resource that all calls may hold; 0: there is no limit.", "resource"),
		queued: gauge("mooring_admission_waiting",
			"Calls that wait for a resource.", "resource"),
		refusals: desc("counter", "mooring_admission_refusals_total",
			"Calls that were refused, by resource and cause: own_share (the client has used its "+
				"share), full (there is no room) or too_much (the call can never fit). Of the "+
				"resource abandoned they are operations that ended with their clients: no call "+
				"was refused.",
			"resource", "cause"),
		inFlight: gauge("mooring_calls_in_flight", "Calls and streams in flight."),
		changeStreams: gauge("mooring_change_streams",
			"Open change streams, by whether they share a cursor: shared or own.", "cursor"),
		changeCursors: gauge("mooring_change_stream_cursors",
			"Cursors of change streams: shared by streams, own (of one stream), or catch_up "+
				"(of one stream, until it has what the shared one has read).", "kind"),
		changeBytes: gauge("mooring_change_stream_ring_bytes",
			"Memory of the events of shared cursors that streams can still go on after."),
		ready:    gauge("mooring_ready", "1 if the gateway is ready, else 0; see /readyz."),
		stopping: gauge("mooring_stopping", "1 if the gateway has been told to stop, else 0."),
		login: gauge("mooring_login_ok",
			"1 if the gateway can log in to MongoDB, or need not; else 0."),
		certificate: gauge("mooring_certificate_not_after_timestamp_seconds",
			"The end of the certificate of the listeners, in seconds since 1970."),
		reloaded: gauge("mooring_config_last_reload_successful",
			"1 if the newest texts of the files are in use, 0 if they cannot be used and the "+
				"older ones stay, by source: configuration, handle_keys, idempotency_key, "+
				"api_keys, policy, certificate, mongodb_user or mongodb_certificates.", "source"),
		reloadTime: gauge("mooring_config_last_reload_success_timestamp_seconds",
			"When the files were last read and used, in seconds since 1970.", "source"),
		replicas: gauge("mooring_replicas_known",
			"Other replicas of the gateway that have been heard of in the last ten minutes."),
		replicaCalls: desc("counter", "mooring_replica_calls_total",
			"Calls to other replicas."),
		replicaFailures: desc("counter", "mooring_replica_unreachable_total",
			"Calls that found another replica unreachable. Those to a replica that has left do "+
				"not count: it has said so, or DNS does not name it any more."),
	}
	return s
}

// Describe implements prometheus.Collector. It sends nothing, since which metrics there are depends
// on the sources.
func (s *state) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *state) Collect(to chan<- prometheus.Metric) {
	from := s.sources.Load()
	if from == nil {
		return
	}
	o := output{to}
	s.collectDeployment(o, from)
	s.collectService(o, from)
}

// output sends metrics.
type output struct{ to chan<- prometheus.Metric }

func (o output) gauge(d *prometheus.Desc, v float64, labels ...string) {
	o.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (o output) counter(d *prometheus.Desc, v uint64, labels ...string) {
	o.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s *state) collectDeployment(o output, from *Sources) {
	if from.Topology != nil {
		t := from.Topology()
		o.gauge(s.topologyKind, 1, t.Kind.String())
		for _, server := range t.Servers {
			a := server.Address.String()
			o.gauge(s.serverUp, truth(server.IsAvailable()), a)
			o.gauge(s.serverKind, 1, a, server.Kind.String())
			if server.IsAvailable() {
				o.gauge(s.rtt, server.AverageRTT.Seconds(), a)
			}
		}
	}
	if from.Pools != nil {
		for _, p := range from.Pools() {
			a := p.Address.String()
			o.gauge(s.connections, float64(p.Available), a, "idle")
			o.gauge(s.connections, float64(p.InUse), a, "used")
			o.gauge(s.pending, float64(p.Pending), a)
			o.gauge(s.pinned, float64(p.Cursors), a, "cursor")
			o.gauge(s.pinned, float64(p.Transactions), a, "transaction")
			o.gauge(s.limit, float64(p.MaxSize), a)
			o.gauge(s.least, float64(p.MinSize), a)
			o.gauge(s.waiting, float64(p.Waiting), a)
		}
	}
	if from.IdleSessions != nil {
		o.gauge(s.sessions, float64(from.IdleSessions()))
	}
}

// causes are the values of the label cause, by admission.Cause.
var causes = [...]string{
	admission.OwnShare: "own_share", admission.Full: "full", admission.TooMuch: "too_much",
}

func (s *state) collectService(o output, from *Sources) {
	if from.Handles != nil {
		counts := from.Handles()
		for _, kind := range []handle.Kind{handle.KindCursor, handle.KindTransaction} {
			o.gauge(s.handles, float64(counts[kind]), string(kind))
		}
	}
	if from.Admission != nil {
		for resource, u := range from.Admission() {
			o.gauge(s.used, float64(u.Held), resource)
			o.gauge(s.budget, float64(u.Limit), resource)
			o.gauge(s.queued, float64(u.Waiting), resource)
			for cause, n := range u.Refused {
				o.counter(s.refusals, n, resource, causes[cause])
			}
		}
	}
	if from.InFlight != nil {
		o.gauge(s.inFlight, float64(from.InFlight()))
	}
	if from.ChangeStreams != nil {
		c := from.ChangeStreams()
		o.gauge(s.changeStreams, float64(c.Subscribers), "shared")
		o.gauge(s.changeStreams, float64(c.Own), "own")
		o.gauge(s.changeCursors, float64(c.Shared), "shared")
		o.gauge(s.changeCursors, float64(c.Own), "own")
		o.gauge(s.changeCursors, float64(c.CatchUps), "catch_up")
		o.gauge(s.changeBytes, float64(c.RingBytes))
	}
	if from.Ready != nil {
		o.gauge(s.ready, truth(from.Ready() == nil))
	}
	if from.Stopping != nil {
		o.gauge(s.stopping, truth(from.Stopping()))
	}
	if from.Login != nil {
		o.gauge(s.login, truth(from.Login() == nil))
	}
	if from.Certificate != nil {
		o.gauge(s.certificate, float64(from.Certificate().Unix()))
	}
	if from.Files != nil {
		for source, f := range from.Files() {
			o.gauge(s.reloaded, truth(f.Used), source)
			o.gauge(s.reloadTime, float64(f.At.UnixMilli())/1000, source)
		}
	}
	if from.Replicas != nil {
		r := from.Replicas()
		o.gauge(s.replicas, float64(r.Known))
		o.counter(s.replicaCalls, r.Calls)
		o.counter(s.replicaFailures, r.Unreachable)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
