// Package event is the facts that the driver emits: commands (Command Monitoring), pools (CMAP), discovery (SDAM) and
// server selection. It delivers nothing by itself and stores nothing; logs, metrics and the specifications' event
// tests are Sinks.
package event

import (
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
)

// Sink is what a listener wants to hear of: one function per fact, nil for what it does not. A nil *Sink hears
// nothing. The functions are called on the goroutine where the fact happened, never under a lock, and must not block;
// events of one pool, and events of one topology, come in order and never at once.
//
// They must not panic, either. A panic on a goroutine of the driver's own ends the process. Anywhere else it goes through
// the call that the event befell, or that came to tell it; the driver stays whole: that call takes no connection along and
// leaves nothing counted, the event is not told again, and those behind it are told with the next.
type Sink struct {
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

// HearsSelection tells whether anybody wants the events of server selection.
func (s *Sink) HearsSelection() bool {
	return s != nil && (s.ServerSelectionStarted != nil || s.ServerSelectionWaiting != nil ||
		s.ServerSelectionSucceeded != nil || s.ServerSelectionFailed != nil)
}

// Command is what the three command events have in common.
type Command struct {
	Name               string // the command's name
	Database           string
	RequestID          int32
	OperationID        int64 // the same for all commands of one operation
	Address            address.Address
	ConnectionID       uint64        // the pool's name for the connection
	ServerConnectionID int64         // the server's; 0 where it gave none
	ServiceID          bson.ObjectID // zero but behind a load balancer
}

// CommandStarted is emitted before a command is written. Body is valid during the call only, and empty where the
// command is sensitive; document sequences stand in it as arrays.
type CommandStarted struct {
	Command
	Body bson.Raw
}

// CommandSucceeded is emitted for a reply with ok: 1, whatever else it carries. Reply is valid during the call only,
// and empty where the command is sensitive.
type CommandSucceeded struct {
	Command
	Duration time.Duration
	Reply    bson.Raw
}

// CommandFailed is emitted for a reply with ok: 0 and for a connection that broke.
type CommandFailed struct {
	Command
	Duration time.Duration
	Err      error
}

// PoolOptions are a pool's options as configured; zero is the default.
type PoolOptions struct {
	MaxSize, MinSize, MaxConnecting int
	Unlimited                       bool // maxPoolSize is 0: the pool has no maximum
	MaxIdleTime, WaitQueueTimeout   time.Duration
}

// PoolCreated tells of a new pool; it is paused.
type PoolCreated struct {
	Address address.Address
	Options PoolOptions
}

// PoolReady tells that connections can be checked out.
type PoolReady struct{ Address address.Address }

// PoolCleared tells that all connections that exist by now are stale.
type PoolCleared struct {
	Address                   address.Address
	ServiceID                 bson.ObjectID // zero but behind a load balancer
	InterruptInUseConnections bool
	Err                       error // why
}

// PoolClosed tells that the pool is closed for good.
type PoolClosed struct{ Address address.Address }

// ConnectionCreated tells that a connection has its number; nothing was dialled yet.
type ConnectionCreated struct {
	Address      address.Address
	ConnectionID uint64
}

// ConnectionReady tells that a connection is established, handshake and authentication included.
type ConnectionReady struct {
	Address      address.Address
	ConnectionID uint64
	Duration     time.Duration // since ConnectionCreated
}

// ConnectionClosed is the last event of a connection.
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

// ConnectionCheckOutStarted is the first event of each check-out.
type ConnectionCheckOutStarted struct{ Address address.Address }

// ConnectionCheckOutFailed is the last event of a check-out that gave no connection.
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

// ConnectionCheckedOut is the last event of a check-out that gave a connection.
type ConnectionCheckedOut struct {
	Address      address.Address
	ConnectionID uint64
	Duration     time.Duration
}

// ConnectionCheckedIn tells that a connection came back.
type ConnectionCheckedIn struct {
	Address      address.Address
	ConnectionID uint64
}

// TopologyID tells the events of one topology from those of others; it means nothing outside the process.
type TopologyID = bson.ObjectID

// TopologyOpening is a topology's first event.
type TopologyOpening struct{ TopologyID TopologyID }

// TopologyClosed is a topology's last event.
type TopologyClosed struct{ TopologyID TopologyID }

// TopologyDescriptionChanged tells of a changed picture of the deployment.
type TopologyDescriptionChanged struct {
	TopologyID    TopologyID
	Previous, New description.Topology
}

// ServerOpening tells that a server is monitored from now on.
type ServerOpening struct {
	TopologyID TopologyID
	Address    address.Address
}

// ServerClosed tells that a server is no longer monitored.
type ServerClosed struct {
	TopologyID TopologyID
	Address    address.Address
}

// ServerDescriptionChanged tells of a changed picture of one server. The descriptions must not be changed.
type ServerDescriptionChanged struct {
	TopologyID    TopologyID
	Address       address.Address
	Previous, New *description.Server
}

// Heartbeat is what the three heartbeat events have in common.
type Heartbeat struct {
	TopologyID         TopologyID
	Address            address.Address
	ConnectionID       uint64 // of the monitor's connections to this server, the how-manieth
	ServerConnectionID int64  // 0 where it is not known (yet)
	Awaited            bool   // the server answers when something changed: Duration is no round-trip time
}

// ServerHeartbeatStarted is emitted before a check, also before its socket is opened.
type ServerHeartbeatStarted struct{ Heartbeat }

// ServerHeartbeatSucceeded tells of a check that was answered with ok: 1. Reply is valid during the call only.
type ServerHeartbeatSucceeded struct {
	Heartbeat
	Duration time.Duration
	Reply    bson.Raw
}

// ServerHeartbeatFailed tells of a check that failed or was cancelled.
type ServerHeartbeatFailed struct {
	Heartbeat
	Duration time.Duration
	Err      error
}

// SeedlistProblem tells why a later look at the SRV records brought nothing, or what in them was refused. The
// deployment goes on as it is known.
type SeedlistProblem struct {
	TopologyID TopologyID
	Host       string // whose records they are
	Err        error
}

// NoServers tells that the deployment has no server that could be asked: none is configured, or the last one was removed.
// Only another look at SRV records could change that; without them each operation fails.
type NoServers struct {
	TopologyID TopologyID
	Err        error // why
}

// SeveralProcesses tells, once for each server, that several processes answer at its address, though
// loadBalanced is not set: cursors, sessions and transactions go astray there.
type SeveralProcesses struct {
	TopologyID TopologyID
	Address    address.Address
}

// Selection is what the server selection events have in common.
type Selection struct {
	TopologyID  TopologyID
	Operation   string // the command's name; empty where the selection is for none
	OperationID int64  // the same as in the operation's Command events; 0 where it has none yet
	Selector    string
	Topology    description.Topology
}

// ServerSelectionStarted is the first event of a selection.
type ServerSelectionStarted struct{ Selection }

// ServerSelectionWaiting tells, once, that no server is suitable yet.
type ServerSelectionWaiting struct {
	Selection
	Remaining time.Duration
}

// ServerSelectionSucceeded tells which server was selected.
type ServerSelectionSucceeded struct {
	Selection
	Server address.Address
}

// ServerSelectionFailed tells that none was.
type ServerSelectionFailed struct {
	Selection
	Err error
}
