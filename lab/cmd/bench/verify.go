package main

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/load"
)

// verify makes sure, before anything is measured, that all sides that decode do the same work:
// every REST answer holds exactly the server's documents. (The load generator checks the gRPC
// answers.)
func (b *bench) verify(ctx context.Context) error {
	for _, side := range []subject{b.ours, b.thin} {
		for _, c := range []struct {
			job  load.Job
			read func([]byte) ([]bson.Raw, error)
		}{
			{findOne, readBody},
			{find100, readBody},
			{load.Job{
				Operation: load.StreamFind, Collection: small, Documents: 200,
			}, readLines},
		} {
			c.job.REST = side.rest
			bodies, err := askREST(ctx, c.job)
			if err != nil {
				return fmt.Errorf("%s: %w", side.name, err)
			}
			documents, err := c.read(bodies[0])
			if err == nil {
				err = same(c.job, documents)
			}
			if err != nil {
				return fmt.Errorf("%s: %s: %w", side.name, c.job.Operation, err)
			}
		}
	}
	return nil
}

// same compares documents with those that the server sent.
func same(j load.Job, documents []bson.Raw) error {
	if want := max(j.Documents, 1); len(documents) != want {
		return fmt.Errorf("%d documents, want %d", len(documents), want)
	}
	for i, doc := range documents {
		want, err := canned.Document(j.Collection, i)
		if err != nil {
			return err
		}
		if !bytes.Equal(doc, want) {
			return fmt.Errorf("document %d is %v, want %v", i, doc, bson.Raw(want))
		}
	}
	return nil
}

// readBody returns the documents of a findOne or a find.
func readBody(body []byte) ([]bson.Raw, error) {
	var a struct {
		Document  bson.Raw   `bson:"document"`
		Documents []bson.Raw `bson:"documents"`
	}
	err := bson.UnmarshalExtJSON(body, false, &a)
	if a.Document != nil {
		return []bson.Raw{a.Document}, err
	}
	return a.Documents, err
}

// readLines returns the documents of a stream: its lines hold a document each, by itself or in a
// field. The line that says that the gateway's stream is complete has none.
func readLines(body []byte) (documents []bson.Raw, err error) {
	for line := range bytes.Lines(body) {
		var doc bson.Raw
		if err := bson.UnmarshalExtJSON(line, false, &doc); err != nil {
			return nil, err
		}
		if inner, ok := doc.Lookup("document").DocumentOK(); ok {
			doc = inner
		}
		if _, err := doc.LookupErr("end"); err != nil {
			documents = append(documents, doc)
		}
	}
	return documents, nil
}

func documentSize(collection string) int {
	doc, err := canned.Document(collection, 0)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return len(doc)
}
