package docdb

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// Config says how a front behaves.
type Config struct {
	// TransactionLife is how long a transaction may be in progress; 0: a minute.
	TransactionLife time.Duration
	// History is how many bytes of changes are kept for resuming; 0: 256 MB.
	History int
}

// setName is the name of the replica set.
const setName = "rs"

// Front speaks MongoDB's protocol for one engine. All methods may be called at any time.
type Front struct {
	cfg    Config
	pool   *pgxpool.Pool
	server *fakemongo.Server
	log    *changeLog
	clock  clock
	// commits is held for reading while the engine commits what the front has written. PostgreSQL
	// puts a commit into its log before others see it, and two commits may become visible in
	// another order than the log's. While commits is held for writing, none is between the two:
	// a snapshot that is taken then has exactly the commits before its position in the log, and
	// everything that the log has told is visible.
	commits sync.RWMutex
	// reading has a value for each read with a new snapshot: too many would drop each other's.
	reading chan struct{}
	ctx     context.Context //nolint:containedctx // ends with the front: commands have no other
	stop    context.CancelFunc

	// mu guards the fields below. Nothing blocks while it is held.
	mu        sync.Mutex
	cursors   map[int64]*cursor
	sessions  map[string]*session
	snapshots []*snapshot // the oldest first
	dropped   uint64      // the time of the newest snapshot that is not kept any more
}

// Listen prepares the engine that a DSN names, and serves MongoDB's protocol for it on a free port
// of the loopback interface. The caller closes the front. An engine has one front in its life.
func Listen(ctx context.Context, dsn string, cfg Config) (*Front, error) {
	cfg.TransactionLife = cmp.Or(cfg.TransactionLife, time.Minute)
	cfg.History = cmp.Or(cfg.History, 256<<20)
	poolConfig, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	poolConfig.MaxConns = 120 // each transaction in progress has one
	poolConfig.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {}
	f := &Front{
		cfg: cfg, cursors: map[int64]*cursor{}, sessions: map[string]*session{},
		reading: make(chan struct{}, mostSnapshots/2),
		clock:   clock{base: uint64(time.Now().Unix()) << 32},
	}
	f.ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	//nolint:contextcheck // the front outlives its start
	if f.pool, err = pgxpool.NewWithConfig(f.ctx, poolConfig); err != nil {
		return nil, err
	}
	if err = f.prepare(ctx, dsn); err == nil {
		f.server, err = fakemongo.Listen("127.0.0.1:0", nil)
	}
	if err != nil {
		f.Close() //nolint:contextcheck // the front's own end
		return nil, err
	}
	//nolint:contextcheck // commands have no context but the front's
	f.server.Intercept(func(cmd *fakemongo.Command, _ fakemongo.Handler) fakemongo.Reply {
		return fakemongo.Document(f.answer(cmd))
	})
	return f, nil
}

// prepare makes what the front keeps in the engine, and begins to read changes.
func (f *Front) prepare(ctx context.Context, dsn string) error {
	for _, statement := range schema {
		if _, err := f.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("prepare the engine: %w", err)
		}
	}
	var err error
	//nolint:contextcheck // it outlives the start
	f.log, err = openLog(f.ctx, dsn, f.cfg.History, &f.commits)
	return err
}

// schema is what the front keeps in the engine: statements of retryable writes, and the slot of
// changes. Changed rows come with their old contents in it.
var schema = []string{
	`CREATE SCHEMA mooring`,
	`CREATE TABLE mooring.statements
		(lsid bytea, txn bigint, stmt int, result bytea, PRIMARY KEY (lsid, txn, stmt))`,
	`CREATE FUNCTION mooring.keep() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE o record;
		BEGIN
			FOR o IN SELECT * FROM pg_event_trigger_ddl_commands()
				WHERE command_tag = 'CREATE TABLE' AND schema_name = 'documentdb_data'
			LOOP
				EXECUTE 'ALTER TABLE ' || o.object_identity || ' REPLICA IDENTITY FULL';
			END LOOP;
		END $$`,
	`CREATE EVENT TRIGGER mooring ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
		EXECUTE FUNCTION mooring.keep()`,
	`ALTER TABLE documentdb_api_catalog.collections REPLICA IDENTITY FULL`,
	`CREATE PUBLICATION mooring FOR TABLES IN SCHEMA documentdb_data,
		TABLE documentdb_api_catalog.collections`,
	`SELECT pg_create_logical_replication_slot('mooring', 'pgoutput')`,
}

// Address returns host and port of the front.
func (f *Front) Address() string { return string(f.server.Address()) }

// URI returns a connection string of the front.
func (f *Front) URI() string { return "mongodb://" + f.Address() + "/?replicaSet=" + setName }

// Close ends transactions, streams and connections, and waits for them.
func (f *Front) Close() {
	f.stop()
	if f.server != nil {
		f.server.Close()
	}
	if f.log != nil {
		<-f.log.done
	}
	f.killSessions(func(string) bool { return true })
	f.dropSnapshots(0)
	f.pool.Close()
}

// querier runs SQL: it is the pool, or the connection of a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// request holds a command and where it runs.
type request struct {
	fakemongo.Command
	front *Front
	lsid  string
	// within is the transaction that the command runs in, and snapshot what it reads; nil: none.
	within   *transaction
	snapshot *snapshot
	on       querier
}

// answer returns the reply to a command, with the times of the deployment.
func (f *Front) answer(cmd *fakemongo.Command) bson.Raw {
	reply, err := f.run(cmd)
	if err != nil {
		reply = failure.Reply(err, cmd.Body.Has("autocommit"))
	}
	now := max(f.clock.saw(0), 1) - 1 // the next commit may begin behind it
	times := fakemongo.ClusterTimes(f.clock.value(now))
	return bson.NewBuilder(nil).AppendElements(reply).AppendElements(times).Finish()
}

func (f *Front) run(cmd *fakemongo.Command) (bson.Raw, error) {
	run, known := commands[cmd.Name]
	if !known {
		return nil, failure.CommandNotFound.Errorf("no such command: '%s'", cmd.Name)
	}
	r := &request{Command: *cmd, front: f, lsid: lsidOf(document(cmd.Body, "lsid")), on: f.pool}
	// The engine refuses all collations, and compares as this one does.
	if text(r.Body, "collation", "locale") == "simple" {
		r.Body = bson.Without(r.Body, "collation")
	}
	reply, err := r.inSession(run)
	if f.ctx.Err() != nil {
		err = failure.InterruptedAtShutdown.Errorf("interrupted at shutdown")
	}
	if err != nil {
		return nil, translated(err)
	}
	return reply, nil
}

// appendList appends an array, whose items one of the builder's methods appends.
func appendList[T any](
	b *bson.Builder, name string, items []T, item func(string, T) *bson.Builder,
) *bson.Builder {
	b.OpenArray(name)
	for _, v := range items {
		item("", v)
	}
	return b.Close()
}

// lsnColumn is the position in the log as a column of each query.
const lsnColumn = "(pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"

// query runs a query of one row, notes the time, and returns the position that the log has come to
// behind what the query has read.
func (r *request) query(
	columns, from string, args pgx.NamedArgs, to ...any,
) (at uint64, err error) {
	err = r.on.QueryRow(r.front.ctx, "SELECT "+columns+", "+lsnColumn+from, args).
		Scan(append(to, &at)...)
	if err == nil {
		r.front.clock.saw(at)
	}
	return at, err
}

// call runs a function of the engine that returns a document.
func (r *request) call(function string, args pgx.NamedArgs) (reply bson.Raw, err error) {
	_, err = r.query("("+function+")::bytea", "", args, (*[]byte)(&reply))
	return reply, err
}

// args returns the arguments that functions of the engine are called with for a document.
func (r *request) args(of bson.Raw) pgx.NamedArgs {
	scale, _ := field(of, "scale").AsDouble()
	return pgx.NamedArgs{
		"db": r.Database, "coll": text(of, of.FirstKey()), "body": []byte(of),
		"scale": cmp.Or(scale, 1),
	}
}

// ask runs a command of the front's own that reads, and returns its page.
func (f *Front) ask(database string, command bson.Raw) (page bson.Raw, err error) {
	r := &request{front: f, on: f.pool}
	r.Name, r.Database, r.Body = command.FirstKey(), database, command
	return r.open()
}

// clock holds the cluster time: the LSN that the engine has come to, behind the second in which
// the front began. So a time is a position in the log of changes, and grows.
type clock struct {
	base uint64
	mu   sync.Mutex // guards last
	last uint64
}

// saw notes a position, and returns the last one.
func (c *clock) saw(lsn uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, lsn)
	return c.last
}

// value returns the cluster time of a position.
func (c *clock) value(lsn uint64) bson.Value {
	n := c.base + lsn
	return bson.TimestampValue(uint32(n>>32), uint32(n))
}

// position returns the position of a cluster time; 0 if it is before all.
func (c *clock) position(v bson.Value) uint64 {
	t, i, _ := v.Timestamp()
	n := uint64(t)<<32 | uint64(i)
	return max(n, c.base) - c.base
}

// hello returns what the front says of itself.
func (r *request) hello() (bson.Raw, error) {
	me := r.front.Address()
	reply := fakemongo.Hello(&r.Command, func(b *bson.Builder) {
		b.String("setName", setName).Int32("setVersion", 1).String("me", me).String("primary", me)
		b.Bool("secondary", false).OpenArray("hosts").String("", me).Close()
		b.OpenDocument("lastWrite").DateTime("lastWriteDate", time.Now().UnixMilli()).Close()
	})
	// The engine takes no more documents in an insert.
	return bson.With(reply.Document(), "maxWriteBatchSize", bson.Int32Value(25_000)), nil
}

// repeatable are the options of all SQL transactions.
var repeatable = pgx.TxOptions{IsoLevel: pgx.RepeatableRead}

func (f *Front) commit(tx pgx.Tx) error {
	f.commits.RLock()
	defer f.commits.RUnlock()
	return tx.Commit(f.ctx)
}

// inTx runs f in an SQL transaction of its own, which is rolled back if f fails. What conflicts
// with other writers is run again, as MongoDB does outside of its transactions. At READ COMMITTED
// the engine would delete nothing if another writer changes the document meanwhile.
func (r *request) inTx(f func() error) error {
	if r.within != nil {
		return f()
	}
	pool := r.on
	defer func() { r.on = pool }()
	for {
		tx, err := r.front.pool.BeginTx(r.front.ctx, repeatable)
		if err != nil {
			return err
		}
		r.on = tx
		if err = f(); err == nil {
			err = r.front.commit(tx)
		} else {
			_ = tx.Rollback(r.front.ctx) // the error before says more
		}
		if !failure.WriteConflict.Is(translated(err)) {
			return err
		}
	}
}
