package app

import (
	"context"
	"crypto/tls"
	"log/slog"
	"runtime/debug"

	"go.uber.org/fx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mooringdb/mooring/cmd/gateway/internal/admin"
	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/debugging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/logging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/metrics"
	"github.com/mooringdb/mooring/cmd/gateway/internal/ready"
	"github.com/mooringdb/mooring/cmd/gateway/internal/tracing"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/api"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/console"
	"github.com/mooringdb/mooring/service/dataapi"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/rest"
	"github.com/mooringdb/mooring/service/server"
	"github.com/mooringdb/mooring/service/web"
)

// ports provides the listeners: gRPC and REST, with the same services behind the same
// interceptors.
var ports = fx.Module("ports", fx.Provide(newStopping, newGRPC, newREST, newFront, newServer))

// stopping ends when the gateway begins to stop.
type stopping struct {
	context.Context //nolint:containedctx // it is a context

	begin context.CancelFunc
}

func newStopping() stopping {
	ctx, cancel := context.WithCancel(context.Background())
	return stopping{ctx, cancel}
}

// makeGRPC makes the gRPC server once it is about to serve.
type makeGRPC func() *grpc.Server

func newGRPC(cfg *config.Config, secure *tls.Config, around *interceptor.Chain, services api.API,
	h *health.Server, stop stopping, traces *tracing.Tracing,
) makeGRPC {
	return func() *grpc.Server {
		c := server.GRPCConfig{
			TLS: secure, Proxies: cfg.Proxied(),
			MaxRequestSize: int(cfg.MaxRequestSize), Unary: around.Unary(),
			Refuse: around.Refuse, Trace: traces.GRPC(),
			MaxStreams: cfg.Connections.MaxStreams, MaxAge: cfg.Connections.MaxAge,
			Stream: around.Stream(), Stopping: stop.Done(), Stall: cfg.Cursors.Idle,
			MaxSizeOf: api.MaxSizeOf(int(cfg.MaxRequestSize)), Room: room(),
			MaxItems: cfg.Requests.MaxItems, OpenAccount: around.OpenAccount,
			MinCompressed: int(cfg.MinCompressed),
		}
		if cfg.AuthEnabled() {
			c.Authenticate = around.Authenticate
		}
		g, r := server.NewGRPC(c)
		services.Register(r)
		healthpb.RegisterHealthServer(r, h)
		if cfg.GRPC.Reflection {
			server.RegisterReflection(g)
		}
		return g
	}
}

// room returns the memory for the messages of gRPC on their way, in each direction: a quarter of
// GOMEMLIMIT, or 256 MiB without one.
func room() int {
	limit := debug.SetMemoryLimit(-1) // changes nothing
	return int(min(limit/4, 256<<20))
}

func newREST(state *ready.State, tickets *changestream.Tickets) *rest.API {
	return rest.New(rest.Config{Ready: state.Ready, Tickets: tickets})
}

func newFront(cfg *config.Config, conn *inproc.Conn, api *rest.API,
	callers *caller.Authenticator, admitted *admission.Admission, around *interceptor.Chain,
) (*front.Handler, error) {
	beside, err := besideREST(cfg, callers)
	if err != nil {
		return nil, err
	}
	return front.New(front.Config{
		Conn: conn, APIs: append(beside, api),
		MaxBodyBytes: cfg.MaxRequestSize, MaxItems: cfg.Requests.MaxItems,
		Callers: callers, Admission: admitted, Hosts: cfg.RESTHosts(),
		CORS:         front.CORS(cfg.REST.CORS),
		StallTimeout: cfg.Cursors.Idle, MinCompressed: int(cfg.MinCompressed),
		Refusals: around.Refusals(),
		Terse:    cfg.Terse(),
	})
}

// besideREST returns what the REST port serves beside REST.
func besideREST(cfg *config.Config, callers *caller.Authenticator) ([]front.API, error) {
	browsers, err := web.New(web.Config{
		Services: api.Names(), MaxSizeOf: api.MaxSizeOf(int(cfg.MaxRequestSize)),
	})
	if err != nil {
		return nil, err
	}
	apis := []front.API{browsers}
	if len(cfg.DataAPI.Sources) > 0 {
		apis = append(apis, dataapi.New(dataapi.Config{
			Sources: cfg.DataAPI.Sources, InsertStatus: cfg.DataAPI.InsertStatus,
		}))
	}
	if cfg.Console.Enabled {
		page, err := console.New(consoleConfig(cfg, callers))
		if err != nil {
			return nil, err
		}
		apis = append(apis, page)
	}
	return apis, nil
}

func consoleConfig(cfg *config.Config, callers *caller.Authenticator) console.Config {
	c := console.Config{SignIn: cfg.AuthEnabled()}
	if at, jwt := cfg.Console.OIDC, cfg.Auth.JWT; at.Client != "" {
		c.OIDC = &console.OIDC{
			Issuer: jwt.Issuer, Client: at.Client, Scope: at.Scope,
			UseIDToken: jwt.Audience == at.Client, Endpoints: callers.SignIn,
		}
	}
	return c
}

type portParams struct {
	fx.In

	Config    *config.Config
	Log       *slog.Logger
	TLS       *tls.Config
	GRPC      makeGRPC
	REST      *rest.API
	Front     *front.Handler
	Client    *client.Client
	Replica   *replica.Transport
	Gate      *interceptor.Gate
	Traces    *tracing.Tracing
	Ready     *ready.State
	Stopping  stopping
	Metrics   *metrics.Metrics
	OnFailure onFailure
}

func newServer(lc fx.Lifecycle, p portParams) *server.Server {
	s := server.New(server.Config{
		GRPCAddress: p.Config.GRPC.Address, RESTAddress: p.Config.REST.Address,
		DebugAddress:   p.Config.DebugAddress,
		AdminAddress:   p.Config.AdminAddress,
		ReplicaAddress: replicaAddress(p.Replica), TLS: p.TLS,
		MaxStreams: p.Config.Connections.MaxStreams, MaxAge: p.Config.Connections.MaxAge,
		MaxConnections: p.Config.Connections.Max,
		MaxPerAddress:  p.Config.Connections.MaxPerAddress,
		Proxies:        p.Config.Proxied(),
		GRPCProxied:    p.Config.GRPC.Proxied, RESTProxied: p.Config.REST.Proxied,
		AddressesFile: p.Config.AddressesFile, Linger: p.Config.DrainLinger,
		DrainTimeout: p.Config.DrainTimeout, Log: p.Log, Flood: p.Metrics,
	}, server.Parts{
		GRPC: p.GRPC, REST: p.Traces.HTTP(p.Front), Refuse: p.REST.Refusal,
		Debug: debugging.Handler(p.Client.Pools),
		Admin: admin.Handler(admin.Config{
			Metrics:  p.Metrics.Handler(),
			Health:   p.Front,
			Level:    func() slog.Level { return logging.Level(p.Log) },
			SetLevel: func(l slog.Level) { logging.SetLevel(p.Log, l) },
		}),
		Gate: p.Gate,
		Unready: func() {
			p.Ready.Stop()
			p.Stopping.begin()
		},
		Failed: p.OnFailure,
	})
	lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
	return s
}
