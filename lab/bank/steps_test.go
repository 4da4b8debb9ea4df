package bank_test

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/lab/internal/gatewaytest"
	"github.com/mooringdb/mooring/lab/internal/history"
)

// filterOf finds the document of a step; a swap finds it only with the old contents.
func filterOf(s history.Step) string {
	if s.Kind == history.Swap {
		return fmt.Sprintf(`{"_id": %q, "list": [%d]}`, s.Document, s.Old)
	}
	return fmt.Sprintf(`{"_id": %q}`, s.Document)
}

func updateOf(s history.Step) string {
	if s.Kind == history.Append {
		return fmt.Sprintf(`{"$push": {"list": %d}}`, s.Value)
	}
	return fmt.Sprintf(`{"$set": {"list": [%d]}}`, s.Value)
}

func documentOf(s history.Step) string {
	return fmt.Sprintf(`{"_id": %q, "list": [%d]}`, s.Document, s.Value)
}

// found returns what is in a document that was found, nil: there was none.
func found(list *[]int) *history.Contents {
	if list == nil {
		return &history.Contents{}
	}
	return &history.Contents{Exists: true, Items: history.Items(*list)}
}

// after returns an append with what it has returned. If the list has one item, an upsert has made
// it.
func after(s history.Step, list *[]int) history.Step {
	if s.Done = list != nil && !(s.Upsert && len(*list) == 1); list != nil {
		s.Seen = found(list)
	}
	return s
}

// verb returns the operation of a step by REST, and the fields of its body.
func verb(s history.Step) (name, fields string) {
	filter := `"filter": ` + filterOf(s)
	switch s.Kind {
	case history.Read:
		return "findOne", filter
	case history.Append:
		fields := fmt.Sprintf(`, "update": %s, "returnDocument": "after"`, updateOf(s))
		if s.Upsert {
			fields += `, "upsert": true`
		}
		return "findOneAndUpdate", filter + fields
	case history.Insert:
		return "insertOne", `"document": ` + documentOf(s)
	case history.Delete:
		return "deleteOne", filter
	case history.Set, history.Swap:
	}
	return "updateOne", filter + `, "update": ` + updateOf(s)
}

// result is what REST answers to a step.
type result struct {
	Document                   *struct{ List []int }
	MatchedCount, DeletedCount int
}

// of returns a step with what REST says of it.
func (r result) of(s history.Step) history.Step {
	var list *[]int
	if r.Document != nil {
		list = &r.Document.List
	}
	return told(s, list, r.MatchedCount+r.DeletedCount == 1)
}

// told returns a step with what was found, or whether there was something to change.
func told(s history.Step, list *[]int, matched bool) history.Step {
	switch s.Kind {
	case history.Read:
		s.Seen = found(list)
	case history.Append:
		return after(s, list)
	case history.Insert:
		s.Done = true
	case history.Set, history.Swap, history.Delete:
		s.Done = matched
	}
	return s
}

func (r overREST) step(
	ctx context.Context, st statement, key string, s history.Step,
) (history.Step, error) {
	name, fields := verb(s)
	if st.transaction == "" && s.Kind == history.Read {
		fields += `, "readConcern": {"level": "linearizable"}`
	}
	a, err := r.keyed(ctx, key, gatewaytest.Documents(database, lists, name), fields+st.fields())
	if err != nil {
		return s, err
	}
	return a.of(s), nil
}

func (r overREST) runSteps(ctx context.Context, steps []history.Step) ([]history.Step, error) {
	text := ""
	for _, s := range steps {
		name, fields := verb(s)
		text += fmt.Sprintf(`, {%q: {"database": %q, "collection": %q, %s}}`, name, database, lists,
			fields)
	}
	a, err := r.post(ctx, "/v1/transactions:run", `"operations": [`+text[2:]+`]`)
	if err != nil {
		return nil, err
	}
	var done []history.Step
	for i, s := range steps {
		name, _ := verb(s)
		var res result
		if err := json.Unmarshal(a.Results[i][name], &res); err != nil {
			return nil, err
		}
		done = append(done, res.of(s))
	}
	return done, nil
}

// listOf returns the list of a document that gRPC has answered with.
func listOf(d *mooringv1.Document) *[]int {
	if d == nil {
		return nil
	}
	list := []int{}
	v, _ := bson.Raw(d.GetBson()).Lookup("list")
	items, _ := v.Array()
	for _, item := range items.All() {
		n, _ := item.AsInt64()
		list = append(list, int(n))
	}
	return &list
}

func (g overGRPC) step(
	ctx context.Context, st statement, key string, s history.Step,
) (done history.Step, err error) {
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
	}
	filter, db, coll := text(filterOf(s)), database, lists
	var list *[]int
	var matched int64
	transaction, number := st.of()
	switch s.Kind {
	case history.Read:
		req := &mooringv1.FindOneRequest{
			Database: db, Collection: coll, Filter: filter, Transaction: transaction,
			Statement: number,
		}
		if st.transaction == "" {
			req.ReadConcern = &mooringv1.ReadConcern{Level: new("linearizable")}
		}
		var resp *mooringv1.FindOneResponse
		resp, err = g.documents().FindOne(ctx, req)
		list = listOf(resp.GetDocument())
	case history.Append:
		req := g.appending(s)
		req.Transaction, req.Statement = transaction, number
		var resp *mooringv1.FindOneAndUpdateResponse
		resp, err = g.documents().FindOneAndUpdate(ctx, req)
		list = listOf(resp.GetDocument())
	case history.Insert:
		_, err = g.documents().InsertOne(ctx, &mooringv1.InsertOneRequest{
			Database: db, Collection: coll, Document: text(documentOf(s)),
		})
	case history.Delete:
		var resp *mooringv1.DeleteOneResponse
		resp, err = g.documents().DeleteOne(ctx, &mooringv1.DeleteOneRequest{
			Database: db, Collection: coll, Filter: filter,
		})
		matched = resp.GetDeletedCount()
	case history.Set, history.Swap:
		var resp *mooringv1.UpdateOneResponse
		resp, err = g.documents().UpdateOne(ctx, &mooringv1.UpdateOneRequest{
			Database: db, Collection: coll, Filter: filter, Update: operators(s),
		})
		matched = resp.GetMatchedCount()
	}
	if err != nil {
		return s, read(err)
	}
	return told(s, list, matched == 1), nil
}

func operators(s history.Step) *mooringv1.Update {
	return &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: text(updateOf(s))}}
}

func (g overGRPC) appending(s history.Step) *mooringv1.FindOneAndUpdateRequest {
	return &mooringv1.FindOneAndUpdateRequest{
		Database: database, Collection: lists, Filter: text(filterOf(s)), Update: operators(s),
		Upsert: &s.Upsert, ReturnDocument: new("after"),
	}
}

func (g overGRPC) runSteps(ctx context.Context, steps []history.Step) ([]history.Step, error) {
	req := &mooringv1.TransactionServiceRunRequest{}
	for _, s := range steps {
		req.Operations = append(req.Operations, &mooringv1.TransactionOperation{
			Operation: &mooringv1.TransactionOperation_FindOneAndUpdate{
				FindOneAndUpdate: g.appending(s),
			},
		})
	}
	resp, err := g.transactions().Run(ctx, req)
	if err != nil {
		return nil, read(err)
	}
	var done []history.Step
	for i, s := range steps {
		list := listOf(resp.GetResults()[i].GetFindOneAndUpdate().GetDocument())
		done = append(done, told(s, list, false))
	}
	return done, nil
}
