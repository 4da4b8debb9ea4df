package replicaset_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/lab/internal/ferret"
	"github.com/mooringdb/mooring/lab/internal/rawconn"
	"github.com/mooringdb/mooring/lab/internal/replicaset"
)

// backend is the address of the FerretDB that the tests share.
var backend string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dir, err := os.MkdirTemp("", "replicaset-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if backend, _, err = ferret.Start(ctx, dir); err != nil {
		panic(err)
	}
	return m.Run()
}

// fixture is a server with the official driver before it, and a database of its own.
type fixture struct {
	*replicaset.Server
	client *mongo.Client
	db     *mongo.Database
}

func start(t *testing.T, cfg replicaset.Config) *fixture {
	t.Helper()
	engine := rawconn.NewEngine(backend)
	s, err := replicaset.Listen("127.0.0.1:0", engine, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	t.Cleanup(s.Close)
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + string(s.Address()) +
		"/?replicaSet=" + replicaset.SetName))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{s, client, client.Database(fmt.Sprintf("db%x", time.Now().UnixNano()))}
	t.Cleanup(func() {
		_ = f.db.Drop(context.Background())
		_ = client.Disconnect(context.Background())
	})
	return f
}

// begin starts a transaction, and returns a context of it.
func (f *fixture) begin(t *testing.T) (context.Context, *mongo.Session) {
	t.Helper()
	s, err := f.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.EndSession(context.Background()) })
	if err := s.StartTransaction(); err != nil {
		t.Fatal(err)
	}
	return mongo.NewSessionContext(t.Context(), s), s
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func code(err error) int {
	if e, isError := errors.AsType[mongo.CommandError](err); isError {
		return int(e.Code)
	}
	return 0
}

func (f *fixture) balance(t *testing.T, ctx context.Context, id string) int {
	t.Helper()
	var doc struct{ Balance int }
	err := f.db.Collection("accounts").FindOne(ctx, bson.M{"_id": id}).Decode(&doc)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return -1
	}
	ok(t, err)
	return doc.Balance
}

func (f *fixture) accounts(t *testing.T) *mongo.Collection {
	t.Helper()
	c := f.db.Collection("accounts")
	must[*mongo.InsertManyResult](t)(c.InsertMany(t.Context(), []any{
		bson.M{"_id": "anna", "balance": 100}, bson.M{"_id": "ben", "balance": 100},
	}))
	return c
}

func add(n int) bson.M { return bson.M{"$inc": bson.M{"balance": n}} }

// TestNoDirtyRead reads what a transaction has written, inside, outside, and after its end.
func TestNoDirtyRead(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.accounts(t)
	for _, commits := range []bool{false, true} {
		tx, s := f.begin(t)
		must[*mongo.UpdateResult](t)(c.UpdateByID(tx, "anna", add(-30)))
		must[*mongo.InsertOneResult](t)(c.InsertOne(tx, bson.M{"_id": "cleo", "balance": 1}))
		must[*mongo.DeleteResult](t)(c.DeleteOne(tx, bson.M{"_id": "ben"}))
		for _, want := range []struct {
			inside          bool
			anna, ben, cleo int
		}{{true, 70, -1, 1}, {false, 100, 100, -1}} {
			ctx := t.Context()
			if want.inside {
				ctx = tx
			}
			anna, ben, cleo := f.balance(t, ctx, "anna"), f.balance(t, ctx, "ben"),
				f.balance(t, ctx, "cleo")
			if anna != want.anna || ben != want.ben || cleo != want.cleo {
				t.Errorf("in progress: %d, %d, %d, want %+v", anna, ben, cleo, want)
			}
		}
		if n := must[int64](t)(c.EstimatedDocumentCount(t.Context())); n != 2 {
			t.Errorf("%d documents are counted outside, want 2", n)
		}
		want := []int{100, 100, -1}
		if commits {
			ok(t, s.CommitTransaction(t.Context()))
			want = []int{70, -1, 1}
		} else {
			ok(t, s.AbortTransaction(t.Context()))
		}
		for i, id := range []string{"anna", "ben", "cleo"} {
			if got := f.balance(t, t.Context(), id); got != want[i] {
				t.Errorf("commits %v: %s has %d, want %d", commits, id, got, want[i])
			}
		}
	}
	names := must[[]string](t)(f.client.ListDatabaseNames(t.Context(), bson.M{}))
	for _, name := range names {
		if name == "__copies" {
			t.Errorf("a client sees the copies: %v", names)
		}
	}
}

// TestConflict has a transaction wait for another one in vain: it fails with WriteConflict, and
// succeeds when it is run again.
func TestConflict(t *testing.T) {
	f := start(t, replicaset.Config{LockWait: 10 * time.Millisecond})
	c := f.accounts(t)
	first, s := f.begin(t)
	must[*mongo.UpdateResult](t)(c.UpdateByID(first, "anna", add(1)))
	second, late := f.begin(t)
	_, err := c.UpdateByID(second, "anna", add(1))
	e, isError := errors.AsType[mongo.CommandError](err)
	if !isError || e.Code != 112 || !e.HasErrorLabel("TransientTransactionError") {
		t.Fatalf("the second transaction: %v, want WriteConflict", err)
	}
	ok(t, s.CommitTransaction(t.Context()))
	ok(t, late.AbortTransaction(t.Context()))
	_, err = late.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		return c.UpdateByID(ctx, "anna", add(1))
	})
	ok(t, err)
	if got := f.balance(t, t.Context(), "anna"); got != 102 {
		t.Errorf("anna has %d, want 102", got)
	}
}

// TestWritesWait has a write without a transaction wait until a transaction has ended.
func TestWritesWait(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.accounts(t)
	tx, s := f.begin(t)
	must[*mongo.UpdateResult](t)(c.UpdateByID(tx, "anna", add(1)))
	short := f.db.RunCommand(t.Context(), bson.D{
		{Key: "update", Value: "accounts"},
		{Key: "maxTimeMS", Value: 10},
		{Key: "updates", Value: bson.A{bson.M{"q": bson.M{"_id": "ben"}, "u": add(5)}}},
	}).Err()
	if code(short) != 50 {
		t.Errorf("a write with a deadline: %v, want MaxTimeMSExpired", short)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.UpdateByID(context.Background(), "anna", bson.M{"$mul": bson.M{"balance": 2}})
		done <- err
	}()
	ok(t, s.CommitTransaction(t.Context()))
	ok(t, <-done)
	if got := f.balance(t, t.Context(), "anna"); got != 202 && got != 201 {
		t.Errorf("anna has %d, want 202: one write after the other", got)
	}
}

// TestEnds looks at how transactions end besides Commit and Abort: by an error, by the next one, by
// the end of their session, and by the time that they may last.
func TestEnds(t *testing.T) {
	f := start(t, replicaset.Config{Life: 5 * time.Second})
	c := f.accounts(t)
	tx, s := f.begin(t)
	must[*mongo.UpdateResult](t)(c.UpdateByID(tx, "anna", add(1)))
	if _, err := c.InsertOne(tx, bson.M{"_id": "ben"}); !mongo.IsDuplicateKeyError(err) {
		t.Errorf("a second ben: %v, want a duplicate key", err)
	}
	if err := s.CommitTransaction(t.Context()); code(err) != 251 {
		t.Errorf("commit behind an error: %v, want NoSuchTransaction", err)
	}
	tx, s = f.begin(t)
	must[*mongo.UpdateResult](t)(c.UpdateByID(tx, "anna", add(1)))
	s.EndSession(t.Context())

	tx, s = f.begin(t)
	must[*mongo.UpdateResult](t)(c.UpdateByID(tx, "anna", add(1)))
	must[*mongo.UpdateResult](t)(c.UpdateByID(t.Context(), "ben", add(1))) // waits for its end
	if err := s.CommitTransaction(t.Context()); code(err) != 251 {
		t.Errorf("commit after its time: %v, want NoSuchTransaction", err)
	}
	tx, _ = f.begin(t)
	if _, err := c.CountDocuments(tx, bson.M{}); code(err) != 238 && err != nil {
		t.Errorf("count by aggregate: %v", err)
	}
	if err := f.db.RunCommand(tx, bson.M{"count": "accounts"}).Err(); code(err) != 263 {
		t.Errorf("count in a transaction: %v, want 263", err)
	}
	if anna, ben := f.balance(t, t.Context(), "anna"),
		f.balance(t, t.Context(), "ben"); anna != 100 || ben != 101 {
		t.Errorf("anna has %d, ben %d, want 100 and 101", anna, ben)
	}
}

// TestUniqueInTransaction has a unique index hold in a transaction as well.
func TestUniqueInTransaction(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.accounts(t)
	must[string](t)(c.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys: bson.D{{Key: "name", Value: 1}}, Options: options.Index().SetUnique(true),
	}))
	must[*mongo.InsertOneResult](t)(c.InsertOne(t.Context(), bson.M{"name": "x"}))
	tx, _ := f.begin(t)
	_, err := c.InsertOne(tx, bson.M{"name": "x"})
	if !mongo.IsDuplicateKeyError(err) {
		t.Errorf("the same name again: %v, want a duplicate key", err)
	}
}

// TestAtomic moves money in transactions while others read all accounts: the sum is always the
// same, also in the events of a change stream, of which those of one transaction have one time.
func TestAtomic(t *testing.T) {
	f := start(t, replicaset.Config{LockWait: time.Minute})
	c := f.accounts(t)
	stream := must[*mongo.ChangeStream](t)(c.Watch(t.Context(), mongo.Pipeline{}))
	defer func() { _ = stream.Close(context.Background()) }()
	const clients, each = 4, 10
	var movers, readers sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				var all []struct{ Balance int }
				cursor, err := c.Find(context.Background(), bson.M{})
				if err == nil {
					err = cursor.All(context.Background(), &all)
				}
				if err != nil || len(all) != 2 || all[0].Balance+all[1].Balance != 200 {
					t.Errorf("a reader sees %v, %v", all, err)
					return
				}
			}
		})
	}
	for range clients {
		movers.Go(func() {
			s, err := f.client.StartSession()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.EndSession(context.Background())
			for range each {
				_, err := s.WithTransaction(context.Background(), func(
					ctx context.Context,
				) (any, error) {
					if _, err := c.UpdateByID(ctx, "anna", add(-1)); err != nil {
						return nil, err
					}
					return c.UpdateByID(ctx, "ben", add(1))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	movers.Wait()
	close(done)
	readers.Wait()
	balances := map[string]int{"anna": 100, "ben": 100}
	var at bson.Timestamp
	for i := range 2 * clients * each {
		if !stream.Next(t.Context()) {
			t.Fatal(stream.Err())
		}
		var e struct {
			ClusterTime bson.Timestamp
			DocumentKey struct {
				ID string `bson:"_id"`
			}
			TxnNumber         int64
			UpdateDescription struct{ UpdatedFields struct{ Balance int } }
		}
		ok(t, stream.Decode(&e))
		balances[e.DocumentKey.ID] = e.UpdateDescription.UpdatedFields.Balance
		if i%2 == 0 {
			at = e.ClusterTime
		} else if e.ClusterTime != at || balances["anna"]+balances["ben"] != 200 ||
			e.TxnNumber == 0 {
			t.Fatalf("event %d: %+v; %v", i, e, balances)
		}
	}
	if got := f.balance(t, t.Context(), "anna"); got != 100-clients*each {
		t.Errorf("anna has %d", got)
	}
}

// TestPipelines updates by pipelines, inside and outside of a transaction.
func TestPipelines(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.accounts(t)
	set := func(v any) mongo.Pipeline {
		return mongo.Pipeline{{{Key: "$set", Value: bson.M{"balance": v}}}}
	}
	s := f.watch(t, c, mongo.Pipeline{})
	if r := must[*mongo.UpdateResult](t)(c.UpdateMany(t.Context(), bson.M{},
		set(100))); r.MatchedCount != 2 || r.ModifiedCount != 0 {
		t.Errorf("an update that changes nothing: %+v", r)
	}
	if r := must[*mongo.UpdateResult](t)(c.UpdateMany(t.Context(), bson.M{"_id": "anna"},
		set(7))); r.ModifiedCount != 1 {
		t.Errorf("update: %+v", r)
	}
	tx, of := f.begin(t)
	ok(t, c.FindOneAndUpdate(tx, bson.M{"_id": "ben"}, set(8)).Err())
	if got := f.balance(t, t.Context(), "ben"); got != 100 {
		t.Errorf("ben has %d outside", got)
	}
	ok(t, of.CommitTransaction(t.Context()))
	if anna, ben := f.balance(t, t.Context(), "anna"),
		f.balance(t, t.Context(), "ben"); anna != 7 || ben != 8 {
		t.Errorf("anna has %d, ben %d", anna, ben)
	}
	if got := kinds(t, s, 2); got[0] != "update" || got[1] != "update" {
		t.Errorf("the events are %v", got)
	}
	_, err := c.UpdateByID(t.Context(), "anna", mongo.Pipeline{{{Key: "$unset", Value: "_id"}}})
	if code(err) != 66 {
		t.Errorf("no _id: %v, want ImmutableField", err)
	}
	_, err = c.UpdateByID(t.Context(), "new", set(1), options.UpdateOne().SetUpsert(true))
	if code(err) != 238 {
		t.Errorf("an upsert: %v, want NotImplemented", err)
	}
}

// TestWholeDocument has writes compare a whole document, as If-Match does.
func TestWholeDocument(t *testing.T) {
	f := start(t, replicaset.Config{})
	c := f.accounts(t)
	is := func(balance int) bson.M {
		doc := bson.D{{Key: "_id", Value: "anna"}, {Key: "balance", Value: balance}}
		return bson.M{
			"_id": "anna", "$and": bson.A{
				bson.M{"$expr": bson.M{"$eq": bson.A{"$$ROOT", bson.M{"$literal": doc}}}},
			},
		}
	}
	for balance, want := range map[int]int64{99: 0, 100: 1, 105: 0} {
		r := must[*mongo.UpdateResult](t)(c.UpdateOne(t.Context(), is(balance),
			bson.M{"$set": bson.M{"balance": 100}}))
		if r.MatchedCount != want {
			t.Errorf("update of %d: %+v, want %d", balance, r, want)
		}
	}
	if err := c.FindOneAndUpdate(t.Context(), is(1), add(1)).
		Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Errorf("findOneAndUpdate of another document: %v", err)
	}
	ok(t, c.FindOneAndUpdate(t.Context(), is(100), add(1)).Err())
	if r := must[*mongo.DeleteResult](t)(c.DeleteMany(t.Context(), is(100))); r.DeletedCount != 0 {
		t.Errorf("delete of another document: %+v", r)
	}
	if r := must[*mongo.DeleteResult](t)(c.DeleteOne(t.Context(), is(101))); r.DeletedCount != 1 {
		t.Errorf("delete: %+v", r)
	}
}
