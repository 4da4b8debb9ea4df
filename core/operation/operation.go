package operation

import (
	"context"
	"slices"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/buffer"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
)

// Deployment represents what operations run on; core/client makes one of a topology.
type Deployment interface {
	// Select returns a server that suits the selector. It blocks until there is one or ctx ends.
	Select(ctx context.Context, sel selection.Selector) (Server, error)
}

// Server represents a selected server.
type Server interface {
	// Description returns the server as the selector saw it.
	Description() *description.Server
	// TopologyKind returns the kind of the topology in the same snapshot.
	TopologyKind() description.Kind
	// CheckOut takes a connection from the pool of the server. The caller checks it in.
	CheckOut(ctx context.Context) (Conn, error)
}

// Conn represents a checked-out connection.
type Conn interface {
	// Hello returns the description of the server by this connection's hello, with its limits.
	Hello() *description.Server
	// ID returns the pool's number of the connection.
	ID() uint64
	// RoundTrip sends a complete OP_MSG, whose buffer may be reused afterwards, and returns the
	// body of the reply, which the caller owns. With lend the reply may be in lent memory, of which
	// the caller has one reference.
	RoundTrip(
		ctx context.Context, msg []byte, lend bool,
	) (reply bson.Raw, lent *buffer.Buffer, err error)
	// Write sends a complete OP_MSG that gets no reply.
	Write(ctx context.Context, msg []byte) error
	// Reauthenticate authenticates the connection again, since the server asked for it with cause.
	Reauthenticate(ctx context.Context, cause error) error
	// Learn tells the topology how an operation ended. The caller keeps the connection.
	Learn(err error)
	// PinForCursor counts the connection among those that cursors hold, until CheckIn. It returns
	// an error if no more of them may be held.
	PinForCursor() error
	// PinForTransaction does the same for transactions.
	PinForTransaction() error
	// CheckIn returns the connection to the pool, and tells the topology how the operation ended.
	CheckIn(err error)
}

// Kind says what an operation may do to data.
type Kind uint8

const (
	// Read changes nothing. It may carry $readPreference.
	Read Kind = iota
	// Write changes data. If it is not known whether it did, the error is an *OutcomeUnknownError.
	Write
	// Generic is a command that a user wrote. It is selected and sent as a read; where its outcome
	// is unknown, it counts as a write.
	Generic
	// Output is a read whose result the server writes: an aggregation that ends with $out or
	// $merge. It is a Write that goes where its read preference says, once all servers can run it
	// there.
	Output
)

// Target describes the connection that a command is about to be sent on.
type Target struct {
	// Hello is the server as it described itself on this connection.
	Hello *description.Server
	// Repeated says that an earlier attempt of the operation failed otherwise than by the refusal
	// of an overloaded server, so that the server may have carried it out.
	Repeated bool

	memory bson.Memory // of the message; nil: it grows by append
}

// Grow returns a message that begins with msg and has room for n more bytes, which are admitted
// before they are taken if the message is large (Runner.Admit).
func (t Target) Grow(msg []byte, n int) ([]byte, error) {
	if t.memory == nil || len(msg)+n <= cap(msg) || len(msg)+n < bson.LargeBuffer {
		return slices.Grow(msg, n), nil
	}
	return t.memory.Grow(msg, n)
}

// Command appends itself to a message. Append may be called again for an attempt on another
// connection.
type Command interface {
	// Name returns the name of the command, the key of its first element.
	Name() string
	// Append appends the command's elements, without those that the Runner adds: $db,
	// $readPreference, readConcern, maxTimeMS, and those of the session.
	Append(b *bson.Builder, to Target) error
}

// Sequencer describes a Command that also has document sequences (kind-1 sections) behind its
// body.
type Sequencer interface {
	Command
	// AppendSequences appends the sections to msg, with wire.BeginSequence and wire.EndSequence.
	// The finished message must not be longer than to.Hello.MaxMessageSize.
	AppendSequences(msg []byte, to Target) ([]byte, error)
}

// Mixed describes a Command of several writes, of which some may reach several documents.
type Mixed interface {
	Command
	// Retryable reports whether no write of the message that was built last reaches several
	// documents, so that it may be repeated.
	Retryable() bool
	// Single reports whether that message has one write.
	Single() bool
}

// Operation describes one command to run. A Runner does not change it.
type Operation struct {
	Database string
	// Name and Collection are those of the operation in events. An empty Name is the command's, and
	// an empty Collection none.
	Name, Collection string
	Command          Command
	Kind             Kind
	// On is the connection to run on; nil: that of a server that is selected. It stays pinned,
	// however the operation ends.
	On *Pin
	// Relayed says that the server may have another one write, as with an Output.
	Relayed bool
	// Keep asks for what the further commands of a cursor need, if the operation succeeds: its
	// connection (Result.Pin), unless On is set or any connection will do, and its implicit session
	// (Result.Session).
	Keep bool
	// Retry allows another attempt after an error, if the Runner does: a Read is repeated by the
	// rules of Retryable Reads, and a Write by those of Retryable Writes, with the same transaction
	// number. After an error of an overloaded server that allows it, an operation of any kind is
	// repeated, also without Retry.
	Retry bool
	// Session is the session that the command runs in; nil: an implicit one, if the server supports
	// sessions and the write is not unacknowledged.
	Session *session.Client
	// Role is what the operation is to the transaction of Session.
	Role TransactionRole
	// ReadConcern is the read concern of the command. The Runner adds what the session asks for. In
	// a transaction that of the transaction counts.
	ReadConcern ReadConcern
	// OwnReadConcern says that the command itself has a read concern, so that no other is added.
	OwnReadConcern bool
	// Selector finds the server. Nil: the selector of writes, or of ReadPreference.
	Selector selection.Selector
	// ReadPreference of what is no Write; nil is primary. It is sent where the specification says
	// so, and never with a Selector: getMore and killCursors go where the cursor is. In a
	// transaction that of the transaction counts, unless the operation is Generic and has one.
	ReadPreference *selection.ReadPreference
	// Unacknowledged writes get no reply; their Result is empty.
	Unacknowledged bool
	// MaxTimeMS is the limit that the caller sets the server; nil: none. It is sent as maxTimeMS.
	MaxTimeMS *int64
	// DeadlineAsMaxTime sends as maxTimeMS what is left until the context's deadline, less the
	// shortest round trip, or MaxTimeMS if that is less.
	DeadlineAsMaxTime bool
	// RunOn lets the exchange with the server go on, once it has begun, although the context is
	// canceled: until the context's deadline, for RunOnLimit at most, and only if the context's
	// cause is context.Canceled and Runner.RunOns admits it.
	RunOn bool
	// Lend allows a reply in lent memory: see Result.Lent. The reply in events is then valid until
	// the listener returns.
	Lend bool
	// Caller is the caller's name for the operation, in events.
	Caller string
	// ID, from NewID, is common to the commands of one operation in events. With 0 each command
	// is an operation of its own.
	ID int64
}

// Result holds the outcome of an operation.
type Result struct {
	// Reply has ok: 1. It belongs to the caller; nil for an unacknowledged write.
	Reply bson.Raw
	// Lent is the memory of the reply, of which the caller has one reference. It is nil if the
	// reply stays valid: without Operation.Lend, after an error, with a WriteConcernError, and if
	// the reply is not of a size that is lent.
	Lent *buffer.Buffer
	// Server answered.
	Server address.Address
	// Hello is the server as it described itself on the connection that was used.
	Hello *description.Server
	// DeadlineSent says that maxTimeMS was sent for the context's deadline, so that this is what
	// ends the command, and any cursor that it opens, on the server.
	DeadlineSent bool
	// WriteConcernError is that of the reply; nil if it has none, and for reads.
	WriteConcernError *mongoerr.WriteConcernError
	// Pin is the connection that was used, which the caller releases. It is nil without
	// Operation.Keep, after an error, and where any connection to the server will do, which is
	// everywhere but behind a load balancer.
	Pin *Pin
	// Session is the implicit session that the command ran in, which the caller returns to the
	// Runner's pool. It is nil without Operation.Keep, after an error, and if there was none.
	Session *session.Session
}
