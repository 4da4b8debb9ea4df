package docdb

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// session holds what the front knows of a logical session.
type session struct {
	// writes is held while a retryable write runs: a session has one at a time.
	writes sync.Mutex

	// The fields below are guarded by the front's mutex.

	number      int64        // the highest txnNumber that has come
	transaction *transaction // with that number; nil: it is a retryable write's
}

// transaction holds a connection at REPEATABLE READ.
type transaction struct {
	number int64
	timer  *time.Timer

	// mu guards the fields below. It is held while a command runs.
	mu    sync.Mutex
	tx    pgx.Tx // nil before the first command, and after the end
	state transactionState
	wrote bool
	kind  string // that emitKind said last
}

type transactionState uint8

const (
	inProgress transactionState = iota
	committed
	aborted
)

// lsidOf returns the id of a command's session, or "".
func lsidOf(body bson.Raw) string {
	_, id, _ := field(body, "lsid", "id").Binary()
	return string(id)
}

// notInTransactions are commands that no transaction may contain.
var notInTransactions = []string{
	"count", "listCollections", "listIndexes", "listDatabases", "drop", "dropDatabase", "collMod",
	"renameCollection", "dropIndexes", "validate", "dbStats", "collStats",
}

// inSession runs a command in its transaction, if it is one's, or else outside of any.
func (f *Front) inSession(r *request, run command) (bson.Raw, error) {
	if !r.Body.Has("txnNumber") || !r.Body.Has("autocommit") {
		if r.Name != "getMore" && text(r.Body, "readConcern", "level") == "snapshot" {
			return f.inSnapshot(r, run)
		}
		return run(r)
	}
	t, err := f.transaction(r)
	if err != nil {
		return nil, err
	}
	r.within = t
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Name == "commitTransaction" || r.Name == "abortTransaction" {
		return run(r)
	}
	if t.state != inProgress {
		return nil, failure.NoSuchTransaction.Errorf("transaction %d is not in progress", t.number)
	}
	if slices.Contains(notInTransactions, r.Name) {
		f.end(t, aborted)
		return nil, failure.OperationNotSupportedInTransaction.Errorf(
			"cannot run '%s' in a transaction", r.Name)
	}
	if t.tx == nil {
		if err := f.start(t); err != nil {
			return nil, err
		}
	}
	r.on = t.tx
	reply, err := run(r)
	if err != nil || reply.Has("writeErrors") {
		f.end(t, aborted)
	}
	return reply, err
}

// transaction returns the transaction of a command, which may begin it.
func (f *Front) transaction(r *request) (*transaction, error) {
	if auto, ok := field(r.Body, "autocommit").Bool(); auto || !ok || r.lsid == "" {
		return nil, failure.InvalidOptions.Errorf(
			"a transaction needs a session, and autocommit: false")
	}
	t := &transaction{number: integer(r.Body, "txnNumber")}
	if starts, _ := field(r.Body, "startTransaction").Bool(); starts {
		return t, f.advance(r, t)
	}
	s := f.session(r.lsid)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case t.number < s.number:
		return nil, failure.TransactionTooOld.Errorf(
			"txnNumber %d is older than %d", t.number, s.number)
	case t.number > s.number || s.transaction == nil:
		return nil, failure.NoSuchTransaction.Errorf("transaction %d is not in progress", t.number)
	}
	return s.transaction, nil
}

// advance applies the number of a retryable write, or of a transaction that it begins, and ends the
// transaction before it.
func (f *Front) advance(r *request, begins *transaction) error {
	if r.lsid == "" {
		return failure.InvalidOptions.Errorf("a transaction number requires a session")
	}
	s, number := f.session(r.lsid), integer(r.Body, "txnNumber")
	f.mu.Lock()
	before, last := s.transaction, s.number
	if number > last {
		s.number, s.transaction = number, begins
	}
	f.mu.Unlock()
	switch {
	case number < last:
		return failure.TransactionTooOld.Errorf("txnNumber %d is older than %d", number, last)
	case number == last && begins != nil:
		return failure.ConflictingOperationInProgress.Errorf(
			"transaction %d was begun before", number)
	case number == last && before != nil:
		return failure.IncompleteTransactionHistory.Errorf(
			"transaction %d is no retryable write", number)
	case number > last && before != nil:
		f.finish(before)
	}
	return nil
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

// lockWait is how many milliseconds a write of a transaction waits for a document that another
// transaction has changed, before it is a write conflict. MongoDB does not wait at all.
const lockWait = 20

// start begins a transaction's SQL transaction. The caller holds t.mu.
func (f *Front) start(t *transaction) error {
	tx, err := f.begin()
	if err != nil {
		return err
	}
	t.tx = tx
	t.timer = time.AfterFunc(f.cfg.TransactionLife, func() { f.finish(t) })
	_, err = tx.Exec(f.ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait))
	return err
}

// finish aborts a transaction that is in progress, once its command is over.
func (f *Front) finish(t *transaction) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == inProgress {
		f.end(t, aborted)
	}
}

// end gives a transaction its last state, and rolls back what is not committed. The caller holds
// t.mu.
func (f *Front) end(t *transaction, state transactionState) {
	t.state = state
	if t.tx != nil {
		t.timer.Stop()
		_ = t.tx.Rollback(contextOf(f)) // the pool closes a connection that cannot
		t.tx = nil
	}
	f.killOf(func(c *cursor) bool { return c.within == t })
}

func (r *request) commit() (bson.Raw, error) {
	t := r.within
	switch {
	case t == nil:
		return nil, failure.InvalidOptions.Errorf("commitTransaction needs a transaction")
	case t.state == aborted:
		return nil, failure.NoSuchTransaction.Errorf("transaction %d has been aborted", t.number)
	case t.state == inProgress && t.tx != nil:
		if err := r.commitWork(); err != nil {
			r.front.end(t, aborted)
			return nil, err
		}
	}
	if t.state == inProgress {
		r.front.end(t, committed)
	}
	return okay(r)
}

// commitWork commits, with what change events say of it.
func (r *request) commitWork() error {
	t, f := r.within, r.front
	r.on = t.tx
	if t.wrote {
		if err := r.emit("transaction", bson.NewBuilder(nil).Document("lsid", r.eventLsid()).
			Int64("txnNumber", t.number).Finish()); err != nil {
			return err
		}
	}
	if _, err := f.now(t.tx); err != nil {
		return err
	}
	err := f.commit(t.tx)
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		err = failure.NoSuchTransaction.Errorf("transaction %d has been rolled back", t.number)
	}
	return err
}

// eventLsid returns the session's id as events have it: with the digest of no user.
func (r *request) eventLsid() bson.Raw {
	return bson.NewBuilder(nil).Binary("id", 4, []byte(r.lsid)).
		Binary("uid", 0, emptyDigest[:]).Finish()
}

func (r *request) abort() (bson.Raw, error) {
	t := r.within
	switch {
	case t == nil:
		return nil, failure.InvalidOptions.Errorf("abortTransaction needs a transaction")
	case t.state == committed:
		return nil, failure.TransactionCommitted.Errorf(
			"transaction %d has been committed", t.number)
	case t.state == aborted:
		return nil, failure.NoSuchTransaction.Errorf("transaction %d is not in progress", t.number)
	}
	r.front.end(t, aborted)
	return okay(r)
}

// endSessions aborts the transactions of sessions, and ends their cursors.
func (r *request) endSessions() (bson.Raw, error) {
	ended := map[string]bool{}
	ids, _ := field(r.body, r.Name).Array()
	for id := range ids.Documents() {
		_, lsid, _ := field(id, "id").Binary()
		ended[string(lsid)] = true
	}
	r.front.killSessions(func(lsid string) bool { return ended[lsid] })
	return okay(r)
}

// endAllSessions does it for all, as an election does.
func (r *request) endAllSessions() (bson.Raw, error) {
	r.front.killSessions(func(string) bool { return true })
	return okay(r)
}

func (f *Front) killSessions(is func(lsid string) bool) {
	f.mu.Lock()
	var all []*transaction
	for lsid, s := range f.sessions {
		if is(lsid) && s.transaction != nil {
			all = append(all, s.transaction)
		}
	}
	f.mu.Unlock()
	for _, t := range all {
		f.finish(t)
	}
	f.killOf(func(c *cursor) bool { return c.lsid != "" && is(c.lsid) && c.stream == nil })
}
