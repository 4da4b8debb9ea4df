package session_test

import (
	"errors"
	"testing"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/session"
)

func start(t *testing.T, p *session.Pool, opt session.Options) *session.Client {
	t.Helper()
	c, err := p.Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lsid returns the id that a command of the session carries.
func lsid(c *session.Client) bson.UUID {
	b := bson.NewBuilder(nil)
	c.Append(b)
	v, _ := b.Finish().Lookup("lsid", "id")
	_, data, _ := v.Binary()
	return bson.UUID(data)
}

func TestOptions(t *testing.T) {
	yes, no := new(true), new(false)
	at := session.Timestamp{T: 1}
	tests := []struct {
		name string
		opt  session.Options
		ok   bool
	}{
		{"none", session.Options{}, true},
		{"causal", session.Options{CausalConsistency: yes}, true},
		{"snapshot", session.Options{Snapshot: true}, true},
		{"snapshot, not causal", session.Options{Snapshot: true, CausalConsistency: no}, true},
		{"both", session.Options{Snapshot: true, CausalConsistency: yes}, false},
		{"at a time", session.Options{Snapshot: true, SnapshotTime: at}, true},
		{"a time without a snapshot", session.Options{SnapshotTime: at}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPool()
			if _, err := p.Start(tt.opt); (err == nil) != tt.ok {
				t.Errorf("Start() = %v", err)
			}
			if _, err := p.Resume(session.State{}, tt.opt); (err == nil) != tt.ok {
				t.Errorf("Resume() = %v", err)
			}
		})
	}
}

// Causal Consistency: a session that is causally consistent, which is the default of an explicit
// one, asks for what it has seen.
func TestAfterClusterTime(t *testing.T) {
	p := newPool()
	seen := session.Timestamp{T: 5, I: 2}
	tests := []struct {
		name string
		c    *session.Client
		want session.Timestamp
	}{
		{"default", start(t, p, session.Options{}), seen},
		{
			"not causal", start(t, p, session.Options{CausalConsistency: new(false)}),
			session.Timestamp{},
		},
		{"snapshot", start(t, p, session.Options{Snapshot: true}), session.Timestamp{}},
		{"implicit", p.Implicit(p.Acquire()), session.Timestamp{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.c.AfterClusterTime(); !got.IsZero() {
				t.Errorf("AfterClusterTime() = %v before any reply", got)
			}
			tt.c.AdvanceOperationTime(seen)
			tt.c.AdvanceOperationTime(session.Timestamp{T: 5, I: 1})
			if got := tt.c.OperationTime(); got != seen {
				t.Errorf("OperationTime() = %v, want %v", got, seen)
			}
			if got := tt.c.AfterClusterTime(); got != tt.want {
				t.Errorf("AfterClusterTime() = %v, want %v", got, tt.want)
			}
		})
	}
}

// The session's cluster time only moves forward, and is a copy.
func TestAdvanceClusterTime(t *testing.T) {
	c := start(t, newPool(), session.Options{})
	doc := at(5, 0, "x")
	c.AdvanceClusterTime(session.NewClusterTime(doc))
	clear(doc)
	c.AdvanceClusterTime(session.NewClusterTime(at(4, 9, "old")))
	want := session.NewClusterTime(at(5, 0, "x"))
	if got := c.ClusterTime(); string(got.Document()) != string(want.Document()) {
		t.Errorf("ClusterTime() = %v, want %v", got.Document(), want.Document())
	}
}

// The first read determines the snapshot.
func TestSnapshotTime(t *testing.T) {
	first, second := session.Timestamp{T: 1}, session.Timestamp{T: 2}
	c := start(t, newPool(), session.Options{Snapshot: true})
	c.SetSnapshotTime(session.Timestamp{})
	c.SetSnapshotTime(first)
	c.SetSnapshotTime(second)
	if got := c.SnapshotTime(); got != first || !c.ReadsSnapshot() {
		t.Errorf("SnapshotTime() = %v, want %v", got, first)
	}
	c = start(t, newPool(), session.Options{Snapshot: true, SnapshotTime: second})
	if c.SetSnapshotTime(first); c.SnapshotTime() != second {
		t.Errorf("SnapshotTime() = %v, want the one that was given", c.SnapshotTime())
	}
}

// held is a pin that counts its releases.
type held int

func (h *held) Release() { *h++ }

// A session releases what its transaction is bound to once, also if an operation binds it after the
// end of the session.
func TestPinAfterEnd(t *testing.T) {
	c := start(t, newPool(), session.Options{})
	if err := c.StartTransaction(session.TransactionOptions{}); err != nil {
		t.Fatal(err)
	}
	var before, after held
	c.PinTo(&before)
	c.End()
	c.PinTo(&after)
	if p := c.Pinned(); before != 1 || after != 1 || p != nil {
		t.Errorf("released %d and %d times, want once each; Pinned() = %v", before, after, p)
	}
	c.PinTo(nil)
	if c.End(); before != 1 || after != 1 {
		t.Errorf("released %d and %d times in the end, want once each", before, after)
	}
}

func TestEnd(t *testing.T) {
	p := newPool()
	c := start(t, p, session.Options{})
	id := c.ID()
	if err := c.Err(); err != nil || lsid(c) != id {
		t.Errorf("Err() = %v, lsid %v, want %v", err, lsid(c), id)
	}
	c.End()
	c.End()
	if p.Len() != 1 || !errors.Is(c.Err(), session.ErrEnded) {
		t.Errorf("the pool has %d sessions, Err() = %v", p.Len(), c.Err())
	}
	next := start(t, p, session.Options{})
	next.MarkDirty()
	if c.ID() != id || c.IsDirty() || next.ID() != id || !next.IsDirty() {
		t.Error("the ended session is not what it was, or the next one has another id")
	}
	if next.End(); p.Len() != 0 {
		t.Error("a dirty session is in the pool")
	}
}

// A session whose id another process knows never gets into the pool.
func TestForeignSession(t *testing.T) {
	p := newPool()
	c := start(t, p, session.Options{})
	c.NextTxnNumber()
	c.AdvanceOperationTime(session.Timestamp{T: 3})
	c.AdvanceClusterTime(session.NewClusterTime(at(4, 0, "x")))
	s := c.State()
	c.End()

	again, err := newPool().Resume(s, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if again.ID() != c.ID() || again.OperationTime() != c.OperationTime() ||
		again.ClusterTime().After(c.ClusterTime()) || c.ClusterTime().After(again.ClusterTime()) {
		t.Errorf("Resume(%v) has id %v, times %v, %v", s, again.ID(), again.OperationTime(),
			again.ClusterTime())
	}
	if n := again.NextTxnNumber(); n != 2 {
		t.Errorf("NextTxnNumber() = %d, want 2", n)
	}
	again.End()

	snapshot, err := p.Resume(session.State{ID: s.ID, SnapshotTime: session.Timestamp{T: 9}},
		session.Options{Snapshot: true})
	if err != nil || snapshot.SnapshotTime() != (session.Timestamp{T: 9}) {
		t.Errorf("Resume() = %v at %v", err, snapshot.SnapshotTime())
	}
	implicit := p.ResumeImplicit(s.ID)
	if !implicit.IsImplicit() || implicit.ID() != s.ID {
		t.Errorf("ResumeImplicit(%v) has id %v", s.ID, implicit.ID())
	}
	implicit.End()
	if p.Len() != 0 {
		t.Errorf("%d sessions in the pool, want none", p.Len())
	}
}

func TestAtClusterTime(t *testing.T) {
	want := session.Timestamp{T: 7, I: 1}
	own := bson.NewBuilder(nil).Timestamp("atClusterTime", 7, 1).Finish()
	ofCursor := bson.NewBuilder(nil).Document("cursor", own).Timestamp("atClusterTime", 8, 0)
	for _, reply := range []bson.Raw{own, ofCursor.Finish()} {
		if got := session.AtClusterTime(reply); got != want {
			t.Errorf("AtClusterTime(%v) = %v, want %v", reply, got, want)
		}
	}
	if got := session.AtClusterTime(nil); !got.IsZero() {
		t.Errorf("AtClusterTime(nil) = %v", got)
	}
}

// Processes that share an id cannot agree on the numbers of transactions.
func TestSharedSessionHasNoTransaction(t *testing.T) {
	var p session.Pool
	c, err := p.Resume(session.State{ID: bson.UUID{1}, Shared: true}, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = c.StartTransaction(session.TransactionOptions{})
	if !errors.Is(err, session.ErrSharedTransaction) {
		t.Errorf("StartTransaction() = %v, want ErrSharedTransaction", err)
	}
}
