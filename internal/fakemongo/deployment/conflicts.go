package deployment

import (
	"slices"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// transactionLife is how long a transaction may stay in progress.
const transactionLife = time.Minute

// held names a document that a transaction has changed.
type held struct{ namespace, id string }

// isOpenLocked reports whether a transaction is in progress still: the end of its primary's term
// and the end of its life abort it.
func (d *Deployment) isOpenLocked(t *transaction) bool {
	return t.state == inProgress && t.term == d.termLocked() &&
		time.Since(t.start) < transactionLife
}

// termLocked returns the term of the primary that runs transactions.
func (d *Deployment) termLocked() uint32 { return d.cluster.Term() + d.failovers }

// abortLocked aborts a transaction that is in progress.
func (d *Deployment) abortLocked(t *transaction) {
	if t.state == inProgress {
		t.state = aborted
		d.releaseLocked(t)
	}
}

// releaseLocked lets other transactions change the documents that an ended one has changed.
func (d *Deployment) releaseLocked(t *transaction) {
	for _, key := range t.held {
		if d.holders[key] == t {
			delete(d.holders, key)
		}
	}
	t.held = nil
}

// conflicts refuses a command of a transaction that reads what has moved to another shard since
// the transaction began, or that changes a document which another transaction in progress has
// changed, or which has changed since the transaction began.
func (d *Deployment) conflicts(cmd *request) error {
	t := cmd.transaction
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.state != inProgress {
		return nil
	}
	if d.moved[namespace(cmd)].after(t.began) {
		return failure.SnapshotUnavailable.Errorf("%s has moved since the transaction began",
			namespace(cmd))
	}
	if d.isHeldLocked(t) {
		return failure.WriteConflict.Errorf("another transaction has changed a document")
	}
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	if d.store.changedSinceLocked(t) {
		return failure.WriteConflict.Errorf("a document of the transaction has changed")
	}
	return nil
}

// isHeldLocked reports whether another transaction in progress has changed a document that t
// changes. Otherwise t holds its documents until it ends.
func (d *Deployment) isHeldLocked(t *transaction) bool {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for _, e := range t.store.log[len(t.held):] {
		key := held{e.namespace, keyOf(e.id())}
		if other := d.holders[key]; other != nil && other != t {
			if d.isOpenLocked(other) {
				return true
			}
			d.abortLocked(other)
		}
		d.holders[key] = t
		t.held = append(t.held, key)
	}
	return false
}

func keyOf(id bson.Value) string { return string(append([]byte{byte(id.Type)}, id.Data...)) }

// changedSinceLocked reports whether a document that a transaction changes has changed since it
// began.
func (s *store) changedSinceLocked(t *transaction) bool {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	for _, other := range slices.Backward(s.log) {
		if !other.at.after(t.began) {
			return false
		}
		if slices.ContainsFunc(t.store.log, func(e entry) bool {
			return other.namespace == e.namespace && (scope{}).equal(other.id(), e.id())
		}) {
			return true
		}
	}
	return false
}

// MoveShard moves a collection, "database.collection", to another shard. A transaction that began
// before and has another command for the collection fails.
func (d *Deployment) MoveShard(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.moved[namespace] = d.clock.tick()
}

// FailOver has a shard's primary step down, and another member take its place at once: all
// transactions in progress are aborted.
func (d *Deployment) FailOver() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failovers++
}
