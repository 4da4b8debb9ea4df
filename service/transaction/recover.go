package transaction

import (
	"context"
	"errors"
	"time"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
)

// recoverable is how long after its beginning the outcome of a transaction can be asked for.
// Servers forget it with its session, after 30 minutes.
const recoverable = 25 * time.Minute

// commitFailed returns what a client gets whose commit its owner was to make, which has returned
// err. If the owner is gone, it asks the servers to commit.
func (s *Transactions) commitFailed(ctx context.Context, c claim, err error) error {
	switch {
	case !errors.Is(err, paging.ErrOwnerGone):
	case call.RightsSince(ctx).Add(seal.MaxSkew).After(c.begun):
		return s.recoverUndecided(ctx, c)
	default:
		return s.recoverCommit(ctx, c)
	}
	lost, unreachable := errors.AsType[*paging.UnreachableError](err)
	if isStopping(err) || unreachable && lost.Sent || gaveUp(ctx, err) {
		return &rpcerr.Error{
			Reason: rpcerr.UnknownCommitResult, Field: "transaction",
			Message: "the gateway replica that keeps the transaction has not answered",
		}
	}
	return err
}

// abortFailed returns what a client gets whose abort its owner was to make, which has returned
// err. If the owner is gone, it asks the servers to abort.
func (s *Transactions) abortFailed(ctx context.Context, c claim, err error) error {
	if errors.Is(err, paging.ErrOwnerGone) {
		return s.recoverAbort(ctx, c)
	}
	return err
}

// recoverAbort asks the servers to abort a transaction whose owner is gone. It returns nil only if
// they say that it is aborted: the owner may have committed it.
func (s *Transactions) recoverAbort(ctx context.Context, c claim) error {
	answer, err := s.abortAgain(ctx, c)
	switch kind := abortedBy(answer); {
	case err != nil:
		return err
	case kind == outcomeAborted:
		return nil
	case kind == outcomeCommitted:
		return outcome{kind: kind}.refusal()
	default:
		return &rpcerr.Error{
			Reason: rpcerr.UnknownCommitResult, Field: "transaction",
			Message: "the gateway replica that kept the transaction is gone, and no server has " +
				"confirmed the abort" + withCode(answer),
		}
	}
}

// abortAgain asks the servers to abort a transaction that this replica does not keep, or no more.
// It returns what they have answered.
func (s *Transactions) abortAgain(ctx context.Context, c claim) (answer, err error) {
	own, err := s.resume(c)
	if err != nil {
		return nil, err
	}
	defer own.End(ctx)
	answer = abortNow(ctx, own, endOptions(ctx))
	informCaller(ctx, own)
	if isForgotten(answer) {
		err = errUnrecoverable
	}
	return answer, err
}

// recoverUndecided answers a commit whose owner is gone, and with it what the policy had allowed
// the operations by; the rules or the API keys may have changed since. It commits nothing, but what
// the owner has committed may need a majority yet.
func (s *Transactions) recoverUndecided(ctx context.Context, c claim) error {
	err := s.recoverAbort(ctx, c)
	if err == nil {
		return aborted("the policy or the API keys may have changed since it began, and the " +
			"gateway replica that kept it is gone").refusal()
	}
	if e, ok := errors.AsType[*rpcerr.Error](err); ok && e.Reason == rpcerr.TransactionCommitted {
		return s.recoverCommit(ctx, c)
	}
	return err
}

// The codes of servers that have no transaction to end.
const (
	codeTransactionTooOld    = 225
	codeNoSuchTransaction    = 251
	codeTransactionCommitted = 256
)

// abortedBy returns how a transaction has ended, by the answer of a server to abortTransaction.
// That a server knows none counts only if the majority confirms it: another server may have
// committed it.
func abortedBy(answer error) outcomeKind {
	refused, ok := errors.AsType[*mongoerr.CommandError](answer)
	_, late := errors.AsType[*mongoerr.WriteConcernError](answer)
	switch {
	case answer == nil, !ok && late: // until then it was open there, so none has committed it
		return outcomeAborted
	case ok && refused.Code == codeNoSuchTransaction:
		if _, alone := refused.Reply.Lookup("writeConcernError"); alone {
			return outcomeUnknown
		}
		return outcomeAborted
	case ok && refused.Code == codeTransactionCommitted:
		return outcomeCommitted
	default:
		return outcomeUnknown
	}
}

// isForgotten reports whether a server says that the session of a transaction has a later number:
// the owner has used it again, after a commit or an abort, and the servers have forgotten which of
// these it was.
func isForgotten(answer error) bool { return mongoerr.Code(answer) == codeTransactionTooOld }

// recoverCommit asks the servers to commit a transaction whose owner is gone, or has given up. If
// it is committed already, they say so.
func (s *Transactions) recoverCommit(ctx context.Context, c claim) error {
	own, err := s.resume(c)
	if err != nil {
		return err
	}
	defer own.End(ctx)
	err = own.CommitTransaction(ctx, endOptions(ctx))
	informCaller(ctx, own)
	switch {
	case isForgotten(err):
		return errUnrecoverable
	case mongoerr.HasLabel(err, mongoerr.LabelTransientTransaction) &&
		!mongoerr.HasLabel(err, mongoerr.LabelUnknownTransactionCommitResult):
		return errOwnerGone
	}
	return err
}

func endOptions(ctx context.Context) client.EndTransactionOptions {
	return client.EndTransactionOptions{RunOn: true, Caller: call.From(ctx).RequestID}
}

var errUnrecoverable = &rpcerr.Error{
	Reason: rpcerr.UnknownCommitResult, Field: "transaction", Retry: rpcerr.Never,
	Message: "no gateway replica can find out any more whether the transaction is committed",
}

// resume returns a session in which this replica can end a transaction whose owner is gone.
func (s *Transactions) resume(c claim) (*client.Session, error) {
	if !s.canResume() || time.Since(c.begun) > recoverable {
		return nil, errUnrecoverable
	}
	own, err := s.cfg.Client.ResumeSession(
		session.State{ID: c.session, TxnNumber: c.number}, session.Options{})
	if err != nil {
		return nil, err
	}
	majority, wtimeout := client.WriteConcern{Tag: "majority"}, int64(recoveryTimeoutMS)
	majority.WTimeoutMS = &wtimeout
	return own, own.ResumeTransaction(client.TransactionOptions{WriteConcern: &majority})
}

// canResume reports whether a replica can end the transactions of others.
func (s *Transactions) canResume() bool {
	switch s.cfg.Client.Topology().Kind {
	case description.KindReplicaSetWithPrimary, description.KindReplicaSetNoPrimary:
		return true
	default:
		return false
	}
}

// recoveryTimeoutMS is how long a commit waits for the majority, as a repeated one does.
const recoveryTimeoutMS = 10_000
