package client

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/selection"
)

// In all options a nil pointer, a nil document and a zero Value mean "unset": nothing is sent. An explicit
// false or 0 is sent. A Hint is an index name (string) or an index's keys (document). Extra is appended to
// the command as it is; names in it that an option covers or that the client sets are an *ArgumentError.
// MaxTimeMS is sent as it is; unset, maxTimeMS comes from the context's deadline wherever no cursor can stay
// open behind it. RunOn lets an operation that has been sent go on although its context is canceled: see operation.Operation.

// Namespace is a collection of a database.
type Namespace struct {
	Database, Collection string
}

// String is database.collection.
func (n Namespace) String() string { return n.Database + "." + n.Collection }

// TimeoutMode says what the deadline of the context that opens a cursor bounds, in the words of the
// timeouts specification. It only decides whether maxTimeMS is sent with the first command; each call of
// Cursor.Next has its own context.
type TimeoutMode uint8

const (
	// TimeoutModeUnset is Iteration for tailable cursors and CursorLifetime for others.
	TimeoutModeUnset TimeoutMode = iota
	// CursorLifetime says that the deadline is the cursor's; maxTimeMS goes with the first command. Tailable
	// cursors refuse it.
	CursorLifetime
	// Iteration says that the deadline is that of the call, and that the cursor may outlive it: no maxTimeMS. Where no cursor can
	// stay open (a single batch, $out, $merge) it is the same as CursorLifetime.
	Iteration
)

// CursorType says how the cursor of RunCursorCommand ends.
type CursorType uint8

const (
	// NonTailable cursors end with the result.
	NonTailable CursorType = iota
	// Tailable cursors wait for more at the end of a capped collection.
	Tailable
	// TailableAwait cursors let the server wait, too, for MaxAwaitTimeMS.
	TailableAwait
)

// RunCommandOptions are the options of RunCommand.
type RunCommandOptions struct {
	// ReadPreference selects the server; nil is primary, whatever the client's is.
	ReadPreference *selection.ReadPreference
	RunOn          bool
}

// RunCursorCommandOptions are the options of RunCursorCommand; all but the first three are for its getMores.
type RunCursorCommandOptions struct {
	// ReadPreference selects the server; nil is primary, whatever the client's is.
	ReadPreference *selection.ReadPreference
	// TimeoutMode is checked against CursorType; maxTimeMS is never added to the command.
	TimeoutMode TimeoutMode
	CursorType  CursorType
	// BatchSize, MaxTimeMS and Comment are sent with each getMore; a BatchSize of 0 is none. MaxTimeMS is the time that the
	// server may wait for documents of an awaitData cursor. It is sent whatever the deadline of the context of Next is, which
	// ends the wait for the reply, and with it the connection, if it is the shorter one.
	BatchSize *int32
	MaxTimeMS *int64
	Comment   bson.Value
	RunOn     bool
}

// FindOptions are the options of Find.
type FindOptions struct {
	Filter     bson.Raw // nil: {}
	Sort       bson.Raw
	Projection bson.Raw
	Hint       bson.Value
	Skip       *int64
	// Limit is the number of documents over all batches; 0 is no limit; a negative one also asks for a
	// single batch.
	Limit *int64
	// BatchSize of the first and the following batches; a negative one asks for a single batch, and 0 is the same as none.
	BatchSize *int32
	// SingleBatch closes the cursor after the first batch.
	SingleBatch *bool
	Comment     bson.Value
	MaxTimeMS   *int64
	// MaxAwaitTimeMS is how long the server waits in a getMore of an awaitData cursor.
	MaxAwaitTimeMS      *int64
	Max, Min            bson.Raw
	ReturnKey           *bool
	ShowRecordID        *bool
	Tailable            *bool
	AwaitData           *bool
	OplogReplay         *bool
	NoCursorTimeout     *bool
	AllowPartialResults *bool
	AllowDiskUse        *bool
	Collation           bson.Raw
	Let                 bson.Raw
	ReadConcern         *ReadConcern
	ReadPreference      *selection.ReadPreference
	TimeoutMode         TimeoutMode
	Extra               bson.Raw
	RunOn               bool
}

// FindOneOptions are the options of FindOne.
type FindOneOptions struct {
	Filter              bson.Raw // nil: {}
	Sort                bson.Raw
	Projection          bson.Raw
	Hint                bson.Value
	Skip                *int64
	Comment             bson.Value
	MaxTimeMS           *int64
	Max, Min            bson.Raw
	ReturnKey           *bool
	ShowRecordID        *bool
	OplogReplay         *bool
	AllowPartialResults *bool
	AllowDiskUse        *bool
	Collation           bson.Raw
	Let                 bson.Raw
	ReadConcern         *ReadConcern
	ReadPreference      *selection.ReadPreference
	Extra               bson.Raw
}

// AggregateOptions are the options of Aggregate.
type AggregateOptions struct {
	Pipeline     bson.Array
	AllowDiskUse *bool
	// BatchSize of the first and the following batches; 0 opens the cursor without documents. It is not
	// sent where the pipeline ends with $out or $merge.
	BatchSize                *int32
	BypassDocumentValidation *bool
	Collation                bson.Raw
	Comment                  bson.Value
	Hint                     bson.Value
	Let                      bson.Raw
	MaxTimeMS                *int64
	// MaxAwaitTimeMS is sent with getMores only.
	MaxAwaitTimeMS *int64
	ReadConcern    *ReadConcern
	ReadPreference *selection.ReadPreference
	// WriteConcern is sent only where the pipeline ends with $out or $merge.
	WriteConcern *WriteConcern
	TimeoutMode  TimeoutMode
	Extra        bson.Raw
	RunOn        bool
}

// DistinctOptions are the options of Distinct.
type DistinctOptions struct {
	Filter         bson.Raw // nil: {}
	Collation      bson.Raw
	Comment        bson.Value
	Hint           bson.Value
	MaxTimeMS      *int64
	ReadConcern    *ReadConcern
	ReadPreference *selection.ReadPreference
	Extra          bson.Raw
}

// CountDocumentsOptions are the options of CountDocuments.
type CountDocumentsOptions struct {
	Filter         bson.Raw // nil: {}
	Collation      bson.Raw
	Comment        bson.Value
	Hint           bson.Value
	Limit          *int64
	Skip           *int64
	MaxTimeMS      *int64
	ReadConcern    *ReadConcern
	ReadPreference *selection.ReadPreference
	Extra          bson.Raw
}

// EstimatedDocumentCountOptions are the options of EstimatedDocumentCount.
type EstimatedDocumentCountOptions struct {
	Comment        bson.Value
	MaxTimeMS      *int64
	ReadConcern    *ReadConcern
	ReadPreference *selection.ReadPreference
	Extra          bson.Raw
}

// InsertOneOptions are the options of InsertOne.
type InsertOneOptions struct {
	BypassDocumentValidation *bool
	Comment                  bson.Value
	WriteConcern             *WriteConcern
	Extra                    bson.Raw
	RunOn                    bool
}

// InsertManyOptions are the options of InsertMany.
type InsertManyOptions struct {
	// Ordered stops at the first error; unset is true.
	Ordered                  *bool
	BypassDocumentValidation *bool
	Comment                  bson.Value
	WriteConcern             *WriteConcern
	Extra                    bson.Raw
	RunOn                    bool
}

// UpdateOptions are the options of UpdateOne and UpdateMany.
type UpdateOptions struct {
	ArrayFilters             bson.Array
	BypassDocumentValidation *bool
	Collation                bson.Raw
	Comment                  bson.Value
	Hint                     bson.Value
	Let                      bson.Raw
	// Sort chooses which of several matching documents is updated; UpdateOne only.
	Sort         bson.Raw
	Upsert       *bool
	WriteConcern *WriteConcern
	Extra        bson.Raw
	RunOn        bool
}

// ReplaceOptions are the options of ReplaceOne.
type ReplaceOptions struct {
	BypassDocumentValidation *bool
	Collation                bson.Raw
	Comment                  bson.Value
	Hint                     bson.Value
	Let                      bson.Raw
	Sort                     bson.Raw
	Upsert                   *bool
	WriteConcern             *WriteConcern
	Extra                    bson.Raw
	RunOn                    bool
}

// DeleteOptions are the options of DeleteOne and DeleteMany.
type DeleteOptions struct {
	Collation    bson.Raw
	Comment      bson.Value
	Hint         bson.Value
	Let          bson.Raw
	WriteConcern *WriteConcern
	Extra        bson.Raw
	RunOn        bool
}

// ReturnDocument chooses the document that FindOneAndUpdate and FindOneAndReplace return.
type ReturnDocument uint8

const (
	// ReturnUnset sends nothing; the server then returns the document before.
	ReturnUnset ReturnDocument = iota
	// ReturnBefore is the document before the change.
	ReturnBefore
	// ReturnAfter is the document after the change.
	ReturnAfter
)

// FindOneAndUpdateOptions are the options of FindOneAndUpdate.
type FindOneAndUpdateOptions struct {
	ArrayFilters             bson.Array
	BypassDocumentValidation *bool
	Collation                bson.Raw
	Comment                  bson.Value
	Hint                     bson.Value
	Let                      bson.Raw
	MaxTimeMS                *int64
	Projection               bson.Raw
	ReturnDocument           ReturnDocument
	Sort                     bson.Raw
	Upsert                   *bool
	WriteConcern             *WriteConcern
	Extra                    bson.Raw
	RunOn                    bool
}

// FindOneAndReplaceOptions are the options of FindOneAndReplace.
type FindOneAndReplaceOptions struct {
	BypassDocumentValidation *bool
	Collation                bson.Raw
	Comment                  bson.Value
	Hint                     bson.Value
	Let                      bson.Raw
	MaxTimeMS                *int64
	Projection               bson.Raw
	ReturnDocument           ReturnDocument
	Sort                     bson.Raw
	Upsert                   *bool
	WriteConcern             *WriteConcern
	Extra                    bson.Raw
	RunOn                    bool
}

// FindOneAndDeleteOptions are the options of FindOneAndDelete.
type FindOneAndDeleteOptions struct {
	Collation    bson.Raw
	Comment      bson.Value
	Hint         bson.Value
	Let          bson.Raw
	MaxTimeMS    *int64
	Projection   bson.Raw
	Sort         bson.Raw
	WriteConcern *WriteConcern
	Extra        bson.Raw
	RunOn        bool
}
