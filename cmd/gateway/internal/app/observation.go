package app

import (
	"context"
	"log/slog"
	"slices"

	"go.uber.org/fx"
	"google.golang.org/grpc/health"

	"github.com/mooringdb/mooring/cmd/gateway/internal/build"
	"github.com/mooringdb/mooring/cmd/gateway/internal/certificate"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/keyfile"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/login"
	"github.com/mooringdb/mooring/cmd/gateway/internal/metrics"
	"github.com/mooringdb/mooring/cmd/gateway/internal/ready"
	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
	"github.com/mooringdb/mooring/cmd/gateway/internal/watch"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/api"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/replica"
)

// observation provides the listeners of the driver's events: the log and the readiness.
var observation = fx.Module("observation",
	fx.Provide(health.NewServer, newReady, newLogin, newMetrics, newTracing, newSink),
)

func newReady(server *health.Server) *ready.State { return ready.New(server, api.Names()...) }

func newLogin(cfg *config.Config, log *slog.Logger, state *ready.State) *login.Login {
	l := login.New(cfg, log, state.Changed)
	state.SetLogin(l.Err)
	return l
}

func newMetrics(cfg *config.Config) *metrics.Metrics {
	return metrics.New(metrics.Options{
		Version: build.Version(), Native: cfg.Metrics.NativeHistograms,
	})
}

type sourceParams struct {
	fx.In

	Metrics       *metrics.Metrics
	Client        *client.Client
	Pager         *paging.Pager
	Admission     *admission.Admission
	Gate          *interceptor.Gate
	ChangeStreams *changestream.Server
	Ready         *ready.State
	Login         *login.Login
	Certificate   *certificate.Holder
	Transport     *replica.Transport
	Config        *configFile
	Keys          *keyfile.Watcher
	Access        access
}

// measure names what the metrics read when they are scraped.
func measure(p sourceParams) {
	s := metrics.Sources{
		Topology: func() description.Topology {
			t, _ := p.Client.WatchTopology()
			return t
		},
		Pools: p.Client.Pools, IdleSessions: p.Client.IdleSessions,
		Handles: p.Pager.Table().Counts, InFlight: p.Gate.InFlight,
		Admission: func() map[string]admission.Usage {
			return map[string]admission.Usage{
				"memory": p.Admission.Bytes(), "calls": p.Admission.Calls(),
				"streams": p.Admission.Streams(), "rate": p.Admission.Rates(),
				"change_streams": p.Admission.ChangeStreams(),
				"change_cursors": p.Admission.ChangeCursors(),
				"handles":        p.Pager.Table().Usage(),
				"abandoned":      abandoned(p.Client.RunOns()),
			}
		},
		Ready:    func() error { return p.Ready.Ready(context.Background()) },
		Stopping: p.Ready.Stopping, Login: p.Login.Err, ChangeStreams: p.ChangeStreams.Stats,
		Files: p.files,
	}
	if p.Certificate != nil {
		s.Certificate = p.Certificate.NotAfter
	}
	if p.Transport != nil {
		s.Replicas = p.Transport.Stats
	}
	p.Metrics.SetSources(s)
}

// abandoned returns how the limit of the operations without clients is used. What is refused ends
// with its client.
func abandoned(u operation.RunOnUsage) admission.Usage {
	of := admission.Usage{Held: int64(u.Held), Limit: int64(u.Most)}
	of.Refused[admission.OwnShare], of.Refused[admission.Full] = u.Shares, u.Fulls
	return of
}

// files returns whether the files that are watched are in use, by their names in metrics.
func (p *sourceParams) files() map[string]watch.Outcome {
	all := map[string]watch.Outcome{}
	if o, ok := p.Login.Outcome(); ok {
		all["mongodb_user"] = o
	}
	for _, w := range slices.Concat([]*keyfile.Watcher{p.Config.Watcher, p.Keys}, p.Access) {
		if o, ok := w.Outcome(); ok {
			all[w.Source()] = o
		}
	}
	return all
}

func newSink(
	cfg *config.Config, log *slog.Logger, state *ready.State, l *login.Login, m *metrics.Metrics,
	traces *tracing.Tracing,
) *event.Sink {
	panicked := func(value any, stack []byte) {
		log.Error("a listener panicked", "panic", value, "stack", string(stack))
	}
	return event.Join(panicked, logging.Sink(log), logging.Driver(log, cfg.Log.Driver),
		state.Sink(), l.Sink(), m.Sink(), traces.Sink())
}
