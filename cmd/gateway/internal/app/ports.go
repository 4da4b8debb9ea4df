package app

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"

	"go.uber.org/fx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/debugging"
	"github.com/mooringdb/mooring/cmd/gateway/internal/ready"
	"github.com/mooringdb/mooring/cmd/gateway/internal/server"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/changestream"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/replica"
	"github.com/mooringdb/mooring/service/rest"
)

// ports provides the listeners: gRPC and REST, with the same services behind the same
// interceptors.
var ports = fx.Module("ports", fx.Provide(newStopping, newGRPC, newREST, newServer))

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

func newGRPC(cfg *config.Config, secure *tls.Config, around *interceptor.Chain, services api,
	h *health.Server, stop stopping,
) makeGRPC {
	return func() *grpc.Server {
		c := server.GRPCConfig{
			TLS: secure, MaxRequestSize: int(cfg.MaxRequestSize), Unary: around.Unary(),
			MaxStreams: cfg.Connections.MaxStreams, MaxAge: cfg.Connections.MaxAge,
			Stream: around.Stream(), Stopping: stop.Done(),
		}
		if cfg.AuthEnabled() {
			c.Authenticate = around.Authenticate
		}
		g := server.NewGRPC(c)
		services.register(c.Register(g))
		server.RegisterHealth(g, h)
		if cfg.GRPC.Reflection {
			server.RegisterReflection(g)
		}
		return g
	}
}

func newREST(cfg *config.Config, log *slog.Logger, around *interceptor.Chain, services api,
	state *ready.State, callers *caller.Authenticator, tickets *changestream.Tickets,
) (*rest.Handler, error) {
	conn := inproc.NewConn(around.Unary(), around.Stream())
	services.register(conn)
	return rest.New(rest.Config{
		Conn: conn, Ready: state.Ready, MaxBodyBytes: cfg.MaxRequestSize,
		Callers: callers, Tickets: tickets, Hosts: cfg.RESTHosts(),
		StallTimeout: cfg.Cursors.Idle, Logger: log,
	})
}

type portParams struct {
	fx.In

	Config    *config.Config
	Log       *slog.Logger
	TLS       *tls.Config
	GRPC      makeGRPC
	REST      *rest.Handler
	Client    *client.Client
	Replica   *replica.Transport
	Gate      *interceptor.Gate
	Ready     *ready.State
	Stopping  stopping
	OnFailure onFailure
}

func newServer(lc fx.Lifecycle, p portParams) *server.Server {
	s := server.New(server.Config{
		GRPCAddress: p.Config.GRPC.Address, RESTAddress: p.Config.REST.Address,
		DebugAddress:   p.Config.DebugAddress,
		ReplicaAddress: replicaAddress(p.Replica), TLS: p.TLS,
		MaxStreams: p.Config.Connections.MaxStreams, MaxAge: p.Config.Connections.MaxAge,
		MaxConnections: p.Config.Connections.Max,
		MaxPerAddress:  p.Config.Connections.MaxPerAddress,
		AddressesFile:  p.Config.AddressesFile, Linger: p.Config.DrainLinger,
		DrainTimeout: p.Config.DrainTimeout, Log: p.Log,
	}, server.Parts{
		GRPC: p.GRPC, REST: http.Handler(p.REST), Debug: debugging.Handler(p.Client.Pools),
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
