// Package metrics counts what the gateway does, in the form of Prometheus. It gets the driver's
// events and the ends of calls; what has a present state, such as a pool, is read when the metrics
// are. It serves them over HTTP and decides nothing.
//
// No label has values that clients choose: methods are those of the registered services, reasons
// and commands those of tables, servers those of the deployment. A server's series are removed when
// the server leaves.
package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics holds the metrics of one gateway. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
}

// New returns the metrics of a gateway of a version.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mooring_build_info", Help: "The build that is running; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics to a scraper.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
