package bank_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mooringdb/mooring/lab/internal/history"
)

const (
	database = "bank"
	accounts = "accounts"
)

// transfer is money that moves from one account to another. Its id is the _id of its document in a
// ledger, which is inserted in the same transaction: repeated after a success it is a duplicate.
type transfer struct {
	teller, number   int
	from, to, amount int
}

func (f transfer) id() string { return fmt.Sprintf("%d-%d", f.teller, f.number) }

// perLedger is the number of transfers in one ledger.
const perLedger = 100

// ledger names the collection of the transfer's document.
func (f transfer) ledger() string {
	return fmt.Sprintf("ledger-%d-%d", f.teller, f.number/perLedger)
}

// document is the transfer's document as Extended JSON.
func (f transfer) document() string {
	return fmt.Sprintf(`{"_id": %q, "from": %d, "to": %d, "amount": %d}`, f.id(), f.from, f.to,
		f.amount)
}

// filter finds the transfer's document.
func (f transfer) filter() string { return fmt.Sprintf(`{"_id": %q}`, f.id()) }

// statement is one operation, of an interactive transaction or of none.
type statement struct {
	transaction string // empty: none
	number      int32  // 0: none
}

// change is an update of one account by an amount. A negative one needs as much money there.
type change struct{ account, amount int }

func (c change) filter() string {
	if c.amount < 0 {
		return fmt.Sprintf(`{"_id": %d, "balance": {"$gte": %d}}`, c.account, -c.amount)
	}
	return fmt.Sprintf(`{"_id": %d}`, c.account)
}

func (c change) update() string { return fmt.Sprintf(`{"$inc": {"balance": %d}}`, c.amount) }

// api is the gateway as the experiment uses it, by one protocol. Each call goes to one replica.
// Errors are *failures if the gateway answered, and others if it did not.
type api interface {
	begin(ctx context.Context) (transaction string, err error)
	// add reports whether the account is there and has the money.
	add(ctx context.Context, s statement, c change) (found bool, err error)
	record(ctx context.Context, s statement, f transfer) error
	commit(ctx context.Context, transaction string) error
	abort(ctx context.Context, transaction string) error
	// run carries a transfer out by Run, its document first, as statement by statement.
	run(ctx context.Context, f transfer) error
	// isRecorded reports whether the document of a transfer is in its ledger.
	isRecorded(ctx context.Context, f transfer) (bool, error)
	// snapshot returns the token of a session that reads from one snapshot.
	snapshot(ctx context.Context) (session string, err error)
	// find returns the first page of the accounts that match, and next the following page. Both
	// have the renewed token of the session if they are given one.
	find(ctx context.Context, s statement, session, filter string) (page, error)
	next(ctx context.Context, s statement, before page) (page, error)
	// step carries out a clerk's step with an Idempotency-Key, or with "" without one, and returns
	// it with what the gateway says of it. runSteps does that with several by Run.
	step(ctx context.Context, s statement, key string, step history.Step) (history.Step, error)
	runSteps(ctx context.Context, steps []history.Step) ([]history.Step, error)
}

// page is a part of the accounts that were read.
type page struct {
	accounts, money int
	session         string
	cursor          string // empty: it is the last one
}

// failure is an error that the gateway answered with.
type failure struct {
	reason, retry, message string
	after                  time.Duration // Retry-After
}

func (f *failure) Error() string { return f.reason + " (" + f.retry + "): " + f.message }

// reasonOf returns the reason of an error, or "" if the gateway did not answer.
func reasonOf(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.reason
	}
	return ""
}

// retryOf returns what the gateway says of another attempt. A call that was not answered may be
// made again: each is of a kind that can be.
func retryOf(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.retry
	}
	return sameRequest
}

// afterOf returns how long the gateway says to wait.
func afterOf(err error) time.Duration {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.after
	}
	return 0
}

// The values of retry, and the reason that says that it is not known what became of a transaction.
const (
	never         = "never"
	sameRequest   = "same-request"
	again         = "transaction"
	unknownCommit = "UnknownTransactionCommitResult"
)
