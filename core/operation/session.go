package operation

import (
	"errors"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/session"
)

// Errors of operations in explicit sessions that the server cannot run. Nothing was sent.
var (
	ErrSessionsNotSupported = errors.New("the server does not support sessions")
	// ErrNotRetryable is that of a session which needs numbered writes: see session.State.
	ErrNotRetryable = errors.New("the write cannot be repeated safely: it reaches many " +
		"documents, or the deployment has no retryable writes, or they are switched off")
	//nolint:revive,staticcheck // the specification's words
	ErrSnapshotNotSupported = errors.New("Snapshot reads require MongoDB 5.0 or later")
)

// ReadConcern says which consistency a read asks for.
type ReadConcern struct {
	Level string // empty: the server's default
	// Sent says that a readConcern is sent. With an empty Level it overrides that of the server.
	Sent bool
}

// identity represents what a command is sent as: an explicit session, or the server session of an
// implicit one.
type identity interface {
	// Append appends the lsid.
	Append(b *bson.Builder)
	// MarkDirty records a network error.
	MarkDirty()
	// NextTxnNumber returns the number of the next retryable write.
	NextTxnNumber() int64
}

var (
	_ identity = (*session.Session)(nil)
	_ identity = (*session.Client)(nil)
)

// supportsSessions reports whether commands on the connection may carry an lsid.
func (x *exchange) supportsSessions() bool {
	return x.server.TopologyKind() == description.KindLoadBalanced ||
		x.conn.Hello().LogicalSessionTimeoutMinutes != nil
}

// join sets the session of the exchange. An implicit one is taken from the pool only now that
// there is a connection (Driver Sessions, "Sessions and Connections").
func (x *exchange) join(c *course, op *Operation) error {
	supported := x.supportsSessions()
	switch s := op.Session; {
	case s != nil && (s.IsImplicit() || s.IsExact()):
		if supported {
			x.session = s
		}
	case s != nil && !supported:
		return ErrSessionsNotSupported
	case c.part.within() && !x.supportsTransactions():
		return ErrTransactionsNotSupported
	case s != nil && s.ReadsSnapshot() && x.conn.Hello().MaxWireVersion < wireVersion50:
		return ErrSnapshotNotSupported
	case s != nil && s.IsShared() && op.Kind == Write && c.mayRetry(op):
		x.joinImplicit(c) // whose numbers no other process uses
	case s != nil:
		x.session = s
	case supported && !op.Unacknowledged && x.runner.Sessions != nil:
		x.joinImplicit(c)
	}
	err := x.number(c, op)
	if err == nil && c.txnNumber == 0 && op.isExact() {
		return ErrNotRetryable
	}
	return err
}

// isExact reports whether the operation must be a numbered write.
func (op *Operation) isExact() bool { return op.Session != nil && op.Session.IsExact() }

func (x *exchange) joinImplicit(c *course) {
	if c.implicit == nil {
		c.implicit = x.runner.Sessions.Acquire()
	}
	x.session = c.implicit
}

// appendSession appends lsid and $clusterTime.
func (x *exchange) appendSession(c *course, op *Operation, b *bson.Builder) {
	if x.session != nil && !op.Unacknowledged {
		x.session.Append(b)
	}
	if c.txnNumber != 0 {
		b.Int64("txnNumber", c.txnNumber)
	}
	c.part.append(b)
	if x.runner.Clock == nil {
		return
	}
	now := x.runner.Clock.Now()
	if op.Session != nil {
		now = session.Later(now, op.Session.ClusterTime())
	}
	now.Append(b)
}

// observe takes the times from a reply, whatever it says.
func (x *exchange) observe(p *part, op *Operation, reply bson.Raw) {
	if x.runner.Clock == nil {
		return
	}
	cluster, operation := session.Times(reply)
	x.runner.Clock.Advance(cluster)
	if s := op.Session; s != nil {
		s.AdvanceClusterTime(cluster)
		s.AdvanceOperationTime(operation)
		if p.session != nil {
			s.KeepRecoveryToken(reply)
		}
		if s.ReadsSnapshot() && findsSnapshot(op.Command.Name()) {
			s.SetSnapshotTime(session.AtClusterTime(reply))
		}
	}
}

// markDirty records that a command ended with a network error.
func (x *exchange) markDirty(err error) {
	if x.session != nil && mongoerr.IsNetwork(err) {
		x.session.MarkDirty()
	}
}

// appendReadConcern appends the read concern: that of the operation, with the time that a causally
// consistent session has seen, or that of a session's snapshot, which all commands carry so that
// the server refuses those that cannot read from it (Snapshot Reads, "Sending readConcern to the
// server"). That of a command that a user wrote is left as it is (Run Command, "ReadConcern and
// WriteConcern").
func (op *Operation) appendReadConcern(b *bson.Builder, p *part) {
	if op.OwnReadConcern {
		return
	}
	if p.session != nil {
		p.appendReadConcern(b)
		return
	}
	if op.Session != nil && op.Session.ReadsSnapshot() {
		if takesSnapshot(op.Command.Name()) {
			b.OpenDocument("readConcern").String("level", "snapshot")
			appendTime(b, "atClusterTime", op.Session.SnapshotTime())
			b.Close()
		}
		return
	}
	var after session.Timestamp
	if op.Session != nil && op.Kind != Generic && takesClusterTime(op.Command.Name()) {
		after = op.Session.AfterClusterTime()
	}
	op.ReadConcern.append(b, after)
}

// append appends the read concern with a time that the command must see, if there is one.
func (rc ReadConcern) append(b *bson.Builder, after session.Timestamp) {
	if !rc.Sent && after.IsZero() {
		return
	}
	b.OpenDocument("readConcern")
	if rc.Level != "" {
		b.String("level", rc.Level)
	}
	appendTime(b, "afterClusterTime", after)
	b.Close()
}

func appendTime(b *bson.Builder, key string, t session.Timestamp) {
	if !t.IsZero() {
		b.Timestamp(key, t.T, t.I)
	}
}

// takesClusterTime reports whether a command of this name carries afterClusterTime in a causally
// consistent session (Causal Consistency, "Read concern"; writes since 2026).
func takesClusterTime(name string) bool {
	switch name {
	case "aggregate", "count", "distinct", "find",
		"insert", "update", "delete", "findAndModify", "bulkWrite",
		"create", "createIndexes", "drop", "dropDatabase", "dropIndexes":
		return true
	}
	return false
}

// takesSnapshot reports whether a command of this name carries the read concern of a snapshot. A
// cursor's commands do not: the cursor has its snapshot.
func takesSnapshot(name string) bool { return name != "getMore" && name != "killCursors" }

// findsSnapshot reports whether the reply to a command of this name tells the time of the snapshot.
func findsSnapshot(name string) bool {
	return name == "find" || name == "aggregate" || name == "distinct"
}
