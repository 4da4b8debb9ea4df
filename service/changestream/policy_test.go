package changestream_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
)

// TestEventsUnderPolicy watches a database in which a rule forbids one collection and hides a field
// of another. The client sees the events that it may, and newer resume tokens while others come.
// It goes on as the rules change, and ends when they allow it nothing.
func TestEventsUnderPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parse := func(text string) *policy.Policy {
			p, err := policy.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		const rules = `permit (principal, action in Action::"watch", resource in Database::"db") unless { resource has collection && resource.collection == "c" };
			@hidden("pay") permit (principal, action in Action::"watch", resource == Collection::"db.c");`
		e := policy.NewEnforcer(policy.Config{
			Policy: parse(rules +
				`forbid (principal, action, resource == Collection::"db.secret");`),
		})
		d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
		g := start(t, d, options{policy: e})
		w := g.watchAs("key:ann", &mooringv1.WatchRequest{Database: "db"})
		insert := func(coll string, id int) {
			g.command(fmt.Sprintf(`{"insert": %q, "documents": [{"_id": %d, "pay": 5, "n": 6}]}`,
				coll, id))
		}
		read := func(wantID int, pay bool) {
			t.Helper()
			for {
				m, err := w.message()
				if err != nil {
					t.Fatal(err)
				}
				for _, event := range m.GetDocuments() {
					doc := bson.Raw(event.GetBson())
					id, _ := doc.Lookup("fullDocument", "_id")
					_, shown := doc.Lookup("fullDocument", "pay")
					if n, _ := id.AsInt64(); int(n) != wantID || shown != pay {
						t.Errorf("read %v, want %d, with the hidden field: %t", doc, wantID, pay)
					}
				}
				if len(m.GetDocuments()) > 0 {
					return
				}
			}
		}
		insert("c", 1)
		read(1, false)
		before := string(w.token)
		insert("secret", 2)
		if m, err := w.message(); err != nil || len(m.GetDocuments()) > 0 ||
			string(w.token) == before {
			t.Fatalf("after an event that it may not see: %v, %v, want a newer resume token", m,
				err)
		}
		insert("other", 3)
		read(3, true)
		e.Replace(parse(rules + `forbid (principal, action, resource == Collection::"db.other");`))
		insert("other", 4)
		insert("secret", 5)
		read(5, true)
		e.Replace(parse(`permit (principal, action in Action::"read", resource);`))
		if err := w.end(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("the stream ends with %v", err)
		}
		w.cancel()
		synctest.Wait()
	})
}

// TestTokensOfHiddenEvents: a token names the document of its event, so that the client gets none
// of an event that it may not see, also if its own filter drops that. Its position moves
// nevertheless, and a stream that resumes misses and repeats nothing.
func TestTokensOfHiddenEvents(t *testing.T) {
	filter := func(json string) func(*testing.T, *mooringv1.WatchRequest) {
		return func(t *testing.T, r *mooringv1.WatchRequest) {
			t.Helper()
			r.Pipeline = []*mooringv1.Document{payload.NewDocument(doc(t, json))}
		}
	}
	for name, change := range map[string]func(*testing.T, *mooringv1.WatchRequest){
		"shared":   func(*testing.T, *mooringv1.WatchRequest) {},
		"filtered": filter(`{"$match": {"ns.coll": "open"}}`),
		"own": func(_ *testing.T, r *mooringv1.WatchRequest) {
			r.MaxAwaitTimeMs = new(int64(700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := policy.Parse([]byte(`permit (principal, action, resource);
					forbid (principal, action, resource == Collection::"db.secret");`))
				if err != nil {
					t.Fatal(err)
				}
				d := deployment.New(t, deployment.ReplicaSet, "7.0.0")
				whole := start(t, d)
				all := whole.watch(&mooringv1.WatchRequest{Database: "db"})
				g := start(t, d, options{policy: policy.NewEnforcer(policy.Config{Policy: p})})
				request := func(after bson.Raw) *mooringv1.WatchRequest {
					r := &mooringv1.WatchRequest{Database: "db"}
					change(t, r)
					if after != nil {
						r.StartAfter = payload.NewDocument(after)
					}
					return r
				}
				w := g.watchAs("key:ann", request(nil))
				hidden := map[string]bool{}
				var later []string
				for id := range 6 {
					coll := []string{"secret", "open", "secret"}[id%3]
					whole.command(fmt.Sprintf(
						`{"insert": %q, "documents": [{"_id": %d}]}`, coll, id))
					want := all.next()
					if coll == "open" {
						if got := w.next(); got != want {
							t.Errorf("read %q, want %q", got, want)
						}
					} else {
						hidden[string(all.token)] = true
						before := string(w.token)
						m, err := w.message()
						if err != nil || len(m.GetDocuments()) > 0 || string(w.token) == before {
							t.Fatalf("for a hidden event: %v, %v, want a newer token", m, err)
						}
					}
					if hidden[string(w.token)] {
						t.Errorf("%v is the token of an event that it may not see", w.token)
					}
					if id < 4 {
						later = append(later, string(w.token))
					}
				}
				for i, token := range later {
					ctx, cancel := context.WithCancel(t.Context())
					s, err := g.api.Watch(as(ctx, "key:ann"), request(bson.Raw(token)))
					if err != nil {
						t.Fatal(err)
					}
					again := &watch{t: t, stream: s, cancel: cancel}
					want := []string{"insert 1", "insert 4"}[min(i, 1):]
					if got := again.read(len(want)); !slices.Equal(got, want) {
						t.Errorf("after the token %d comes %q, want %q", i, got, want)
					}
					if hidden[string(again.token)] {
						t.Errorf("%v is the token of an event that it may not see", again.token)
					}
					again.leave()
				}
				w.leave()
				all.leave()
				time.Sleep(time.Minute) //nolint:forbidigo // time is fake: the shared cursors end
			})
		})
	}
}
