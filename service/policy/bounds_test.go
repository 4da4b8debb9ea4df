package policy_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
)

// many returns a document of n fields with different names, each with the value.
func many(n int, v bson.Value) bson.Raw {
	b := bson.NewBuilder(nil)
	for i := range n {
		b.Value("k"+strconv.Itoa(i), v)
	}
	return b.Finish()
}

func aggregate(stages ...bson.Raw) *mooringv1.AggregateRequest {
	m := &mooringv1.AggregateRequest{Database: "d", Collection: new("c")}
	for _, s := range stages {
		m.Pipeline = append(m.Pipeline, payload.NewDocument(s))
	}
	return m
}

func wrap(key string, d bson.Raw) bson.Raw {
	return bson.NewBuilder(nil).Document(key, d).Finish()
}

// TestManyKeys checks that a stage with more keys than one needs is refused before they are
// compared with each other: that would take hours.
func TestManyKeys(t *testing.T) {
	empty := bson.ArrayValue(bson.Array(bson.NewBuilder(nil).Finish()))
	keys := many(200_000, empty)
	into := wrap("into", keys)
	for _, stage := range []bson.Raw{
		wrap("$facet", keys), wrap("$lookup", keys), wrap("$geoNear", keys), wrap("$merge", into),
		wrap("$out", keys), wrap("$facet", many(1001, empty)),
	} {
		for _, rules := range []string{permitAll, `@filter("{'t': 1}") @hidden("a")` + permitAll} {
			call := enforcer(t, rules).Begin(nil, "/mooring.v1.DocumentService/Aggregate", true)
			err := call.Check(t.Context(), aggregate(stage))
			if _, refused := errors.AsType[*policy.Refusal](err); !refused {
				t.Errorf("%s: %v", stage.FirstKey(), err)
			}
		}
	}
}

// TestRepeatedKeys checks that a stage with a key twice is refused: servers differ in which counts.
func TestRepeatedKeys(t *testing.T) {
	for _, n := range []int{0, 1, 6, 7, 8, 100} {
		for _, twice := range []bool{false, true} {
			b := bson.NewBuilder(nil).OpenDocument("$facet")
			for i := range n {
				b.OpenArray(fmt.Sprint("k", i)).Close()
			}
			b.OpenArray("a").Close()
			if twice {
				b.OpenArray("a").Close()
			}
			call := enforcer(t, permitAll).Begin(nil, "/mooring.v1.DocumentService/Aggregate", true)
			err := call.Check(t.Context(), aggregate(b.Close().Finish()))
			if (err != nil) != twice {
				t.Errorf("%d keys, one of them twice: %t: %v", n+1, twice, err)
			}
		}
	}
}

// TestEnded checks that the check of a large request ends with its call.
func TestEnded(t *testing.T) {
	const n = 5000
	wide := many(n, bson.Int32Value(1))
	match := wrap("$match", wide)
	var stages, documents []bson.Raw
	var models []*mooringv1.WriteModel
	for range n {
		stages, documents = append(stages, wrap("$match", bson.NewBuilder(nil).Finish())),
			append(documents, wide[:0:0])
		documents[len(documents)-1] = bson.NewBuilder(nil).Int32("t", 1).Finish()
		one := &mooringv1.DeleteOneModel{Filter: document(t, `{"a": 1}`)}
		models = append(models, &mooringv1.WriteModel{
			Kind: &mooringv1.WriteModel_DeleteOne{DeleteOne: one},
		})
	}
	insert := &mooringv1.InsertManyRequest{Database: "d", Collection: "c"}
	for _, d := range documents {
		insert.Documents = append(insert.Documents, payload.NewDocument(d))
	}
	name := "d.c"
	for _, m := range models {
		m.Namespace = &name
	}
	find := func(filter, sort bson.Raw) proto.Message {
		m := &mooringv1.FindRequest{Database: "d", Collection: "c"}
		if m.Filter = payload.NewDocument(filter); sort != nil {
			m.Sort = payload.NewDocument(sort)
		}
		return m
	}
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for _, row := range []struct {
		name, method string
		request      proto.Message
	}{
		{"filter", "Find", find(wide, nil)},
		{"condition", "Find", find(wrap("a", wide), nil)},
		{"expression", "Find", find(wrap("$expr", wide), nil)},
		{"sort", "Find", find(bson.NewBuilder(nil).Finish(), wide)},
		{"stages", "Aggregate", aggregate(stages...)},
		{"stage", "Aggregate", aggregate(match)},
		{"expressions", "Aggregate", aggregate(wrap("$project", wide))},
		{"documents", "InsertMany", insert},
		{"models", "BulkWrite", &mooringv1.BulkWriteRequest{Models: models}},
		{"update", "UpdateOne", &mooringv1.UpdateOneRequest{
			Database: "d", Collection: "c", Filter: document(t, `{}`),
			Update: &mooringv1.Update{
				Kind: &mooringv1.Update_Operators{
					Operators: payload.NewDocument(wrap("$set", wide)),
				},
			},
		}},
	} {
		e := enforcer(t, `@filter("{'t': 1}") @hidden("h")`+permitAll)
		call := e.Begin(nil, "/mooring.v1.DocumentService/"+row.method, true)
		if err := call.Check(ctx, row.request); !errors.Is(err, gone) {
			t.Errorf("%s: %v, want the cause", row.name, err)
		}
	}
}

// TestNesting checks how deeply pipelines may nest.
func TestNesting(t *testing.T) {
	nested := func(depth int) bson.Raw {
		inner := bson.NewBuilder(nil).Int32("$limit", 1).Finish()
		for range depth {
			inner = bson.NewBuilder(nil).OpenDocument("$lookup").String("from", "c").
				String("as", "x").
				OpenArray("pipeline").Document("", inner).Close().Close().Finish()
		}
		return inner
	}
	facet := func(inner bson.Raw) bson.Raw {
		return bson.NewBuilder(nil).OpenDocument("$facet").OpenArray("a").Document("", inner).
			Close().Close().Finish()
	}
	lookup := func(inner bson.Raw) bson.Raw {
		return bson.NewBuilder(nil).OpenDocument("$lookup").String("from", "c").String("as", "x").
			OpenArray("pipeline").Document("", inner).Close().Close().Finish()
	}
	for _, row := range []struct {
		name  string
		stage bson.Raw
		want  string
	}{
		{"19 lookups", nested(19), ""},
		{"20 lookups", nested(20), "20 deep"},
		{"a facet", facet(nested(0)), ""},
		{"a facet in a facet", facet(facet(nested(0))), "$facet within a $facet"},
		{"a facet in a lookup in a facet", facet(lookup(facet(nested(0)))), ""},
		{"a facet in a facet in a lookup", lookup(facet(facet(nested(0)))), "$facet within a $facet"},
	} {
		call := enforcer(t, `@filter("{'t': 1}")`+permitAll).
			Begin(nil, "/mooring.v1.DocumentService/Aggregate", true)
		err := call.Check(t.Context(), aggregate(row.stage))
		if (err == nil) != (row.want == "") ||
			err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// TestLongNames checks that names which no server has are neither remembered nor repeated.
func TestLongNames(t *testing.T) {
	e := enforcer(t,
		`@filter("{'t': 1}") permit (principal, action, resource == Collection::"d.c");`)
	check := func(method string, m proto.Message) *policy.Refusal {
		t.Helper()
		call := e.Begin(nil, method, true)
		refusal, ok := errors.AsType[*policy.Refusal](call.Check(t.Context(), m))
		if !ok {
			t.Fatalf("%s is not refused", method)
		}
		return refusal
	}
	const find, size = "/mooring.v1.DocumentService/Find", 4 << 20
	long := strings.Repeat("é", size/2)
	before := e.RememberedBytes()
	for _, r := range []*policy.Refusal{
		check(find, &mooringv1.FindRequest{Database: "d", Collection: long}),
		check(find, &mooringv1.FindRequest{Database: long, Collection: "c"}),
		check("/"+long, &mooringv1.FindRequest{Database: "d", Collection: "c"}),
		check(find, &mooringv1.FindRequest{Database: "d", Collection: "c", Filter: payload.NewDocument(wrap("$"+long, bson.NewBuilder(nil).Finish()))}),
		check("/mooring.v1.DocumentService/Aggregate", aggregate(wrap("$"+long, bson.NewBuilder(nil).Finish()))),
		check("/mooring.v1.DocumentService/Aggregate", aggregate(bson.NewBuilder(nil).String("$unionWith", long).Finish())),
	} {
		if n := len(r.Error()) + len(r.On.String()) + len(r.Problem) + len(r.Action) +
			len(r.Rule); n > 4096 {
			t.Errorf("%.60s: %d bytes", r.Error(), n)
		}
	}
	if after := e.RememberedBytes(); after-before > 1000 {
		t.Errorf("%d bytes are remembered", after)
	}
	for n, want := range map[int]int{255: 255, 256: 254 + len("…")} {
		if r := check(find, &mooringv1.FindRequest{
			Database: "d", Collection: long[:n-n%2] + "x"[:n%2],
		}); len(r.On.Collection) != want {
			t.Errorf("of a name of %d bytes %d are repeated, want %d", n, len(r.On.Collection),
				want)
		}
	}
	const bound = 4 << 20
	for i := range 2000 {
		refusal := check(find,
			&mooringv1.FindRequest{Database: "d", Collection: fmt.Sprint(i, long[:8000])})
		if refusal.Rule != "no rule" {
			t.Fatal(refusal)
		}
		if n := e.RememberedBytes(); n > bound {
			t.Fatalf("%d bytes are remembered, at most %d expected", n, bound)
		}
	}
	if e.Remembered() == 0 {
		t.Error("nothing is remembered")
	}
}

// TestLongNamesInBulkWrites checks that neither what all rules say of a client, which counts for
// what is done on a name that no server has, nor the decision about a very long one, which is not
// remembered, is found anew for each model of a bulk write.
func TestLongNamesInBulkWrites(t *testing.T) {
	const n = 1000
	e := enforcer(t, permitAll)
	allocated := func(length int) float64 {
		m := &mooringv1.BulkWriteRequest{Database: "d", Collection: strings.Repeat("c", length)}
		for range n / 2 {
			m.Models = append(m.Models, &mooringv1.WriteModel{
				Kind: &mooringv1.WriteModel_DeleteOne{DeleteOne: &mooringv1.DeleteOneModel{}},
			}, &mooringv1.WriteModel{
				Kind: &mooringv1.WriteModel_DeleteMany{DeleteMany: &mooringv1.DeleteManyModel{}},
			})
		}
		return testing.AllocsPerRun(3, func() {
			call := e.Begin(nil, "/mooring.v1.DocumentService/BulkWrite", true)
			call.Keep(&policy.Grounds{})
			if err := call.Check(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		})
	}
	short := allocated(255)
	for _, length := range []int{256, 50_000} {
		if long := allocated(length); long > short+n/2 {
			t.Errorf("%v allocations for a name of %d bytes, %v for a short one", long, length,
				short)
		}
	}
}

// TestStandingsAreBounded has more callers than are remembered open streams.
func TestStandingsAreBounded(t *testing.T) {
	e := enforcer(t, permitAll)
	most := 0
	for i := range policy.MaxRemembered + 100 {
		who := &caller.Identity{Principal: "key:" + strconv.Itoa(i)}
		call := e.Begin(who, "/mooring.v1.CursorService/NextPage", true)
		if err := call.Check(t.Context(), &mooringv1.NextPageRequest{Cursor: "x"}); err != nil {
			t.Fatal(err)
		}
		most = max(most, e.Standings())
	}
	if most != policy.MaxRemembered || e.Standings() > 200 ||
		e.Remembered() > policy.MaxRemembered {
		t.Errorf("%d callers at most, %d now; %d decisions", most, e.Standings(), e.Remembered())
	}
}
