package topology

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mooringdb/mooring/core/ctxwatch"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
)

// Select returns a server that suits, is near, and has few operations if several are. If none
// suits, it blocks until one does, until ctx ends, or for ServerSelectionTimeout at most. The
// error is a *mongoerr.SelectionError. The operation counts for the server from then on: see
// Server.
func (t *Topology) Select(ctx context.Context, sel selection.Selector) (Server, error) {
	s, changed := t.snapshot.Load()
	sink := t.cfg.Sink
	if sink != nil && sink.ServerSelectionStarted != nil {
		sink.ServerSelectionStarted(event.ServerSelectionStarted{Selection: t.fact(sel, s)})
	}
	left := t.cfg.ServerSelectionTimeout
	found, err := t.pick(s, sel)
	if found.server == nil && err == nil {
		began := time.Now()
		found, s, err = t.await(ctx, sel, s, changed)
		left -= time.Since(began)
	}
	if err != nil {
		return Server{}, t.selectionFailed(sel, s, err)
	}
	found.server.operations.Add(1)
	found.left = max(left, 1) // also if the timeout is 0: 0 would be no limit
	if sink != nil && sink.ServerSelectionSucceeded != nil {
		sink.ServerSelectionSucceeded(event.ServerSelectionSucceeded{
			Selection: t.fact(sel, s),
			Server:    found.Address(),
		})
	}
	return found, nil
}

// pick chooses from one snapshot. It returns the zero Server without an error if none suits yet.
func (t *Topology) pick(s *snapshot, sel selection.Selector) (Server, error) {
	switch {
	case s.closed:
		return Server{}, ErrClosed
	case s.topology.CompatibilityError != nil:
		return Server{}, s.topology.CompatibilityError
	}
	if why := s.topology.Deserted(); why != nil &&
		(t.cfg.SRV == nil || !isPolled(s.topology.Kind)) {
		return Server{}, why // no server is left that could report another one
	}
	suitable, err := sel.Select(s.topology, s.topology.Servers)
	if err != nil {
		return Server{}, err
	}
	if t.cfg.ServerSelector != nil && len(suitable) > 0 {
		suitable = t.cfg.ServerSelector(suitable)
	}
	near := selection.InWindow(suitable, *t.cfg.LocalThreshold)
	chosen := selection.Choose(near, func(d *description.Server) int64 {
		return s.server(d.Address).operations.Load()
	}, t.cfg.Rand)
	if chosen == nil {
		return Server{}, nil
	}
	return Server{server: s.server(chosen.Address), description: chosen, kind: s.topology.Kind}, nil
}

// await has all servers checked and picks again at each change, until one suits. It also returns
// the last snapshot that it used. The number of goroutines that wait here has no limit but that of
// operations.
func (t *Topology) await(
	ctx context.Context, sel selection.Selector, s *snapshot, changed <-chan struct{},
) (Server, *snapshot, error) {
	if sink := t.cfg.Sink; sink != nil && sink.ServerSelectionWaiting != nil {
		sink.ServerSelectionWaiting(event.ServerSelectionWaiting{
			Selection: t.fact(sel, s), Remaining: t.remaining(ctx),
		})
	}
	if t.cfg.ServerSelectionTimeout <= 0 {
		s.requestChecks()
		return Server{}, s, errTimeout
	}
	timeout := time.NewTimer(t.cfg.ServerSelectionTimeout)
	defer timeout.Stop()
	for {
		s.requestChecks()
		select {
		case <-changed:
		case <-timeout.C:
			return Server{}, s, errTimeout
		case <-ctx.Done():
			return Server{}, s, ctxwatch.Err(ctx)
		}
		s, changed = t.snapshot.Load()
		if found, err := t.pick(s, sel); found.server != nil || err != nil {
			return found, s, err
		}
	}
}

// remaining returns how long a selection may wait: ctx may end it earlier than
// ServerSelectionTimeout.
func (t *Topology) remaining(ctx context.Context) time.Duration {
	most := t.cfg.ServerSelectionTimeout
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline))
	}
	return max(0, most)
}

func (s *snapshot) requestChecks() {
	for _, srv := range s.servers {
		srv.monitor.requestCheck()
	}
}

// errTimeout stands for ServerSelectionTimeout inside this file.
var errTimeout = errors.New("server selection timeout")

func (t *Topology) selectionFailed(sel selection.Selector, s *snapshot, err error) error {
	failed := &mongoerr.SelectionError{
		Selector: sel.String(), Topology: s.topology.String(),
		Timeout: max(0, t.cfg.ServerSelectionTimeout),
	}
	if errors.Is(err, errTimeout) {
		failed.Reason = reason(sel, s)
	} else {
		failed.Err = err
	}
	if sink := t.cfg.Sink; sink != nil && sink.ServerSelectionFailed != nil {
		sink.ServerSelectionFailed(event.ServerSelectionFailed{
			Selection: t.fact(sel, s), Err: failed,
		})
	}
	return failed
}

// reason returns the specification's message (Server Selection, "Server Selection Errors"): that
// no server suits or, if none is available, the errors of their checks.
func reason(sel selection.Selector, s *snapshot) string {
	if why := s.topology.Deserted(); why != nil {
		return why.Error()
	}
	unsuitable := "No servers are suitable for " + sel.String()
	var failures []string
	for _, server := range s.topology.Servers {
		if server.IsAvailable() {
			return unsuitable
		}
		if server.LastError == nil {
			continue
		}
		if text := server.LastError.Error(); !slices.Contains(failures, text) {
			failures = append(failures, text)
		}
	}
	if len(failures) == 0 {
		return unsuitable
	}
	return strings.Join(failures, ", ")
}

func (t *Topology) fact(sel selection.Selector, s *snapshot) event.Selection {
	operation, id := selection.Operation(sel)
	return event.Selection{
		TopologyID: t.id, Operation: operation, OperationID: id,
		Selector: sel.String(), Topology: s.topology,
	}
}
