package contract

import (
	"context"
	"slices"
)

// Client makes calls, as a client of the gateway does that follows the advice of errors by itself.
type Client interface {
	// Do makes a call. A canceled context is a caller that leaves.
	Do(ctx context.Context, call Call) Answer
}

// Verb names a call.
type Verb string

// The calls.
const (
	UpdateOne Verb = "updateOne" // adds 1 to n of the document
	InsertOne Verb = "insertOne" // inserts the document, which is there already
	Begin     Verb = "begin"
	CommitIt  Verb = "commit"
	AbortIt   Verb = "abort"
	RunAll    Verb = "run" // adds 1 to n of documents 1 and 2
	Find      Verb = "find"
	NextPage  Verb = "next"
	StreamAll Verb = "stream"
	ImportAll Verb = "import"
)

// Call represents one call. Fields that it does not need are zero.
type Call struct {
	Verb        Verb   `json:"verb"`
	Collection  string `json:"collection"`
	ID          int    `json:"id,omitempty"`
	Key         string `json:"key,omitempty"`
	Transaction string `json:"transaction,omitempty"`
	Statement   int    `json:"statement,omitempty"`
	Cursor      string `json:"cursor,omitempty"`
	First       int    `json:"first,omitempty"` // the first document to import
}

// Database is that of all calls.
const Database = "contract"

// batchSize is that of pages and streams, rows the number of their documents, and imports the
// number of documents of an import, each of importSize bytes: so an import has several batches.
const (
	BatchSize  = 4
	rows       = 18
	Imports    = 9
	ImportSize = 300 << 10
)

// Answer holds what became of a call.
type Answer struct {
	Transaction string   `json:"transaction,omitempty"`
	Cursor      string   `json:"cursor,omitempty"`
	IDs         []int    `json:"ids,omitempty"` // of documents
	Failure     *Failure `json:"failure,omitempty"`
}

// says reports whether the call has failed with this advice.
func (a Answer) says(retry string) bool { return a.Failure != nil && a.Failure.Retry == retry }

// Failure holds what a client says of a failed call.
type Failure struct {
	Reason     string  `json:"reason"`
	Retry      string  `json:"retry"`
	RetryAfter float64 `json:"retryAfter"` // in seconds
	Message    string  `json:"message"`
	Inserted   int     `json:"inserted"` // by an import that failed in part
}

// The words of Failure.Retry.
const (
	never       = "never"
	sameRequest = "same-request"
	transaction = "transaction"
	restart     = "restart"
)

// isUnanswered reports whether no gateway has answered: the reason is empty, or the client's own.
func (f *Failure) isUnanswered() bool {
	return slices.Contains([]string{
		"", "NoAnswer", "NoGateway", "SocketTimeout", "StreamCut", "Canceled",
	}, f.Reason)
}

// isUnknown reports whether the failure says that the effect is unknown.
func (f *Failure) isUnknown() bool {
	return f.isUnanswered() || slices.Contains([]string{
		"WriteOutcomeUnknown", "UnknownTransactionCommitResult",
	}, f.Reason)
}
