package client

import (
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/selection"
)

// Namespace names a collection of a database.
type Namespace struct {
	Database, Collection string
}

// String returns database.collection.
func (n Namespace) String() string { return n.Database + "." + n.Collection }

// Common holds the options that operations have in common. All operations take Timeout, Session,
// RunOn and Caller. Each option struct says which of the other fields its operations take; the rest
// must be unset, otherwise the operation returns an *ArgumentError.
//
// In all option structs a nil pointer, a nil document and a zero Value mean "unset": nothing is
// sent. An explicit false or 0 is sent. A Hint is an index name (string) or an index's keys
// (document). MaxTimeMS limits the time that the server works on the command. If less is left until
// the operation's deadline, and no cursor outlives that, maxTimeMS is what is left.
type Common struct {
	// Timeout is timeoutMS: how long the operation may take, with all its commands. Nil inherits
	// the client's, and 0 sets no limit. The deadline of the context counts in any case. Where
	// timeoutMS is set, socketTimeoutMS, waitQueueTimeoutMS and WriteConcern.WTimeoutMS have no
	// effect.
	Timeout *time.Duration
	// Session is the session to run in, which must be of the client. Nil is an implicit one, which
	// ends with the operation or with its cursor. An unacknowledged write must not have a session,
	// and gets no implicit one.
	Session *Session
	// Comment is the command's comment, and that of the getMores of its cursor.
	Comment bson.Value
	// ReadConcern of nil inherits the client's.
	ReadConcern *ReadConcern
	// WriteConcern of nil inherits the client's.
	WriteConcern *WriteConcern
	// ReadPreference of nil inherits the client's.
	ReadPreference *selection.ReadPreference
	// RawData asks for the documents as the server stores them, which is another form for time
	// series collections. Servers before 8.2 are not sent it.
	RawData *bool
	// Extra is appended to the command as it is. A name in it that an option covers, or that the
	// client sets, is an *ArgumentError.
	Extra bson.Raw
	// RunOn lets a command that was sent finish after its context is canceled: until the context's
	// deadline, and for at most operation.RunOnLimit.
	RunOn bool
	// Caller is the caller's own name for the operation. The events of its commands have it, but
	// not those of a cursor's getMores, which other calls may ask for.
	Caller string
}

// TimeoutMode says what the deadline of an operation that opens a cursor bounds, in the words of
// the timeouts specification. The deadline is the earlier one of timeoutMS and the context's. The
// context of a call of Cursor.Next bounds that call in either mode.
type TimeoutMode uint8

const (
	// TimeoutModeUnset is Iteration for tailable cursors and CursorLifetime for others.
	TimeoutModeUnset TimeoutMode = iota
	// CursorLifetime says that the deadline is the cursor's: it holds for the first command, which
	// sends what is left as maxTimeMS, and for all its getMores. Tailable cursors refuse it.
	CursorLifetime
	// Iteration says that the cursor may outlive the deadline, and that timeoutMS begins anew with
	// each call of Cursor.Next. No maxTimeMS is sent for it. Where no cursor can stay open (a
	// single batch, $out, $merge) it is the same as CursorLifetime.
	Iteration
)

// CursorType says how the cursor of RunCursorCommand ends.
type CursorType uint8

const (
	// NonTailable cursors end with the result.
	NonTailable CursorType = iota
	// Tailable cursors wait for more at the end of a capped collection.
	Tailable
	// TailableAwait cursors also let the server wait for documents, for MaxTimeMS in each getMore.
	TailableAwait
)

// RunCommandOptions holds the options of RunCommand. Of Common it takes ReadPreference; nil is
// primary, whatever the client's is.
type RunCommandOptions struct {
	Common
}

// RunCursorCommandOptions holds the options of RunCursorCommand. Of Common it takes Comment, which
// goes with the getMores only, and ReadPreference; a ReadPreference of nil is primary, whatever the
// client's is.
type RunCursorCommandOptions struct {
	Common
	TimeoutMode TimeoutMode
	CursorType  CursorType
	// BatchSize is sent with each getMore; 0 is none.
	BatchSize *int32
	// MaxTimeMS is sent with each getMore: the time that the server may wait for documents of an
	// awaitData cursor. If less is left until the deadline of Next, that is sent.
	MaxTimeMS *int64
}

// FindOptions holds the options of Find and FindOne. Of Common they take all but WriteConcern.
// FindOne refuses what shapes batches: Limit, BatchSize, SingleBatch, MaxAwaitTimeMS, Tailable,
// AwaitData, NoCursorTimeout and TimeoutMode.
type FindOptions struct {
	Common
	Filter     bson.Raw // nil: {}
	Sort       bson.Raw
	Projection bson.Raw
	Hint       bson.Value
	Skip       *int64
	// Limit is the number of documents over all batches; 0 is no limit; a negative one also asks
	// for a single batch.
	Limit *int64
	// BatchSize of the first and the following batches; a negative one asks for a single batch, and
	// 0 is the same as none.
	BatchSize *int32
	// SingleBatch closes the cursor after the first batch.
	SingleBatch *bool
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
	TimeoutMode         TimeoutMode
}

// AggregateOptions holds the options of Aggregate. Of Common it takes all; WriteConcern is sent
// only where the pipeline ends with $out or $merge.
type AggregateOptions struct {
	Common
	Pipeline     bson.Array
	AllowDiskUse *bool
	// BatchSize of the first and the following batches; 0 opens the cursor without documents. It is
	// not sent where the pipeline ends with $out or $merge.
	BatchSize                *int32
	BypassDocumentValidation *bool
	Collation                bson.Raw
	Hint                     bson.Value
	Let                      bson.Raw
	MaxTimeMS                *int64
	// MaxAwaitTimeMS is sent with getMores only.
	MaxAwaitTimeMS *int64
	TimeoutMode    TimeoutMode
}

// DistinctOptions holds the options of Distinct. Of Common it takes all but WriteConcern.
type DistinctOptions struct {
	Common
	Filter    bson.Raw // nil: {}
	Collation bson.Raw
	Hint      bson.Value
	MaxTimeMS *int64
}

// CountDocumentsOptions holds the options of CountDocuments. Of Common it takes all but
// WriteConcern.
type CountDocumentsOptions struct {
	Common
	Filter    bson.Raw // nil: {}
	Collation bson.Raw
	Hint      bson.Value
	Limit     *int64
	Skip      *int64
	MaxTimeMS *int64
}

// EstimatedDocumentCountOptions holds the options of EstimatedDocumentCount. Of Common it takes all
// but WriteConcern.
type EstimatedDocumentCountOptions struct {
	Common
	MaxTimeMS *int64
}

// InsertOneOptions holds the options of InsertOne. Of Common it takes all but ReadConcern and
// ReadPreference.
type InsertOneOptions struct {
	Common
	BypassDocumentValidation *bool
}

// InsertManyOptions holds the options of InsertMany. Of Common it takes all but ReadConcern and
// ReadPreference.
type InsertManyOptions struct {
	Common
	// Ordered stops at the first error; unset is true.
	Ordered                  *bool
	BypassDocumentValidation *bool
}

// UpdateOptions holds the options of UpdateOne, UpdateMany and ReplaceOne. Of Common they take all
// but ReadConcern and ReadPreference. UpdateMany refuses Sort, and ReplaceOne refuses
// ArrayFilters.
type UpdateOptions struct {
	Common
	ArrayFilters             bson.Array
	BypassDocumentValidation *bool
	Collation                bson.Raw
	Hint                     bson.Value
	Let                      bson.Raw
	// Sort chooses which of several matching documents is updated.
	Sort   bson.Raw
	Upsert *bool
}

// DeleteOptions holds the options of DeleteOne and DeleteMany. Of Common they take all but
// ReadConcern and ReadPreference.
type DeleteOptions struct {
	Common
	Collation bson.Raw
	Hint      bson.Value
	Let       bson.Raw
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

// FindOneAndOptions holds the options of FindOneAndUpdate, FindOneAndReplace and FindOneAndDelete.
// Of Common they take all but ReadConcern and ReadPreference. FindOneAndReplace refuses
// ArrayFilters; FindOneAndDelete refuses it, BypassDocumentValidation, ReturnDocument and Upsert.
type FindOneAndOptions struct {
	Common
	ArrayFilters             bson.Array
	BypassDocumentValidation *bool
	Collation                bson.Raw
	Hint                     bson.Value
	Let                      bson.Raw
	MaxTimeMS                *int64
	Projection               bson.Raw
	ReturnDocument           ReturnDocument
	Sort                     bson.Raw
	Upsert                   *bool
}
