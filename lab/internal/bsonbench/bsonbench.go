// Package bsonbench measures core/bson and core/bson/extjson beside the official driver's
// MarshalExtJSON and UnmarshalExtJSON, on the documents that the specifications' benchmarks use.
// It runs in one process, on one goroutine.
package bsonbench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"

	official "go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
)

// task describes one thing to do with each of the documents, by both sides. Rates are of so many
// bytes.
type task struct {
	name   string
	doc    Document
	bytes  int
	ours   func(i int) error
	theirs func(i int) error // nil: no counterpart to compare with
}

// Run measures every task, and prints the table and then the ratios: ours divided by the official
// driver's MB/s, higher is better.
func Run(ctx context.Context, w io.Writer) error {
	docs, note := Documents()
	if note != "" {
		fmt.Fprintln(w, note)
	}
	fmt.Fprintf(w,
		"BSON and Extended JSON beside the official driver; MB of JSON a second (validate: of "+
			"BSON), best turn of %v; allocations a document; %s\n\n", slice, runtime.Version())
	fmt.Fprintf(w, "%-15s %-9s %10s %12s %14s %12s %14s\n", "task", "document", "bytes", "MB/s",
		"allocations", "official", "allocations")
	var ratios []string
	for _, doc := range docs {
		tasks, err := tasksFor(doc)
		if err != nil {
			return fmt.Errorf("%s: %w", doc.Name, err)
		}
		for _, t := range tasks {
			if err := ctx.Err(); err != nil {
				return err
			}
			ours, theirs, err := t.measure()
			if err != nil {
				return fmt.Errorf("%s %s: %w", t.name, doc.Name, err)
			}
			fmt.Fprintf(w, "%-15s %-9s %10d %12.1f %14.1f", t.name, doc.Name, t.bytes,
				ours.rate(t), ours.allocations)
			if t.theirs == nil {
				fmt.Fprintln(w)
				continue
			}
			fmt.Fprintf(w, " %12.1f %14.1f\n", theirs.rate(t), theirs.allocations)
			ratios = append(ratios, fmt.Sprintf("ratio bson-%s-%s-rate %.2f", t.name, doc.Name,
				ours.rate(t)/theirs.rate(t)))
		}
	}
	fmt.Fprintln(w)
	for _, line := range ratios {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	return nil
}

// tasksFor makes sure, before anything is measured, that both sides do the same.
func tasksFor(doc Document) ([]task, error) {
	tasks := []task{{
		name: "validate", doc: doc, bytes: total(doc.Docs),
		ours: func(i int) error { return doc.Docs[i].Validate() },
	}}
	for _, f := range []struct {
		name      string
		mode      extjson.Mode
		canonical bool
	}{{"relaxed", extjson.Relaxed, false}, {"canonical", extjson.Canonical, true}} {
		texts := make([][]byte, len(doc.Docs))
		for i, d := range doc.Docs {
			var err error
			if texts[i], err = extjson.Append(nil, d, f.mode); err != nil {
				return nil, err
			}
			if err := sameResult(d, texts[i], f.canonical); err != nil {
				return nil, err
			}
		}
		buffer := make([]byte, 0, total(texts))
		tasks = append(tasks, task{
			name: "write-" + f.name, doc: doc, bytes: total(texts),
			ours: func(i int) error {
				_, err := extjson.Append(buffer, doc.Docs[i], f.mode)
				return err
			},
			theirs: func(i int) error {
				_, err := official.MarshalExtJSON(official.Raw(doc.Docs[i]), f.canonical, false)
				return err
			},
		}, task{
			name: "read-" + f.name, doc: doc, bytes: total(texts),
			ours: func(i int) error {
				_, err := extjson.Parse(nil, texts[i])
				return err
			},
			theirs: func(i int) error {
				var d official.Raw
				return official.UnmarshalExtJSON(texts[i], f.canonical, &d)
			},
		})
	}
	return tasks, nil
}

func total[B ~[]byte](texts []B) (n int) {
	for _, text := range texts {
		n += len(text)
	}
	return n
}

// sameResult checks that both sides read the same from a text, and that canonical text is the
// document.
func sameResult(doc bson.Raw, text []byte, canonical bool) error {
	ours, err := extjson.Parse(nil, text)
	if err != nil {
		return err
	}
	var theirs official.Raw
	if err := official.UnmarshalExtJSON(text, canonical, &theirs); err != nil {
		return err
	}
	if !bytes.Equal(ours, theirs) || canonical && !bytes.Equal(ours, doc) {
		return fmt.Errorf("the sides read different documents from %.200s", text)
	}
	return nil
}
