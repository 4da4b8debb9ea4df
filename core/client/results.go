package client

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// InsertOneResult holds the outcome of InsertOne.
type InsertOneResult struct {
	// Acknowledged is false for a write with w: 0, of which nothing else is known.
	Acknowledged bool
	// InsertedID is the document's _id, the caller's own or the generated one.
	InsertedID bson.Value
	// WriteConcernError: the write was applied but not confirmed as asked.
	WriteConcernError *mongoerr.WriteConcernError
}

// IndexedID holds the _id of one inserted document.
type IndexedID struct {
	// Index is the document's position in the caller's list.
	Index int
	// ID is its _id.
	ID bson.Value
}

// InsertManyResult holds the outcome of InsertMany, in part or in full.
type InsertManyResult struct {
	// Acknowledged is false for a write with w: 0: nothing is known of errors then.
	Acknowledged bool
	// InsertedIDs are those of the documents that the server has confirmed or, without
	// acknowledgement, of those that were sent, in the caller's order.
	InsertedIDs []IndexedID
	// WriteErrors are all that the servers reported, numbered as in the caller's list. If there is
	// one, InsertMany returns an error as well.
	WriteErrors []mongoerr.WriteError
	// WriteConcernErrors has at most one for each command that was sent. They do not end the
	// operation.
	WriteConcernErrors []*mongoerr.WriteConcernError
}

// UpdateResult holds the outcome of UpdateOne, UpdateMany and ReplaceOne.
type UpdateResult struct {
	// Acknowledged is false for a write with w: 0, of which nothing else is known.
	Acknowledged bool
	// MatchedCount does not include an upserted document.
	MatchedCount  int64
	ModifiedCount int64
	UpsertedCount int64
	// UpsertedID is the upserted document's _id (which may be BSON null); the zero Value: no
	// upsert.
	UpsertedID bson.Value
	// WriteConcernError: the write was applied but not confirmed as asked.
	WriteConcernError *mongoerr.WriteConcernError
}

// DeleteResult holds the outcome of DeleteOne and DeleteMany.
type DeleteResult struct {
	// Acknowledged is false for a write with w: 0, of which nothing else is known.
	Acknowledged bool
	DeletedCount int64
	// WriteConcernError: the write was applied but not confirmed as asked.
	WriteConcernError *mongoerr.WriteConcernError
}

// FindOneAndResult holds the outcome of FindOneAndUpdate, FindOneAndReplace and FindOneAndDelete.
type FindOneAndResult struct {
	// Acknowledged is false for a write with w: 0, of which nothing else is known.
	Acknowledged bool
	// Document is the document before or after the change. It is nil if none matched and, for an
	// upsert that returns the document before, if none was there.
	Document bson.Raw
	// UpsertedID is the _id of the document that was inserted; zero: none was.
	UpsertedID bson.Value
	// Repeated is true if the server says that it had made the write before. Document is then as it
	// was, and the projection is not applied to it. Some servers do not say so.
	Repeated bool
	// WriteConcernError: the write was applied but not confirmed as asked.
	WriteConcernError *mongoerr.WriteConcernError
}
