package replicaset

import (
	"slices"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// sessionLife is how long a session is remembered that is not used.
const sessionLife = 30 * time.Minute

// session holds the last numbered operation of a logical session: a retryable write, or a
// transaction.
type session struct {
	used time.Time // guarded by the server's mutex

	// mu guards the fields below. It is held while a numbered command of the session runs. The
	// turn and the server's mutex may be taken under it.
	mu          sync.Mutex
	number      int64
	done        *remembered  // nil: the last operation is not a retryable write
	transaction *transaction // nil: it is not a transaction
}

// remembered holds the reply to a retryable write; nil: the write is not done.
type remembered struct{ reply bson.Raw }

// retryable are the writes that may have a txnNumber outside transactions.
var retryable = []string{"insert", "update", "delete", "findAndModify"}

// numbered runs a command that has a txnNumber.
func (s *Server) numbered(cmd *fakemongo.Command) (bson.Raw, error) {
	_, id, ok := field(cmd.Body, "lsid", "id").Binary()
	if !ok {
		return nil, failure.InvalidOptions.Errorf("Transaction number requires a session ID")
	}
	of := s.session(string(id))
	of.mu.Lock()
	defer of.mu.Unlock()
	number := integer(cmd.Body, "txnNumber")
	if number < of.number {
		return nil, failure.TransactionTooOld.Errorf(
			"txnNumber %d is older than %d", number, of.number)
	}
	if cmd.Body.Has("autocommit") {
		return s.inTransaction(of, cmd, number)
	}
	if !slices.Contains(retryable, cmd.Name) {
		return nil, failure.InvalidOptions.Errorf("%s is not a retryable write", cmd.Name)
	}
	for _, list := range []string{"updates", "deletes"} {
		for _, one := range cmd.Documents(list) {
			limit := field(one, "limit")
			if field(one, "multi").Truthy() || !limit.IsZero() && !limit.Truthy() {
				return nil, failure.InvalidOptions.Errorf(
					"Cannot use retryable writes with limit=0 or multi=true")
			}
		}
	}
	if number > of.number {
		s.end(of.transaction, aborted)
		of.number, of.transaction, of.done = number, nil, &remembered{}
	}
	if of.done == nil {
		return nil, failure.IncompleteTransactionHistory.Errorf(
			"transaction %d is not a retryable write", number)
	}
	return s.writeAlone(cmd, of.done)
}

// session returns the session of an id. It forgets those that were not used for long.
func (s *Server) session(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.sessions[id]
	if of == nil {
		for key, other := range s.sessions {
			if time.Since(other.used) > sessionLife {
				delete(s.sessions, key)
			}
		}
		of = &session{number: -1}
		s.sessions[id] = of
	}
	of.used = time.Now()
	return of
}

// endSessions aborts the transactions of sessions. What was written in them stays remembered.
func (s *Server) endSessions(cmd *fakemongo.Command) {
	for _, lsid := range cmd.Documents(cmd.Name) {
		_, id, _ := field(lsid, "id").Binary()
		s.mu.Lock()
		of := s.sessions[string(id)]
		s.mu.Unlock()
		if of == nil {
			continue
		}
		of.mu.Lock()
		s.end(of.transaction, aborted)
		of.mu.Unlock()
	}
}
