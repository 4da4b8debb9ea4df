package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mooringdb/mooring/lab/internal/canned"
	"github.com/mooringdb/mooring/lab/internal/load"
)

// verify makes sure, before anything is measured, that all sides do the same work: every REST
// answer holds exactly the server's documents. (The load generator counts the documents of the
// gRPC answers.)
func (b *bench) verify(ctx context.Context) error {
	for _, side := range []subject{b.ours, b.raw, b.maps} {
		one, err := ask(ctx, load.REST(side.rest, collection, 1, 0))
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		many, err := ask(ctx, load.REST(side.rest, collection, 1, 100))
		if err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
		docs := append([]bson.Raw{one.Document}, many.Documents...)
		if len(docs) != 101 {
			return fmt.Errorf("%s: %d documents, want 100", side.name, len(docs)-1)
		}
		for i, doc := range docs {
			want, err := canned.Document(collection, max(0, i-1))
			if err != nil {
				return err
			}
			if !sameFields(doc, want) {
				return fmt.Errorf("%s: document %d is %v, want %v", side.name, i, doc,
					bson.Raw(want))
			}
		}
	}
	return nil
}

// answer holds the body of both operations.
type answer struct {
	Document  bson.Raw   `bson:"document"`
	Documents []bson.Raw `bson:"documents"`
}

func ask(ctx context.Context, j load.Job) (answer, error) {
	var a answer
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.URL, strings.NewReader(j.Body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s: %s", resp.Status, body)
	}
	return a, bson.UnmarshalExtJSON(body, false, &a)
}

// sameFields compares documents whose fields may stand in another order, as bson.M leaves them.
func sameFields(got, want bson.Raw) bool {
	var g, w bson.M
	return bson.Unmarshal(got, &g) == nil && bson.Unmarshal(want, &w) == nil &&
		reflect.DeepEqual(g, w)
}

func documentSize() int {
	doc, err := canned.Document(collection, 0)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return len(doc)
}
