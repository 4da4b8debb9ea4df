package docdb

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// namespace names a collection.
type namespace struct{ db, coll string }

func (n namespace) append(b *bson.Builder, key string) *bson.Builder {
	b.OpenDocument(key).String("db", n.db)
	if n.coll != "" {
		b.String("coll", n.coll)
	}
	return b.Close()
}

// entry holds one committed SQL transaction.
type entry struct {
	lsn     uint64 // of its commit
	at      time.Time
	about   bson.Raw // lsid and txnNumber, if it was a transaction of the protocol
	changes []change
	size    int
}

// change holds one change of an entry.
type change struct {
	kind          string // the operationType
	ns, to        namespace
	before, after bson.Raw
	images        bool // the collection keeps them
}

// changeLog reads the slot, and keeps what is committed: in its order, each transaction as a whole.
// The goroutine that reads owns the fields that have no lock.
type changeLog struct {
	conn  *pgconn.PgConn
	limit int
	done  chan struct{}
	// commits is held for reading while a commit becomes visible.
	commits *sync.RWMutex

	relations map[uint32]*pglogrepl.RelationMessage
	tables    map[string]namespace // of collections, by the names of their tables
	images    map[namespace]bool
	current   entry
	replaces  bool

	// mu guards the fields below.
	mu      sync.Mutex
	entries []entry
	size    int
	last    uint64        // the commit that was read last
	lost    uint64        // all commits up to this one are forgotten
	failed  error         // why nothing more is read; nil: it is read
	changed chan struct{} // closed, and replaced, at each change
}

// openLog begins to read the slot of the database of a DSN, until ctx ends.
func openLog(
	ctx context.Context, dsn string, limit int, commits *sync.RWMutex,
) (*changeLog, error) {
	conn, err := pgconn.Connect(ctx, dsn+" replication=database")
	if err != nil {
		return nil, err
	}
	err = pglogrepl.StartReplication(ctx, conn, "mooring", 0, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{
			"proto_version '1'", "publication_names 'mooring'", "messages 'true'", "binary 'true'",
		},
	})
	if err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("read the slot: %w", err)
	}
	l := &changeLog{
		conn: conn, limit: limit, commits: commits,
		done: make(chan struct{}), changed: make(chan struct{}),
		relations: map[uint32]*pglogrepl.RelationMessage{},
		tables:    map[string]namespace{}, images: map[namespace]bool{},
	}
	go l.run(ctx)
	return l, nil
}

func (l *changeLog) run(ctx context.Context) {
	defer close(l.done)
	defer func() { _ = l.conn.Close(context.WithoutCancel(ctx)) }()
	var err error
	for err == nil {
		var m pgproto3.BackendMessage
		if m, err = l.conn.ReceiveMessage(ctx); err == nil {
			err = l.receive(ctx, m)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = fmt.Errorf("read the log of changes: %w", err)
	close(l.changed)
}

func (l *changeLog) receive(ctx context.Context, m pgproto3.BackendMessage) error {
	if e, failed := m.(*pgproto3.ErrorResponse); failed {
		return pgconn.ErrorResponseToPgError(e)
	}
	data, ok := m.(*pgproto3.CopyData)
	switch {
	case !ok || len(data.Data) == 0:
		return nil
	case data.Data[0] == pglogrepl.PrimaryKeepaliveMessageByteID:
		// What was read is kept here: the engine may forget it.
		return pglogrepl.SendStandbyStatusUpdate(ctx, l.conn, pglogrepl.StandbyStatusUpdate{
			WALWritePosition: pglogrepl.LSN(max(l.current.lsn, 1)),
		})
	case data.Data[0] != pglogrepl.XLogDataByteID:
		return nil
	}
	x, err := pglogrepl.ParseXLogData(data.Data[1:])
	if err != nil {
		return err
	}
	message, err := pglogrepl.Parse(x.WALData)
	if err != nil {
		return err
	}
	l.apply(message)
	return nil
}

func (l *changeLog) apply(message pglogrepl.Message) {
	switch m := message.(type) {
	case *pglogrepl.RelationMessage:
		l.relations[m.RelationID] = m
	case *pglogrepl.BeginMessage:
		l.current, l.replaces = entry{lsn: uint64(m.FinalLSN), at: m.CommitTime}, false
	case *pglogrepl.InsertMessage:
		l.row(m.RelationID, nil, m.Tuple)
	case *pglogrepl.UpdateMessage:
		l.row(m.RelationID, m.OldTuple, m.NewTuple)
	case *pglogrepl.DeleteMessage:
		l.row(m.RelationID, m.OldTuple, nil)
	case *pglogrepl.LogicalDecodingMessage:
		l.message(m.Prefix, slices.Clone(m.Content))
	case *pglogrepl.CommitMessage:
		l.commit()
	}
}

// message applies what the front has written into the log itself.
func (l *changeLog) message(kind string, content bson.Raw) {
	switch kind {
	case "replace", "update":
		l.replaces = kind == "replace"
	case "transaction":
		l.current.about = content
	case "images":
		ns := namespace{text(content, "ns", "db"), text(content, "ns", "coll")}
		l.images[ns], _ = field(content, "enabled").Bool()
	case "dropDatabase":
		db := text(content, "db")
		if slices.ContainsFunc(l.current.changes, func(c change) bool { return c.ns.db == db }) {
			l.add(change{kind: kind, ns: namespace{db: db}})
		}
	}
}

// row applies a row that was inserted, updated or deleted: before or after is nil.
func (l *changeLog) row(id uint32, before, after *pglogrepl.TupleData) {
	relation := l.relations[id]
	old, now := columns(relation, before), columns(relation, after)
	if relation.Namespace == "documentdb_data" {
		l.document(relation.RelationName, old["document"], now["document"])
	} else {
		l.collection(old, now)
	}
}

// columns returns the values of a row by name.
func columns(relation *pglogrepl.RelationMessage, row *pglogrepl.TupleData) map[string][]byte {
	if row == nil {
		return nil
	}
	values := map[string][]byte{}
	for i, c := range row.Columns {
		if c.Data != nil {
			values[relation.Columns[i].Name] = slices.Clone(c.Data)
		}
	}
	return values
}

// document applies a change of a document.
func (l *changeLog) document(table string, before, after bson.Raw) {
	ns, known := l.tables[table]
	if !known {
		return
	}
	c := change{ns: ns, before: before, after: after, images: l.images[ns]}
	switch {
	case before == nil:
		c.kind = "insert"
	case after == nil:
		c.kind = "delete"
	case string(before) == string(after):
		return
	case l.replaces:
		c.kind = "replace"
	default:
		c.kind = "update"
	}
	l.add(c)
}

// collection applies a change of the list of collections.
func (l *changeLog) collection(old, now map[string][]byte) {
	row := now
	if now == nil {
		row = old
	}
	ns, before := namespaceOf(row), namespaceOf(old)
	if row["view_definition"] != nil || strings.HasPrefix(ns.coll, "system.") {
		return
	}
	table := fmt.Sprintf("documents_%d", binary.BigEndian.Uint64(row["collection_id"]))
	switch {
	case old == nil:
		l.add(change{kind: "create", ns: ns})
	case now == nil:
		delete(l.tables, table)
		delete(l.images, ns)
		l.add(change{kind: "drop", ns: ns})
		return
	case before != ns:
		l.add(change{kind: "rename", ns: before, to: ns})
		l.images[ns] = l.images[before]
		delete(l.images, before)
	}
	l.tables[table] = ns
}

// namespaceOf returns the name of a row of that list.
func namespaceOf(row map[string][]byte) namespace {
	return namespace{string(row["database_name"]), string(row["collection_name"])}
}

func (l *changeLog) add(c change) {
	l.current.changes = append(l.current.changes, c)
	l.current.size += len(c.before) + len(c.after) + 200 // about what else it takes
}

// commit adds the transaction that was read, once it is visible, and forgets the oldest ones over
// the limit.
func (l *changeLog) commit() {
	l.commits.Lock()
	l.commits.Unlock() //nolint:staticcheck // it waits until no commit is on its way
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = l.current.lsn
	if len(l.current.changes) > 0 {
		l.entries = append(l.entries, l.current)
		l.size += l.current.size
	}
	drop := 0
	for ; l.size > l.limit && drop < len(l.entries)-1; drop++ {
		l.size -= l.entries[drop].size
		l.lost = l.entries[drop].lsn
	}
	l.entries = slices.Delete(l.entries, 0, drop)
	close(l.changed)
	l.changed = make(chan struct{})
}

// from returns the entries from a position on, and the commit that was read last. It fails if the
// position is forgotten. changed is closed once there is more.
func (l *changeLog) from(
	p position,
) (entries []entry, last uint64, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return nil, 0, nil, l.failed
	}
	if p.lsn < l.lost || p.lsn == l.lost && p.part != whole && p.lsn > 0 {
		return nil, 0, nil, failure.ChangeStreamHistoryLost.Errorf(
			"the log begins behind that time")
	}
	i, _ := slices.BinarySearchFunc(l.entries, p.lsn, func(e entry, lsn uint64) int {
		return cmp.Compare(e.lsn, lsn)
	})
	return slices.Clone(l.entries[i:]), l.last, l.changed, nil
}
