package policy_test

import (
	"fmt"
	"strings"
	"testing"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/policy"
)

// twenty returns a policy of twenty rules, of which one permits a caller of the group the reading
// of shop.orders, with the annotation.
func twenty(t testing.TB, annotation string) *policy.Enforcer {
	t.Helper()
	var b strings.Builder
	for i := range 19 {
		fmt.Fprintf(&b,
			"permit (principal in Group::\"key:g%d\", action in Action::\"read\", resource in "+
				"Database::\"d%d\") "+
				"when { principal.claims has x && principal.claims.x == %d };\n", i, i, i)
	}
	b.WriteString(annotation +
		` permit (principal in Group::"key:shop", action in Action::"read", resource in Database::"shop");`)
	return enforcer(t, b.String())
}

var (
	shop       = &caller.Identity{Principal: "key:shop", Groups: []string{"key:shop"}}
	limits     = map[string]string{"permit": "", "filter": `@filter("{'tenant': 'a'}")`}
	findOne    = "/mooring.v1.DocumentService/FindOne"
	permitCost = map[string]float64{"permit": 2, "filter": 4}
)

func checkFindOne(t testing.TB, e *policy.Enforcer, filter *mooringv1.Document) {
	request := &mooringv1.FindOneRequest{Database: "shop", Collection: "orders", Filter: filter}
	call := e.Begin(shop, findOne, true)
	if err := call.Check(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkFindOne(b *testing.B) {
	for name, annotation := range limits {
		b.Run(name, func(b *testing.B) {
			e, filter := twenty(b, annotation), document(b, `{"sku":"x","n":{"$gt":5}}`)
			b.ReportAllocs()
			for b.Loop() {
				checkFindOne(b, e, filter)
			}
		})
	}
}

// TestAllocations bounds what the check of a findOne allocates, its request included.
func TestAllocations(t *testing.T) {
	for name, annotation := range limits {
		e, filter := twenty(t, annotation), document(t, `{"sku":"x","n":{"$gt":5}}`)
		if n := testing.AllocsPerRun(100, func() {
			checkFindOne(t, e, filter)
		}); n > permitCost[name] {
			t.Errorf("%s: %v allocations, at most %v expected", name, n, permitCost[name])
		}
	}
}
