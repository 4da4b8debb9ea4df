package deployment

import (
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// transaction holds a transaction: the data as it sees them, with its own changes.
type transaction struct {
	host  *host // that runs it; it is known to the others as well, unless they are mongoses
	began timestamp
	start time.Time
	term  uint32 // of the primary that runs it
	store *store

	// The fields below are guarded by the deployment's mutex.

	state transactionState
	held  []held // the documents that it has changed
}

type transactionState uint8

const (
	inProgress transactionState = iota
	committed
	aborted
)

// inTransaction applies what a command says of its transaction. The caller holds the deployment's
// mutex.
func (h *host) inTransaction(r *request, s *session, number int64) error {
	d := h.deployment
	if auto, given := field(r.Body, "autocommit").Bool(); auto || !given {
		return failure.InvalidOptions.Errorf("autocommit may only be false")
	}
	if slices.Contains(notInTransactions, r.Name) {
		return failure.OperationNotSupportedInTransaction.Errorf(
			"Cannot run '%s' in a multi-document transaction.", r.Name)
	}
	if number < s.number {
		return failure.TransactionTooOld.Errorf(
			"Cannot run transaction %d: a newer one has begun: %d", number, s.number)
	}
	ends := r.Name == "commitTransaction" || r.Name == "abortTransaction"
	if starts, _ := field(r.Body, "startTransaction").Bool(); starts {
		if ends || number == s.number {
			return failure.ConflictingOperationInProgress.Errorf(
				"transaction %d cannot be started", number)
		}
		now := d.clock.now()
		if s.transaction != nil { // a later one ends it
			d.abortLocked(s.transaction)
		}
		s.begin(number, &transaction{
			host: h, began: now, start: time.Now(), term: d.termLocked(), store: d.store.at(now),
		})
	} else if r.Body.Has("readConcern") && !ends {
		return failure.InvalidOptions.Errorf(
			"Only the first command in a transaction may specify a readConcern")
	}
	if r.Body.Has("writeConcern") && !ends {
		return failure.InvalidOptions.Errorf(
			"writeConcern is not allowed within a multi-statement transaction")
	}
	t := s.transaction
	if t != nil && !d.isOpenLocked(t) {
		d.abortLocked(t)
	}
	if t == nil || number != s.number || !ends && t.state != inProgress {
		return failure.NoSuchTransaction.Errorf("transaction %d is not in progress", number)
	}
	if t.host != h && d.isRouted() {
		// A mongos does not know what another one runs. With a recovery token, and only for a
		// commit, it asks the shard what became of it; that ends what was not committed.
		if r.Name != "commitTransaction" ||
			!document(r.Body, "recoveryToken").Has("recoveryShardId") {
			return failure.NoSuchTransaction.Errorf("cannot continue txnId -1 with txnId %d: the "+
				"transaction runs on another mongos", number)
		}
		d.abortLocked(t)
	}
	r.transaction, r.store = t, t.store
	return nil
}

// isRouted reports whether clients speak with mongoses.
func (d *Deployment) isRouted() bool { return d.topology == Sharded || d.topology == LoadBalanced }

// notInTransactions are commands that no transaction may contain.
var notInTransactions = []string{
	"count", "listCollections", "listIndexes", "listDatabases", "drop", "dropDatabase",
}

// ending refuses to end what is not a transaction.
func ending(run command) command {
	return func(h *host, cmd *request) (reply, error) {
		if cmd.transaction == nil {
			return reply{}, failure.InvalidOptions.Errorf("%s needs a transaction", cmd.Name)
		}
		return run(h, cmd)
	}
}

func (h *host) commit(cmd *request) (reply, error) {
	d := h.deployment
	d.mu.Lock()
	defer d.mu.Unlock()
	switch cmd.transaction.state {
	case aborted:
		return reply{}, failure.NoSuchTransaction.Errorf("the transaction has been aborted")
	case inProgress:
		d.store.mu.Lock()
		defer d.store.mu.Unlock()
		if d.store.changedSinceLocked(cmd.transaction) {
			return reply{}, failure.WriteConflict.Errorf(
				"a document of the transaction has changed")
		}
		cmd.transaction.state = committed
		at := d.clock.tick() // of all changes, so that no snapshot has only some of them
		for _, e := range cmd.transaction.store.log {
			e.at = at
			d.store.recordLocked(e)
		}
		d.releaseLocked(cmd.transaction)
	case committed:
	}
	return ok(nil)
}

func (h *host) abort(cmd *request) (reply, error) {
	d := h.deployment
	d.mu.Lock()
	defer d.mu.Unlock()
	if cmd.transaction.state == committed {
		return reply{}, failure.TransactionCommitted.Errorf("the transaction has been committed")
	}
	if cmd.transaction.state != inProgress {
		return reply{}, failure.NoSuchTransaction.Errorf("the transaction is not in progress")
	}
	d.abortLocked(cmd.transaction)
	return ok(nil)
}

// afterwards returns the reply to a command. One that has failed aborts its transaction.
func (h *host) afterwards(cmd *request, reply bson.Raw) bson.Raw {
	t := cmd.transaction
	if t == nil {
		return reply
	}
	done := integer(reply, "ok") == 1
	if !done || reply.Has("writeErrors") || integer(reply, "nErrors") > 0 {
		h.deployment.mu.Lock()
		h.deployment.abortLocked(t)
		h.deployment.mu.Unlock()
	}
	if done && h.deployment.isRouted() {
		reply = bson.With(reply, "recoveryToken", bson.DocumentValue(
			bson.NewBuilder(nil).String("recoveryShardId", "shard01").Finish()))
	}
	return reply
}

// transient are the errors that a server labels TransientTransactionError, wherever they are.
var transient = []failure.Code{failure.WriteConflict, 24, failure.SnapshotUnavailable, 267}

// mostMembers is more members than any shard or replica set has.
const mostMembers = 7

// withConcernError returns a reply with the writeConcernError of a w that no set can satisfy.
func withConcernError(cmd *fakemongo.Command, reply bson.Raw) bson.Raw {
	w := integer(document(cmd.Body, "writeConcern"), "w")
	if w <= mostMembers || integer(reply, "ok") != 1 {
		return reply
	}
	return bson.With(reply, "writeConcernError", bson.DocumentValue(bson.NewBuilder(nil).
		Int32("code", 100).String("codeName", "UnsatisfiableWriteConcern").
		String("errmsg", "Not enough data-bearing nodes").Finish()))
}

// labels returns the error labels of servers for an error, or for a write concern's error.
func (h *host) labels(cmd *fakemongo.Command, code failure.Code, ofConcern bool) []string {
	if !cmd.Body.Has("txnNumber") {
		return nil
	}
	within := cmd.Body.Has("autocommit")
	ends := cmd.Name == "commitTransaction" || cmd.Name == "abortTransaction"
	again := slices.Contains(retryable, code)
	switch {
	case within && (slices.Contains(transient, code) ||
		!ofConcern && (code == failure.NoSuchTransaction || again && !ends)):
		return []string{"TransientTransactionError"}
	case again && (ends || !within) && h.wire >= wire44:
		return []string{"RetryableWriteError"}
	}
	return nil
}

// withLabels returns a reply with error labels, if there are any.
func withLabels(reply bson.Raw, labels []string) bson.Raw {
	if len(labels) == 0 {
		return reply
	}
	b := bson.NewBuilder(nil).AppendElements(reply).OpenArray("errorLabels")
	for _, l := range labels {
		b.String("", l)
	}
	return b.Close().Finish()
}
