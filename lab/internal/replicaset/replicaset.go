// Package replicaset makes a replica set of one member of a server that is none: FerretDB v1 on
// SQLite, the embedded database. The server finds, aggregates, and changes documents. This package
// stands before it, and adds what a replica set has besides: sessions, transactions, retryable
// writes that are carried out once, an oplog, change streams with resume tokens, cluster times, and
// reads of a snapshot.
//
// It does so by simple means, for small collections. One lock orders all writes. A transaction
// holds it from its first statement to its end, so transactions run one after the other. One that
// does not get the lock in time fails with WriteConflict. A transaction writes to copies of
// collections, which other clients cannot see; its commit applies what has changed while no client
// reads, as one entry of the oplog. Each write reads its documents before and after itself: the
// difference is what change streams tell. Nothing survives the process.
package replicaset

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// Backend runs commands on data.
type Backend interface {
	// Run returns the reply to a command, also a reply that is an error. Its error says that there
	// is none. It may be called by several goroutines.
	Run(body bson.Raw, sequences map[string][]bson.Raw) (bson.Raw, error)
}

// Config says what differs from the defaults.
type Config struct {
	// LockWait is how long a transaction waits for the one before it; zero is a second.
	LockWait time.Duration
	// Life is how long a transaction may be in progress; zero is a minute.
	Life time.Duration
	// LogSize is how many changes the oplog holds; zero is 100,000.
	LogSize int
	TLS     *tls.Config // nil: connections are not encrypted
}

// SetName is the name of the replica set.
const SetName = "embedded"

// internalDatabase holds copies of collections. Clients do not see it.
const internalDatabase = "__copies"

// Server represents the one member. All methods may be called at any time.
type Server struct {
	*fakemongo.Server
	backend Backend
	cfg     Config
	log     *oplog
	ctx     context.Context //nolint:containedctx // ends the waits of handlers with the server
	cancel  context.CancelFunc

	// turn has one place. A goroutine that has put something in may write.
	turn chan struct{}
	// data is locked while documents and the oplog change together, and read-locked by reads.
	data sync.RWMutex

	// mu guards the fields below. It is held for moments only.
	mu         sync.Mutex
	sessions   map[string]*session
	cursors    map[int64]*cursor
	lastCursor int64
	copies     int // made so far
}

// Listen starts a server at host:port. The caller closes it.
func Listen(address string, backend Backend, cfg Config) (*Server, error) {
	if cfg.LockWait == 0 {
		cfg.LockWait = time.Second
	}
	if cfg.Life == 0 {
		cfg.Life = time.Minute
	}
	if cfg.LogSize == 0 {
		cfg.LogSize = 100_000
	}
	s := &Server{
		backend: backend, cfg: cfg, log: newOplog(cfg.LogSize), turn: make(chan struct{}, 1),
		sessions: map[string]*session{}, cursors: map[int64]*cursor{}, lastCursor: firstCursor,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	front, err := fakemongo.Listen(address, nil)
	if err != nil {
		s.cancel()
		return nil, err
	}
	s.Server = front
	front.UseTLS(cfg.TLS)
	front.Intercept(s.answer)
	return s, nil
}

// Close ends all connections and transactions, and waits for what is running.
func (s *Server) Close() {
	s.cancel()
	s.Server.Close()
	s.mu.Lock()
	sessions := s.sessions
	s.sessions = map[string]*session{}
	s.mu.Unlock()
	for _, each := range sessions {
		each.mu.Lock()
		s.end(each.transaction, aborted)
		each.mu.Unlock()
	}
}

// answer answers every command.
func (s *Server) answer(cmd *fakemongo.Command, _ fakemongo.Handler) fakemongo.Reply {
	switch cmd.Name {
	case "hello", "isMaster", "ismaster":
		return s.hello(cmd)
	}
	doc, err := s.run(cmd)
	if err != nil {
		doc = failure.Reply(err, cmd.Body.Has("autocommit"))
	}
	return fakemongo.Document(doc).With(s.log.times())
}

// hello says that this is the primary of a set, and its only member.
func (s *Server) hello(cmd *fakemongo.Command) fakemongo.Reply {
	me := string(s.Address())
	return fakemongo.Hello(cmd, func(b *bson.Builder) {
		b.String("setName", SetName).Int32("setVersion", 1).Bool("secondary", false).
			OpenArray("hosts").String("", me).Close().String("primary", me).String("me", me).
			OpenDocument("lastWrite").DateTime("lastWriteDate", s.log.written().UnixMilli()).
			Close()
	}).With(s.log.times())
}

// run runs a command and returns its reply, which may be the backend's error.
func (s *Server) run(cmd *fakemongo.Command) (bson.Raw, error) {
	if what := lacks(cmd); what != "" {
		return nil, failure.NotImplemented.Errorf(
			"the embedded database does not have %s: see lab/README.md", what)
	}
	switch cmd.Name {
	case "ping":
		return okay(nil), nil
	case "endSessions", "killSessions":
		s.endSessions(cmd)
		return okay(nil), nil
	}
	if strings.HasPrefix(cmd.Database, internalDatabase) {
		return nil, failure.Unauthorized.Errorf("the database %s is the server's own", cmd.Database)
	}
	if cmd.Body.Has("txnNumber") {
		return s.numbered(cmd)
	}
	if cmd.Body.Has("autocommit") || cmd.Body.Has("startTransaction") {
		return nil, failure.InvalidOptions.Errorf("a transaction needs a txnNumber")
	}
	if slices.Contains(writes, cmd.Name) {
		return s.writeAlone(cmd, nil)
	}
	if err := s.checkConcern(cmd); err != nil {
		return nil, err
	}
	switch cmd.Name {
	case "aggregate":
		stages := cmd.Documents("pipeline")
		if len(stages) > 0 && stages[0].Has("$changeStream") {
			return s.openStream(cmd, document(stages[0], "$changeStream"), stages[1:])
		}
	case "getMore":
		return s.getMore(cmd)
	case "killCursors":
		return s.killCursors(cmd)
	case "listDatabases":
		doc, err := s.read(cmd)
		return withoutOwn(doc), err
	}
	if level, _ := field(cmd.Body, "readConcern", "level").Str(); level == "snapshot" {
		return s.readSnapshot(cmd)
	}
	return s.read(cmd)
}

// read has the backend run a command while no write is half done.
func (s *Server) read(cmd *fakemongo.Command) (bson.Raw, error) {
	s.data.RLock()
	defer s.data.RUnlock()
	return s.pass(cmd.Body, cmd.Sequences)
}

// ours are the fields of commands that are not for the backend.
var ours = []string{
	"lsid", "$clusterTime", "txnNumber", "autocommit", "startTransaction", "stmtId", "stmtIds",
	"$readPreference", "readConcern", "writeConcern", "apiVersion", "apiStrict",
	"apiDeprecationErrors", "recoveryToken", "rawData",
}

// pass has the backend run a command.
func (s *Server) pass(body bson.Raw, sequences map[string][]bson.Raw) (bson.Raw, error) {
	body = bson.Without(body, ours...)
	// FerretDB refuses all collations, and compares as this one does.
	if locale, _ := field(body, "collation", "locale").Str(); locale == "simple" {
		body = bson.Without(body, "collation")
	}
	doc, err := s.backend.Run(body, sequences)
	if err != nil {
		return nil, fmt.Errorf("the embedded database gave no answer: %w", err)
	}
	return doc, nil
}

// ask has the backend run a command of the server's own. A reply that is an error is one.
func (s *Server) ask(b *bson.Builder, database string) (bson.Raw, error) {
	doc, err := s.pass(b.String("$db", database).Finish(), nil)
	if err != nil {
		return nil, err
	}
	if failed := failureOf(doc); failed != nil {
		message, _ := field(failed, "errmsg").Str()
		return nil, failure.Code(integer(failed, "code")).Errorf("%s", message)
	}
	return doc, nil
}

// all returns the documents of a command of the server's own that opens a cursor.
func (s *Server) all(b *bson.Builder, at namespace) ([]bson.Raw, error) {
	doc, err := s.ask(b, at.db)
	batch := "firstBatch"
	var docs []bson.Raw
	for {
		if err != nil {
			return nil, err
		}
		list, _ := field(doc, "cursor", batch).Array()
		docs = slices.AppendSeq(docs, list.Documents())
		id := integer(doc, "cursor", "id")
		if id == 0 {
			return docs, nil
		}
		batch = "nextBatch"
		doc, err = s.ask(bson.NewBuilder(nil).Int64("getMore", id).String("collection", at.coll),
			at.db)
	}
}

// withoutOwn returns the reply to listDatabases without the server's own database.
func withoutOwn(reply bson.Raw) bson.Raw {
	list, isList := field(reply, "databases").Array()
	if !isList {
		return reply
	}
	b := bson.NewBuilder(nil).OpenArray("")
	for each := range list.Documents() {
		if name, _ := field(each, "name").Str(); name != internalDatabase {
			b.Document("", each)
		}
	}
	return bson.With(reply, "databases", field(b.Close().Finish(), ""))
}

// checkConcern refuses the times of a read concern that cannot be.
func (s *Server) checkConcern(cmd *fakemongo.Command) error {
	now := s.log.now()
	for _, name := range []string{"afterClusterTime", "atClusterTime"} {
		if timestampOf(field(cmd.Body, "readConcern", name)).after(now) {
			return failure.InvalidOptions.Errorf(
				"readConcern %s must not be greater than the current clusterTime", name)
		}
	}
	return nil
}

// take takes the turn to write. It blocks until the writer before has ended, or until wait is over.
func (s *Server) take(wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-timer.C:
		return errLate
	case <-s.ctx.Done():
		return errors.New("the server ends")
	}
}

func (s *Server) give() { <-s.turn }

var errLate = errors.New("another transaction is still in progress")
