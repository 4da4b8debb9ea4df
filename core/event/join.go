package event

import (
	"runtime/debug"
	"sync"
)

// Join returns a Sink that passes each event to all sinks that take it, in that order; nil sinks
// are left out. An event that no sink takes stays nil. A panic of a listener ends only its own
// call. The first panic is reported to panicked with the stack, unless that is nil; the listener
// is called again for later events.
func Join(panicked func(value any, stack []byte), sinks ...*Sink) *Sink {
	all, g := &Sink{}, &guard{panicked: panicked}
	for _, s := range sinks {
		if s != nil {
			g.join(all, s)
		}
	}
	return all
}

// guard keeps the panics of listeners from the driver.
type guard struct {
	panicked func(value any, stack []byte)
	once     sync.Once
}

// recover reports a panic of a listener. It is deferred around each call.
func (g *guard) recover() {
	if value := recover(); value != nil && g.panicked != nil {
		g.once.Do(func() { g.panicked(value, debug.Stack()) })
	}
}

func (g *guard) join(to, s *Sink) {
	join(g, &to.OperationStarted, s.OperationStarted)
	join(g, &to.OperationEnded, s.OperationEnded)
	join(g, &to.TransactionStarted, s.TransactionStarted)
	join(g, &to.TransactionEnded, s.TransactionEnded)
	join(g, &to.OperationRetried, s.OperationRetried)
	join(g, &to.MessageCompressed, s.MessageCompressed)
	join(g, &to.ChangesReceived, s.ChangesReceived)
	join(g, &to.ChangeStreamResumed, s.ChangeStreamResumed)
	join(g, &to.CommandStarted, s.CommandStarted)
	join(g, &to.CommandSucceeded, s.CommandSucceeded)
	join(g, &to.CommandFailed, s.CommandFailed)
	join(g, &to.PoolCreated, s.PoolCreated)
	join(g, &to.PoolReady, s.PoolReady)
	join(g, &to.PoolCleared, s.PoolCleared)
	join(g, &to.PoolClosed, s.PoolClosed)
	join(g, &to.ConnectionCreated, s.ConnectionCreated)
	join(g, &to.ConnectionReady, s.ConnectionReady)
	join(g, &to.ConnectionClosed, s.ConnectionClosed)
	join(g, &to.ConnectionCheckOutStarted, s.ConnectionCheckOutStarted)
	join(g, &to.ConnectionCheckOutFailed, s.ConnectionCheckOutFailed)
	join(g, &to.ConnectionCheckedOut, s.ConnectionCheckedOut)
	join(g, &to.ConnectionCheckedIn, s.ConnectionCheckedIn)
	join(g, &to.TopologyOpening, s.TopologyOpening)
	join(g, &to.TopologyDescriptionChanged, s.TopologyDescriptionChanged)
	join(g, &to.TopologyClosed, s.TopologyClosed)
	join(g, &to.ServerOpening, s.ServerOpening)
	join(g, &to.ServerDescriptionChanged, s.ServerDescriptionChanged)
	join(g, &to.ServerClosed, s.ServerClosed)
	join(g, &to.ServerHeartbeatStarted, s.ServerHeartbeatStarted)
	join(g, &to.ServerHeartbeatSucceeded, s.ServerHeartbeatSucceeded)
	join(g, &to.ServerHeartbeatFailed, s.ServerHeartbeatFailed)
	join(g, &to.SeedlistProblem, s.SeedlistProblem)
	join(g, &to.NoServers, s.NoServers)
	join(g, &to.SeveralProcesses, s.SeveralProcesses)
	join(g, &to.ServerSelectionStarted, s.ServerSelectionStarted)
	join(g, &to.ServerSelectionWaiting, s.ServerSelectionWaiting)
	join(g, &to.ServerSelectionSucceeded, s.ServerSelectionSucceeded)
	join(g, &to.ServerSelectionFailed, s.ServerSelectionFailed)
}

// join adds f, if it is not nil, to the listeners in to.
func join[T any](g *guard, to *func(T), f func(T)) {
	if f == nil {
		return
	}
	first := *to
	*to = func(e T) {
		if first != nil {
			first(e)
		}
		defer g.recover()
		f(e)
	}
}
