package client_test

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// What transactions are bound to: a mongos, or a connection behind a load balancer.

// mongoses is a sharded cluster that ends transactions, and where commands have gone.
type mongoses struct {
	*fakemongo.Cluster
	mu   sync.Mutex
	went []string
}

func newMongoses(t *testing.T) *mongoses {
	m := &mongoses{
		Cluster: fakemongo.NewCluster(t, fakemongo.ClusterConfig{}, fakemongo.Mongos,
			fakemongo.Mongos),
	}
	for _, h := range m.Hosts() {
		for _, name := range []string{"insert", "find", "commitTransaction", "abortTransaction"} {
			h.Handle(name, func(cmd *fakemongo.Command) fakemongo.Reply {
				m.mu.Lock()
				m.went = append(m.went, string(h.Address()))
				m.mu.Unlock()
				switch name {
				case "find":
					return h.Default(cmd)
				default:
					return fakemongo.OK(func(b *bson.Builder) {
						b.Int32("n", 1).OpenDocument("recoveryToken").
							String("from", string(h.Address())).Close()
					})
				}
			})
		}
	}
	return m
}

// take returns the different addresses that commands went to since the last call.
func (m *mongoses) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	went := slices.Clone(m.went)
	m.went = nil
	slices.Sort(went)
	return slices.Compact(went)
}

func (m *mongoses) pinned(t *testing.T, s *client.Session, want bool) {
	t.Helper()
	if at, service, ok := s.PinnedTo(); ok != want || !service.IsZero() || ok == (at == "") {
		t.Errorf("PinnedTo() = %s, %v, %v, want pinned: %v", at, service, ok, want)
	}
}

// All commands of a transaction go to one mongos, which the next transaction need not go to.
func TestTransactionsProse1And2MongosPinning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMongoses(t)
		c := connect(t, m.Cluster, "", client.Options{})
		synctest.Wait() // until both are known
		s := startSession(t, c, session.Options{})
		in := client.Common{Session: s}
		transaction := func() {
			begin(t, s, client.TransactionOptions{})
			m.pinned(t, s, false)
			for range 5 {
				if err := insert(t, c, in); err != nil {
					t.Fatal(err)
				}
				m.pinned(t, s, true)
			}
			if err := s.CommitTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
				t.Fatal(err)
			}
			m.pinned(t, s, true)
		}
		var first, next []string
		for range 50 { // 1: a new transaction is pinned anew
			transaction()
			went := m.take()
			if len(went) != 1 {
				t.Fatalf("one transaction went to %v", went)
			}
			first = append(first, went...)
		}
		for range 50 { // 2: other operations are not pinned
			transaction()
			_ = m.take()
			if err := insert(t, c, in); err != nil {
				t.Fatal(err)
			}
			m.pinned(t, s, false)
			next = append(next, m.take()...)
		}
		for i, went := range [][]string{first, next} {
			slices.Sort(went)
			if n := len(slices.Compact(went)); n != 2 {
				t.Errorf("prose %d: %d mongoses were used, want 2", i+1, n)
			}
		}
		token, _ := m.Host(0).Commands("commitTransaction")[0].Body.Lookup("recoveryToken", "from")
		if got, _ := token.Str(); got != string(m.Host(0).Address()) {
			t.Errorf("the commit has the recoveryToken %v", token)
		}
	})
}

// What ends the pin of a transaction, and what does not (Transactions, "When to unpin").
func TestUnpin(t *testing.T) {
	refuse := func(code int32, labels ...string) fakemongo.Handler {
		return fakemongo.Always(fakemongo.Error(code, "", "no", labels...))
	}
	commit := func(t *testing.T, _ *client.Client, s *client.Session) error {
		return s.CommitTransaction(t.Context(), client.EndTransactionOptions{})
	}
	next := func(t *testing.T, c *client.Client, s *client.Session) error {
		return insert(t, c, client.Common{Session: s})
	}
	const transient, unknown = mongoerr.LabelTransientTransaction,
		mongoerr.LabelUnknownTransactionCommitResult
	tests := []struct {
		name    string
		command string
		reply   fakemongo.Handler
		act     func(*testing.T, *client.Client, *client.Session) error
		pinned  bool
		labels  []string
	}{
		{"interrupted", "insert", refuse(11601), next, true, nil},
		{"transient by the server", "insert", refuse(91, transient), next, false, []string{transient}},
		{"network", "insert", fakemongo.Always(fakemongo.Drop()), next, false, []string{transient}},
		{"commit", "commitTransaction", fakemongo.Always(fakemongo.OK(nil)), commit, true, nil},
		{"commit interrupted", "commitTransaction", refuse(11601), commit, true, nil},
		{"commit transient", "commitTransaction", refuse(251, transient), commit, false, []string{transient}},
		{"commit without an answer", "commitTransaction", fakemongo.Always(fakemongo.Drop()), commit, false, []string{unknown, mongoerr.LabelRetryableWrite}},
		{"commit not confirmed", "commitTransaction", fakemongo.Always(fakemongo.Document(doc(t, `{"ok":1,"writeConcernError":{"code":64,"errmsg":"late"}}`))), commit, false, []string{unknown}},
		{"commit with a concern that cannot be", "commitTransaction", fakemongo.Always(fakemongo.Document(doc(t, `{"ok":1,"writeConcernError":{"code":100,"errmsg":"no"}}`))), commit, true, nil},
		{"abort", "abortTransaction", refuse(11601), func(
			t *testing.T, _ *client.Client, s *client.Session,
		) error {
			return s.AbortTransaction(t.Context(), client.EndTransactionOptions{})
		}, false, nil},
		{"end", "abortTransaction", fakemongo.Always(fakemongo.OK(nil)), func(
			t *testing.T, _ *client.Client, s *client.Session,
		) error {
			s.End(t.Context())
			return nil
		}, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMongoses(t)
				c := connect(t, m.Cluster, "retryWrites=false", client.Options{})
				s := startSession(t, c, session.Options{})
				begin(t, s, client.TransactionOptions{})
				if err := insert(t, c, client.Common{Session: s}); err != nil {
					t.Fatal(err)
				}
				for _, h := range m.Hosts() {
					h.Handle(tt.command, tt.reply)
				}
				err := tt.act(t, c, s)
				if got := mongoerr.Labels(err); !slices.Equal(got, tt.labels) {
					t.Errorf("the error %v has the labels %v, want %v", err, got, tt.labels)
				}
				m.pinned(t, s, tt.pinned)
			})
		})
	}
}

// connectBalanced starts a client of a load balancer whose services end all transactions as they
// are told.
func connectBalanced(
	t *testing.T, b *fakemongo.Balanced, options string, opt client.Options,
) *client.Client {
	t.Helper()
	for _, s := range b.Services() {
		for name, h := range ends() {
			s.Handle(name, h)
		}
	}
	return startBalanced(t, b, b.URI(options), opt)
}

// Behind a load balancer a transaction keeps its connection, and shares it with its cursors.
func TestTransactionPinsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
		b.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		c := connectBalanced(t, b, "&maxPoolSize=4", client.Options{MaxPinnedShare: 0.5})
		counts := func(transactions, cursors, inUse int) {
			t.Helper()
			if p := c.Pools()[0]; p.Transactions != transactions || p.Cursors != cursors ||
				p.InUse != inUse {
				t.Errorf("%d transactions, %d cursors, %d in use; want %d, %d, %d", p.Transactions,
					p.Cursors, p.InUse, transactions, cursors, inUse)
			}
		}
		open := func(in client.Common) io.Closer {
			t.Helper()
			cur, err := c.Find(t.Context(), orders,
				client.FindOptions{Common: in, BatchSize: new(int32(2))})
			if err != nil {
				t.Fatalf("Find() = %v", err)
			}
			return closer(func() error { return cur.Close(t.Context()) })
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := startSession(t, c, session.Options{})
		in := client.Common{Session: s}
		begin(t, s, client.TransactionOptions{})
		counts(0, 0, 0)
		cur := open(in)
		counts(1, 0, 1)
		at, service, ok := s.PinnedTo()
		if !ok || at != b.Address() || service.IsZero() {
			t.Errorf("PinnedTo() = %v, %v, %v", at, service, ok)
		}
		if _, _, err := c.FindOne(t.Context(), orders, client.FindOptions{Common: in}); err != nil {
			t.Error(err)
		}
		other := open(client.Common{})
		counts(1, 1, 2)
		more := startSession(t, c, session.Options{})
		begin(t, more, client.TransactionOptions{})
		if err := insert(t, c, client.Common{Session: more}); !isA[*pool.PinLimitError](err) {
			t.Errorf("insert = %v, want a PinLimitError", err)
		}
		wantState(t, more, "starting")
		counts(1, 1, 2)
		_ = other.Close()
		if err := s.CommitTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
			t.Error(err)
		}
		counts(1, 0, 1) // a commit does not unpin
		begin(t, s, client.TransactionOptions{})
		counts(1, 0, 1) // the cursor still has the connection
		_ = cur.Close()
		counts(0, 0, 0)

		_ = open(in).Close()
		counts(1, 0, 1)
		s.End(t.Context())
		counts(0, 0, 0)
	})
}

type closer func() error

func (c closer) Close() error { return c() }

// A session that ends while an operation of its transaction has the connection leaves it the
// connection: neither the abort nor another operation is sent on it before the reply.
func TestEndDuringOperationOnPin(t *testing.T) {
	for name, late := range map[string]time.Duration{
		"the abort waits":                         time.Second,
		"the operation outlasts the abort's time": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1})
				srv := b.Service(0)
				var mu sync.Mutex
				busy := map[int]string{} // what each connection is used for
				srv.Intercept(func(cmd *fakemongo.Command, next fakemongo.Handler) fakemongo.Reply {
					mu.Lock()
					defer mu.Unlock()
					if other, ok := busy[cmd.Connection]; ok {
						t.Errorf("%s was sent during %s", cmd.Name, other)
					}
					reply := next(cmd)
					if cmd.Name == "find" {
						busy[cmd.Connection] = cmd.Name
						time.AfterFunc(late, func() {
							mu.Lock()
							defer mu.Unlock()
							delete(busy, cmd.Connection)
						})
						reply = reply.After(late + time.Millisecond)
					}
					return reply
				})
				c := connectBalanced(t, b, "&maxPoolSize=1", client.Options{})
				s := startSession(t, c, session.Options{})
				in := client.Common{Session: s}
				begin(t, s, client.TransactionOptions{})
				var all sync.WaitGroup
				all.Go(func() {
					if _, _, err := c.FindOne(t.Context(), orders,
						client.FindOptions{Common: in}); err != nil {
						t.Errorf("FindOne() = %v", err)
					}
				})
				synctest.Wait()
				s.End(t.Context())
				if err := c.Ping(t.Context()); err != nil { // it waits for the connection
					t.Errorf("Ping() = %v", err)
				}
				all.Wait()
				if p := c.Pools()[0]; p.InUse != 0 || p.Transactions != 0 {
					t.Errorf("%d connections are in use, %d by transactions", p.InUse,
						p.Transactions)
				}
				if n, want := len(srv.Commands("abortTransaction")),
					late == time.Second; (n == 1) != want {
					t.Errorf("%d aborts, want one: %v", n, want)
				}
			})
		})
	}
}

// Cursors of one transaction that are closed at the same time, while the transaction ends, too,
// leave no connection counted.
func TestCloseCursorsOfOnePinAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{Services: 1})
		b.SetDocuments("shop.orders", fakemongo.Numbered(0, 9, 0)...)
		c := connectBalanced(t, b, "", client.Options{})
		for i := range 300 {
			s := startSession(t, c, session.Options{})
			in := client.Common{Session: s}
			begin(t, s, client.TransactionOptions{})
			var all sync.WaitGroup
			start := make(chan struct{})
			for range 2 {
				cur, err := c.Find(t.Context(), orders,
					client.FindOptions{Common: in, BatchSize: new(int32(2))})
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					<-start
					_ = cur.Close(t.Context())
				})
			}
			end := func() { s.End(t.Context()) }
			switch i % 3 {
			case 0: // before the cursors
				end()
			case 1: // with them
				all.Go(func() { <-start; end() })
			}
			close(start)
			all.Wait()
			end()
			if p := c.Pools()[0]; p.InUse != 0 || p.Transactions != 0 || p.Cursors != 0 {
				t.Fatalf("round %d: %d in use, %d transactions, %d cursors", i, p.InUse,
					p.Transactions, p.Cursors)
			}
		}
	})
}

// A connection that breaks within a transaction is given up with it.
func TestPinnedConnectionBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fakemongo.NewBalanced(t, fakemongo.BalancedConfig{})
		c := connectBalanced(t, b, "&retryWrites=false", client.Options{})
		s := startSession(t, c, session.Options{})
		in := client.Common{Session: s}
		begin(t, s, client.TransactionOptions{})
		if err := insert(t, c, in); err != nil {
			t.Fatal(err)
		}
		for _, srv := range b.Services() {
			srv.Handle("insert", fakemongo.Always(fakemongo.Drop()))
		}
		err := insert(t, c, in)
		if !mongoerr.HasLabel(err, mongoerr.LabelTransientTransaction) {
			t.Errorf("insert = %v, want a transient error", err)
		}
		if p := c.Pools()[0]; p.InUse != 0 || p.Transactions != 0 {
			t.Errorf("%d connections are out", p.InUse)
		}
		if err := s.AbortTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
			t.Error(err)
		}
		if _, _, ok := s.PinnedTo(); ok {
			t.Error("still pinned")
		}
	})
}

// TestRetryStaysAtItsMongos checks that the retry of a command in the middle of a transaction goes
// to the mongos of the transaction, which has refused a new connection.
func TestRetryStaysAtItsMongos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMongoses(t)
		c := connect(t, m.Cluster, "maxIdleTimeMS=10", client.Options{
			Jitter: func() float64 { return 1 },
		})
		synctest.Wait()
		s := startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{})
		if err := insert(t, c, client.Common{Session: s}); err != nil {
			t.Fatal(err)
		}
		at, _, _ := s.PinnedTo()
		_ = m.take()
		refused := m.refuseHandshake(at)
		time.Sleep(time.Second) //nolint:forbidigo // fake time: the connection is idle for too long
		err := insert(t, c, client.Common{Session: s})
		if went := m.take(); err != nil || !slices.Equal(went, []string{string(at)}) {
			t.Errorf("insert() = %v at %v, want success at %s", err, went, at)
		}
		if !refused.Load() {
			t.Error("no handshake was refused")
		}
		m.pinned(t, s, true)
	})
}

// refuseHandshake has a mongos refuse the next connection of an operation.
func (m *mongoses) refuseHandshake(at address.Address) (refused *atomic.Bool) {
	refused = new(atomic.Bool)
	for _, h := range m.Hosts() {
		if h.Address() != at {
			continue
		}
		for _, name := range []string{"isMaster", "hello"} {
			h.Handle(name, func(cmd *fakemongo.Command) fakemongo.Reply {
				if cmd.Body.Has("client") && refused.CompareAndSwap(false, true) {
					return fakemongo.Drop()
				}
				return h.Default(cmd)
			})
		}
	}
	return refused
}

// TestNewestRecoveryToken checks that a repeated commit has the token of the commit's own reply.
func TestNewestRecoveryToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMongoses(t)
		c := connect(t, m.Cluster, "", client.Options{})
		synctest.Wait()
		concern := fakemongo.Document(doc(t, `{"ok":1,"recoveryToken":{"from":"the commit"},
			"writeConcernError":{"code":91,"errmsg":"bye"},
			"errorLabels":["RetryableWriteError"]}`))
		answers(m.Cluster, "commitTransaction", fakemongo.Always(concern),
			fakemongo.Always(fakemongo.OK(nil)))
		s := startSession(t, c, session.Options{})
		begin(t, s, client.TransactionOptions{})
		if err := insert(t, c, client.Common{Session: s}); err != nil {
			t.Fatal(err)
		}
		if err := s.CommitTransaction(t.Context(), client.EndTransactionOptions{}); err != nil {
			t.Fatal(err)
		}
		var tokens []string
		for _, h := range m.Hosts() {
			for _, cmd := range h.Commands("commitTransaction") {
				v, _ := cmd.Body.Lookup("recoveryToken", "from")
				token, _ := v.Str()
				tokens = append(tokens, token)
			}
		}
		if len(tokens) != 2 || !slices.Contains(tokens, "the commit") {
			t.Errorf("the commits have the tokens %q, want the second of the first's reply", tokens)
		}
	})
}
