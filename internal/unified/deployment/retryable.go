package deployment

import (
	"sync"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/mongotest"
)

// retryables remembers the last numbered write of each session, and its reply: a write that comes
// again with the same number is answered, and not done again. The hosts of a deployment share it,
// as members of a replica set share their transaction table. It is for engines, which cannot tell
// the statements of a write apart: a write that was run in part is run again as a whole.
type retryables struct {
	mu       sync.Mutex
	sessions map[string]*numbered
}

// numbered holds the last numbered write of a session.
type numbered struct {
	// mu guards the fields below. It is held while the write runs, so that its repetition waits.
	mu     sync.Mutex
	number int64
	reply  bson.Raw // nil: the write has not succeeded
}

func newRetryables() *retryables { return &retryables{sessions: map[string]*numbered{}} }

// run runs a command, unless it is one that has succeeded before.
func (r *retryables) run(
	h *host, cmd *mongotest.Command, command func(*mongotest.Command) (bson.Raw, error),
) (bson.Raw, error) {
	number, ok := field(cmd.Body, "txnNumber").Int64()
	if !ok {
		return command(cmd)
	}
	if err := checkNumbered(h, cmd); err != nil {
		return nil, err
	}
	n := r.session(field(cmd.Body, "lsid", "id"))
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case number < n.number:
		return nil, fail(transactionTooOld, "retryable write %d is older than %d of the "+
			"session", number, n.number)
	case number == n.number && n.reply != nil:
		return n.reply, nil
	case number > n.number:
		n.number, n.reply = number, nil
	}
	doc, err := command(cmd)
	if ok := integer(doc, "ok"); err == nil && ok == 1 {
		n.reply = doc
	}
	return doc, err
}

func (r *retryables) session(id bson.Value) *numbered {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.sessions[string(id.Data)]
	if n == nil {
		n = &numbered{number: -1}
		r.sessions[string(id.Data)] = n
	}
	return n
}

// checkNumbered refuses numbers of writes where a server refuses them.
func checkNumbered(h *host, cmd *mongotest.Command) error {
	if h.deployment.topology == Single {
		return fail(illegalOperation, "Transaction numbers are only allowed on a replica set "+
			"member or mongos")
	}
	for _, statement := range cmd.Documents("updates") {
		if multi, _ := field(statement, "multi").Bool(); multi {
			return fail(invalidOptions, "Cannot use retryable writes with multi=true")
		}
	}
	for _, statement := range cmd.Documents("deletes") {
		if integer(statement, "limit") == 0 {
			return fail(invalidOptions, "Cannot use retryable writes with limit=0")
		}
	}
	return nil
}
