// Package logging makes the gateway's logger, and logs the driver's events. It decides their
// level: a change of the deployment is Info, a problem is Warn. It writes no documents: a command's
// body and reply may contain anything.
package logging

import (
	"context"
	"errors"
	"log/slog"

	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventlog"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// Sink returns a sink that logs the important events.
func Sink(log *slog.Logger) *event.Sink {
	l := facts{log}
	return &event.Sink{
		ServerDescriptionChanged:   l.serverChanged,
		TopologyDescriptionChanged: l.topologyChanged,
		PoolCleared:                l.poolCleared,
		SeedlistProblem:            l.seedlistProblem,
		NoServers:                  l.noServers,
		SeveralProcesses:           l.severalProcesses,
	}
}

// Driver returns what writes the facts of these components of the driver in the words and fields of
// the MongoDB specifications, all at Debug; nil if there are no components. Their component is in
// the field of that name. Commands, replies and the words of servers about failed commands are
// left out: they have the data of callers in them.
func Driver(log *slog.Logger, components []string) *event.Sink {
	if len(components) == 0 {
		return nil
	}
	var chosen []eventlog.Component
	for _, name := range components {
		chosen = append(chosen, eventlog.Component(name))
	}
	write := func(m eventlog.Message) {
		if !log.Enabled(context.Background(), slog.LevelDebug) {
			return
		}
		attrs := []slog.Attr{slog.String("component", string(m.Component))}
		for _, f := range m.Fields {
			if m.Component != eventlog.Command || f.Key != "command" && f.Key != "reply" {
				attrs = append(attrs, slog.Any(f.Key, f.Value))
			}
		}
		//nolint:sloglint // the messages are constants of eventlog
		log.LogAttrs(context.Background(), slog.LevelDebug, m.Message, attrs...)
	}
	s := eventlog.Sink(eventlog.Config{Components: chosen, Write: write})
	if failed := s.CommandFailed; failed != nil {
		s.CommandFailed = func(e event.CommandFailed) {
			e.Err = errors.New(mongoerr.Outline(e.Err))
			failed(e)
		}
	}
	return s
}

type facts struct{ log *slog.Logger }

// serverChanged logs a change of a server's kind. Other changes are not logged.
func (l facts) serverChanged(e event.ServerDescriptionChanged) {
	switch {
	case e.New.Kind == e.Previous.Kind && sameText(e.New.LastError, e.Previous.LastError):
	case e.New.LastError != nil:
		l.log.Warn("server unavailable", "server", e.Address, "was", e.Previous.Kind.String(),
			"err", mongoerr.Outline(e.New.LastError))
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
	l.log.Info("connection pool cleared", "server", e.Address, "err", mongoerr.Outline(e.Err))
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

func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}
