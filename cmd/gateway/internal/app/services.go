package app

import (
	"context"
	"log/slog"

	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/memory"
	"github.com/mooringdb/mooring/cmd/gateway/internal/metrics"
	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/api"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/batch"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/hub"
	"github.com/mooringdb/mooring/service/idempotency"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/seal"
	"github.com/mooringdb/mooring/service/session"
	"github.com/mooringdb/mooring/service/stream"
	"github.com/mooringdb/mooring/service/transaction"
)

// services provides the API and the interceptors of all its calls.
var services = fx.Module("services", fx.Provide(
	interceptor.NewGate, newAdmission, newComments, newChain, batch.NewSizes, newStreams,
	newSessions, newIdempotency, newTransactions, newTickets,
	newHub, newChangeStreams, newAPI, newLocal,
	func() *recent.List { return &recent.List{} },
))

// chainConfig holds what newChain takes.
type chainConfig struct {
	fx.In

	Config       *config.Config
	Log          *slog.Logger
	Gate         *interceptor.Gate
	Callers      *caller.Authenticator
	Policy       *policy.Enforcer
	Admission    *admission.Admission
	Sessions     *session.Sessions
	Idempotency  *idempotency.Keys
	Transactions *transaction.Transactions
	Transport    *replica.Transport
	Audit        *audit.Log
	Metrics      *metrics.Metrics
	Traces       *tracing.Tracing
	Comments     *comments
	Recent       *recent.List
}

func newChain(c chainConfig) *interceptor.Chain {
	cfg := interceptor.Config{
		Logger: c.Log, SlowRequest: c.Config.Log.SlowRequest, Gate: c.Gate,
		Callers: c.Callers, Policy: c.Policy, Operators: c.Config.Operators(),
		Audit: c.Audit, Meter: c.Metrics, Recent: c.Recent,
		Terse: c.Config.Terse(), OperatorTexts: c.Config.ServerTexts == config.TextsAuto,
		Sessions: c.Sessions, Idempotency: c.Idempotency, Transactions: c.Transactions,
		Admission: c.Admission, Comment: c.comment(),
		DefaultTimeout: c.Config.RequestTimeout, MaxTimeout: c.Config.MaxRequestTimeout,
		StallTimeout: c.Config.Cursors.Idle,
	}
	if c.Transport != nil {
		cfg.Replicas = c.Transport
	}
	return interceptor.New(cfg)
}

// comment returns the Comment of the chain: the trace of a call, while comments are on.
func (c *chainConfig) comment() func(context.Context) *bson.Value {
	if c.Traces == nil {
		return nil
	}
	return func(ctx context.Context) *bson.Value {
		if !c.Comments.on.Load() {
			return nil
		}
		return c.Traces.Comment(ctx)
	}
}

func newAdmission(cfg *config.Config) *admission.Admission {
	budget := memory.New(cfg.MemoryBudget, memory.Read()).Budget
	l := limits(cfg, budget)
	l.Bytes = budget
	l.MakeRoom = memory.NewHeap().MakeRoom
	return admission.New(l)
}

// perStream is how much of the memory budget there is for each stream that may be open. An idle one
// takes about 40 KiB that are not charged.
const perStream = 128 << 10

// limits returns the limits that can change while the gateway runs, with that memory budget.
func limits(cfg *config.Config, budget int64) admission.Config {
	streams := admission.Limits{
		Total: int64(cfg.Streams.Max), Each: int64(cfg.Streams.MaxPerPrincipal),
	}
	if cfg.Streams.Max == config.Auto {
		streams.Total = max(1, budget/perStream)
	}
	r := cfg.Requests
	return admission.Config{
		Calls: admission.Limits{
			Total: int64(r.MaxInFlight), Each: int64(r.MaxInFlightPerPrincipal),
		},
		Streams:                streams,
		ChangeStreams:          admission.Limits{Each: int64(cfg.ChangeStreams.MaxPerPrincipal)},
		ChangeCursors:          admission.Limits{Total: changeCursors(cfg)},
		ChangeStreamsPerTicket: int64(cfg.ChangeStreams.MaxPerTicket),
		Rate:                   float64(r.Rate), RateEach: float64(r.RatePerPrincipal),
		Patience: r.QueueTime,
	}
}

// changeCursors returns how many cursors change streams may have; 0: any number.
func changeCursors(cfg *config.Config) int64 {
	pools := uint64(pool.DefaultMaxSize)
	if cfg.MongoDB.MaxPoolSize != nil {
		pools = *cfg.MongoDB.MaxPoolSize
	}
	return changestream.MaxCursors(pools)
}

func newStreams(cfg *config.Config, sizes *batch.Sizes) *stream.Streams {
	return stream.New(stream.Config{
		Budget:       int(cfg.Streams.Memory),
		MessageBytes: min(int(cfg.Pages.MaxSize), stream.DefaultMessageBytes),
		Sizes:        sizes,
	})
}

func newSessions(cfg *config.Config, c *client.Client, keys *seal.Ring) *session.Sessions {
	return session.NewSessions(c, keys, cfg.Deployment())
}

// newTransactions registers the drain behind that of the pager, so it comes before.
func newTransactions(
	lc fx.Lifecycle, cfg *config.Config, log *slog.Logger, c *client.Client, h *paging.Pager,
	keys *seal.Ring,
) *transaction.Transactions {
	t := transaction.New(transaction.Config{
		Client: c, Cursors: h, Keys: keys, Deployment: cfg.Deployment(),
		Idle: cfg.Transactions.Idle,
	})
	lc.Append(fx.Hook{OnStop: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, handOverTime)
		defer cancel()
		if err := t.Drain(ctx); err != nil {
			log.Warn("not all transactions were aborted", "err", err)
		}
		return nil
	}})
	return t
}

func newTickets(cfg *config.Config, keys *seal.Ring) *changestream.Tickets {
	return changestream.NewTickets(keys, cfg.Deployment())
}

// newHub registers the hub's end behind that of the client, so it comes before.
func newHub(
	lc fx.Lifecycle, cfg *config.Config, _ *client.Client, admitted *admission.Admission,
) *hub.Hub {
	h := changestream.NewHub(admitted, changeCursors(cfg))
	lc.Append(fx.StopHook(h.Close))
	return h
}

func newChangeStreams(
	c *client.Client, s *stream.Streams, t *changestream.Tickets, h *hub.Hub, stop stopping,
) *changestream.Server {
	return changestream.New(changestream.Config{
		Client: c, Streams: s, Tickets: t, Hub: h, Stopping: stop,
	})
}

// apiConfig holds what newAPI takes.
type apiConfig struct {
	fx.In

	Client        *client.Client
	Handles       *paging.Pager
	Streams       *stream.Streams
	Sessions      *session.Sessions
	Transactions  *transaction.Transactions
	ChangeStreams *changestream.Server
	Transport     *replica.Transport
	Config        *config.Config
	Policy        *policy.Enforcer
	Callers       *caller.Authenticator
	Recent        *recent.List
	Stopping      stopping
}

func newAPI(c apiConfig) api.API {
	cfg := api.Config{
		Client: c.Client, Handles: c.Handles, Streams: c.Streams, Sessions: c.Sessions,
		Transactions: c.Transactions, ChangeStreams: c.ChangeStreams,
		Operators: c.Config.Operators(), Recent: c.Recent, Stopping: c.Stopping.Done(),
	}
	if c.Policy != nil {
		cfg.Policy = c.Policy
	}
	if c.Callers != nil {
		cfg.Callers = c.Callers
	}
	if c.Transport != nil {
		cfg.Replicas = c.Transport
	}
	return api.New(cfg)
}

// newLocal returns a connection to the API within the process. REST makes its calls on it. It also
// gives the API to the transport, for the calls that other replicas forward.
func newLocal(
	around *interceptor.Chain, services api.API, transport *replica.Transport,
) *inproc.Conn {
	conn := inproc.NewConn(around.Unary(), around.Stream())
	services.Register(conn)
	if transport != nil {
		transport.SetAPI(replica.API{
			Register: services.Register, Unary: around.Unary(), Stream: around.Stream(),
			OpenAccount: around.OpenAccount,
		})
	}
	return conn
}
