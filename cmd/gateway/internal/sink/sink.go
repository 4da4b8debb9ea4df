// Package sink lets several listeners hear the driver's facts.
package sink

import "github.com/mooringdb/mooring/core/event"

// Join returns a sink that tells all of them, in that order. What none wants stays nil and costs nothing.
func Join(sinks ...*event.Sink) *event.Sink {
	all := &event.Sink{}
	for _, s := range sinks {
		if s != nil {
			add(all, s)
		}
	}
	return all
}

func add(to, s *event.Sink) {
	join(&to.CommandStarted, s.CommandStarted)
	join(&to.CommandSucceeded, s.CommandSucceeded)
	join(&to.CommandFailed, s.CommandFailed)
	join(&to.PoolCreated, s.PoolCreated)
	join(&to.PoolReady, s.PoolReady)
	join(&to.PoolCleared, s.PoolCleared)
	join(&to.PoolClosed, s.PoolClosed)
	join(&to.ConnectionCreated, s.ConnectionCreated)
	join(&to.ConnectionReady, s.ConnectionReady)
	join(&to.ConnectionClosed, s.ConnectionClosed)
	join(&to.ConnectionCheckOutStarted, s.ConnectionCheckOutStarted)
	join(&to.ConnectionCheckOutFailed, s.ConnectionCheckOutFailed)
	join(&to.ConnectionCheckedOut, s.ConnectionCheckedOut)
	join(&to.ConnectionCheckedIn, s.ConnectionCheckedIn)
	join(&to.TopologyOpening, s.TopologyOpening)
	join(&to.TopologyDescriptionChanged, s.TopologyDescriptionChanged)
	join(&to.TopologyClosed, s.TopologyClosed)
	join(&to.ServerOpening, s.ServerOpening)
	join(&to.ServerDescriptionChanged, s.ServerDescriptionChanged)
	join(&to.ServerClosed, s.ServerClosed)
	join(&to.ServerHeartbeatStarted, s.ServerHeartbeatStarted)
	join(&to.ServerHeartbeatSucceeded, s.ServerHeartbeatSucceeded)
	join(&to.ServerHeartbeatFailed, s.ServerHeartbeatFailed)
	join(&to.SeedlistProblem, s.SeedlistProblem)
	join(&to.NoServers, s.NoServers)
	join(&to.SeveralProcesses, s.SeveralProcesses)
	join(&to.ServerSelectionStarted, s.ServerSelectionStarted)
	join(&to.ServerSelectionWaiting, s.ServerSelectionWaiting)
	join(&to.ServerSelectionSucceeded, s.ServerSelectionSucceeded)
	join(&to.ServerSelectionFailed, s.ServerSelectionFailed)
}

func join[T any](to *func(T), f func(T)) {
	first := *to
	switch {
	case f == nil:
	case first == nil:
		*to = f
	default:
		*to = func(e T) {
			first(e)
			f(e)
		}
	}
}
