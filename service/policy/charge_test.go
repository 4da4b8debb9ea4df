package policy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/payload"
)

// TestRewritesAreCharged checks that what the check of a request writes anew is charged to its call
// before it is written: each pipeline within others. Small requests are not charged.
func TestRewritesAreCharged(t *testing.T) {
	const depth, size = 10, 1 << 20
	nested := func(size int) bson.Raw {
		inner := bson.NewBuilder(nil).OpenDocument("$match").String("a", strings.Repeat("x", size)).
			Close().Finish()
		for range depth {
			inner = bson.NewBuilder(nil).OpenDocument("$lookup").String("from", "c").
				String("as", "x").
				OpenArray("pipeline").Document("", inner).Close().Close().Finish()
		}
		return inner
	}
	check := func(budget int64, stage bson.Raw) (held int64, err error) {
		var account admission.Account
		admission.New(admission.Config{Bytes: budget}).
			Open(&account, admission.Principal{Name: "key:a"})
		defer account.Close()
		ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
		call := enforcer(t, `@filter("{'t': 1}")`+permitAll).
			Begin(nil, "/mooring.v1.DocumentService/Aggregate", true)
		err = call.Check(ctx, aggregate(stage))
		return account.Held(), err
	}
	if held, err := check(1<<30, nested(size)); err != nil || held < depth*size {
		t.Errorf("%d bytes are charged for %d pipelines of %d bytes, %v", held, depth, size, err)
	}
	if held, err := check(1<<30, nested(100)); err != nil || held != 0 {
		t.Errorf("%d bytes are charged for a small request, %v", held, err)
	}
	_, err := check(depth*size/2, nested(size))
	if _, refused := errors.AsType[*admission.Error](err); !refused {
		t.Errorf("beyond the budget: %v", err)
	}
}

// TestUpdatesAreCharged checks that what a policy writes anew is charged in the other places, too:
// the operators of an upsert, which get the values that the filter demands, the first stage of a
// pipeline, and BSON that the check makes of JSON.
func TestUpdatesAreCharged(t *testing.T) {
	const size = 1 << 20
	text := strings.Repeat("x", size)
	filter := payload.NewDocument(bson.NewBuilder(nil).Int32("_id", 1).Finish())
	set := bson.NewBuilder(nil).OpenDocument("$set").String("a", text).Close().Finish()
	update := func(operators *mooringv1.Document) *mooringv1.UpdateOneRequest {
		return &mooringv1.UpdateOneRequest{
			Database: "d", Collection: "c", Filter: filter, Upsert: new(true),
			Update: &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: operators}},
		}
	}
	for _, row := range []struct {
		name, method string
		request      proto.Message
		copies       int64
	}{
		{"an upsert", "UpdateOne", update(payload.NewDocument(set)), 1},
		{"an upsert in JSON", "UpdateOne", update(&mooringv1.Document{
			Encoding: &mooringv1.Document_Json{Json: `{"$set":{"a":"` + text + `"}}`},
		}), 2},
		{"the first stage", "Aggregate", aggregate(wrap("$match",
			bson.NewBuilder(nil).String("a", text).Finish())), 2},
		{"a filter in JSON", "Find", &mooringv1.FindRequest{
			Database: "d", Collection: "c", Filter: &mooringv1.Document{
				Encoding: &mooringv1.Document_Json{Json: `{"a":"` + text + `"}`},
			},
		}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, budget := range []int64{1 << 30, size / 2} {
				var account admission.Account
				admission.New(admission.Config{Bytes: budget}).
					Open(&account, admission.Principal{Name: "key:a"})
				ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
				e := enforcer(t, `@filter("{'t': 1}")`+permitAll)
				call := e.Begin(nil, "/mooring.v1.DocumentService/"+row.method, false)
				err := call.Check(ctx, proto.Clone(row.request))
				if _, refused := errors.AsType[*admission.Error](err); refused != (budget < size) {
					t.Errorf("with %d bytes: %v", budget, err)
				}
				if got := account.Held(); budget > size && got < row.copies*size {
					t.Errorf("%d bytes are charged, want %d times %d", got, row.copies, size)
				}
				account.Close()
			}
		})
	}
}

// TestMessagesGiveBack checks that the check of a stream's message returns what the message before
// was charged, so that an import may be larger than the memory that there is.
func TestMessagesGiveBack(t *testing.T) {
	const size = 1 << 20
	raw := bson.NewBuilder(nil).Int32("t", 1).String("a", strings.Repeat("x", size)).Finish()
	text := `{"t": 1, "a": "` + strings.Repeat("x", size) + `"}`
	var account admission.Account
	admission.New(admission.Config{Bytes: 16 * size}).
		Open(&account, admission.Principal{Name: "key:a"})
	defer account.Close()
	ctx := context.WithValue(t.Context(), admission.AccountKey{}, &account)
	call := enforcer(t, `@filter("{'t': 1}")`+permitAll).
		Begin(nil, "/mooring.v1.DocumentService/Import", true)
	most := int64(0)
	for i := range 100 {
		doc := payload.NewDocument(raw)
		if i%2 == 1 {
			doc = &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}
		}
		err := call.Check(ctx, &mooringv1.ImportRequest{
			Database: "d", Collection: "c", Documents: []*mooringv1.Document{doc},
		})
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		most = max(most, account.Held())
	}
	if most < size || most > 4*size {
		t.Errorf("at most %d bytes are charged for messages of %d", most, size)
	}
}
