package docdb

import (
	"cmp"
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

// transaction holds a connection at REPEATABLE READ: of a transaction of the protocol, or of a
// snapshot that reads outside of transactions have.
type transaction struct {
	number int64
	lsn    uint64 // of a snapshot; 0: it is a transaction
	timer  *time.Timer

	// mu guards the fields below. It is held while a command runs.
	mu    sync.Mutex
	conn  *pgxpool.Conn
	state transactionState
	wrote bool
	kind  string // that emitKind said last
	used  time.Time
}

type transactionState uint8

const (
	inProgress transactionState = iota
	committed
	aborted
)

// isSnapshot reports whether t is a snapshot.
func (t *transaction) isSnapshot() bool { return t != nil && t.lsn != 0 }

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
	t.conn, t.used = conn, time.Now()
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
	tag, err := t.conn.Exec(f.ctx, "COMMIT")
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

// inSnapshot runs a read of a snapshot: the one of atClusterTime, or a new one.
func (f *Front) inSnapshot(r *request, run command) (bson.Raw, error) {
	if !slices.Contains([]string{"find", "aggregate", "distinct"}, r.Name) {
		return nil, fail(invalidOptions, "%s does not support read concern level snapshot", r.Name)
	}
	t, err := f.snapshot(field(r.Body, "readConcern", "atClusterTime"))
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != inProgress {
		return nil, fail(snapshotTooOld, "the snapshot is gone")
	}
	t.used = time.Now()
	r.within, r.on = t, t.conn
	reply, err := run(r)
	if err != nil { // which has ended the SQL transaction
		f.end(t, aborted)
		return nil, err
	}
	return r.withSnapshot(reply), nil
}

// mostSnapshots is how many snapshots are kept for further reads.
const mostSnapshots = 16

// snapshot returns the snapshot of a cluster time that an earlier read had, or a new one.
func (f *Front) snapshot(at bson.Value) (*transaction, error) {
	if !at.IsZero() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if t := f.snapshots[f.clock.position(at)]; t != nil {
			return t, nil
		}
		return nil, fail(snapshotTooOld, "no snapshot of that time is kept")
	}
	f.dropSnapshots(mostSnapshots - 1)
	t := &transaction{}
	if err := f.begin(t); err != nil {
		return nil, err
	}
	t.timer.Stop() // it lives until others take its place
	lsn, err := f.now(t.conn)
	if err != nil {
		f.finish(t)
		return nil, err
	}
	t.lsn = lsn
	f.mu.Lock()
	same := f.snapshots[t.lsn]
	if same == nil {
		f.snapshots[t.lsn] = t
	}
	f.mu.Unlock()
	if same == nil {
		return t, nil
	}
	f.finish(t)
	return same, nil
}

// dropSnapshots ends the snapshots that were not used for longest, until that many are left.
func (f *Front) dropSnapshots(left int) {
	f.mu.Lock()
	var all []*transaction
	for _, t := range f.snapshots {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *transaction) int { return cmp.Compare(a.lsn, b.lsn) })
	all = all[:max(0, len(all)-left)]
	for _, t := range all {
		delete(f.snapshots, t.lsn)
	}
	f.mu.Unlock()
	for _, t := range all {
		f.finish(t)
	}
}

// withSnapshot adds the time that was read to a reply.
func (r *request) withSnapshot(reply bson.Raw) bson.Raw {
	if !r.within.isSnapshot() {
		return reply
	}
	at := r.front.clock.value(r.within.lsn)
	if c := document(reply, "cursor"); c != nil {
		return bson.With(reply, "cursor", bson.DocumentValue(bson.With(c, "atClusterTime", at)))
	}
	return bson.With(reply, "atClusterTime", at)
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
