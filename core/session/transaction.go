package session

import "errors"

// Errors of transactions, in the words of the specification. They change no state.
var (
	ErrTransactionInProgress = errors.New("transaction already in progress")
	ErrNoTransaction         = errors.New("no transaction started")
	ErrCommitAfterAbort      = errors.New(
		"cannot call commitTransaction after calling abortTransaction")
	ErrAbortAfterCommit = errors.New(
		"cannot call abortTransaction after calling commitTransaction")
	ErrAbortTwice = errors.New("cannot call abortTransaction twice")
)

// TransactionState says where a session is in a transaction (Transactions, "ClientSession
// changes"). Its methods return the state after something that the session does, and change
// nothing.
type TransactionState uint8

const (
	// TransactionNone says that the session is in no transaction.
	TransactionNone TransactionState = iota
	// TransactionStarting says that a transaction was started, and that no command of it was sent.
	TransactionStarting
	// TransactionInProgress says that a command of the transaction was sent.
	TransactionInProgress
	// TransactionCommittedEmpty says that a transaction was committed without any command.
	TransactionCommittedEmpty
	// TransactionCommitted says that commitTransaction was sent, whatever came of it.
	TransactionCommitted
	// TransactionAborted says that the transaction was aborted.
	TransactionAborted
)

// String returns the name of the state in the specification, which has one for both kinds of
// commits.
func (s TransactionState) String() string {
	return [...]string{
		"none", "starting", "in_progress", "committed", "committed", "aborted",
	}[s]
}

// Running reports whether operations of the session belong to a transaction.
func (s TransactionState) Running() bool {
	return s == TransactionStarting || s == TransactionInProgress
}

// Start returns the state after the start of a transaction.
func (s TransactionState) Start() (TransactionState, error) {
	if s.Running() {
		return s, ErrTransactionInProgress
	}
	return TransactionStarting, nil
}

// Operate returns the state in which an operation begins that is neither a commit nor an abort. One
// after the end of a transaction belongs to none.
func (s TransactionState) Operate() TransactionState {
	if s.Running() {
		return s
	}
	return TransactionNone
}

// Send returns the state once a command of such an operation is sent.
func (s TransactionState) Send() TransactionState {
	if s == TransactionStarting {
		return TransactionInProgress
	}
	return s
}

// Refuse returns the state after the server has refused the first command of the transaction before
// it began: the server knows nothing of the transaction, so the next command starts it.
func (s TransactionState) Refuse() TransactionState {
	if s == TransactionInProgress {
		return TransactionStarting
	}
	return s
}

// Ending says what a commit or an abort sends.
type Ending uint8

const (
	// EndSilently sends nothing, since no command of the transaction was sent.
	EndSilently Ending = iota
	// EndFirst sends the command for the first time.
	EndFirst
	// EndAgain sends a commit again, which the caller repeats.
	EndAgain
)

// Commit returns the state after a commit, and what that sends.
func (s TransactionState) Commit() (TransactionState, Ending, error) {
	switch s {
	case TransactionStarting, TransactionCommittedEmpty:
		return TransactionCommittedEmpty, EndSilently, nil
	case TransactionInProgress:
		return TransactionCommitted, EndFirst, nil
	case TransactionCommitted:
		return TransactionCommitted, EndAgain, nil
	case TransactionAborted:
		return s, EndSilently, ErrCommitAfterAbort
	default:
		return s, EndSilently, ErrNoTransaction
	}
}

// Abort returns the state after an abort, and what that sends.
func (s TransactionState) Abort() (TransactionState, Ending, error) {
	switch s {
	case TransactionStarting:
		return TransactionAborted, EndSilently, nil
	case TransactionInProgress:
		return TransactionAborted, EndFirst, nil
	case TransactionCommittedEmpty, TransactionCommitted:
		return s, EndSilently, ErrAbortAfterCommit
	case TransactionAborted:
		return s, EndSilently, ErrAbortTwice
	default:
		return s, EndSilently, ErrNoTransaction
	}
}
