package client

import (
	"errors"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/mongoerr"
)

// WriteKind names what a WriteModel does.
type WriteKind uint8

const (
	// UnknownWrite is the kind of the zero WriteModel, which is an error.
	UnknownWrite WriteKind = iota
	// InsertOne inserts Document, with a generated _id in front if it has none.
	InsertOne
	// UpdateOne updates the first document that matches.
	UpdateOne
	// UpdateMany updates all documents that match.
	UpdateMany
	// ReplaceOne replaces the first document that matches with Document.
	ReplaceOne
	// DeleteOne deletes the first document that matches.
	DeleteOne
	// DeleteMany deletes all documents that match.
	DeleteMany
)

// writeCommand names the command that a kind of writes is sent with.
type writeCommand uint8

const (
	insertCommand writeCommand = iota
	updatesCommand
	deletesCommand
)

// kinds are the commands: their names, those of their document sequences, and the wire version
// since which servers take hints in writes that are not acknowledged.
var kinds = [...]struct {
	name, sequence string
	hintsUnseen    int32
}{
	insertCommand:  {"insert", "documents", 0},
	updatesCommand: {"update", "updates", wireVersion42},
	deletesCommand: {"delete", "deletes", wireVersion44},
}

func (k WriteKind) command() writeCommand {
	switch {
	case k >= DeleteOne:
		return deletesCommand
	case k >= UpdateOne:
		return updatesCommand
	}
	return insertCommand
}

// WriteModel describes one write of BulkWrite. A field that its kind has no use for must be unset.
type WriteModel struct {
	Kind WriteKind
	// Document is inserted, or replaces the document that matches.
	Document bson.Raw
	// Filter is what an update, a replacement or a deletion looks for; nil: {}.
	Filter bson.Raw
	// Update is a document of operators or a pipeline.
	Update       bson.Value
	ArrayFilters bson.Array // of UpdateOne and UpdateMany
	Collation    bson.Raw
	Hint         bson.Value
	Sort         bson.Raw // of UpdateOne and ReplaceOne
	Upsert       *bool    // of updates and replacements
}

// many reports whether a write of the kind may change several documents.
func (k WriteKind) many() bool { return k == UpdateMany || k == DeleteMany }

// update returns what the update command has as the update.
func (m *WriteModel) update() bson.Value {
	if m.Kind == ReplaceOne {
		return bson.DocumentValue(m.Document)
	}
	return m.Update
}

// BulkWriteOptions holds the options of BulkWrite. Of Common it takes all but ReadConcern and
// ReadPreference.
type BulkWriteOptions struct {
	Common
	// Ordered sends the writes in their order and stops at the first error; unset is true.
	Ordered *bool
	// BypassDocumentValidation goes with inserts, updates and replacements.
	BypassDocumentValidation *bool
	// Let goes with updates, replacements and deletions.
	Let bson.Raw
}

// BulkWriteResult holds the outcome of BulkWrite, in part or in full.
type BulkWriteResult struct {
	// Acknowledged is false for writes with w: 0: nothing is known of counts and errors then.
	Acknowledged  bool
	InsertedCount int64
	// MatchedCount does not include upserted documents.
	MatchedCount  int64
	ModifiedCount int64
	DeletedCount  int64
	UpsertedCount int64
	// InsertedIDs are those of the documents that the server has confirmed or, without
	// acknowledgement, of those that were sent. They and UpsertedIDs are in the caller's order.
	InsertedIDs []IndexedID
	UpsertedIDs []IndexedID
	// WriteErrors are all that the servers reported, numbered as in the caller's list. If there is
	// one, BulkWrite returns an error as well.
	WriteErrors []mongoerr.WriteError
	// WriteConcernErrors has at most one for each command that was sent. They do not end the
	// operation.
	WriteConcernErrors []*mongoerr.WriteConcernError
}

// changed reports whether the writes so far have changed something, as far as is known.
func (r *BulkWriteResult) changed() bool {
	return r.InsertedCount+r.ModifiedCount+r.DeletedCount+r.UpsertedCount > 0
}

// model objects to what is wrong in a model, and to what its kind has no use for.
func (c *check) model(m *WriteModel) {
	update := m.Kind == UpdateOne || m.Kind == UpdateMany
	switch {
	case m.Kind == UnknownWrite || m.Kind > DeleteMany:
		c.refuse("kind", "is unknown")
	case m.Kind == InsertOne && len(m.Document) < emptyDocumentSize:
		c.refuse("document", "is missing")
	case m.Kind == ReplaceOne:
		c.replacement(m.Document)
	case update:
		c.update(m.Update)
	}
	hasDocument := m.Kind == InsertOne || m.Kind == ReplaceOne
	c.unused("document", m.Document != nil && !hasDocument, "an insert or a replacement")
	c.unused("filter", m.Filter != nil && m.Kind == InsertOne,
		"a write of existing documents")
	c.unused("update", !m.Update.IsZero() && !update, "an update")
	c.unused("arrayFilters", m.ArrayFilters != nil && !update, "an update by operators")
	c.unused("collation", m.Collation != nil && m.Kind == InsertOne, "a write with a filter")
	c.unused("hint", !m.Hint.IsZero() && m.Kind == InsertOne, "a write with a filter")
	c.hint(m.Hint)
	c.unused("sort", m.Sort != nil && m.Kind != UpdateOne && m.Kind != ReplaceOne,
		"an update of one document")
	c.unused("upsert", m.Upsert != nil && !update && m.Kind != ReplaceOne, "an update")
}

// within takes the objection to one of a list's values, and adds where that is to its argument.
func (c *check) within(list string, i int, one check) {
	if refused, ok := errors.AsType[*ArgumentError](one.err); ok {
		c.refuse(list+"."+strconv.Itoa(i)+"."+refused.Argument, "%s", refused.Problem)
	}
}
