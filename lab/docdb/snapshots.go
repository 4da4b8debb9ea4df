package docdb

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// snapshot holds what reads of one cluster time see. Each read is an SQL transaction of its own
// that takes the snapshot over, so that no lock is held between them: a drop would wait for it.
type snapshot struct {
	lsn  uint64 // all commits that begin in the log up to it, and no others, are in the snapshot
	name string
	tx   pgx.Tx // keeps the snapshot
}

// mostSnapshots is how many snapshots are kept for further reads.
const mostSnapshots = 16

// inSnapshot runs a read of a snapshot: the one of atClusterTime, or a new one.
func (r *request) inSnapshot(run command) (reply bson.Raw, err error) {
	f := r.front
	if !slices.Contains([]string{"find", "aggregate", "distinct"}, r.Name) {
		return nil, failure.InvalidOptions.Errorf(
			"%s does not support read concern level snapshot", r.Name)
	}
	if at := field(r.Body, "readConcern", "atClusterTime"); !at.IsZero() {
		r.snapshot, err = f.snapshotOf(f.clock.position(at))
	}
	if r.snapshot == nil && err == nil {
		f.reading <- struct{}{}
		defer func() { <-f.reading }()
		r.snapshot, err = f.newSnapshot()
	}
	if err == nil {
		err = r.read(r.snapshot, func() error {
			reply, err = run(r)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return fakemongo.WithSnapshotTime(reply, f.clock.value(r.snapshot.lsn)), nil
}

// read runs f on what a snapshot has, or on what is there now if there is none.
func (r *request) read(s *snapshot, f func() error) error {
	if s == nil {
		return f()
	}
	ctx := r.front.ctx
	return pgx.BeginTxFunc(ctx, r.front.pool, repeatable, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT '"+s.name+"'"); err != nil {
			return failure.SnapshotTooOld.Errorf("the snapshot is gone: %v", err)
		}
		r.on = tx
		return f()
	})
}

// snapshotOf returns the oldest snapshot that has all of a time, which earlier reads of that time
// had, too; nil: there is none yet. What was committed since that time may be in it.
func (f *Front) snapshotOf(lsn uint64) (*snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.snapshots, func(s *snapshot) bool { return s.lsn >= lsn })
	switch {
	case i >= 0 && (f.snapshots[i].lsn == lsn || lsn > f.dropped):
		return f.snapshots[i], nil
	case lsn <= f.dropped:
		return nil, failure.SnapshotTooOld.Errorf("no snapshot of that time is kept")
	}
	return nil, nil //nolint:nilnil // see above
}

func (f *Front) newSnapshot() (*snapshot, error) {
	f.dropSnapshots(mostSnapshots - 1)
	tx, err := f.pool.BeginTx(f.ctx, repeatable)
	if err != nil {
		return nil, err
	}
	s := &snapshot{tx: tx}
	f.commits.Lock()
	err = tx.QueryRow(f.ctx, "SELECT pg_export_snapshot(), "+lsnColumn).Scan(&s.name, &s.lsn)
	f.commits.Unlock()
	if err != nil {
		_ = tx.Rollback(context.WithoutCancel(f.ctx)) // the error before says more
		return nil, err
	}
	f.clock.saw(s.lsn)
	s.lsn-- // the next commit may begin there
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snapshots = append(f.snapshots, s)
	return s, nil
}

// dropSnapshots ends the oldest snapshots, until that many are left.
func (f *Front) dropSnapshots(left int) {
	f.mu.Lock()
	n := max(0, len(f.snapshots)-left)
	old := f.snapshots[:n]
	f.snapshots = slices.Clone(f.snapshots[n:])
	for _, s := range old {
		f.dropped = max(f.dropped, s.lsn)
	}
	f.mu.Unlock()
	for _, s := range old {
		_ = s.tx.Rollback(context.WithoutCancel(f.ctx)) // nothing is lost
	}
}
