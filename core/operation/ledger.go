package operation

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/mongoerr"
)

// entry records how one attempt of an operation ended.
type entry struct {
	// delivery says how far the attempt got. It is Executed for one that succeeded.
	delivery mongoerr.Delivery
	// decides says that the server has come to the command itself, and so has seen what earlier
	// attempts with the same number did.
	decides bool
	// concern says that the writes were applied, and that their write concern was not satisfied.
	concern bool
	// nothing says that the error must not replace an earlier one: it has NoWritesPerformed.
	nothing bool
	// overloaded says that the server was overloaded, and turnedAway that it has refused the
	// attempt for that reason and allows another.
	overloaded, turnedAway bool
	// number is that of the retryable write or the transaction; 0: the attempt has none.
	number int64
}

// ledger holds what the attempts of one operation came to so far. What is told of the operation is
// derived from it. It is a value; the zero ledger is that of a write without attempts.
type ledger struct {
	// reads says that the operation changes nothing: its last answer counts.
	reads    bool
	attempts int
	// delivery says how far all attempts together got.
	delivery mongoerr.Delivery
	// concern says that the writes were applied without their write concern, and that no attempt
	// followed which leaves it open what has become of them.
	concern bool
	// number is that of the attempt that counts.
	number int64
	// overloaded says that a server was, and repeated that an attempt failed otherwise than by the
	// refusal of an overloaded server.
	overloaded, repeated bool
}

// record returns the ledger with one more attempt. If keep is true, the outcome of the attempt is
// that of the operation, until another one is kept.
func (l ledger) record(e entry) (_ ledger, keep bool) {
	first := l.attempts == 0
	l.attempts++
	l.overloaded = l.overloaded || e.overloaded
	l.repeated = l.repeated || !e.turnedAway
	keep = l.counts(e)
	switch {
	case keep:
		l.delivery, l.concern, l.number = e.delivery, e.concern, e.number
	case l.concern && !e.nothing:
		l.delivery, l.concern = mongoerr.Unanswered, false
	}
	return l, keep || first
}

// counts reports whether an attempt tells more of the operation than those before it. While it is
// open what they did, that is one that decides and has the same number: a server that refuses an
// attempt knows nothing of the others.
func (l ledger) counts(e entry) bool {
	switch {
	case l.delivery == mongoerr.Undetermined:
		return true
	case l.reads:
		return e.delivery != mongoerr.Unsent && !e.nothing
	case e.delivery == mongoerr.Unanswered:
		return true
	case l.delivery == mongoerr.Unanswered:
		return e.decides && e.number != 0 && e.number == l.number
	case l.concern:
		return e.decides && e.number != 0 && e.number == l.number && !e.nothing
	case e.delivery == mongoerr.Refused:
		return l.delivery != mongoerr.Executed && !e.nothing
	}
	return e.delivery == mongoerr.Executed
}

// isUnknown reports whether the operation may have changed something, and no attempt tells.
func (l ledger) isUnknown() bool { return !l.reads && l.delivery == mongoerr.Unanswered }

// tell returns the error of the operation. kept is the error of the attempt that was kept, and last
// what ended the operation.
func (l ledger) tell(kept, last error) error {
	if kept == nil || !l.isUnknown() {
		return mongoerr.WithDelivery(kept, l.delivery)
	}
	unknown := &OutcomeUnknownError{Err: kept}
	if !errors.Is(kept, last) && !errors.Is(last, context.DeadlineExceeded) &&
		!mongoerr.IsCanceled(last) { // endedBy tells of these
		unknown.Later = last
	}
	return unknown
}

// ending holds what matters about the end of an attempt.
type ending struct {
	kind Kind
	role TransactionRole
	// member says that the command is one of a running transaction.
	member bool
	// sent says that the command was sent, unless err tells that it was not.
	sent bool
	// divisible says that a command that the server has interrupted may be done in part.
	divisible bool
	// relayed says that the server may have had another one write, and passed on its error.
	relayed bool
	number  int64
	err     error
	concern *mongoerr.WriteConcernError
}

// entry returns the record of the attempt.
func (a *ending) entry() entry {
	trouble := a.err
	if a.err == nil && a.concern != nil {
		trouble = a.concern
	}
	e := entry{
		concern: a.concern != nil, number: a.number,
		nothing:    mongoerr.HasLabel(trouble, mongoerr.LabelNoWritesPerformed),
		overloaded: mongoerr.HasLabel(trouble, mongoerr.LabelSystemOverloaded),
		turnedAway: mongoerr.IsRetryableOverload(trouble),
	}
	e.delivery = a.delivery()
	e.decides = e.delivery == mongoerr.Executed && a.decides()
	return e
}

// delivery returns how far the attempt got. An error that does not tell, after the command was
// sent, leaves that open.
func (a *ending) delivery() mongoerr.Delivery {
	if !a.sent {
		return mongoerr.Unsent
	}
	if a.err == nil {
		return mongoerr.Executed
	}
	d := mongoerr.Judge(a.err)
	switch {
	case d.Delivery == mongoerr.Undetermined || a.isCutShort():
		return mongoerr.Unanswered
	case d.Delivery == mongoerr.Executed && d.Retryable && a.leavesNothing():
		return mongoerr.Refused
	}
	return d.Delivery
}

// leavesNothing reports whether the command can be sent again whatever it has done: it is a read of
// its own. A getMore has moved its cursor, and one of a transaction has begun it.
func (a *ending) leavesNothing() bool { return a.kind == Read && !a.divisible && !a.member }

// isCutShort reports whether the server's error leaves it open what the command has done: a mongos
// has lost its shard, the server was interrupted in a command that may be done in part, or it had
// another one write, which stepped down meanwhile. The end of a transaction undoes its commands.
func (a *ending) isCutShort() bool {
	failed, ok := errors.AsType[*mongoerr.CommandError](a.err)
	if !ok || a.kind == Read || a.member ||
		mongoerr.HasLabel(failed, mongoerr.LabelNoWritesPerformed) ||
		mongoerr.IsRetryableOverload(failed) {
		return false
	}
	if mongoerr.IsStateChange(failed) {
		return a.relayed || a.divisible && mongoerr.IsRecovering(failed)
	}
	return mongoerr.IsRetryableWriteCode(failed.Code)
}

// decides reports whether the server has come to the command itself. Of the errors of whole
// commands only a few are sure to be the command's own; of a commit or an abort, that the
// transaction has ended otherwise.
func (a *ending) decides() bool {
	if a.err == nil {
		return true
	}
	command, ok := errors.AsType[*mongoerr.CommandError](a.err)
	if a.role != Member {
		return mongoerr.HasLabel(a.err, mongoerr.LabelTransientTransaction) ||
			ok && command.Code == codeTransactionCommitted
	}
	if failed, ok := errors.AsType[*mongoerr.WriteException](a.err); ok {
		for _, w := range failed.WriteErrors {
			if !ownCode(w.Code) {
				return false
			}
		}
		return true
	}
	return ok && statementCodes[command.Code]
}

// codeTransactionCommitted is that of an abort that comes after the commit.
const codeTransactionCommitted = 256

// statementCodes has errors of statements that are errors of the whole command, too: findAndModify
// has one statement.
var statementCodes = map[int32]bool{
	66: true, 121: true, 10334: true, 11000: true, 11001: true, 12582: true,
}

// ownCode reports whether the code of a write error is about the statement, and not about the
// server or the time that it had.
func ownCode(code int32) bool {
	of := &mongoerr.CommandError{Code: code}
	return code != codeInterrupted && !mongoerr.IsRetryableWriteCode(code) &&
		!mongoerr.IsTimeout(of) && of.Delivery() == mongoerr.Executed
}

// codeInterrupted is that of a command that an operator has ended.
const codeInterrupted = 11601
