package injections

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// rules gives ann a database of her own, and cal her own documents in a database that tenants
// share. bob has the other database, and the other documents.
const rules = `
@id("own") @commands("ping, find, count, aggregate, listCollections, dbStats")
permit (principal == Principal::"key:ann", action in [Action::"read", Action::"write", Action::"watch",
	Action::"describe", Action::"manage", Action::"command"], resource in Database::"@ann");
@id("other")
permit (principal == Principal::"key:bob", action in [Action::"read", Action::"write", Action::"watch"],
	resource in Database::"@other");
@id("shared") @filter("{'tenant': {'$claim': 'tenant'}}") @forced("{'tenant': {'$claim': 'tenant'}}")
permit (principal in Group::"key:tenants", action in [Action::"read", Action::"write", Action::"watch"], resource)
when { resource has collection && resource.database == "@shared" && ["orders", "parts"].contains(resource.collection) };
`

// attacker is a principal that may use a database, or a part of it.
type attacker struct{ name, key, database string }

// world is a gateway with a policy, and the databases of its tenants.
type world struct {
	*gatewaytest.Gateway
	client             *mongo.Client
	ann, cal, bob      attacker
	other, shared      string
	cursor, session    string // of bob
	ticket, idempotent string // of bob
	before             string // what is there that ann and cal must not change
}

// start fills the databases and starts a gateway with the rules.
func start(t *testing.T, rules string) *world {
	t.Helper()
	w := &world{client: suite.Direct(t), other: suite.Database(t), shared: suite.Database(t)}
	own := suite.Database(t)
	var keys []string
	for _, p := range []struct {
		into           *attacker
		name, database string
		line           string
	}{
		{&w.ann, "ann", own, ""},
		{&w.cal, "cal", w.shared, " groups=tenants claim.tenant=a"},
		{&w.bob, "bob", w.other, " groups=tenants claim.tenant=b"},
	} {
		key, line := suite.Key(t, p.name)
		*p.into = attacker{p.name, key, p.database}
		keys = append(keys, line+p.line)
	}
	rules = strings.NewReplacer("@ann", own, "@other", w.other, "@shared", w.shared).Replace(rules)
	w.fillOther(t)
	w.fill(t)
	w.before = w.outside(t)
	w.Gateway = suite.Start(
		t, suite.URI(t), "--policy-file", file(t, "policy", rules), "--data-api-sources", "lab",
		"--auth-api-keys-file", file(t, "keys", strings.Join(keys, "\n")), "--requests-timeout",
		"5s",
		"--idempotency-key-file", file(t, "idempotency", newKey(t)), "--cursors-max-per-principal",
		"none",
		"--log-level", "error",
	)
	return w
}

// fillOther writes what bob owns.
func (w *world) fillOther(t *testing.T) {
	t.Helper()
	for _, database := range []string{w.other, w.shared} {
		for _, collection := range []string{"orders", "parts", "vault"} {
			var docs []any
			for i := range 4 {
				docs = append(docs, bson.D{
					{Key: "_id", Value: 5000 + i},
					{Key: "tenant", Value: "b"},
					{Key: "n", Value: i},
					{Key: "s", Value: marker},
					{Key: "sub", Value: bson.D{{Key: "x", Value: marker}}},
					{Key: "arr", Value: bson.A{i, marker}},
				})
			}
			w.insert(t, database, collection, docs)
		}
	}
}

// fill writes what ann and cal own, in place of what is left of it.
func (w *world) fill(t *testing.T) {
	t.Helper()
	if err := w.client.Database(w.ann.database).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, collection := range []string{"orders", "parts"} {
		shared := w.client.Database(w.shared).Collection(collection)
		if _, err := shared.DeleteMany(t.Context(),
			bson.D{{Key: "tenant", Value: "a"}}); err != nil {
			t.Fatal(err)
		}
		var docs []any
		for i := range 4 {
			docs = append(docs, bson.D{
				{Key: "_id", Value: 1000 + i},
				{Key: "tenant", Value: "a"},
				{Key: "n", Value: i},
				{Key: "s", Value: "text"},
				{Key: "sub", Value: bson.D{{Key: "x", Value: i}}},
				{Key: "arr", Value: bson.A{i, "text"}},
			})
		}
		w.insert(t, w.ann.database, collection, docs)
		w.insert(t, w.shared, collection, docs)
	}
}

func (w *world) insert(t *testing.T, database, collection string, docs []any) {
	t.Helper()
	if _, err := w.client.Database(database).Collection(collection).
		InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
}

// outside returns the databases, their collections with options and indexes, and the documents,
// byte for byte, but for what ann and cal own.
func (w *world) outside(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	databases, err := w.client.ListDatabaseNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(databases)
	for _, name := range databases {
		if name == w.ann.database {
			continue
		}
		fmt.Fprintln(&text, "database", name)
		db := w.client.Database(name)
		collections, err := db.ListCollectionSpecifications(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(collections, func(a, b mongo.CollectionSpecification) int {
			return strings.Compare(a.Name, b.Name)
		})
		for _, c := range collections {
			fmt.Fprintln(&text, c.Name, c.Type, c.Options)
			if name == w.other || name == w.shared {
				w.documents(t, &text, db.Collection(c.Name))
			}
		}
	}
	return text.String()
}

// documents appends the indexes of a collection, and the documents that are not of tenant a.
func (w *world) documents(t *testing.T, text *strings.Builder, c *mongo.Collection) {
	t.Helper()
	read := func(cursor *mongo.Cursor, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var docs []bson.Raw
		if err := cursor.All(t.Context(), &docs); err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			fmt.Fprintf(text, "%x\n", []byte(d))
		}
	}
	read(c.Indexes().List(t.Context()))
	notOwn := bson.D{{Key: "tenant", Value: bson.D{{Key: "$ne", Value: "a"}}}}
	read(c.Find(t.Context(), notOwn, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})))
}

// texts returns what puts names and tokens of this world into a text.
func (w *world) texts(a attacker) *strings.Replacer {
	return strings.NewReplacer(
		"@own", a.database, "@other", w.other, "@OTHER", strings.ToUpper(w.other), "@shared",
		w.shared,
		"@cursor", w.cursor, "@session", w.session, "@ticket", w.ticket, "@key", w.idempotent,
	)
}

// open has bob open a cursor, a session and a ticket, and insert a document with a key.
func (w *world) open(t *testing.T) {
	t.Helper()
	ask := func(path, body string, into any, headers ...gatewaytest.Header) {
		t.Helper()
		headers = append(headers, gatewaytest.Header{Name: "api-key", Value: w.bob.key})
		answer := w.Post(t, path, body, headers...)
		if answer.Status != 200 {
			t.Fatalf("%s: %d %s", path, answer.Status, answer.Body)
		}
		decode(t, answer.Body, into)
	}
	var cursor struct{ Cursor string }
	ask(gatewaytest.Documents(w.other, "orders", "find"), `{"batchSize": 1}`, &cursor)
	var session struct{ Session string }
	ask("/v1/sessions:start", `{}`, &session)
	var ticket struct{ URL string }
	ask("/v1/changeStreams:ticket",
		`{"watch": {"database": "`+w.other+`", "collection": "orders"}}`, &ticket)
	w.idempotent = "order-7"
	if suite.IsEmbedded() { // a standalone server cannot repeat a write
		ask(gatewaytest.Documents(w.shared, "orders", "updateOne"),
			`{"filter": {"_id": 5001, "tenant": "b"}, "update": {"$set": {"z": 4}}}`, &struct{}{},
			gatewaytest.Header{Name: "Idempotency-Key", Value: w.idempotent})
	}
	w.cursor, w.session, w.ticket = cursor.Cursor, session.Session, filepath.Base(ticket.URL)
	if w.cursor == "" || w.session == "" || w.ticket == "" {
		t.Fatalf("cursor %q, session %q, ticket %q", w.cursor, w.session, w.ticket)
	}
	w.before = w.outside(t)
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// request returns a context that ends with the test or when the longest call has ended.
func request(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), longest)
}
