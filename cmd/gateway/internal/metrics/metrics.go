// Package metrics counts what the gateway does, in the form of Prometheus. It gets the driver's
// events and the ends of calls. What has a present state, such as a pool, is read when the metrics
// are. The package serves them over HTTP and decides nothing.
//
// No label has values that clients choose: methods are those of the registered services, reasons
// and commands those of tables, servers those of the deployment. A server's series are removed when
// the server leaves.
package metrics

import (
	"net/http"
	"regexp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options configures the metrics.
type Options struct {
	// Version is the gateway's.
	Version string
	// Native adds native histograms to the classic ones.
	Native bool
}

// Metrics holds the metrics of one gateway. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	native   bool
	table    []Row

	calls  calls
	driver driver
	state  *state
}

// liveHeap names what the last collection of garbage has left of the heap. The heap itself grows to
// the limit, even if little is in use.
var liveHeap = regexp.MustCompile("^/gc/heap/live:bytes$")

// Row describes one metric of the gateway.
type Row struct {
	Name, Kind string
	Labels     []string
	Help       string
}

// New returns the metrics of a gateway.
func New(opt Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), native: opt.Native}
	m.gauge("mooring_build_info", "The build that is running; always 1.", "version", "goversion").
		WithLabelValues(opt.Version, runtime.Version()).Set(1)
	m.calls.init(m)
	m.driver.init(m)
	m.state = newState(m)
	m.registry.MustRegister(m.state,
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(
			collectors.GoRuntimeMetricsRule{Matcher: liveHeap})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics to a scraper.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Table returns the gateway's own metrics, without those of the Go runtime and the process.
func (m *Metrics) Table() []Row { return m.table }

// buckets are the bounds of all histograms of durations, in seconds.
var buckets = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
}

// nativeFactor is the growth of the buckets of native histograms.
const nativeFactor = 1.1

func (m *Metrics) add(kind, name, help string, labels []string) {
	m.table = append(m.table, Row{Name: name, Kind: kind, Labels: labels, Help: help})
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.add("counter", name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.add("gauge", name, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	m.add("histogram", name, help, labels)
	opts := prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	if m.native {
		opts.NativeHistogramBucketFactor = nativeFactor
		opts.NativeHistogramMaxBucketNumber = 100
	}
	v := prometheus.NewHistogramVec(opts, labels)
	m.registry.MustRegister(v)
	return v
}
