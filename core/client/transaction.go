package client

import (
	"context"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/session"
)

// TransactionOptions holds the options of a transaction. A field that is nil inherits from the
// session's options, and that from the client.
type TransactionOptions = session.TransactionOptions

// EndTransactionOptions holds the options of a commit and an abort.
type EndTransactionOptions struct {
	// Timeout is timeoutMS; nil inherits the session's, and that the client's.
	Timeout *time.Duration
	// RunOn lets a command that was sent go on after ctx is canceled: see Common.
	RunOn bool
	// Caller is the caller's own name for the operation, in events.
	Caller string
}

// StartTransaction starts a transaction, to which the operations of the session belong until
// CommitTransaction or AbortTransaction. It does no I/O.
//
// A command that fails may have ended the transaction on the server, so that a later commit fails
// with code 251, NoSuchTransaction. Errors with the label TransientTransactionError say that the
// whole transaction may be tried again: WithTransaction does that.
func (s *Session) StartTransaction(opt TransactionOptions) error {
	opt, err := s.transactionOptions(opt)
	if err != nil {
		return err
	}
	return s.state.StartTransaction(opt)
}

// ResumeTransaction lets CommitTransaction or AbortTransaction end a transaction that another
// process has started and does not continue. The session must come from ResumeSession; its state
// has the transaction's number. On a replica set, the commit of a transaction that is already
// committed succeeds, and that of an unknown one fails with code 251, NoSuchTransaction. On a
// sharded cluster only the process that ran the transaction can end it.
func (s *Session) ResumeTransaction(opt TransactionOptions) error {
	opt, err := s.transactionOptions(opt)
	if err != nil {
		return err
	}
	return s.state.ResumeTransaction(opt)
}

func (s *Session) transactionOptions(opt TransactionOptions) (TransactionOptions, error) {
	ck := check{client: s.client}
	opt = opt.Else(s.state.Options().DefaultTransaction).Else(TransactionOptions{
		ReadConcernLevel: &s.client.readConcernLevel, WriteConcern: &s.client.writeConcern,
		ReadPreference: s.client.readPreference,
	})
	checkWriteConcern(opt.WriteConcern, &ck)
	if unacknowledged(*opt.WriteConcern) {
		ck.refuse("writeConcern", "transactions do not support unacknowledged write concerns")
	}
	ck.readPreference(opt.ReadPreference)
	if opt.MaxCommitTimeMS != nil && *opt.MaxCommitTimeMS < 0 {
		ck.refuse("maxCommitTimeMS", "is negative")
	}
	return opt, ck.err
}

// CommitTransaction commits the transaction. If it returns an error with the label
// UnknownTransactionCommitResult, it is not known whether the transaction is committed, and
// CommitTransaction may be called again, as it may be after success.
func (s *Session) CommitTransaction(ctx context.Context, opt EndTransactionOptions) error {
	defer s.client.runner.TransactionEnded(s.state)
	ending, err := s.state.Commit()
	if err != nil || ending == session.EndSilently {
		return err
	}
	return s.end(ctx, operation.Commit, ending == session.EndAgain, opt)
}

// AbortTransaction aborts the transaction. It fails only if the session has no transaction to
// abort. An error of the server is not returned, since the server aborts idle transactions itself.
func (s *Session) AbortTransaction(ctx context.Context, opt EndTransactionOptions) error {
	_, err := s.ConfirmAbort(ctx, opt)
	return err
}

// ConfirmAbort does what AbortTransaction does, and also returns the outcome of the command in
// answer: nil if the server has aborted the transaction or needed no command, and code 251,
// NoSuchTransaction, if the server has no transaction that could be committed.
func (s *Session) ConfirmAbort(
	ctx context.Context, opt EndTransactionOptions,
) (answer, err error) {
	defer s.client.runner.TransactionEnded(s.state)
	ending, err := s.state.Abort()
	if err == nil && ending != session.EndSilently {
		answer = s.end(ctx, operation.Abort, false, opt)
	}
	return answer, err
}

// end sends commitTransaction or abortTransaction.
func (s *Session) end(
	ctx context.Context, role operation.TransactionRole, again bool, opt EndTransactionOptions,
) error {
	timeout := s.timeout(opt.Timeout)
	_, transaction := s.state.Transaction()
	cmd := endTransaction{
		role: role, again: again, wc: *transaction.WriteConcern,
		timed: timeout != nil, state: s.state,
	}
	op := operation.Operation{
		Database: "admin", Command: &cmd, Kind: operation.Write, Session: s.state, Role: role,
		DeadlineAsMaxTime: true, RunOn: opt.RunOn, Caller: opt.Caller,
	}
	if role == operation.Commit && !cmd.timed {
		op.MaxTimeMS = transaction.MaxCommitTimeMS
	}
	res, err := s.client.run(ctx, &op, &Common{Timeout: timeout})
	if err == nil && res.WriteConcernError != nil {
		return res.WriteConcernError
	}
	return err
}

// timeout returns the timeoutMS of a method of the session, nil if none is set.
func (s *Session) timeout(given *time.Duration) *time.Duration {
	switch {
	case given != nil:
		return given
	case s.state.Options().DefaultTimeout != nil:
		return s.state.Options().DefaultTimeout
	}
	return s.client.runner.Timeout
}

// endTransaction builds commitTransaction and abortTransaction.
type endTransaction struct {
	role  operation.TransactionRole
	again bool // the caller repeats a commit
	wc    WriteConcern
	timed bool // timeoutMS is set
	// state has the newest recoveryToken, which lets another mongos find out what has become of the
	// transaction.
	state *session.Client
}

func (e *endTransaction) Name() string {
	if e.role == operation.Commit {
		return "commitTransaction"
	}
	return "abortTransaction"
}

func (e *endTransaction) Append(b *bson.Builder, to operation.Target) error {
	b.Int32(e.Name(), 1)
	appendDocument(b, "recoveryToken", e.state.RecoveryToken())
	wc := e.wc
	if e.role == operation.Commit && (e.again || to.Repeated) {
		wc = repeated(wc)
	}
	if e.timed {
		wc.WTimeoutMS = nil
	}
	appendWriteConcern(b, wc)
	return nil
}

// repeatedWTimeoutMS is the wtimeout of a repeated commit that has none.
const repeatedWTimeoutMS = 10_000

// repeated returns the write concern of a commit that is sent again: the majority's, so that it
// does not succeed on a member that knows nothing of the first (Transactions, "commitTransaction").
func repeated(wc WriteConcern) WriteConcern {
	wc.Nodes, wc.Tag = nil, "majority"
	if wc.WTimeoutMS == nil {
		wc.WTimeoutMS = new(int64(repeatedWTimeoutMS))
	}
	return wc
}

// TransactionState returns where the session is in a transaction.
func (s *Session) TransactionState() session.TransactionState {
	state, _ := s.state.Transaction()
	return state
}

// TransactionNumber returns the number of the session's transaction, 0 if it has none.
func (s *Session) TransactionNumber() int64 { return s.state.TransactionNumber() }

// PinnedTo returns the server that the session's transaction is bound to: a mongos, or the load
// balancer and the service behind it. ok is false if it is bound to nothing.
func (s *Session) PinnedTo() (server address.Address, service bson.ObjectID, ok bool) {
	return operation.Pinned(s.state)
}

// inTransaction reports whether the operation belongs to a transaction.
func (o *Common) inTransaction() bool {
	return o.Session != nil && o.Session.TransactionState().Running()
}

// transaction objects to options that have no place in a transaction.
func (c *check) transaction(o *Common) {
	if !o.inTransaction() {
		return
	}
	if o.ReadConcern != nil {
		c.refuse("readConcern", "cannot set read concern after starting a transaction")
	}
	if o.WriteConcern != nil {
		c.refuse("writeConcern", "cannot set write concern after starting a transaction")
	}
}

// abortTimeout bounds an abort for which the caller gave no time. It is short because servers abort
// transactions themselves.
const abortTimeout = 5 * time.Second

// abandon aborts a transaction with time of its own, since that of ctx may be over: that of opt,
// and abortTimeout at most.
func (s *Session) abandon(ctx context.Context, opt EndTransactionOptions) {
	if !s.TransactionState().Running() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_ = s.AbortTransaction(ctx, opt)
}
