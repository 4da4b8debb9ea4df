package operation

import (
	"errors"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/selection"
	"github.com/mooringdb/mooring/core/session"
)

// Errors of operations in transactions. Nothing was sent.
var (
	ErrTransactionReadPreference = errors.New(
		"read preference in a transaction must be primary")
	ErrTransactionsNotSupported = errors.New("the server does not support transactions")
)

// TransactionRole says what an operation is to the transaction of its session.
type TransactionRole uint8

const (
	// Member is the role of all operations but the next two. It belongs to the transaction if that
	// is running.
	Member TransactionRole = iota
	// Commit sends commitTransaction.
	Commit
	// Abort sends abortTransaction.
	Abort
)

// part holds what an operation has to do with a transaction, for all its attempts.
type part struct {
	// session is in the transaction; nil: the operation has nothing to do with one.
	session *session.Client
	role    TransactionRole
	// first says that the operation is the first of the transaction, and starts it on the server,
	// with each attempt.
	first bool
	opt   session.TransactionOptions
}

// joinTransaction begins the operation in its session.
func joinTransaction(op *Operation) part {
	s := op.Session
	switch {
	case s == nil || s.IsImplicit():
		return part{}
	case op.Role != Member:
		return part{session: s, role: op.Role}
	}
	state, opt := s.Transaction()
	// A command of a cursor that was opened before starts no transaction. After the end of one it
	// leaves the state as it is, so that the commit may be repeated.
	ofCursor := op.Selector != nil
	if !ofCursor {
		state = s.Operate()
	}
	if !state.Running() || ofCursor && state == session.TransactionStarting {
		return part{}
	}
	return part{session: s, first: state == session.TransactionStarting, opt: opt}
}

// within reports whether the operation is one of a running transaction.
func (p *part) within() bool { return p.session != nil && p.role == Member }

// preference returns the read preference of the operation: that of the transaction, unless a user
// wrote the command and gave one.
func (p *part) preference(op *Operation) (*selection.ReadPreference, error) {
	if !p.within() || op.Kind == Write || op.Selector != nil {
		return op.ReadPreference, nil
	}
	rp := p.opt.ReadPreference
	if op.Kind == Generic && op.ReadPreference != nil {
		rp = op.ReadPreference
	}
	if rp != nil && rp.Mode != selection.Primary {
		return nil, ErrTransactionReadPreference
	}
	return rp, nil
}

// mongosPin binds a transaction to a mongos.
type mongosPin address.Address

// Release does nothing: it holds nothing.
func (mongosPin) Release() {}

// pinned returns the connection that the transaction is bound to, or the selector of the mongos;
// both nil: it is bound to nothing.
func (p *part) pinned() (*Pin, selection.Selector) {
	if p.session == nil {
		return nil, nil
	}
	switch pin := p.session.Pinned().(type) {
	case *Pin:
		return pin, nil
	case mongosPin:
		return nil, selection.Address(address.Address(pin))
	}
	return nil, nil
}

// Pinned returns the server that the transaction of a session is bound to, and the service behind a
// load balancer, which is zero elsewhere; ok is false if it is bound to nothing.
func Pinned(s *session.Client) (server address.Address, service bson.ObjectID, ok bool) {
	p := part{session: s}
	pin, _ := p.pinned()
	if pin != nil {
		return pin.server.Description().Address, pin.conn.Hello().ServiceID, true
	}
	mongos, ok := s.Pinned().(mongosPin)
	return address.Address(mongos), bson.ObjectID{}, ok
}

// pinTransaction binds a transaction to the connection, or to the mongos, that its first command is
// about to be sent to (Transactions, "Mongos Pinning").
func (x *exchange) pinTransaction(p *part) error {
	if !p.within() || !p.first || x.pinned {
		return nil
	}
	switch {
	case pins(x.server):
		if err := x.conn.PinForTransaction(); err != nil {
			return err
		}
		x.pin, x.pinned = newTransactionPin(x.server, x.conn), true
		p.session.PinTo(x.pin)
	case x.server.Description().Kind == description.ServerMongos:
		p.session.PinTo(mongosPin(x.server.Description().Address))
	}
	return nil
}

// The first wire versions whose replica sets and mongoses run transactions.
const (
	wireVersion40 = 7
	wireVersion42 = 8
)

func (x *exchange) supportsTransactions() bool {
	least := int32(wireVersion40)
	if x.server.Description().Kind == description.ServerMongos || pins(x.server) {
		least = wireVersion42
	}
	return x.supportsSessions() && x.conn.Hello().MaxWireVersion >= least
}

// send records that a command of the transaction is sent.
func (p *part) send() {
	if p.within() {
		p.session.Send()
	}
}

// keep returns the Pin of the connection for a cursor.
func (x *exchange) keep() *Pin {
	if x.pin != nil {
		return x.pin.share()
	}
	return newPin(x.server, x.conn)
}

// append appends what the commands of a transaction carry besides the lsid.
func (p *part) append(b *bson.Builder) {
	if p.session != nil {
		p.session.AppendTransaction(b, p.first)
	}
}

// appendReadConcern appends the read concern of the transaction to its first command, whatever that
// is, with the time that a causally consistent session has seen.
func (p *part) appendReadConcern(b *bson.Builder) {
	if p.first {
		var rc ReadConcern
		if level := p.opt.ReadConcernLevel; level != nil && *level != "" {
			rc = ReadConcern{Level: *level, Sent: true}
		}
		rc.append(b, p.session.AfterClusterTime())
	}
}

// ledger returns the ledger of an operation without attempts. That of a commit begins with what
// the commits before it have left open.
func (p *part) ledger(op *Operation) ledger {
	l := ledger{reads: op.Kind == Read}
	if p.role == Commit && p.session.IsCommitUnknown() {
		l.delivery, l.number = mongoerr.Unanswered, p.session.TransactionNumber()
	}
	return l
}

// conclude applies the end of an attempt to the transaction: the labels that the driver adds to the
// error, and for a commit, before a server is selected for another attempt, that any mongos may
// have that. A write concern error is the error of a commit.
func (p *part) conclude(o *outcome) {
	switch {
	case p.session == nil:
	case p.role == Abort:
		p.session.PinTo(nil)
	case p.role == Commit:
		if o.err == nil && o.res.WriteConcernError != nil {
			o.err = o.res.WriteConcernError
		}
		if unknownCommit(o.err) {
			o.err = mongoerr.WithLabel(o.err, mongoerr.LabelUnknownTransactionCommitResult)
		}
		if ends(o.err) {
			p.session.PinTo(nil)
		}
	case transient(o.err):
		o.err = mongoerr.WithLabel(o.err, mongoerr.LabelTransientTransaction)
	}
}

// finish applies the end of the operation to the transaction. An error that ends a transaction lets
// the next one go to another mongos; until then its commands stay at theirs, also the attempts that
// an overloaded server causes. If the first command was refused or not sent, the next one starts
// the transaction.
func (p *part) finish(l ledger, err error) {
	if p.session == nil {
		return
	}
	if p.role == Commit {
		p.session.SetCommitUnknown(l.delivery != mongoerr.Unsent &&
			l.delivery != mongoerr.Refused &&
			mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult))
	}
	switch {
	case ends(err):
		p.session.PinTo(nil)
	case p.first && (l.delivery == mongoerr.Refused || l.delivery == mongoerr.Unsent):
		p.session.Refuse()
	}
}

// ends reports whether a transaction is over after err, or is to be committed by any mongos
// (Transactions, "Mongos Pinning").
func ends(err error) bool {
	return mongoerr.HasLabel(err, mongoerr.LabelTransientTransaction) ||
		mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult)
}

// transient reports whether the driver labels an error of a command in a transaction as transient:
// the transaction may be tried again as a whole, since the command was not answered (Transactions,
// "Transient Transaction Error"). Servers label their own.
func transient(err error) bool {
	_, selection := errors.AsType[*mongoerr.SelectionError](err)
	v := mongoerr.Judge(err)
	cleared := v.Retryable && v.Delivery == mongoerr.Unsent // a pool that was cleared
	return selection || mongoerr.IsNetwork(err) || cleared
}

// Codes of write concern errors that say for sure that a transaction is committed.
const (
	codeUnknownReplWriteConcern   = 79
	codeUnsatisfiableWriteConcern = 100
)

// unknownCommit reports whether it is unknown after err whether a transaction is committed
// (Transactions, "UnknownTransactionCommitResult").
func unknownCommit(err error) bool {
	if err == nil {
		return false
	}
	if wce, ok := errors.AsType[*mongoerr.WriteConcernError](err); ok {
		return wce.Code != codeUnknownReplWriteConcern && wce.Code != codeUnsatisfiableWriteConcern
	}
	switch mongoerr.Judge(err).Delivery {
	case mongoerr.Unsent, mongoerr.Unanswered:
		return true
	default:
		return mongoerr.HasLabel(err, mongoerr.LabelRetryableWrite) ||
			mongoerr.Code(err) == codeMaxTimeMSExpired
	}
}
