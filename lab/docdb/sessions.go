package docdb

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// session holds the last numbered operation of a logical session.
type session struct {
	// mu is held while a numbered command of the session runs, and guards the fields below. The
	// front's mutex may be locked under it.
	mu          sync.Mutex
	number      int64
	transaction *transaction // nil: it is a retryable write
}

// transaction holds a connection at REPEATABLE READ. It is guarded by its session's mutex.
type transaction struct {
	timer     *time.Timer
	tx        pgx.Tx // nil: it has ended
	committed bool
}

// lsidOf returns the id of a session, or "".
func lsidOf(lsid bson.Raw) string {
	_, id, _ := field(lsid, "id").Binary()
	return string(id)
}

// notInTransactions are commands that no transaction may contain.
var notInTransactions = []string{
	"count", "listCollections", "listIndexes", "listDatabases", "drop", "dropDatabase", "collMod",
	"renameCollection", "dropIndexes", "validate", "dbStats", "collStats",
}

// inSession runs a command as its session has it: in a transaction, as a retryable write, or, if
// it has no number, outside of both.
func (r *request) inSession(run command) (bson.Raw, error) {
	if !r.Body.Has("txnNumber") {
		if text(r.Body, "readConcern", "level") == "snapshot" {
			return r.inSnapshot(run)
		}
		return run(r)
	}
	if r.lsid == "" {
		return nil, failure.InvalidOptions.Errorf("a transaction number needs a session")
	}
	s := r.front.session(r.lsid)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := r.advance(s); err != nil {
		return nil, err
	}
	if s.transaction == nil {
		return run(r)
	}
	return r.inTransaction(s.transaction, run)
}

func (f *Front) session(lsid string) *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[lsid]
	if s == nil {
		s = &session{number: -1}
		f.sessions[lsid] = s
	}
	return s
}

// advance applies the number of a command. The caller holds s.mu.
func (r *request) advance(s *session) error {
	number := r.number()
	starts, _ := field(r.Body, "startTransaction").Bool()
	auto, isBool := field(r.Body, "autocommit").Bool()
	within := r.Body.Has("autocommit")
	switch {
	case within && (auto || !isBool), starts && !within:
		return failure.InvalidOptions.Errorf("a transaction needs autocommit: false")
	case number < s.number:
		return failure.TransactionTooOld.Errorf("txnNumber %d is older than %d", number, s.number)
	case number > s.number && (starts || !within):
		return r.begin(s, starts)
	case starts:
		return failure.ConflictingOperationInProgress.Errorf(
			"transaction %d was begun before", number)
	case within && (number > s.number || s.transaction == nil):
		return r.notInProgress()
	case !within && s.transaction != nil:
		return failure.IncompleteTransactionHistory.Errorf(
			"transaction %d is not a retryable write", number)
	}
	return nil
}

// begin ends the transaction before, and begins another one, or a retryable write.
func (r *request) begin(s *session, starts bool) error {
	f := r.front
	f.end(s.transaction)
	s.number, s.transaction = r.number(), nil
	if !starts {
		return nil
	}
	tx, err := f.pool.BeginTx(f.ctx, repeatable)
	if err != nil {
		return err
	}
	t := &transaction{tx: tx}
	t.timer = time.AfterFunc(f.cfg.TransactionLife, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.end(t)
	})
	s.transaction = t
	// A write waits for so many milliseconds for a document that another transaction has changed,
	// before it is a write conflict. MongoDB does not wait at all.
	_, err = tx.Exec(f.ctx, "SET LOCAL lock_timeout = 20")
	return err
}

func (r *request) number() int64 { return integer(r.Body, "txnNumber") }

// inTransaction runs a command of a transaction.
func (r *request) inTransaction(t *transaction, run command) (bson.Raw, error) {
	r.within, r.on = t, t.tx
	switch {
	case r.Name == "commitTransaction":
		return r.commit(t)
	case r.Name == "abortTransaction":
		return r.abort(t)
	case t.tx == nil:
		return nil, r.notInProgress()
	case slices.Contains(notInTransactions, r.Name):
		r.front.end(t)
		return nil, failure.OperationNotSupportedInTransaction.Errorf(
			"cannot run '%s' in a transaction", r.Name)
	}
	reply, err := run(r)
	if err != nil || reply.Has("writeErrors") {
		r.front.end(t)
	}
	return reply, err
}

func (r *request) notInProgress() error {
	return failure.NoSuchTransaction.Errorf("transaction %d is not in progress", r.number())
}

// end ends a transaction that is in progress, and rolls back what is not committed; of another
// one, or of none, it does nothing. The caller holds the session's mutex.
func (f *Front) end(t *transaction) {
	if t == nil || t.tx == nil {
		return
	}
	t.timer.Stop()
	_ = t.tx.Rollback(context.WithoutCancel(f.ctx)) // the pool closes a connection that cannot
	t.tx = nil
	f.forget(func(_ int64, c *cursor) bool { return c.within == t })
}

// noTransaction answers the end of none.
func noTransaction(r *request) (bson.Raw, error) {
	return nil, failure.InvalidOptions.Errorf("%s needs a transaction", r.Name)
}

func (r *request) commit(t *transaction) (bson.Raw, error) {
	switch {
	case t.committed:
		return okay(r)
	case t.tx == nil:
		return nil, r.notInProgress()
	}
	defer r.front.end(t)
	// Events have the session's id with the digest of no user.
	about := bson.NewBuilder(nil).OpenDocument("lsid").Binary("id", 4, []byte(r.lsid)).
		Binary("uid", 0, emptyDigest[:]).Close().Int64("txnNumber", r.number())
	if _, err := r.emit("transaction", about.Finish()); err != nil {
		return nil, err
	}
	err := r.front.commit(t.tx)
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		err = r.notInProgress()
	}
	t.committed = err == nil
	return bson.NewBuilder(nil).Double("ok", 1).Finish(), err
}

// emptyDigest stands for no user in the ids of sessions.
var emptyDigest = sha256.Sum256(nil)

func (r *request) abort(t *transaction) (bson.Raw, error) {
	switch {
	case t.committed:
		return nil, failure.TransactionCommitted.Errorf(
			"transaction %d has been committed", r.number())
	case t.tx == nil:
		return nil, r.notInProgress()
	}
	r.front.end(t)
	return okay(r)
}

// endSessions aborts the transactions of sessions, and ends their cursors. killAllSessions does it
// for all, as an election does.
func (r *request) endSessions() (bson.Raw, error) {
	var ended []string
	for _, lsid := range r.Documents(r.Name) {
		ended = append(ended, lsidOf(lsid))
	}
	r.front.killSessions(func(lsid string) bool {
		return r.Name == "killAllSessions" || slices.Contains(ended, lsid)
	})
	return okay(r)
}

func (f *Front) killSessions(is func(lsid string) bool) {
	f.mu.Lock()
	sessions := maps.Clone(f.sessions)
	f.mu.Unlock()
	for lsid, s := range sessions {
		if is(lsid) {
			s.mu.Lock()
			f.end(s.transaction)
			s.mu.Unlock()
		}
	}
	f.forget(func(_ int64, c *cursor) bool {
		return c.lsid != "" && is(c.lsid) && c.stream == nil
	})
}
