package replicaset

import (
	"fmt"
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// transaction holds what a transaction has changed. While it is in progress it has the turn, so
// what it reads where it has not written does not change. It is guarded by its session's mutex.
type transaction struct {
	state   state
	copies  map[namespace]place // of the collections that it has written to
	changes []change
	timer   *time.Timer // aborts it
}

type state uint8

const (
	inProgress state = iota
	committed
	aborted
)

// inTransaction runs a command of a transaction. The caller holds the session's mutex.
func (s *Server) inTransaction(
	of *session, cmd *fakemongo.Command, number int64,
) (bson.Raw, error) {
	if auto, isBool := field(cmd.Body, "autocommit").Bool(); auto || !isBool {
		return nil, failure.InvalidOptions.Errorf("autocommit may only be false")
	}
	if starts, _ := field(cmd.Body, "startTransaction").Bool(); starts {
		if err := s.begin(of, cmd, number); err != nil {
			return nil, err
		}
	}
	t := of.transaction
	if t == nil || number != of.number {
		return nil, failure.NoSuchTransaction.Errorf("transaction %d is not in progress", number)
	}
	switch cmd.Name {
	case "commitTransaction":
		return s.commit(t, cmd, number)
	case "abortTransaction":
		if t.state == committed {
			return nil, failure.TransactionCommitted.Errorf(
				"transaction %d has been committed", number)
		}
	}
	if t.state != inProgress {
		return nil, failure.NoSuchTransaction.Errorf("transaction %d has been aborted", number)
	}
	if cmd.Name == "abortTransaction" {
		s.end(t, aborted)
		return okay(nil), nil
	}
	reply, err := s.statement(t, cmd)
	if err != nil || failureOf(reply) != nil {
		s.end(t, aborted)
	}
	return reply, err
}

// begin begins a transaction. It blocks until the one before it has ended.
func (s *Server) begin(of *session, cmd *fakemongo.Command, number int64) error {
	if number == of.number {
		return failure.ConflictingOperationInProgress.Errorf(
			"transaction %d cannot be started again", number)
	}
	if err := s.checkConcern(cmd); err != nil {
		return err
	}
	s.end(of.transaction, aborted)
	t := &transaction{copies: map[namespace]place{}}
	of.number, of.done, of.transaction = number, nil, t
	if err := s.take(s.cfg.LockWait); err != nil {
		t.state = aborted
		return failure.WriteConflict.Errorf("Write conflict: %v", err)
	}
	t.timer = time.AfterFunc(s.cfg.Life, func() {
		of.mu.Lock()
		defer of.mu.Unlock()
		s.end(t, aborted)
	})
	return nil
}

// end ends a transaction that is in progress; of another one, or of none, it does nothing.
func (s *Server) end(t *transaction, how state) {
	if t == nil || t.state != inProgress {
		return
	}
	t.state = how
	t.timer.Stop()
	for _, p := range t.copies {
		s.dropCopy(p)
	}
	s.give()
}

// statement runs a command of a transaction that is in progress.
func (s *Server) statement(t *transaction, cmd *fakemongo.Command) (bson.Raw, error) {
	switch cmd.Name {
	case "getMore":
		return s.getMore(cmd)
	case "killCursors":
		return s.killCursors(cmd)
	case "aggregate":
		if stages := cmd.Documents("pipeline"); len(stages) > 0 && stages[0].Has("$changeStream") {
			return nil, failure.OperationNotSupportedInTransaction.Errorf(
				"$changeStream cannot run in a transaction")
		}
		fallthrough
	case "find", "distinct":
		p, isCopy := t.copies[namespaceOf(cmd)]
		if !isCopy {
			p = itself(namespaceOf(cmd))
		}
		return s.readAt(cmd, p, false)
	}
	if !slices.Contains(retryable, cmd.Name) {
		return nil, failure.OperationNotSupportedInTransaction.Errorf(
			"Cannot run '%s' in a multi-document transaction.",
			cmd.Name)
	}
	p, isCopy := t.copies[namespaceOf(cmd)]
	if !isCopy {
		var err error
		if p, err = s.copyOf(namespaceOf(cmd)); err != nil {
			return nil, err
		}
		t.copies[p.of] = p
	}
	reply, changes, err := s.write(cmd, p)
	t.changes = append(t.changes, changes...)
	return reply, err
}

// commit applies what a transaction has changed. Readers see all of it or nothing, and so do
// change streams.
func (s *Server) commit(t *transaction, cmd *fakemongo.Command, number int64) (bson.Raw, error) {
	switch t.state {
	case committed:
		return okay(nil), nil
	case aborted:
		return nil, failure.NoSuchTransaction.Errorf("transaction %d has been aborted", number)
	case inProgress:
	}
	for i := range t.changes {
		c := &t.changes[i]
		c.whole, c.lsid, c.txn = true, document(cmd.Body, "lsid").Clone(), number
	}
	s.data.Lock()
	err := s.applyAll(t.changes)
	if err == nil {
		s.log.add(t.changes)
	}
	s.data.Unlock()
	if err != nil {
		s.end(t, aborted)
		return nil, failure.WriteConflict.Errorf("the transaction cannot be applied: %v", err)
	}
	s.end(t, committed)
	return okay(nil), nil
}

// applyAll makes changes in their order. If one of them fails, it takes back those before it.
func (s *Server) applyAll(changes []change) error {
	for i, c := range changes {
		err := s.apply(c.ns, c.before, c.after)
		if err == nil {
			continue
		}
		for _, c := range slices.Backward(changes[:i]) {
			if failed := s.apply(c.ns, c.after, c.before); failed != nil {
				return fmt.Errorf("%w; and it cannot be taken back: %w", err, failed)
			}
		}
		return err
	}
	return nil
}

// apply puts a document in the place of another one. Either may be nil.
func (s *Server) apply(ns namespace, before, after bson.Raw) error {
	b := new(bson.Builder)
	switch {
	case before == nil:
		b.String("insert", ns.coll).OpenArray("documents").Document("", after).Close()
	case after == nil:
		b.String("delete", ns.coll).OpenArray("deletes").OpenDocument("").
			Document("q", byID(before)).Int32("limit", 1).Close().Close()
	default:
		b.String("update", ns.coll).OpenArray("updates").OpenDocument("").
			Document("q", byID(before)).Document("u", after).Close().Close()
	}
	_, err := s.ask(b, ns.db)
	return err
}
