// Package event defines the events of the driver: operations and transactions (OpenTelemetry),
// commands (Command Monitoring), pools (CMAP), discovery (SDAM) and server selection. It delivers
// and stores nothing: logs, metrics, spans and the event tests of the specifications are Sinks.
package event

import (
	"context"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
)

// Sink holds the functions of a listener, one for each kind of event, nil for those that it does
// not take. A nil *Sink takes none. A function is called on the goroutine where the event
// occurred, never under a lock, and must not block. Events of one pool, and those of one topology,
// are delivered in order and one at a time.
//
// The functions of a Sink that a topology or a pool gets must not panic. Join returns a Sink
// that does not; core/client passes its own through it.
type Sink struct {
	OperationStarted   func(OperationStarted)
	OperationEnded     func(OperationEnded)
	TransactionStarted func(TransactionStarted)
	TransactionEnded   func(TransactionEnded)

	OperationRetried  func(OperationRetried)
	MessageCompressed func(MessageCompressed)

	ChangesReceived     func(ChangesReceived)
	ChangeStreamResumed func(ChangeStreamResumed)

	CommandStarted   func(CommandStarted)
	CommandSucceeded func(CommandSucceeded)
	CommandFailed    func(CommandFailed)

	PoolCreated               func(PoolCreated)
	PoolReady                 func(PoolReady)
	PoolCleared               func(PoolCleared)
	PoolClosed                func(PoolClosed)
	ConnectionCreated         func(ConnectionCreated)
	ConnectionReady           func(ConnectionReady)
	ConnectionClosed          func(ConnectionClosed)
	ConnectionCheckOutStarted func(ConnectionCheckOutStarted)
	ConnectionCheckOutFailed  func(ConnectionCheckOutFailed)
	ConnectionCheckedOut      func(ConnectionCheckedOut)
	ConnectionCheckedIn       func(ConnectionCheckedIn)

	TopologyOpening            func(TopologyOpening)
	TopologyDescriptionChanged func(TopologyDescriptionChanged)
	TopologyClosed             func(TopologyClosed)
	ServerOpening              func(ServerOpening)
	ServerDescriptionChanged   func(ServerDescriptionChanged)
	ServerClosed               func(ServerClosed)
	ServerHeartbeatStarted     func(ServerHeartbeatStarted)
	ServerHeartbeatSucceeded   func(ServerHeartbeatSucceeded)
	ServerHeartbeatFailed      func(ServerHeartbeatFailed)
	SeedlistProblem            func(SeedlistProblem)
	NoServers                  func(NoServers)
	SeveralProcesses           func(SeveralProcesses)

	ServerSelectionStarted   func(ServerSelectionStarted)
	ServerSelectionWaiting   func(ServerSelectionWaiting)
	ServerSelectionSucceeded func(ServerSelectionSucceeded)
	ServerSelectionFailed    func(ServerSelectionFailed)
}

// HearsSelection reports whether the sink takes events of server selection.
func (s *Sink) HearsSelection() bool {
	return s != nil && (s.ServerSelectionStarted != nil || s.ServerSelectionWaiting != nil ||
		s.ServerSelectionSucceeded != nil || s.ServerSelectionFailed != nil)
}

// HearsOperations reports whether the sink takes the events of operations.
func (s *Sink) HearsOperations() bool {
	return s != nil && (s.OperationStarted != nil || s.OperationEnded != nil)
}

// Operation holds the fields that the two operation events share.
type Operation struct {
	// ID is the OperationID of its commands.
	ID int64
	// Name is the operation's name, which is not always that of its command: createCollection,
	// whose command is create.
	Name                 string
	Database, Collection string // Collection is empty for an operation on none
	Caller               string // the caller's name for the operation; empty if it gave none
	// Transaction is the ID of the transaction that the operation is part of; 0: none.
	Transaction int64
}

// OperationStarted announces an operation, before a server is selected for it.
type OperationStarted struct {
	Operation
	// Context is the caller's. It holds what a listener needs to find the caller's own span.
	Context context.Context //nolint:containedctx // for the call of the listener only
}

// OperationEnded ends the events of an operation, with all its commands.
type OperationEnded struct {
	Operation
	Duration time.Duration
	Err      error // nil if the operation succeeded
}

// TransactionStarted announces a transaction, before its first operation. It needs a sink that also
// takes events of operations.
type TransactionStarted struct {
	ID int64
	// Context is the caller's; see OperationStarted.
	Context context.Context //nolint:containedctx // for the call of the listener only
}

// TransactionEnded ends a transaction: it was committed or aborted, or its session has ended.
type TransactionEnded struct{ ID int64 }

// OperationRetried announces another attempt of an operation, before the wait for it.
type OperationRetried struct {
	Name, Database string        // of the command
	Caller         string        // the caller's name for the operation; empty if it gave none
	Attempt        int           // the number of the attempt that follows; the first retry is 2
	Wait           time.Duration // the backoff before it
	Err            error         // why the attempt before it failed
}

// MessageCompressed says that a message was compressed for a server, or that one of a server was
// decompressed.
type MessageCompressed struct {
	Compressor string
	Received   bool // the server has compressed it
	Original   int  // the bytes of the message
	Compressed int  // the bytes on the wire
}

// ChangesReceived says that a batch of a change stream with events has arrived.
type ChangesReceived struct {
	// Database and Collection are what the stream is about: no collection for one of a database,
	// and the database admin for one of a deployment.
	Database, Collection string
	// Events is the number of events in the batch.
	Events int
	// WallTime is when the server made the newest event, by its own clock; zero if the event does
	// not say so, as those of servers before 6.0. ReceivedAt is when the batch arrived, by the
	// clock of the process.
	WallTime, ReceivedAt time.Time
}

// ChangeStreamResumed says that a change stream goes on over another cursor.
type ChangeStreamResumed struct {
	Database, Collection string // see ChangesReceived
	// Err is what ended the old cursor.
	Err error
}

// Command holds the fields that the three command events share.
type Command struct {
	Name               string // the command's name
	Database           string
	RequestID          int32
	OperationID        int64  // the same for all commands of one operation
	Caller             string // the caller's name for the operation; empty if it gave none
	Address            address.Address
	ConnectionID       uint64        // the pool's name for the connection
	ServerConnectionID int64         // the server's; 0 where it gave none
	ServiceID          bson.ObjectID // set behind a load balancer only
}

// CommandStarted announces a command that is about to be written. Body is valid during the call
// only, and empty if the command is sensitive; document sequences appear in it as arrays.
type CommandStarted struct {
	Command
	Body bson.Raw
}

// CommandSucceeded follows a reply with ok: 1, whatever else it contains. Reply is valid during
// the call only, and empty if the command is sensitive.
type CommandSucceeded struct {
	Command
	Duration time.Duration
	Reply    bson.Raw
}

// CommandFailed follows a reply with ok: 0, or a connection that broke.
type CommandFailed struct {
	Command
	Duration time.Duration
	Err      error
}

// PoolOptions holds a pool's options as configured; zero means the default.
type PoolOptions struct {
	MaxSize, MinSize, MaxConnecting int
	Unlimited                       bool // maxPoolSize is 0: the pool has no maximum
	MaxIdleTime, WaitQueueTimeout   time.Duration
}

// PoolCreated announces a new pool, which is paused.
type PoolCreated struct {
	Address address.Address
	Options PoolOptions
}

// PoolReady says that connections can be checked out.
type PoolReady struct{ Address address.Address }

// PoolCleared says that all connections of the pool have become stale.
type PoolCleared struct {
	Address                   address.Address
	ServiceID                 bson.ObjectID // set behind a load balancer only
	InterruptInUseConnections bool
	Err                       error // why
}

// PoolClosed ends the events of a pool.
type PoolClosed struct{ Address address.Address }

// ConnectionCreated says that a connection has its number. It is not dialed yet.
type ConnectionCreated struct {
	Address      address.Address
	ConnectionID uint64
}

// ConnectionReady says that a connection is established, with handshake and authentication.
type ConnectionReady struct {
	Address      address.Address
	ConnectionID uint64
	Duration     time.Duration // since ConnectionCreated
}

// ConnectionClosed ends the events of a connection.
type ConnectionClosed struct {
	Address      address.Address
	ConnectionID uint64
	Reason       ClosedReason
	Err          error // with ClosedError
}

// ClosedReason says why a connection was closed, in the specification's words.
type ClosedReason string

// The reasons why a connection is closed.
const (
	ClosedStale      ClosedReason = "stale"
	ClosedIdle       ClosedReason = "idle"
	ClosedError      ClosedReason = "error"
	ClosedPoolClosed ClosedReason = "poolClosed"
)

// ConnectionCheckOutStarted begins the events of a check-out.
type ConnectionCheckOutStarted struct{ Address address.Address }

// ConnectionCheckOutFailed ends the events of a check-out that returned no connection.
type ConnectionCheckOutFailed struct {
	Address  address.Address
	Reason   CheckOutFailedReason
	Duration time.Duration
	Err      error
}

// CheckOutFailedReason says why a check-out gave no connection, in the specification's words.
type CheckOutFailedReason string

// The reasons why a check-out gives no connection.
const (
	CheckOutTimeout         CheckOutFailedReason = "timeout"
	CheckOutPoolClosed      CheckOutFailedReason = "poolClosed"
	CheckOutConnectionError CheckOutFailedReason = "connectionError"
)

// ConnectionCheckedOut ends the events of a check-out that returned a connection.
type ConnectionCheckedOut struct {
	Address      address.Address
	ConnectionID uint64
	Duration     time.Duration
}

// ConnectionCheckedIn says that a connection was returned.
type ConnectionCheckedIn struct {
	Address      address.Address
	ConnectionID uint64
}

// TopologyID identifies a topology in events. It has no meaning outside of the process.
type TopologyID = bson.ObjectID

// TopologyOpening begins the events of a topology.
type TopologyOpening struct{ TopologyID TopologyID }

// TopologyClosed ends the events of a topology.
type TopologyClosed struct{ TopologyID TopologyID }

// TopologyDescriptionChanged says that the description of the deployment has changed.
type TopologyDescriptionChanged struct {
	TopologyID    TopologyID
	Previous, New description.Topology
}

// ServerOpening says that a server begins to be monitored.
type ServerOpening struct {
	TopologyID TopologyID
	Address    address.Address
}

// ServerClosed says that a server is no longer monitored.
type ServerClosed struct {
	TopologyID TopologyID
	Address    address.Address
}

// ServerDescriptionChanged says that the description of a server has changed. Listeners must not
// change the descriptions.
type ServerDescriptionChanged struct {
	TopologyID    TopologyID
	Address       address.Address
	Previous, New *description.Server
}

// Heartbeat holds the fields that the three heartbeat events share.
type Heartbeat struct {
	TopologyID         TopologyID
	Address            address.Address
	ConnectionID       uint64 // the number of the connection, counted by its monitor
	ServerConnectionID int64  // 0 while it is not known
	// Awaited says that the server answers when something has changed, so that Duration is no
	// round-trip time.
	Awaited bool
}

// ServerHeartbeatStarted announces a check, before its connection is dialed.
type ServerHeartbeatStarted struct{ Heartbeat }

// ServerHeartbeatSucceeded follows a check that was answered with ok: 1. Reply is valid during
// the call only.
type ServerHeartbeatSucceeded struct {
	Heartbeat
	Duration time.Duration
	Reply    bson.Raw
}

// ServerHeartbeatFailed follows a check that failed or was canceled.
type ServerHeartbeatFailed struct {
	Heartbeat
	Duration time.Duration
	Err      error
}

// SeedlistProblem says why polling the SRV records failed, or which records were refused. The
// description of the deployment stays as it is.
type SeedlistProblem struct {
	TopologyID TopologyID
	Host       string // of the SRV records
	Err        error
}

// NoServers says that the deployment has no server: none is configured, or the last one was
// removed. Unless polled SRV records bring one, each operation fails.
type NoServers struct {
	TopologyID TopologyID
	Err        error // why
}

// SeveralProcesses says, once for each server, that several processes answer at its address,
// although loadBalanced is not set: a cursor, session or transaction may reach a process that
// does not have it.
type SeveralProcesses struct {
	TopologyID TopologyID
	Address    address.Address
}

// Selection holds the fields that the server selection events share.
type Selection struct {
	TopologyID  TopologyID
	Operation   string // the command's name; empty where the selection is for none
	OperationID int64  // the same as in the operation's Command events; 0 where it has none yet
	Selector    string
	Topology    description.Topology
}

// ServerSelectionStarted begins the events of a selection.
type ServerSelectionStarted struct{ Selection }

// ServerSelectionWaiting says, once, that no server is suitable yet.
type ServerSelectionWaiting struct {
	Selection
	Remaining time.Duration
}

// ServerSelectionSucceeded ends a selection that found a server.
type ServerSelectionSucceeded struct {
	Selection
	Server address.Address
}

// ServerSelectionFailed ends a selection that found none.
type ServerSelectionFailed struct {
	Selection
	Err error
}
