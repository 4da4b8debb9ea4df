package tenant

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/lab/docdb"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

var suite = gatewaytest.New()

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// marker is in each document of the other tenant, and in no request.
const marker = "foreignmarker"

var collections = []string{"orders", "parts"}

// catalogue is a collection without a filter. It has the same documents in both worlds.
const catalogue = "catalogue"

// world is a database, with or without the documents of the other tenant.
type world struct {
	db    *mongo.Database
	other bool
	// secret is the value of a field of the tenant's own documents; empty: they do not have it.
	secret string
}

// fill replaces all documents.
func (w *world) fill(t *testing.T) {
	t.Helper()
	for _, name := range append([]string{catalogue}, collections...) {
		c := w.db.Collection(name)
		if _, err := c.DeleteMany(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		var docs []any
		for i := range population {
			ownDocument := bson.D{
				{Key: "_id", Value: own + i},
				{Key: "tenant", Value: "a"},
				{Key: "n", Value: i % 5},
				{Key: "s", Value: []string{"p", "q", "r"}[i%3]},
				{Key: "arr", Value: bson.A{i % 4, i % 3}},
				{Key: "sub", Value: bson.D{{Key: "x", Value: i % 2}}},
				{Key: "ref", Value: own + (i+1)%population},
			}
			if w.secret != "" && name != catalogue {
				ownDocument = append(ownDocument, bson.E{Key: "secret", Value: w.secret})
			}
			docs = append(docs, ownDocument)
			if w.other && name != catalogue {
				docs = append(docs, bson.D{
					{Key: "_id", Value: foreign + i},
					{Key: "tenant", Value: []string{"b", "A"}[i%2]},
					{Key: "n", Value: i % 5},
					{Key: "s", Value: marker},
					{Key: "arr", Value: bson.A{i % 4, marker}},
					{Key: "sub", Value: bson.D{{Key: "x", Value: marker}}},
					{Key: "ref", Value: own + i},
					{Key: "secret", Value: marker},
				})
			}
		}
		if _, err := c.InsertMany(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns all documents, those of each tenant by themselves.
func (w *world) contents(t *testing.T) (ofOwn, ofOther string) {
	t.Helper()
	var texts [2]strings.Builder
	for _, name := range collections {
		cursor, err := w.db.Collection(name).
			Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		if err != nil {
			t.Fatal(err)
		}
		var docs []bson.Raw
		if err := cursor.All(t.Context(), &docs); err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			into := &texts[0]
			if id, ok := d.Lookup("_id").AsInt64OK(); ok && id >= foreign && id < inserted {
				into = &texts[1]
			}
			text := d.String()
			if into == &texts[0] && w.secret != "" {
				text = strings.Replace(text, w.secret, "the secret", 1)
			}
			fmt.Fprintln(into, name, text)
		}
	}
	return texts[0].String(), texts[1].String()
}

// canonical returns an answer without what differs between any two calls, and with arrays in an
// order of their own: servers return documents in any order unless they are sorted.
func canonical(t *testing.T, answer gatewaytest.Response, databases *strings.Replacer) string {
	t.Helper()
	var all []any // one value, and several of a stream
	for lines := json.NewDecoder(bytes.NewReader(answer.Body)); lines.More(); {
		var v any
		if err := lines.Decode(&v); err != nil {
			t.Fatalf("%s: %v", answer.Body, err)
		}
		all = append(all, v)
	}
	text, err := json.Marshal(arrange(all))
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(answer.Status) + " " + databases.Replace(string(text))
}

func arrange(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "requestId")
		delete(v, "uuid") // of a collection
		for key, item := range v {
			v[key] = arrange(item)
		}
	case []any:
		for i, item := range v {
			v[i] = arrange(item)
		}
		slices.SortFunc(v, func(a, b any) int {
			return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
		})
	}
	return v
}

// place is where an experiment happens.
type place struct {
	uri         string
	empty, full *world
	gen         *generator
	request     func(*generator) request
	// oneIn says which share of the requests must succeed; 0: one in 5.
	oneIn int
	// watched opens change streams, if it is not nil; seen ends them, and returns the leaks.
	watched func(t *testing.T, g *gatewaytest.Gateway, key string) (seen func() []string)
}

// anyServer returns the server of the suite.
func anyServer(t *testing.T) *place {
	direct := suite.Direct(t)
	return &place{
		uri:   suite.URI(t),
		empty: &world{db: direct.Database(suite.Database(t))},
		full:  &world{db: direct.Database(suite.Database(t)), other: true},
		gen:   &generator{}, request: (*generator).request,
	}
}

// scripted returns a scripted server, which has transactions and bulk writes of clients.
func scripted(t *testing.T) *place {
	return before(t, deployment.Listen(t, deployment.ReplicaSet, deployment.Versions[0]))
}

// engine returns PostgreSQL with DocumentDB behind a scripted deployment. It has transactions.
func engine(t *testing.T) *place {
	d := deployment.ListenUnrecorded(t, deployment.ReplicaSet, "7.0.0")
	docdb.Serve(t, d)
	return before(t, d)
}

// before returns a deployment as a place.
func before(t *testing.T, d *deployment.Deployment) *place {
	uri := d.URI(false, nil)
	direct, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Disconnect(context.WithoutCancel(t.Context())) })
	return &place{
		uri:   uri,
		empty: &world{db: direct.Database("empty")},
		full:  &world{db: direct.Database("full"), other: true},
		gen:   &generator{simple: true}, request: (*generator).several,
	}
}

// Rules of a policy, with inWorlds for the condition that a call is one of the tenant's.
const (
	inWorlds = `when { principal.claims has tenant && resource has database && @worlds.contains(resource.database) };`
	openRule = `permit (principal, action in [Action::"read", Action::"write"], resource) ` +
		inWorlds
	// ownOnly limits a rule to the documents of the tenant.
	ownOnly  = `@filter("{'tenant': {'$claim': 'tenant'}}") @forced("{'tenant': {'$claim': 'tenant'}}") `
	filtered = ownOnly + openRule + ` permit (principal, action in Action::"read", resource) ` +
		`when { principal.claims has tenant && resource has collection && ` +
		`resource.collection == "` + catalogue + `" && @worlds.contains(resource.database) };`
)

// experiment sends requests in both worlds, and returns how the tenant could tell them apart.
func experiment(t *testing.T, at *place, rules string, requests int) (leaks []string) {
	empty, full := at.empty, at.full
	worlds := fmt.Sprintf("[%q, %q]", empty.db.Name(), full.db.Name())
	databases := strings.NewReplacer(empty.db.Name(), "DB", full.db.Name(), "DB")
	key, line := suite.Key(t, "ann")
	g := suite.Start(t, at.uri, "--policy-file",
		file(t, "policy", strings.ReplaceAll(rules, "@worlds", worlds)),
		"--auth-api-keys-file", file(t, "keys", line+" claim.tenant=a"))
	if at.watched != nil {
		seen := at.watched(t, g, key)
		defer func() { leaks = append(leaks, seen()...) }()
	}
	at.gen.Rand = rand.New(rand.NewPCG(1, 15))
	allowed := 0
	var otherBefore string
	for i := range requests {
		if i%100 == 0 {
			empty.fill(t)
			full.fill(t)
			_, otherBefore = full.contents(t)
		}
		r := at.request(at.gen)
		ask := func(w *world) (string, bool) {
			name := strings.NewReplacer(databaseName, w.db.Name())
			answer := g.Do(t, r.method(), name.Replace(r.path), name.Replace(r.text()),
				gatewaytest.Header{Name: "api-key", Value: key},
				gatewaytest.Header{Name: "content-type", Value: r.contentType()})
			if strings.Contains(string(answer.Body), marker) {
				leaks = append(leaks, fmt.Sprintf("%s %s shows %s", r.path, r.text(), answer.Body))
			}
			return canonical(t, answer, databases), answer.Status == 200
		}
		without, ok := ask(empty)
		with, _ := ask(full)
		if ok {
			allowed++
		}
		if without != with {
			leaks = append(leaks,
				fmt.Sprintf("%s %s: %s without the other tenant, %s with it", r.path, r.text(),
					without, with))
		}
		if !r.write || i%10 > 0 && i%100 < 99 {
			continue
		}
		ownThere, other := full.contents(t)
		ownHere, _ := empty.contents(t)
		if other != otherBefore {
			leaks = append(leaks,
				fmt.Sprintf("near %s %s: the other tenant's documents have changed", r.path,
					r.text()))
			otherBefore = other
		}
		if ownHere != ownThere {
			leaks = append(leaks,
				fmt.Sprintf("near %s %s: the tenant's documents differ", r.path, r.text()))
			empty.fill(t)
			full.fill(t)
			_, otherBefore = full.contents(t)
		}
	}
	t.Logf("%d of %d requests succeed, %d leaks", allowed, requests, len(leaks))
	if allowed < requests/cmp.Or(at.oneIn, 5) {
		t.Errorf("only %d of %d requests succeed", allowed, requests)
	}
	return leaks
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// requests returns how many requests an experiment sends: LAB_TENANT_REQUESTS, else few.
func requests(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("LAB_TENANT_REQUESTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 300
}

// TestIsolation checks that a tenant cannot tell whether there are documents of another one.
func TestIsolation(t *testing.T) {
	for i, leak := range experiment(t, anyServer(t), filtered, requests(t)) {
		if i < 10 {
			t.Error(leak)
		}
	}
}

// TestIsolationOfSeveral checks the same of bulk writes of clients and of transactions.
func TestIsolationOfSeveral(t *testing.T) {
	for i, leak := range experiment(t, scripted(t), filtered, requests(t)) {
		if i < 10 {
			t.Error(leak)
		}
	}
	if leaks := experiment(t, scripted(t), openRule, 100); len(leaks) == 0 {
		t.Error("the experiment finds no leak where there is no filter")
	}
}

// TestIsolationOfSeveralOnEngine checks it where transactions are an engine's, not ours.
func TestIsolationOfSeveralOnEngine(t *testing.T) {
	for i, leak := range experiment(t, engine(t), filtered, requests(t)) {
		if i < 10 {
			t.Error(leak)
		}
	}
	if leaks := experiment(t, engine(t), openRule, 100); len(leaks) == 0 {
		t.Error("the experiment finds no leak where there is no filter")
	}
}

// TestLeakIsFound checks that the same requests tell the worlds apart without the filter.
func TestLeakIsFound(t *testing.T) {
	if leaks := experiment(t, anyServer(t), openRule, 100); len(leaks) == 0 {
		t.Error("the experiment finds no leak where there is no filter")
	}
}

// TestDuplicateKey checks that the error about an _id of another tenant tells only that it exists.
func TestDuplicateKey(t *testing.T) {
	w := &world{db: suite.Direct(t).Database(suite.Database(t)), other: true}
	w.fill(t)
	key, line := suite.Key(t, "ann")
	rule := `@filter("{'tenant': 'a'}") @forced("{'tenant': 'a'}") permit (principal, action, resource);`
	g := suite.Start(t, suite.URI(t), "--policy-file", file(t, "policy", rule),
		"--auth-api-keys-file", file(t, "keys", line))
	for path, body := range map[string]string{
		"insertOne":  `{"document": {"_id": 1000}}`,
		"insertMany": `{"documents": [{"_id": 1001}], "returnPartialSuccess": true}`,
	} {
		answer := g.Post(t, "/v1/databases/"+w.db.Name()+"/collections/orders/documents:"+path,
			body, gatewaytest.Header{Name: "api-key", Value: key})
		text := string(answer.Body)
		if !strings.Contains(text, "11000") || !strings.Contains(text, "exists") ||
			strings.Contains(text, "E11000") || strings.Contains(text, "keyValue") {
			t.Errorf("%s: %d %s", path, answer.Status, text)
		}
	}
}
