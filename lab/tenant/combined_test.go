package tenant

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/grpc/metadata"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
)

// vault is a collection that a rule forbids. It is there in both worlds, and one more is there only
// in that with the other tenant. Its name is the marker.
const vault = "vault"

// combined holds rules that go together: those for reads have the same filter, and each hides
// another field beside the secret. That for three calls on parts does not go together with them. A
// forbid of two collections and of a database holds also for what they are in.
const combined = `@id("own") @hidden("secret, sub.x") ` + filtered + `
	@id("more") @hidden("s, secret") ` + ownOnly +
	`permit (principal, action in [Action::"read", Action::"watch"], resource) ` + inWorlds + `
	@id("events") @hidden("arr, secret") ` + ownOnly + `permit (principal, action in Action::"watch", resource);
	@id("wide") @hidden("n") permit (principal, action in [Action::"FindOne", Action::"StreamFind", Action::"Distinct"], resource)
	when { resource has collection && resource.collection == "parts" };
	@commands("ping, count, find, dbStats, listCollections") permit (principal, action in Action::"command", resource);
	permit (principal, action in [Action::"DropDatabase", Action::"DropCollection", Action::"describe"], resource);
	forbid (principal, action, resource) when { resource has collection && ["` + vault + `", "` + marker + `"].contains(resource.collection) };
	forbid (principal, action, resource in Database::"` + marker + `");`

// combine makes a place for the rules that go together: the own documents have a secret, which is
// another one in each world, and there are collections and a database that the tenant must not use.
func combine(t *testing.T, at *place) *place {
	t.Helper()
	at.empty.secret, at.full.secret = "unmarked", marker
	at.gen.wide, at.oneIn = true, 8 // many calls are refused
	insert := func(w *world, database, collection string) {
		t.Helper()
		if _, err := w.db.Client().Database(database).Collection(collection).
			InsertOne(t.Context(), bson.D{
				{Key: "tenant", Value: "a"}, {Key: "s", Value: w.secret},
			}); err != nil {
			t.Fatal(err)
		}
	}
	insert(at.empty, at.empty.db.Name(), vault)
	insert(at.full, at.full.db.Name(), vault)
	insert(at.full, at.full.db.Name(), marker)
	insert(at.full, marker, "orders")
	t.Cleanup(func() {
		_ = at.full.db.Client().Database(marker).Drop(context.WithoutCancel(t.Context()))
	})
	one := at.request
	at.request = func(g *generator) request {
		if g.IntN(6) == 0 {
			return g.database()
		}
		return one(g)
	}
	return at
}

// database returns a call on a database or on the deployment, or one that changes a collection as a
// whole.
func (g *generator) database() request {
	const at = "/v1/databases/" + databaseName
	command := pick(g, doc{"ping": 1}, doc{"count": g.collection()}, doc{"dbStats": 1},
		doc{"listCollections": 1},
		doc{"find": g.collection()}, doc{"count": "system.views"})
	switch g.IntN(9) {
	case 0:
		return request{path: at + ":drop", write: true}
	case 1:
		return request{path: at + "/collections", get: true}
	case 2:
		// Only its own: other tests may create and drop theirs meanwhile.
		own := url.QueryEscape(`{"name": "`) + databaseName + url.QueryEscape(`"}`)
		return request{path: "/v1/databases?nameOnly=true&filter=" + own, get: true}
	case 3:
		return request{
			path: at + pick(g, ":runCommand", ":runCursorCommand", ":streamRunCursorCommand"),
			body: doc{"command": command},
		}
	case 4:
		return request{
			path: at + pick(g, ":aggregate", ":streamAggregate", ":explainAggregate"),
			body: doc{
				"pipeline": append([]any{
					pick(g, doc{"$documents": []any{doc{"x": 1}}}, doc{"$currentOp": doc{}}),
				}, g.pipeline(1)...),
			},
		}
	case 5:
		return request{path: at + "/collections/" + vault + ":drop", body: doc{}, write: true}
	case 6:
		return request{
			path: at + "/collections/" + pick(g, vault, "orders") + "/indexes", get: true,
		}
	case 7:
		return request{
			path: inDatabase(pick(g, "system.views", "system.buckets."+vault), "find"), body: doc{},
		}
	default:
		return request{
			path: inDatabase(vault, pick(g, "find", "countDocuments", "aggregate", "deleteMany")),
			body: doc{}, write: true,
		}
	}
}

// TestIsolationOfCombinedRules checks that rules which go together, a forbid of a collection and
// calls on a whole database tell no more than each rule alone.
func TestIsolationOfCombinedRules(t *testing.T) {
	report(t, experiment(t, combine(t, anyServer(t)), combined, requests(t)))
}

// TestIsolationOfEvents checks the same of writes on several collections, and of the events of the
// database and of the deployment that the tenant watches meanwhile.
func TestIsolationOfEvents(t *testing.T) {
	at := combine(t, scripted(t))
	at.watched = func(t *testing.T, g *gatewaytest.Gateway, key string) func() []string {
		t.Helper()
		return at.full.watch(t, g, key)
	}
	report(t, experiment(t, at, combined, requests(t)))
}

// TestLeakOfCombinedRulesIsFound checks that the experiments find what a rule without the hidden
// fields shows, and what rules without the forbid show.
func TestLeakOfCombinedRulesIsFound(t *testing.T) {
	shown := strings.ReplaceAll(combined, `"s, secret"`, `"s"`)
	if leaks := experiment(t, combine(t, anyServer(t)), shown, 100); len(leaks) == 0 {
		t.Error("the experiment finds no leak where the secret shows")
	}
	allowed, _, _ := strings.Cut(combined, "forbid")
	if leaks := experiment(t, combine(t, anyServer(t)), allowed, 100); len(leaks) == 0 {
		t.Error("the experiment finds no leak where nothing is forbidden")
	}
}

// watch opens the events of the database and of the deployment. seen writes a last document, reads
// up to it, and returns the events that tell of what the tenant may not see.
func (w *world) watch(t *testing.T, g *gatewaytest.Gateway, key string) (seen func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "api-key", key))
	t.Cleanup(cancel)
	streams := mooringv1.NewChangeStreamServiceClient(g.Dial(t))
	type outcome struct {
		events int
		leaks  []string
		err    error
	}
	done := make(chan outcome, 2)
	const last = "the last document"
	for _, name := range []string{w.db.Name(), ""} {
		stream, err := streams.Watch(ctx,
			&mooringv1.WatchRequest{Database: name, FullDocument: new("updateLookup")})
		if err == nil {
			_, err = stream.Recv() // it is open
		}
		if err != nil {
			t.Fatalf("Watch of %q: %v", name, err)
		}
		go func() {
			var o outcome
			for o.err == nil {
				var m *mooringv1.WatchResponse
				if m, o.err = stream.Recv(); o.err != nil {
					break
				}
				for _, event := range m.GetDocuments() {
					o.events++
					text := fmt.Sprint(event)
					if strings.Contains(text, marker) || strings.Contains(text, vault) {
						o.leaks = append(o.leaks, "event "+text)
					}
					if strings.Contains(text, last) {
						done <- o
						return
					}
				}
			}
			done <- o
		}()
	}
	return func() (leaks []string) {
		if _, err := w.db.Collection("orders").InsertOne(t.Context(), bson.D{
			{Key: "tenant", Value: "a"}, {Key: "last", Value: last},
		}); err != nil {
			t.Error(err)
		}
		for range 2 {
			o := <-done
			t.Logf("%d events, %d leaks", o.events, len(o.leaks))
			if o.err != nil || o.events < 2 {
				t.Errorf("Watch: %d events, %v", o.events, o.err)
			}
			leaks = append(leaks, o.leaks...)
		}
		cancel()
		return leaks
	}
}

// report reports some of the leaks.
func report(t *testing.T, leaks []string) {
	t.Helper()
	for i, leak := range leaks {
		if i < 10 {
			t.Error(leak)
		}
	}
}
