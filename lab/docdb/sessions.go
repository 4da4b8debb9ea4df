package docdb

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooringdb/mooring/core/bson"
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
	conn  *pgxpool.Conn
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
		return nil, fail(noSuchTransaction, "transaction %d is not in progress", t.number)
	}
	if slices.Contains(notInTransactions, r.Name) {
		f.end(t, aborted)
		return nil, fail(notInTransaction, "cannot run '%s' in a transaction", r.Name)
	}
	if t.conn == nil {
		if err := f.begin(t); err != nil {
			return nil, err
		}
	}
	r.on = t.conn
	reply, err := run(r)
	if err != nil || reply.Has("writeErrors") {
		f.end(t, aborted)
	}
	return reply, err
}

// transaction returns the transaction of a command, which may begin it.
func (f *Front) transaction(r *request) (*transaction, error) {
	number := integer(r.Body, "txnNumber")
	if auto, ok := field(r.Body, "autocommit").Bool(); auto || !ok || r.lsid == "" {
		return nil, fail(invalidOptions, "a transaction needs a session, and autocommit: false")
	}
	starts, _ := field(r.Body, "startTransaction").Bool()
	s := f.session(r.lsid)
	f.mu.Lock()
	before := s.transaction
	switch {
	case number < s.number:
		f.mu.Unlock()
		return nil, fail(transactionTooOld, "txnNumber %d is older than %d", number, s.number)
	case starts && number == s.number:
		f.mu.Unlock()
		return nil, fail(conflictingOperation, "transaction %d was begun before", number)
	case starts:
		t := &transaction{number: number}
		s.number, s.transaction = number, t
		f.mu.Unlock()
		if before != nil {
			f.finish(before)
		}
		return t, nil
	}
	f.mu.Unlock()
	if before != nil && number == s.number {
		return before, nil
	}
	return f.remembered(r, number)
}

// remembered returns a transaction that this front did not run, if it has been committed.
func (f *Front) remembered(r *request, number int64) (*transaction, error) {
	var one int
	err := f.pool.QueryRow(f.ctx, `SELECT 1 FROM mooring.statements
		WHERE lsid = $1 AND txn = $2 AND stmt = $3`, []byte(r.lsid), number, committedStatement).
		Scan(&one)
	if err != nil {
		return nil, fail(noSuchTransaction, "transaction %d is not in progress", number)
	}
	return &transaction{number: number, state: committed}, nil
}

// committedStatement is the number of the statement that stands for a transaction's commit.
const committedStatement = -1

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

// begin gives a transaction its connection. The caller holds t.mu.
func (f *Front) begin(t *transaction) error {
	conn, err := f.pool.Acquire(f.ctx)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(f.ctx, fmt.Sprintf(
		"BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL lock_timeout = %d",
		f.cfg.LockWait.Milliseconds())); err != nil {
		conn.Release()
		return err
	}
	t.conn = conn
	t.timer = time.AfterFunc(f.cfg.TransactionLife, func() { f.finish(t) })
	return nil
}

// finish aborts a transaction that is in progress, once its command is over.
func (f *Front) finish(t *transaction) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == inProgress {
		f.end(t, aborted)
	}
}

// end gives a transaction its last state, and its connection back, which rolls back what is not
// committed. The caller holds t.mu.
func (f *Front) end(t *transaction, state transactionState) {
	t.state = state
	if t.timer != nil {
		t.timer.Stop()
	}
	if t.conn != nil {
		// The front's own end does not keep it from rolling back.
		if _, err := t.conn.Exec(contextOf(f), "ROLLBACK"); err != nil {
			_ = t.conn.Conn().Close(contextOf(f)) // of no use any more
		}
		t.conn.Release()
		t.conn = nil
	}
	f.killOf(func(c *cursor) bool { return c.within == t })
}

func (r *request) commit() (bson.Raw, error) {
	t := r.within
	switch {
	case t == nil:
		return nil, fail(invalidOptions, "commitTransaction needs a transaction")
	case t.state == aborted:
		return nil, fail(noSuchTransaction, "transaction %d has been aborted", t.number)
	case t.state == inProgress && t.conn != nil:
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

// commitWork commits, with the memory that it has, and with what change events say of it.
func (r *request) commitWork() error {
	t, f := r.within, r.front
	r.on = t.conn
	if t.wrote {
		if err := r.emit("transaction", bson.NewBuilder(nil).Document("lsid", r.eventLsid()).
			Int64("txnNumber", t.number).Finish()); err != nil {
			return err
		}
		if err := r.remember(nil, committedStatement); err != nil {
			return err
		}
	}
	if _, err := f.now(t.conn); err != nil {
		return err
	}
	f.commits.RLock()
	tag, err := t.conn.Exec(f.ctx, "COMMIT")
	f.commits.RUnlock()
	if err == nil && tag.String() != "COMMIT" {
		err = fail(noSuchTransaction, "transaction %d has been rolled back", t.number)
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
		return nil, fail(invalidOptions, "abortTransaction needs a transaction")
	case t.state == committed:
		return nil, fail(transactionCommitted, "transaction %d has been committed", t.number)
	case t.state == aborted:
		return nil, fail(noSuchTransaction, "transaction %d is not in progress", t.number)
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
