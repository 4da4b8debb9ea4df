package app

import (
	"context"
	"log/slog"

	"go.uber.org/dig"
	"go.uber.org/fx"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/service/inproc"
)

// Local represents a gateway without listeners: its API on a connection within the process. Start
// and Stop are called once each, in this order.
type Local struct {
	fx     *fx.App
	conn   *inproc.Conn
	client *client.Client
	stop   stopping
}

// NewLocal returns a gateway without listeners.
func NewLocal(cfg *config.Config, log *slog.Logger) (*Local, error) {
	l := &Local{}
	l.fx = fx.New(
		fx.NopLogger,
		fx.Supply(cfg, log, onFailure(func(error) {}), lookupHost(nil)),
		fx.Provide(newStopping),
		observation, deployment, replicas, handles, callers, auditing, services,
		fx.Populate(&l.conn, &l.client, &l.stop),
	)
	if err := l.fx.Err(); err != nil {
		return nil, dig.RootCause(err)
	}
	return l, nil
}

// Start starts all parts. It does not wait for MongoDB.
func (l *Local) Start(ctx context.Context) error { return l.fx.Start(ctx) }

// Conn returns the connection to the API.
func (l *Local) Conn() *inproc.Conn { return l.conn }

// Warnings returns what is ignored or deprecated in the connection string.
func (l *Local) Warnings() []connstring.Warning { return l.client.Warnings() }

// Stop ends all parts.
func (l *Local) Stop(ctx context.Context) error {
	l.stop.begin()
	return l.fx.Stop(ctx)
}
