package shell

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/cmd/gateway/internal/transfer"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

var insert = &Command{
	Name: "insert", Operands: "NAMESPACE DOCUMENT…", prints: true, run: runInsert,
	Synopsis: "insert documents",
	Doc: `Inserts documents, which are Extended JSON, into a collection, and prints their _ids.
mooring import takes many from a file.

  mooring insert shop.orders '{"total": 12.5}' '{"total": 3}'`,
}

func runInsert(ctx context.Context, s *session) error {
	docs := make([]bson.Raw, len(s.Operands)-1)
	for i := range docs {
		d, err := s.document("DOCUMENT", s.operand(i+1))
		if err != nil {
			return err
		}
		docs[i] = d.GetBson()
	}
	in, err := s.collection(ctx)
	if err != nil {
		return err
	}
	response, err := in.InsertMany(ctx, docs)
	if err != nil {
		return err
	}
	w, err := s.renderer()
	if err != nil {
		return err
	}
	for _, id := range response.GetInsertedIds() {
		v, _ := bson.Raw(id.GetId().GetBson()).Lookup("v")
		if err := w.Write(bson.NewBuilder(nil).Value("insertedId", v).Finish()); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return unacknowledged(transfer.Concern(response.GetWriteConcernError()))
}

// printWrite prints the result of a write, with the error of its write concern.
func (s *session) printWrite(b *bson.Builder, e *mooringv1.WriteConcernError) error {
	if e != nil {
		b.OpenDocument("writeConcernError").Int32("code", e.GetCode()).
			String("codeName", e.GetCodeName()).String("message", e.GetMessage()).Close()
	}
	if err := s.print(b.Finish()); err != nil {
		return err
	}
	return unacknowledged(transfer.Concern(e))
}

// unacknowledged returns the error of a write whose write concern was not met; "": it was.
func unacknowledged(why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("written, but not acknowledged as the write concern asks: %s", why)
}

var update = &Command{
	Name: "update", Operands: "NAMESPACE FILTER UPDATE", prints: true, run: runUpdate,
	Synopsis: "change documents that match",
	Doc: `Changes the first document that matches, or all with --many. UPDATE has operators, or is
an array: a pipeline. The filter {} matches every document.

  mooring update shop.orders '{"status": "open"}' '{"$set": {"status": "paid"}}' --many`,
	Flags: func(flags *pflag.FlagSet) {
		flags.Bool("many", false, "change all documents that match")
		flags.Bool("upsert", false, "insert a document if none matches")
	},
}

func runUpdate(ctx context.Context, s *session) error {
	filter, err := s.document("FILTER", s.operand(1))
	if err != nil {
		return err
	}
	change, err := s.change("UPDATE", s.operand(2))
	if err != nil {
		return err
	}
	in, err := s.collection(ctx)
	if err != nil {
		return err
	}
	upsert := s.isSet("upsert")
	var r interface {
		GetMatchedCount() int64
		GetModifiedCount() int64
		GetUpsertedId() *mooringv1.Value
		GetWriteConcernError() *mooringv1.WriteConcernError
	}
	if s.isSet("many") {
		r, err = in.UpdateMany(ctx, nil, change, func(r *mooringv1.UpdateManyRequest) {
			r.Filter, r.Upsert = filter, &upsert
		})
	} else {
		r, err = in.UpdateOne(ctx, nil, change, func(r *mooringv1.UpdateOneRequest) {
			r.Filter, r.Upsert = filter, &upsert
		})
	}
	if err != nil {
		return err
	}
	b := bson.NewBuilder(nil).Int64("matchedCount", r.GetMatchedCount()).
		Int64("modifiedCount", r.GetModifiedCount())
	if id, ok := bson.Raw(r.GetUpsertedId().GetBson()).Lookup("v"); ok {
		b.Value("upsertedId", id)
	}
	return s.printWrite(b, r.GetWriteConcernError())
}

// change returns the update of a word: operators or a pipeline.
func (s *session) change(name, word string) (*mooringv1.Update, error) {
	text, err := s.word(word)
	if err != nil {
		return nil, err
	}
	v, _, err := parser.ParseValue(nil, text)
	if err != nil {
		return nil, wrongJSON(name, err)
	}
	if doc, ok := v.Document(); ok {
		return &mooringv1.Update{Kind: &mooringv1.Update_Operators{Operators: document(doc)}}, nil
	}
	stages, err := s.documents(name, string(text))
	if err != nil {
		return nil, err
	}
	return &mooringv1.Update{Kind: &mooringv1.Update_Pipeline{
		Pipeline: &mooringv1.Pipeline{Stages: stages},
	}}, nil
}

var remove = &Command{
	Name: "delete", Operands: "NAMESPACE FILTER", prints: true, run: runDelete,
	Synopsis: "delete documents that match",
	Doc: `Deletes the first document that matches, or all with --many. The filter {} matches every
document.

  mooring delete shop.orders '{"_id": 7}'`,
	Flags: func(flags *pflag.FlagSet) {
		flags.Bool("many", false, "delete all documents that match")
	},
}

func runDelete(ctx context.Context, s *session) error {
	filter, err := s.document("FILTER", s.operand(1))
	if err != nil {
		return err
	}
	in, err := s.collection(ctx)
	if err != nil {
		return err
	}
	var r interface {
		GetDeletedCount() int64
		GetWriteConcernError() *mooringv1.WriteConcernError
	}
	if s.isSet("many") {
		r, err = in.DeleteMany(ctx, nil, func(r *mooringv1.DeleteManyRequest) { r.Filter = filter })
	} else {
		r, err = in.DeleteOne(ctx, nil, func(r *mooringv1.DeleteOneRequest) { r.Filter = filter })
	}
	if err != nil {
		return err
	}
	b := bson.NewBuilder(nil).Int64("deletedCount", r.GetDeletedCount())
	return s.printWrite(b, r.GetWriteConcernError())
}
