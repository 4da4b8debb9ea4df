// Package app assembles the gateway: its parts, what each gets from the others, and the order in
// which they start and stop. It is the only package that knows fx, and it does nothing else. One
// file is one module.
package app

import (
	"context"
	"log/slog"

	"go.uber.org/dig"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/cmd/gateway/internal/keyfile"
	"github.com/mooringdb/mooring/cmd/gateway/internal/login"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/server"
)

// App represents one gateway. Start and Stop are called once each, in this order.
type App struct {
	fx     *fx.App
	server *server.Server
	keys   *keyfile.Watcher
	login  *login.Login
	access access
	audit  *auditFile
	lines  *audit.Log
	config *configFile
	work   drained
	failed chan error
}

// onFailure handles the error of a part that runs in the background and cannot go on.
type onFailure func(error)

// lookupHost resolves the names of other replicas; nil: as the system does.
type lookupHost func(ctx context.Context, host string) ([]string, error)

// New returns a gateway. It opens the files that the configuration names, but no socket.
func New(cfg *config.Config, log *slog.Logger) (*App, error) { return newApp(cfg, log, nil) }

func newApp(cfg *config.Config, log *slog.Logger, lookup lookupHost) (*App, error) {
	a := &App{failed: make(chan error, 1)}
	a.fx = fx.New(
		fx.WithLogger(func() fxevent.Logger {
			l := &fxevent.SlogLogger{Logger: log}
			l.UseLogLevel(slog.LevelDebug)
			l.UseErrorLevel(slog.LevelDebug) // the caller gets the error, too
			return l
		}),
		fx.Supply(cfg, log, onFailure(a.fail), lookup),
		// They start in this order and stop in reverse.
		observation,
		deployment,
		replicas,
		handles,
		callers,
		auditing,
		services,
		ports,
		reloading,
		fx.Populate(&a.server, &a.keys, &a.login, &a.access, &a.audit, &a.lines, &a.config),
		fx.Invoke(measure, func(d drained) { a.work = d }),
	)
	if err := a.fx.Err(); err != nil {
		return nil, dig.RootCause(err)
	}
	return a, nil
}

// Start starts all parts; if it fails, none is left running. It does not wait for MongoDB. ctx
// limits only the start.
func (a *App) Start(ctx context.Context) error { return a.fx.Start(ctx) }

// Addresses returns the addresses of the listeners, after Start.
func (a *App) Addresses() server.Addresses { return a.server.Addresses() }

// Reload reads the configuration file again, and the files of handle keys, of the MongoDB user, of
// API keys and of certificates, those for MongoDB included, if there are any, and opens the file of
// the audit log again. The log has the result.
func (a *App) Reload() {
	a.config.reload()
	a.audit.reopen()
	a.access.reload()
	a.keys.Reload()
	a.login.Reload()
}

// Failed returns a channel that receives the error if a running gateway cannot go on. The caller
// must still call Stop.
func (a *App) Failed() <-chan error { return a.failed }

// Stop lets work in flight finish within the drain time, then ends all parts. It returns when ctx
// ends at the latest. The log has what became of the work of clients.
func (a *App) Stop(ctx context.Context) error {
	err := a.fx.Stop(ctx)
	a.work.log()
	return err
}

// fail reports the first failure, and drops the later ones, which follow from it.
func (a *App) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}
