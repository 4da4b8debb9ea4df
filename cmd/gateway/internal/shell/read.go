package shell

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooringdb/mooring/client"
	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

var find = &Command{
	Name: "find", Operands: "NAMESPACE [FILTER]", prints: true, run: runFind,
	Synopsis: "print the documents that match",
	Doc: `Prints the documents of a collection that match a filter, or all. NAMESPACE is
DATABASE.COLLECTION, and FILTER is Extended JSON; @FILE stands for a file that has it, and
- for standard input.

  mooring find shop.orders '{"total": {"$gt": 10}}' --sort '{"_id": -1}' --limit 5`,
	Flags: func(flags *pflag.FlagSet) {
		flags.String("projection", "", "fields to print: '{\"total\": 1}'")
		flags.String("sort", "", "order: '{\"total\": -1}'")
		flags.Int64("limit", 0, "how many documents at most (default all)")
		flags.Int64("skip", 0, "how many documents to leave out at the beginning")
		flags.String("hint", "", "name of the index to use")
	},
}

func runFind(ctx context.Context, s *session) error {
	in, err := s.collection(ctx)
	if err != nil {
		return err
	}
	var filter, projection, sort *mooringv1.Document
	for _, set := range []struct {
		name, word string
		to         **mooringv1.Document
	}{
		{"FILTER", s.operand(1), &filter},
		{"--projection", s.text("projection"), &projection},
		{"--sort", s.text("sort"), &sort},
	} {
		if *set.to, err = s.document(set.name, set.word); err != nil {
			return err
		}
	}
	limit, skip, hint := s.number("limit"), s.number("skip"), s.text("hint")
	return s.printAll(in.Find(ctx, nil, func(r *mooringv1.FindRequest) {
		r.Filter, r.Projection, r.Sort = filter, projection, sort
		if limit != 0 {
			r.Limit = &limit
		}
		if skip != 0 {
			r.Skip = &skip
		}
		if hint != "" {
			r.Hint = &mooringv1.Hint{Kind: &mooringv1.Hint_Name{Name: hint}}
		}
	}))
}

var aggregate = &Command{
	Name: "aggregate", Operands: "NAMESPACE|DATABASE PIPELINE", prints: true, run: runAggregate,
	Synopsis: "run a pipeline and print its results",
	Doc: `Runs a pipeline, a JSON array of stages, on a collection or on a database. @FILE stands
for a file that has it, and - for standard input.

  mooring aggregate shop.orders '[{"$group": {"_id": "$status", "n": {"$sum": 1}}}]'`,
	Flags: func(flags *pflag.FlagSet) {
		flags.Bool("allow-disk-use", false, "let the server use its disk for large stages")
	},
}

func runAggregate(ctx context.Context, s *session) error {
	database, collection, err := s.namespace()
	if err != nil && !strings.Contains(s.operand(0), ".") && s.operand(0) != "" {
		database, err = s.operand(0), nil
	}
	if err != nil {
		return err
	}
	stages, err := s.documents("PIPELINE", s.operand(1))
	if err != nil {
		return err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	in := client.In[bson.Raw](c.Client, database, collection)
	return s.printAll(in.Aggregate(ctx, nil, func(r *mooringv1.AggregateRequest) {
		r.Pipeline = stages
		if collection == "" {
			r.Collection = nil
		}
		if s.isSet("allow-disk-use") {
			use := true
			r.AllowDiskUse = &use
		}
	}))
}

var count = &Command{
	Name: "count", Operands: "NAMESPACE [FILTER]", run: runCount,
	Synopsis: "print how many documents match",
	Doc: `Prints how many documents of a collection match a filter, or how many there are.

  mooring count shop.orders '{"status": "open"}'`,
	Flags: func(flags *pflag.FlagSet) {
		flags.Bool("estimated", false, "take the number from the collection's metadata, which is "+
			"fast and may be a little off; not with FILTER")
	},
}

func runCount(ctx context.Context, s *session) error {
	filter, err := s.document("FILTER", s.operand(1))
	if err != nil {
		return err
	}
	if s.isSet("estimated") && filter != nil {
		return usage("--estimated counts all documents: it does not take a FILTER")
	}
	in, err := s.collection(ctx)
	if err != nil {
		return err
	}
	var n int64
	if s.isSet("estimated") {
		n, err = in.EstimatedDocumentCount(ctx)
	} else {
		n, err = in.CountDocuments(ctx, nil, func(r *mooringv1.CountDocumentsRequest) {
			r.Filter = filter
		})
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Stdout, n)
	return err
}

// collection returns the collection that the first operand names.
func (s *session) collection(ctx context.Context) (*client.Collection[bson.Raw], error) {
	database, collection, err := s.namespace()
	if err != nil {
		return nil, err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	return client.In[bson.Raw](c.Client, database, collection), nil
}

// printAll writes documents, those before an error, too.
func (s *session) printAll(docs iter.Seq2[bson.Raw, error]) error {
	w, err := s.renderer()
	if err != nil {
		return err
	}
	for doc, err := range docs {
		if err != nil {
			_ = w.Flush() // the first error counts
			return err
		}
		if err := w.Write(doc); err != nil {
			return err
		}
	}
	return w.Close()
}
