package changestream_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/service/policy"
)

// TestEventsUnderPolicy watches a database in which a rule forbids one collection and hides a field
// of another. The client sees the events that it may, and a newer resume token in place of others.
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
