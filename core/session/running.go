package session

import (
	"errors"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/core/selection"
)

// ErrSnapshotTransaction is the error of the start of a transaction in a session that reads from a
// snapshot.
var ErrSnapshotTransaction = errors.New("transactions are not supported in snapshot sessions")

// ErrSharedTransaction is the error of the start of a transaction in a session whose id other
// processes use at the same time: see State.
var ErrSharedTransaction = errors.New("transactions are not supported in shared sessions")

// TransactionOptions holds the options of a transaction. In Options, and for the start of a
// transaction, a field that is nil inherits.
type TransactionOptions struct {
	// ReadConcernLevel is that of the first command; an empty one sends none.
	ReadConcernLevel *string
	// WriteConcern is that of the commit and the abort.
	WriteConcern *connstring.WriteConcern
	// ReadPreference is that of the reads, which refuse any mode but primary.
	ReadPreference *selection.ReadPreference
	// MaxCommitTimeMS is maxTimeMS of the commit. It has no effect where timeoutMS is set.
	MaxCommitTimeMS *int64
}

// Else returns the options with those of d for fields that are nil.
func (o TransactionOptions) Else(d TransactionOptions) TransactionOptions {
	if o.ReadConcernLevel == nil {
		o.ReadConcernLevel = d.ReadConcernLevel
	}
	if o.WriteConcern == nil {
		o.WriteConcern = d.WriteConcern
	}
	if o.ReadPreference == nil {
		o.ReadPreference = d.ReadPreference
	}
	if o.MaxCommitTimeMS == nil {
		o.MaxCommitTimeMS = d.MaxCommitTimeMS
	}
	return o
}

// Pin represents what the commands of a transaction are bound to.
type Pin interface {
	// Release ends the transaction's hold on it.
	Release()
}

// transaction holds the transaction of a session.
type transaction struct {
	state         TransactionState
	number        int64
	opt           TransactionOptions
	recoveryToken bson.Raw
	pin           Pin
	traceID       int64 // its number in events; 0: it has none
	// commitUnknown says that commitTransaction was sent, and that nothing tells what came of it.
	commitUnknown bool
}

// StartTransaction starts a transaction. Nothing is sent before its first command.
func (c *Client) StartTransaction(opt TransactionOptions) error {
	old, err := c.start(opt)
	release(old)
	return err
}

func (c *Client) start(opt TransactionOptions) (old Pin, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := c.transaction.state.Start()
	switch {
	case c.ended:
		return nil, ErrEnded
	case c.opt.Snapshot:
		return nil, ErrSnapshotTransaction
	case c.shared:
		return nil, ErrSharedTransaction
	case err != nil:
		return nil, err
	}
	old = c.transaction.pin
	c.transaction = transaction{state: state, number: c.server.NextTxnNumber(), opt: opt}
	return old, nil
}

// ResumeTransaction continues the last transaction of a session that was resumed, whose number is
// in its State: so that this process can end it.
func (c *Client) ResumeTransaction(opt TransactionOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return ErrEnded
	}
	c.transaction = transaction{
		state: TransactionInProgress, number: c.server.txnNumber, opt: opt,
		commitUnknown: true, // the other process may have sent it
	}
	return nil
}

// IsCommitUnknown reports whether commitTransaction was sent, and nothing tells what came of it.
func (c *Client) IsCommitUnknown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transaction.commitUnknown
}

// SetCommitUnknown records whether that is so after a commit.
func (c *Client) SetCommitUnknown(unknown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.transaction.commitUnknown = unknown
}

func release(p Pin) {
	if p != nil {
		p.Release()
	}
}

// Transaction returns the state of the session's transaction, and its options.
func (c *Client) Transaction() (TransactionState, TransactionOptions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transaction.state, c.transaction.opt
}

// TransactionNumber returns the number of the session's transaction, 0 if it has none.
func (c *Client) TransactionNumber() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transaction.number
}

// Operate begins an operation that is neither a commit nor an abort, and returns the state that it
// begins in. If the operation belongs to no transaction, the session is not pinned any more.
func (c *Client) Operate() TransactionState {
	state, old := c.operate()
	release(old)
	return state
}

func (c *Client) operate() (state TransactionState, old Pin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state = c.transaction.state.Operate(); state == TransactionNone {
		old = c.transaction.pin
		c.transaction = transaction{}
	}
	return state, old
}

// Send records that a command of the transaction is about to be sent.
func (c *Client) Send() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.transaction.state = c.transaction.state.Send()
}

// Refuse records that the first command of the transaction was refused before it began. The session
// is not pinned any more.
func (c *Client) Refuse() {
	c.mu.Lock()
	c.transaction.state = c.transaction.state.Refuse()
	c.mu.Unlock()
	c.PinTo(nil)
}

// Commit begins a commit, and returns what that sends.
func (c *Client) Commit() (Ending, error) { return c.finish(TransactionState.Commit) }

// Abort begins an abort, and returns what that sends. If that is nothing, the session is not pinned
// any more.
func (c *Client) Abort() (Ending, error) {
	ending, err := c.finish(TransactionState.Abort)
	if err == nil && ending == EndSilently {
		c.PinTo(nil)
	}
	return ending, err
}

func (c *Client) finish(
	end func(TransactionState) (TransactionState, Ending, error),
) (ending Ending, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return EndSilently, ErrEnded
	}
	c.transaction.state, ending, err = end(c.transaction.state)
	return ending, err
}

// AppendTransaction appends what every command of the transaction carries besides the lsid, and, to
// the first one, that it starts the transaction.
func (c *Client) AppendTransaction(b *bson.Builder, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.Int64("txnNumber", c.transaction.number)
	if first {
		b.Bool("startTransaction", true)
	}
	b.Bool("autocommit", false)
}

// KeepRecoveryToken keeps the recoveryToken of a reply to a command of the transaction, if that
// succeeded.
func (c *Client) KeepRecoveryToken(reply bson.Raw) {
	v, _ := reply.Lookup("recoveryToken")
	token, found := v.Document()
	if !found {
		return
	}
	done, _ := reply.Lookup("ok")
	if ok, _ := done.AsDouble(); ok != 1 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.transaction.recoveryToken = token.Clone()
}

// RecoveryToken returns the newest recoveryToken of the transaction, nil if there is none.
func (c *Client) RecoveryToken() bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transaction.recoveryToken
}

// PinTo binds the transaction to p; nil binds it to nothing. The session releases what it was bound
// to before, and p at once if the session has ended.
func (c *Client) PinTo(p Pin) {
	c.mu.Lock()
	if !c.ended { // else no End follows that releases p
		c.transaction.pin, p = p, c.transaction.pin
	}
	c.mu.Unlock()
	release(p)
}

// Pinned returns what the transaction is bound to, nil if it is bound to nothing. It may be bound
// after its end, too.
func (c *Client) Pinned() Pin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transaction.pin
}

// TraceID returns the number of the transaction in events, 0 if it has none.
func (c *Client) TraceID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transaction.traceID
}

// SetTraceID sets the number of the transaction in events, and returns the previous number.
func (c *Client) SetTraceID(id int64) (old int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, c.transaction.traceID = c.transaction.traceID, id
	return old
}
