// Package logging makes the gateway's logger, and logs the driver's events. It decides their
// level: a command is Debug, a change of the deployment is Info, a problem is Warn. It writes no
// documents: a command's body and reply may contain anything.
package logging

import (
	"context"
	"io"
	"log/slog"

	"github.com/mooringdb/mooring/cmd/gateway/internal/config"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventlog"
)

// New returns a logger that writes to w.
func New(w io.Writer, cfg config.Log) *slog.Logger {
	level := new(slog.LevelVar)
	level.Set(cfg.Level)
	opt := &slog.HandlerOptions{Level: level}
	if cfg.Format == config.LogJSON {
		return slog.New(&handler{slog.NewJSONHandler(w, opt), level})
	}
	return slog.New(&handler{slog.NewTextHandler(w, opt), level})
}

// handler lets the level of another handler change.
type handler struct {
	slog.Handler
	level *slog.LevelVar
}

// SetLevel changes the level of a logger that New has made, and of all that are derived from it. It
// has no effect on other loggers.
func SetLevel(log *slog.Logger, level slog.Level) {
	if h, ok := log.Handler().(*handler); ok {
		h.level.Set(level)
	}
}

// Sink returns a sink that logs the important events.
func Sink(log *slog.Logger) *event.Sink {
	l := facts{log}
	s := &event.Sink{
		ServerDescriptionChanged:   l.serverChanged,
		TopologyDescriptionChanged: l.topologyChanged,
		PoolCleared:                l.poolCleared,
		SeedlistProblem:            l.seedlistProblem,
		NoServers:                  l.noServers,
		SeveralProcesses:           l.severalProcesses,
	}
	if log.Enabled(context.Background(), slog.LevelDebug) {
		s.CommandSucceeded = l.commandSucceeded
		s.CommandFailed = l.commandFailed
		s.ConnectionReady = l.connectionReady
		s.ConnectionClosed = l.connectionClosed
		s.ConnectionCheckOutFailed = l.checkOutFailed
	}
	return s
}

// Specified returns what writes the facts of discovery, selection and connections in the words
// and fields of the MongoDB specifications, all at Debug; nil where Debug is not logged. Their
// component is in the field of that name. Commands are not among them: they have the data of
// callers in them.
func Specified(log *slog.Logger) *event.Sink {
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		return nil
	}
	components := []eventlog.Component{
		eventlog.Topology, eventlog.ServerSelection, eventlog.Connection,
	}
	return eventlog.Sink(eventlog.Config{Components: components, Write: func(m eventlog.Message) {
		attrs := make([]slog.Attr, 0, len(m.Fields)+1)
		attrs = append(attrs, slog.String("component", string(m.Component)))
		for _, f := range m.Fields {
			attrs = append(attrs, slog.Any(f.Key, f.Value))
		}
		//nolint:sloglint // the messages are constants of eventlog
		log.LogAttrs(context.Background(), slog.LevelDebug, m.Message, attrs...)
	}})
}

type facts struct{ log *slog.Logger }

// serverChanged logs a change of a server's kind. Other changes are not logged.
func (l facts) serverChanged(e event.ServerDescriptionChanged) {
	switch {
	case e.New.Kind == e.Previous.Kind && sameText(e.New.LastError, e.Previous.LastError):
	case e.New.LastError != nil:
		l.log.Warn("server unavailable", "server", e.Address, "was", e.Previous.Kind.String(),
			"err", e.New.LastError)
	default:
		l.log.Info("server changed", "server", e.Address, "was", e.Previous.Kind.String(), "is",
			e.New.Kind.String())
	}
}

func (l facts) topologyChanged(e event.TopologyDescriptionChanged) {
	if err := e.New.CompatibilityError; err != nil &&
		!sameText(err, e.Previous.CompatibilityError) {
		l.log.Error("deployment cannot be used", "err", err)
	}
	if e.New.Kind != e.Previous.Kind && e.Previous.Kind != description.KindUnknown {
		l.log.Info("topology changed", "was", e.Previous.Kind.String(), "is", e.New.Kind.String())
	}
}

func (l facts) poolCleared(e event.PoolCleared) {
	l.log.Info("connection pool cleared", "server", e.Address, "err", e.Err)
}

// seedlistProblem logs a failed lookup of SRV records. The deployment goes on with the hosts that
// it has.
func (l facts) seedlistProblem(e event.SeedlistProblem) {
	l.log.Warn("srv records cannot be followed", "host", e.Host, "err", e.Err)
}

// noServers logs that no server is left: the replica set has another name, or several standalone
// servers are configured. The configuration must change.
func (l facts) noServers(e event.NoServers) {
	l.log.Error("deployment has no servers", "err", e.Err)
}

// severalProcesses logs an address that needs loadBalanced=true.
func (l facts) severalProcesses(e event.SeveralProcesses) {
	l.log.Warn("several servers answer at one address; if it is a load balancer, set "+
		"loadBalanced=true", "server", e.Address)
}

func (l facts) commandSucceeded(e event.CommandSucceeded) {
	l.log.Debug("command succeeded", "command", e.Name, "database", e.Database, "server", e.Address,
		"connection", e.ConnectionID, "message_id", e.RequestID, "request_id", e.Caller,
		"duration", e.Duration)
}

func (l facts) commandFailed(e event.CommandFailed) {
	l.log.Debug("command failed", "command", e.Name, "database", e.Database, "server", e.Address,
		"connection", e.ConnectionID, "message_id", e.RequestID, "request_id", e.Caller,
		"duration", e.Duration, "err", e.Err)
}

func (l facts) connectionReady(e event.ConnectionReady) {
	l.log.Debug("connection ready", "server", e.Address, "connection", e.ConnectionID, "duration",
		e.Duration)
}

func (l facts) connectionClosed(e event.ConnectionClosed) {
	l.log.Debug("connection closed", "server", e.Address, "connection", e.ConnectionID, "reason",
		string(e.Reason), "err", e.Err)
}

func (l facts) checkOutFailed(e event.ConnectionCheckOutFailed) {
	l.log.Debug("check-out failed", "server", e.Address, "reason", string(e.Reason), "duration",
		e.Duration, "err", e.Err)
}

func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}
