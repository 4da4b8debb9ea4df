package deployment

import (
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// session holds what a deployment keeps about a logical session: the statements of its last
// retryable write, or its last transaction. It is guarded by the deployment's mutex.
type session struct {
	number      int64            // the txnNumber of that
	done        map[int32]result // of a retryable write, by the number of the statement
	transaction *transaction     // nil: the last one was a retryable write
	used        time.Time        // when its last command came
	ended       bool             // by endSessions
	// checkedOut is held while a numbered write runs, so that its repetition waits.
	checkedOut *sync.Mutex
}

// begin makes the session's last operation a retryable write, or a transaction.
func (s *session) begin(number int64, t *transaction) {
	s.number, s.transaction, s.done = number, t, nil
	if t == nil {
		s.done = map[int32]result{}
	}
}

// result holds what one statement of a write did.
type result struct {
	n, modified int32
	upserted    bson.Value // the _id of a document that was inserted; zero: none was
	value       bson.Value // of findAndModify
	reply       bson.Raw   // of an engine to a command that is one statement
}

// request holds a command that a host runs, and what its session makes of it.
type request struct {
	*fakemongo.Command
	host *host
	app  string // the name of the application that has sent it
	// store is what it reads and writes: the deployment's, a transaction's or a snapshot.
	store *store
	// done are the statements of a retryable write that were run; nil: the write is not retryable.
	done        map[int32]result
	checkedOut  *sync.Mutex // of the session of a retryable write
	transaction *transaction
	snapshot    timestamp // that a snapshot read is of; zero: it is none
}

// sessionOf returns the name of the session of a command: its id in hexadecimal, or "".
func sessionOf(cmd *fakemongo.Command) string { return sessionName(document(cmd.Body, "lsid")) }

func sessionName(lsid bson.Raw) string {
	_, id, _ := field(lsid, "id").Binary()
	return hex.EncodeToString(id)
}

// transactional are the writes that may have a txnNumber outside transactions.
var transactional = []string{"insert", "update", "delete", "findAndModify", "bulkWrite"}

// request returns a command as its session and its read concern make it.
func (h *host) request(cmd *fakemongo.Command) (*request, error) {
	r := &request{Command: cmd, host: h, app: h.appName(cmd), store: h.deployment.store}
	if err := h.deployment.use(cmd); err != nil {
		return nil, err
	}
	if h.deployment.whole {
		return r, nil
	}
	if cmd.Body.Has("txnNumber") {
		if err := h.number(r); err != nil {
			return nil, err
		}
	} else if cmd.Body.Has("autocommit") || cmd.Body.Has("startTransaction") {
		return nil, failure.InvalidOptions.Errorf("a transaction needs a txnNumber")
	}
	if h.deployment.engine != nil { // which has no clock and no past
		return r, nil
	}
	return r, h.concern(r)
}

// number applies the txnNumber of a command, which counts retryable writes and transactions.
func (h *host) number(r *request) error {
	name, number := sessionOf(r.Command), integer(r.Body, "txnNumber")
	switch {
	case name == "":
		return failure.InvalidOptions.Errorf("Transaction number requires a session ID")
	case h.deployment.topology == Single:
		return failure.IllegalOperation.Errorf(
			"Transaction numbers are only allowed on a replica set member or mongos")
	}
	d := h.deployment
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[name]
	if number < s.number {
		return failure.TransactionTooOld.Errorf("txnNumber %d is older than %d", number, s.number)
	}
	if r.Body.Has("autocommit") {
		return h.inTransaction(r, s, number)
	}
	if !slices.Contains(transactional, r.Name) {
		return failure.InvalidOptions.Errorf("%s is not a retryable write", r.Name)
	}
	if number > s.number {
		s.begin(number, nil)
	}
	if s.transaction != nil {
		return failure.IncompleteTransactionHistory.Errorf(
			"transaction %d is not a retryable write", number)
	}
	r.done, r.checkedOut = s.done, s.checkedOut
	return nil
}

// once runs a statement, or returns what it did when it was run before. Fail points of retryable
// writes are about the statements that are run.
func (r *request) once(i int32, run func() (result, error)) (result, error) {
	if r.done == nil {
		return run()
	}
	if before, was := r.done[i]; was {
		return before, nil
	}
	p, fails := r.host.failPoints.take(failRetryableWrites, r.Command, r.app)
	if fails && p.before {
		return result{}, p.fatal(r)
	}
	res, err := run()
	if err != nil {
		return res, err
	}
	r.done[i] = res
	if fails {
		err = p.fatal(r)
	}
	return res, err
}

// fatal reports an error that ends a write command as a whole. The statements before it were run.
type fatal struct {
	reply bson.Raw // nil: the connection is closed
}

func (*fatal) Error() string { return "the command ends" }

// bypasses reports whether a command asks for no validation of its documents.
func (r *request) bypasses() bool {
	bypass, _ := field(r.Body, "bypassDocumentValidation").Bool()
	return bypass
}

// allowsMulti refuses a statement on several documents in a retryable write.
func (r *request) allowsMulti(multi bool) error {
	if multi && r.done != nil {
		return failure.InvalidOptions.Errorf(
			"Cannot use retryable writes with limit=0 or multi=true")
	}
	return nil
}

// snapshotReads are the commands that read the data of a time outside transactions.
var snapshotReads = []string{"find", "aggregate", "distinct"}

// concern applies the read concern of a command.
func (h *host) concern(r *request) error {
	now := h.deployment.clock.now()
	if after := timestampOf(field(r.Body, "readConcern", "afterClusterTime")); after.after(now) {
		return failure.InvalidOptions.Errorf(
			"readConcern afterClusterTime must not be greater than the current clusterTime")
	}
	level, _ := field(r.Body, "readConcern", "level").Str()
	at := timestampOf(field(r.Body, "readConcern", "atClusterTime"))
	switch {
	case level != "snapshot" && at != (timestamp{}):
		return failure.InvalidOptions.Errorf("atClusterTime needs the level snapshot")
	case level != "snapshot" || r.transaction != nil:
		return nil
	case h.deployment.topology == Single:
		return failure.NotAReplicaSet.Errorf("node needs to be a replica set member to use " +
			"readConcern level snapshot")
	case h.wire < wire50 || !slices.Contains(snapshotReads, r.Name):
		return failure.InvalidOptions.Errorf(
			"%s does not support read concern level snapshot", r.Name)
	case at.after(now):
		return failure.InvalidOptions.Errorf("atClusterTime must not be greater than the current " +
			"clusterTime")
	case at == (timestamp{}):
		at = now
	}
	r.snapshot, r.store = at, r.store.at(at)
	return nil
}

// withSnapshot adds the time that was read to a reply: where the cursor is, if there is one.
func (r *request) withSnapshot(reply bson.Raw) bson.Raw {
	if r.snapshot == (timestamp{}) {
		return reply
	}
	return fakemongo.WithSnapshotTime(reply, r.snapshot.value())
}

// sessionLife is how long a server keeps a session that is not used.
const sessionLife = 30 * time.Minute

// LimitSessions has the deployment refuse commands in a new session while it keeps that many; 0:
// it refuses none. A session is kept until it is ended, or for 30 minutes behind its last command.
func (d *Deployment) LimitSessions(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most = n
}

// Sessions counts the sessions that the deployment keeps.
func (d *Deployment) Sessions() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessionsLocked()
}

func (d *Deployment) sessionsLocked() (n int) {
	for name, s := range d.sessions {
		switch {
		case time.Since(s.used) > sessionLife:
			delete(d.sessions, name)
		case !s.ended:
			n++
		}
	}
	return n
}

// use notes that a command has come in its session, if it has one.
func (d *Deployment) use(cmd *fakemongo.Command) error {
	name := sessionOf(cmd)
	if name == "" {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[name]
	if s != nil && time.Since(s.used) > sessionLife {
		s = nil
	}
	if isNew := s == nil || s.ended; isNew && d.most > 0 && d.sessionsLocked() >= d.most {
		return failure.TooManyLogicalSessions.Errorf(
			"Unable to add session into the cache because the number of active sessions is too " +
				"high")
	}
	if s == nil {
		s = &session{number: -1, checkedOut: new(sync.Mutex)}
		d.sessions[name] = s
	}
	s.used, s.ended = time.Now(), false
	return nil
}

// endSessions ends sessions. What was written in them is remembered as if they had not ended, as a
// server does.
func (h *host) endSessions(cmd *request) (reply, error) {
	d := h.deployment
	d.mu.Lock()
	defer d.mu.Unlock()
	ids, _ := field(cmd.Body, "endSessions").Array()
	for id := range ids.Documents() {
		if s := d.sessions[sessionName(id)]; s != nil {
			s.ended = true
		}
	}
	return ok(nil)
}
