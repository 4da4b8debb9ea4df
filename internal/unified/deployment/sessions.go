package deployment

import (
	"encoding/hex"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/mongotest"
)

// session holds what a deployment keeps about a logical session: the statements of its last
// retryable write, or its last transaction.
type session struct {
	number      int64            // the txnNumber of that
	done        map[int32]result // of a retryable write, by the number of the statement
	transaction *transaction     // nil: the last one was a retryable write
}

// result holds what one statement of a write did.
type result struct {
	n, modified int32
	upserted    bson.Value // the _id of a document that was inserted; zero: none was
	value       bson.Value // of findAndModify
}

// request holds a command that a host runs, and what its session makes of it.
type request struct {
	*mongotest.Command
	// store is what it reads and writes: the deployment's, a transaction's or a snapshot.
	store *store
	// done are the statements of a retryable write that were run; nil: the write is not retryable.
	done        map[int32]result
	transaction *transaction
	snapshot    timestamp // that a snapshot read is of; zero: it is none
}

// sessionOf returns the name of the session of a command: its id in hexadecimal, or "".
func sessionOf(cmd *mongotest.Command) string {
	_, id, _ := field(cmd.Body, "lsid", "id").Binary()
	return hex.EncodeToString(id)
}

// transactional are the writes that may have a txnNumber outside transactions.
var transactional = []string{"insert", "update", "delete", "findAndModify", "bulkWrite"}

// isRetryableWrite reports whether a command is a write that its client may send again.
func isRetryableWrite(cmd *mongotest.Command) bool {
	return slices.Contains(transactional, cmd.Name) && cmd.Body.Has("txnNumber") &&
		!cmd.Body.Has("autocommit")
}

// request returns a command as its session and its read concern make it.
func (h *host) request(cmd *mongotest.Command) (*request, error) {
	r := &request{Command: cmd, store: h.deployment.store}
	if cmd.Body.Has("txnNumber") {
		if err := h.number(r); err != nil {
			return nil, err
		}
	} else if cmd.Body.Has("autocommit") || cmd.Body.Has("startTransaction") {
		return nil, fail(invalidOptions, "a transaction needs a txnNumber")
	}
	return r, h.concern(r)
}

// number applies the txnNumber of a command, which counts retryable writes and transactions.
func (h *host) number(r *request) error {
	name, number := sessionOf(r.Command), integer(r.Body, "txnNumber")
	switch {
	case name == "":
		return fail(invalidOptions, "Transaction number requires a session ID")
	case h.deployment.topology == Single:
		return fail(illegalOperation, "Transaction numbers are only allowed on a replica set "+
			"member or mongos")
	}
	d := h.deployment
	d.mu.Lock()
	defer d.mu.Unlock()
	s, known := d.sessions[name]
	if !known {
		s = &session{number: -1}
		d.sessions[name] = s
	}
	if number < s.number {
		return fail(transactionTooOld, "txnNumber %d is older than %d", number, s.number)
	}
	if r.Body.Has("autocommit") {
		return h.inTransaction(r, s, number)
	}
	if !slices.Contains(transactional, r.Name) {
		return fail(invalidOptions, "%s is no retryable write", r.Name)
	}
	if number > s.number {
		*s = session{number: number, done: map[int32]result{}}
	}
	if s.transaction != nil {
		return fail(incompleteHistory, "transaction %d is no retryable write", number)
	}
	r.done = s.done
	return nil
}

// once runs a statement, or returns what it did when it was run before.
func (r *request) once(i int32, run func() (result, error)) (result, error) {
	if before, was := r.done[i]; was {
		return before, nil
	}
	res, err := run()
	if err == nil && r.done != nil {
		r.done[i] = res
	}
	return res, err
}

// allowsMulti refuses a statement on several documents in a retryable write.
func (r *request) allowsMulti(multi bool) error {
	if multi && r.done != nil {
		return fail(invalidOptions, "Cannot use retryable writes with limit=0 or multi=true")
	}
	return nil
}

// snapshotReads are the commands that read the data of a time outside transactions.
var snapshotReads = []string{"find", "aggregate", "distinct"}

// concern applies the read concern of a command.
func (h *host) concern(r *request) error {
	now := h.deployment.clock.now()
	if after := timestampOf(field(r.Body, "readConcern", "afterClusterTime")); after.after(now) {
		return fail(invalidOptions, "readConcern afterClusterTime must not be greater than the "+
			"current clusterTime")
	}
	level, _ := field(r.Body, "readConcern", "level").Str()
	at := timestampOf(field(r.Body, "readConcern", "atClusterTime"))
	switch {
	case level != "snapshot" && at != (timestamp{}):
		return fail(invalidOptions, "atClusterTime needs the level snapshot")
	case level != "snapshot" || r.transaction != nil:
		return nil
	case h.deployment.topology == Single:
		return fail(notReplicaSetMember, "node needs to be a replica set member to use "+
			"readConcern level snapshot")
	case h.wire < wire50 || !slices.Contains(snapshotReads, r.Name):
		return fail(invalidOptions, "%s does not support read concern level snapshot", r.Name)
	case at.after(now):
		return fail(invalidOptions, "atClusterTime must not be greater than the current "+
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
	at := r.snapshot.value()
	if cursor := document(reply, "cursor"); cursor != nil {
		return bson.With(reply, "cursor", bson.DocumentValue(bson.With(cursor, "atClusterTime",
			at)))
	}
	return bson.With(reply, "atClusterTime", at)
}
