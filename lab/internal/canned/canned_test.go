package canned_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/lab/internal/canned"
)

// connect starts a server and a client of the official driver.
func connect(t *testing.T) (*canned.Server, *mongo.Database) {
	t.Helper()
	s, err := canned.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Disconnect(context.WithoutCancel(t.Context()))
		if err := s.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if n := s.Stats().Connections; n != 0 {
			t.Errorf("%d connections after Close", n)
		}
	})
	return s, c.Database("lab")
}

func TestCursor(t *testing.T) {
	s, db := connect(t)
	for _, name := range []string{"orders_250", "docs_250_1024"} {
		cursor, err := db.Collection(name).
			Find(t.Context(), bson.D{}, options.Find().SetBatchSize(100))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 250 {
			if !cursor.Next(t.Context()) {
				t.Fatalf("%s ends after %d documents: %v", name, i, cursor.Err())
			}
			want, err := canned.Document(name, i)
			if err != nil || !bytes.Equal(cursor.Current, want) {
				t.Fatalf("document %d of %s = %v, want %v (%v)", i, name, cursor.Current,
					bson.Raw(want), err)
			}
		}
		if cursor.Next(t.Context()) {
			t.Errorf("%s has more than 250 documents", name)
		}
	}
	if got := s.Stats(); got.CursorsOpened != 2 || got.CursorsOpen != 0 || got.CursorsKilled != 0 ||
		got.GetMores != 4 {
		t.Errorf("Stats() = %+v, want 2 cursors opened, none open or killed, 4 getMores", got)
	}
}

func TestDocumentHasItsSize(t *testing.T) {
	d, err := canned.Document("docs_1_1024", 0)
	if err != nil || len(d) != 1024 || bson.Raw(d).Validate() != nil {
		t.Errorf("Document() has %d bytes, %v, want 1024 valid ones", len(d), err)
	}
}

// TestLargeDocuments reads documents of which a reply has two, the first two from where they are.
func TestLargeDocuments(t *testing.T) {
	s, db := connect(t)
	const name = "docs_5_8000000"
	cursor, err := db.Collection(name).Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if !cursor.Next(t.Context()) {
			t.Fatalf("%s ends after %d documents: %v", name, i, cursor.Err())
		}
		want, err := canned.Document(name, i)
		if err != nil || !bytes.Equal(cursor.Current, want) {
			t.Fatalf("document %d is not as it should be (%v)", i, err)
		}
	}
	if cursor.Next(t.Context()) || s.Stats().GetMores != 2 {
		t.Errorf("more documents, or %d getMores, want 2", s.Stats().GetMores)
	}
}

// TestMix reads documents of several sizes, of which as many as fit are in a reply.
func TestMix(t *testing.T) {
	s, db := connect(t)
	const name = "mix_7_100_8000000_6000000"
	cursor, err := db.Collection(name).Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		if !cursor.Next(t.Context()) {
			t.Fatalf("%s ends after %d documents: %v", name, i, cursor.Err())
		}
		want, err := canned.Document(name, i)
		if err != nil || !bytes.Equal(cursor.Current, want) {
			t.Fatalf("document %d is not as it should be (%v)", i, err)
		}
	}
	if cursor.Next(t.Context()) || s.Stats().GetMores != 1 {
		t.Errorf("more documents, or %d getMores, want 1", s.Stats().GetMores)
	}
}

func TestKilledCursorsAreCounted(t *testing.T) {
	s, db := connect(t)
	cursor, err := db.Collection("docs_1000_100").
		Find(t.Context(), bson.D{}, options.Find().SetBatchSize(10))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Stats().CursorsOpen; got != 1 {
		t.Errorf("CursorsOpen = %d, want 1", got)
	}
	if err := cursor.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Stats(); got.CursorsOpen != 0 || got.CursorsKilled != 1 {
		t.Errorf("Stats() = %+v, want one cursor killed", got)
	}
}

func TestLimitAndSingleBatch(t *testing.T) {
	_, db := connect(t)
	one, err := db.Collection("orders_1000").FindOne(t.Context(), bson.D{}).Raw()
	if want, _ := canned.Document("orders_1000", 0); err != nil || !bytes.Equal(one, want) {
		t.Errorf("FindOne() = %v, %v", one, err)
	}
	var all []bson.Raw
	cursor, err := db.Collection("orders_1000").
		Find(t.Context(), bson.D{}, options.Find().SetLimit(150))
	if err != nil {
		t.Fatal(err)
	}
	if err := cursor.All(t.Context(), &all); err != nil || len(all) != 150 {
		t.Errorf("All() = %d documents, %v, want 150", len(all), err)
	}
}

func TestSlowAndUnknown(t *testing.T) {
	_, db := connect(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := db.Collection("slow_5000").FindOne(ctx, bson.D{}).Err(); !mongo.IsTimeout(err) {
		t.Errorf("FindOne() on slow_5000 = %v, want a timeout", err)
	}
	err := db.RunCommand(t.Context(), bson.D{{Key: "frobnicate", Value: 1}}).Err()
	if server, ok := errors.AsType[mongo.CommandError](err); !ok || server.Code != 59 {
		t.Errorf("an unknown command = %v, want code 59", err)
	}
}

func TestWritesAreAnswered(t *testing.T) {
	_, db := connect(t)
	c := db.Collection("docs_0_100")
	many, err := c.InsertMany(t.Context(),
		[]any{bson.D{{Key: "a", Value: 1}}, bson.D{{Key: "a", Value: 2}}})
	if err != nil || len(many.InsertedIDs) != 2 {
		t.Errorf("InsertMany() = %v, %v", many, err)
	}
	updated, err := c.UpdateOne(t.Context(), bson.D{},
		bson.D{{Key: "$set", Value: bson.D{{Key: "a", Value: 1}}}})
	if err != nil || updated.MatchedCount != 1 {
		t.Errorf("UpdateOne() = %+v, %v", updated, err)
	}
}
