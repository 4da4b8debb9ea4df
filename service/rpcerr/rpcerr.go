// Package rpcerr maps errors to what clients see: a gRPC status with its details, and the same as
// an HTTP status and an error body. No other package makes a status.
//
// The package neither logs nor counts. Only entries of servers' errors show a server's words. What
// withholds them, and addresses, from some clients is in hush and conceal. An error without a row
// is INTERNAL. A test checks that each error of core has a row.
package rpcerr

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/conn/ocsp"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/session"
	"github.com/mooringdb/mooring/core/topology"
	"github.com/mooringdb/mooring/core/wire"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/policy"
)

// Error reports that the gateway itself refuses a request.
type Error struct {
	// Reason is one of this package's reasons. Its row decides the status.
	Reason Reason
	// Message says what is wrong, for people.
	Message string
	// Field is the path of the request's field that is wrong, if one is.
	Field string
	// Offset is the position of the problem in the field, in bytes. It is used only with
	// MalformedDocument.
	Offset int64
	// Retry replaces the Retry of the reason's row; empty: the row's.
	Retry Retry
	// RetryAfter is the time after which the client may try again; 0: the usual one.
	RetryAfter time.Duration
	// Err is the cause; may be nil.
	Err error
}

func (e *Error) Error() string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// explain explains an error by the first entry of the table that matches it. An error that carries
// a status is not looked up in the table.
func explain(err error) explanation {
	x := explanation{row: reasons[Internal]}
	if carrier, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		x.read(carrier.GRPCStatus())
	} else {
		x.look(err)
	}
	if e, ok := errors.AsType[*PartialError](err); ok {
		x.partial(e.Result) // with any cause
	}
	return x
}

// look explains an error by the table. The entries of the server's errors alone show its words.
func (x *explanation) look(err error) {
	x.message = mongoerr.Outline(err)
	if e, ok := errors.AsType[*client.NamespacedBulkWriteError](err); ok && e.Err != nil {
		x.message = mongoerr.Outline(e.Err) // it has the write errors, too
	}
	for _, e := range table {
		if e.explain(err, x) {
			break
		}
	}
	x.inTransaction(err)
	if e, ok := errors.AsType[*FieldError](err); ok {
		x.field = strings.TrimSuffix(e.Field+"."+x.field, ".")
	}
	if x.retryAfter == 0 && (x.code == codes.Unavailable ||
		x.code == codes.ResourceExhausted && x.http == http.StatusTooManyRequests) {
		x.retryAfter = retryAfter
	}
}

// entry explains one kind of error.
type entry struct {
	name    string // of the type or variable, "*pkg.Type" or "pkg.ErrX"
	explain func(err error, x *explanation) bool
}

// typed returns the entry of an error type. fill completes the explanation.
func typed[E error](fill func(e E, err error, x *explanation)) entry {
	return entry{
		name: reflect.TypeFor[E]().String(),
		explain: func(err error, x *explanation) bool {
			e, ok := errors.AsType[E](err)
			if ok {
				fill(e, err, x)
			}
			return ok
		},
	}
}

// value returns the entry of an error value.
func value(name string, target error, r Reason) entry {
	return entry{
		name: name,
		explain: func(err error, x *explanation) bool {
			ok := errors.Is(err, target)
			if ok {
				x.row = reasons[r]
			}
			return ok
		},
	}
}

// cause returns the entry of an error value that can be the cause of an error with an address.
func cause(name string, target error, r Reason) entry {
	e := value(name, target, r)
	return entry{
		name: name,
		explain: func(err error, x *explanation) bool {
			ok := e.explain(err, x)
			if ok {
				x.terse = target.Error()
			}
			return ok
		},
	}
}

// plain returns a function that fills in the row of a reason and nothing else.
func plain[E error](r Reason) func(E, error, *explanation) {
	return func(_ E, _ error, x *explanation) { x.row = reasons[r] }
}

// table has an entry for each error, in the order of precedence: an error can wrap another that has
// an entry of its own.
var table = []entry{
	// A write with an unknown outcome comes first, whatever its cause.
	typed(func(e *operation.OutcomeUnknownError, err error, x *explanation) {
		x.row, x.message = reasons[WriteOutcomeUnknown], mongoerr.Outline(e)
		if errors.Is(err, context.DeadlineExceeded) {
			x.code, x.http = timedOut.code, timedOut.http
			x.message = deadlineMessage(err) + "; the write may or may not have been done"
		}
	}),

	// Errors of the gateway itself.
	typed(func(e *Error, _ error, x *explanation) {
		x.row, x.message, x.field = reasons[e.Reason], e.Error(), e.Field
		x.retryAfter = e.RetryAfter
		if e.Reason == MalformedDocument {
			x.at(e.Offset)
		}
		if e.Retry != "" {
			x.retry = e.Retry
		}
	}),
	typed(func(e *caller.Error, _ error, x *explanation) { x.row = reasons[callers[e.Problem]] }),
	typed(func(e *admission.Error, _ error, x *explanation) {
		x.row, x.message, x.retryAfter = reasons[refusals[e.Cause]], e.Error(), e.RetryAfter
	}),
	typed(func(e *policy.Refusal, _ error, x *explanation) {
		x.row, x.message, x.field = reasons[PolicyRefused], e.Error(), e.Field
	}),
	typed(func(e *payload.Error, _ error, x *explanation) {
		x.row, x.field = reasons[InvalidArgument], e.Field
		if e.Offset != payload.NoOffset {
			x.row = reasons[MalformedDocument]
			x.at(int64(e.Offset))
		}
		if e.TooLarge {
			x.row = reasons[TooLarge]
		}
	}),
	typed(func(e *payload.EncodeError, _ error, x *explanation) {
		x.row = reasons[MalformedReply]
		if e.InvalidUTF8 {
			x.row = reasons[InvalidUTF8]
		}
	}),
	value("paging.ErrCursorNotFound", paging.ErrCursorNotFound, CursorNotFound),
	value("paging.ErrTokenVersion", paging.ErrTokenVersion, CursorNotFound),
	value("paging.ErrCursorTokenReused", paging.ErrCursorTokenReused, CursorTokenReused),
	value("paging.ErrCursorEvicted", paging.ErrCursorEvicted, CursorEvicted),
	value("paging.ErrCursorPositionUnknown", paging.ErrCursorPositionUnknown,
		CursorPositionUnknown),
	value("paging.ErrOwnerGone", paging.ErrOwnerGone, CursorOwnerGone),
	value("paging.ErrOtherTransaction", paging.ErrOtherTransaction, InvalidArgument),
	value("handle.ErrNotFound", handle.ErrNotFound, HandleNotFound),
	cause("handle.ErrKilled", handle.ErrKilled, CursorNotFound),
	cause("handle.ErrClosing", handle.ErrClosing, ShuttingDown),
	cause("cursor.ErrClosed", cursor.ErrClosed, CursorNotFound), // it was closed during a read
	// Handles serve one call at a time.
	value("cursor.ErrBusy", cursor.ErrBusy, Internal),
	// For replicas only.
	value("paging.ErrNotHere", paging.ErrNotHere, CursorNotFound),
	typed(plain[*paging.MovedError](CursorNotFound)),
	typed(func(e *handle.LimitError, _ error, x *explanation) {
		x.row, x.message, x.retryAfter = reasons[HandleLimitExceeded], e.Error(), e.RetryAfter
	}),
	typed(plain[*paging.UnreachableError](ReplicaUnreachable)),

	// Errors that the server returned.
	typed(func(e *mongoerr.CommandError, err error, x *explanation) {
		x.command(e)
		x.login(e, err)
	}),
	typed(func(e *mongoerr.WriteException, _ error, x *explanation) { x.writes(e) }),
	// What has ended the operation decides, then the write errors, then what it wraps.
	{"*client.NamespacedBulkWriteError", func(err error, x *explanation) bool {
		e, ok := errors.AsType[*client.NamespacedBulkWriteError](err)
		if !ok || e.Err != nil || len(e.WriteErrors) == 0 {
			return false
		}
		x.writes(&mongoerr.WriteException{WriteErrors: e.WriteErrors})
		return true
	}},
	typed(func(e mongoerr.WriteError, _ error, x *explanation) {
		x.writes(&mongoerr.WriteException{WriteErrors: []mongoerr.WriteError{e}})
	}),
	{"*mongoerr.WriteConcernError", func(err error, x *explanation) bool {
		bulk, ok := errors.AsType[*client.NamespacedBulkWriteError](err)
		if ok && bulk.Err != nil {
			err = bulk.Err // write concern errors do not end the operation
		}
		e, ok := errors.AsType[*mongoerr.WriteConcernError](err)
		if ok {
			x.writeConcern(e)
		}
		return ok
	}},

	// What it wraps decides.
	{"*mongoerr.LabeledError", func(error, *explanation) bool { return false }},
	{"*admission.WaitError", func(error, *explanation) bool { return false }},

	// The deadline and the cancellation of the call.
	{"context.DeadlineExceeded", func(err error, x *explanation) bool {
		if !errors.Is(err, context.DeadlineExceeded) || isUnsent(err) {
			return false
		}
		x.deadlineExceeded(err)
		return true
	}},
	typed(plain[*operation.TimeoutError](DeadlineExceeded)),
	typed(plain[*client.TransactionTimeoutError](DeadlineExceeded)),
	cause("context.Canceled", context.Canceled, Canceled),

	// No server, no connection, or a broken connection.
	cause("topology.ErrClosed", topology.ErrClosed, ShuttingDown),
	typed(plain[*mongoerr.SelectionError](NoSuitableServer)),
	typed(plain[*pool.PinLimitError](PinLimitExceeded)),
	typed(plain[*pool.PoolClearedError](ConnectionPoolCleared)),
	typed(plain[*pool.WaitQueueTimeoutError](ConnectionPoolFull)),
	// The server has left the deployment: the pools of the others are open until no call runs.
	typed(plain[*pool.ClosedError](ConnectionPoolCleared)),
	value("pool.ErrClosed", pool.ErrClosed, ConnectionPoolCleared),
	typed(plain[*mongoerr.OverloadError](NetworkError)),
	typed(plain[*mongoerr.NetworkError](NetworkError)),
	value("conn.ErrClosed", conn.ErrClosed, NetworkError),
	typed(plain[*ocsp.RevokedError](NetworkError)),
	typed(plain[*ocsp.StapleError](NetworkError)),
	typed(plain[*conn.ProxyError](NetworkError)),
	typed(plain[*conn.NotLoadBalancedError](Configuration)),

	// A request that core refuses.
	typed(func(e *client.ArgumentError, _ error, x *explanation) {
		x.row, x.field = reasons[InvalidArgument], e.Argument
		if e.TooLarge {
			x.row = reasons[TooLarge]
		}
	}),
	value("session.ErrEnded", session.ErrEnded, InvalidArgument),
	value("operation.ErrNotRetryable", operation.ErrNotRetryable, IdempotencyKeyUnsupported),
	value("operation.ErrSessionsNotSupported", operation.ErrSessionsNotSupported, InvalidArgument),
	value("operation.ErrSnapshotNotSupported", operation.ErrSnapshotNotSupported, InvalidArgument),
	typed(plain[*operation.TooLargeError](TooLarge)),
	typed(func(e *conn.TooLargeError, _ error, x *explanation) {
		x.row = reasons[TooLarge]
		x.terse = (&operation.TooLargeError{Size: e.Size, Limit: e.Max}).Error()
	}),
	typed(func(e *bson.ValidationError, _ error, x *explanation) {
		x.row, x.field = reasons[MalformedDocument], e.Path
		x.at(int64(e.Offset))
	}),
	typed(func(e *extjson.SyntaxError, _ error, x *explanation) {
		x.row, x.field = reasons[MalformedDocument], e.Path
		if e.TooLarge {
			x.row = reasons[TooLarge]
		}
		x.at(int64(e.Offset))
	}),
	value("changestream.ErrNoResumeToken", changestream.ErrNoResumeToken, InvalidArgument),
	value("session.ErrSnapshotTransaction", session.ErrSnapshotTransaction, InvalidArgument),
	value("session.ErrSharedTransaction", session.ErrSharedTransaction, InvalidArgument),
	value("operation.ErrTransactionReadPreference", operation.ErrTransactionReadPreference,
		InvalidArgument),
	value("operation.ErrTransactionsNotSupported", operation.ErrTransactionsNotSupported,
		InvalidArgument),
	value("session.ErrTransactionInProgress", session.ErrTransactionInProgress, InvalidArgument),
	value("session.ErrNoTransaction", session.ErrNoTransaction, InvalidArgument),
	value("session.ErrCommitAfterAbort", session.ErrCommitAfterAbort, InvalidArgument),
	value("session.ErrAbortAfterCommit", session.ErrAbortAfterCommit, InvalidArgument),
	value("session.ErrAbortTwice", session.ErrAbortTwice, InvalidArgument),
	value("bson.ErrTooLarge", bson.ErrTooLarge, TooLarge),
	value("bson.ErrDBRef", bson.ErrDBRef, InvalidArgument),
	value("bson.ErrVectorType", bson.ErrVectorType, InvalidArgument),
	value("bson.ErrVectorPadding", bson.ErrVectorPadding, InvalidArgument),
	value("bson.ErrVectorLength", bson.ErrVectorLength, InvalidArgument),
	value("bson.ErrVectorBits", bson.ErrVectorBits, InvalidArgument),
	value("bson.ErrVectorElement", bson.ErrVectorElement, InvalidArgument),
	value("bson.ErrDecimal128Syntax", bson.ErrDecimal128Syntax, InvalidArgument),
	value("bson.ErrDecimal128Range", bson.ErrDecimal128Range, InvalidArgument),
	value("bson.ErrDecimal128Inexact", bson.ErrDecimal128Inexact, InvalidArgument),
	value("bson.ErrUUIDSyntax", bson.ErrUUIDSyntax, InvalidArgument),
	value("bson.ErrUUIDRepresentation", bson.ErrUUIDRepresentation, InvalidArgument),
	value("bson.ErrUUIDUnspecified", bson.ErrUUIDUnspecified, InvalidArgument),

	// A server that breaks the protocol, and a wrong configuration.
	typed(plain[*mongoerr.MalformedReplyError](MalformedReply)),
	typed(plain[*wire.FormatError](MalformedReply)),
	typed(plain[*compress.Error](MalformedReply)),
	typed(plain[*auth.Error](Configuration)), // without a server's error or a network's in it
	typed(plain[*seedlist.HostError](Configuration)),
	typed(plain[*seedlist.LookupError](NoSuitableServer)),
}

// callers holds the reasons of clients that are refused.
var callers = [...]Reason{
	caller.Missing: Unauthenticated, caller.Invalid: Unauthenticated,
	caller.TooMany: TooManyAttempts, caller.Unavailable: IssuerUnavailable,
	caller.Busy: Overloaded,
}

// refusals holds the reasons of calls that are not admitted.
var refusals = [...]Reason{
	admission.OwnShare: QuotaExceeded, admission.Full: Overloaded, admission.TooMuch: TooLarge,
}

// FieldError wraps the error of one of a request's parts, which is at Field.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the error of the part.
func (e *FieldError) Unwrap() error { return e.Err }

// PartialError reports that a call with several writes failed in part. Result says what it did.
type PartialError struct {
	Result Result
	Err    error // the cause, or a *mongoerr.WriteException
}

// Result holds what a call did before it failed.
type Result struct {
	// The counts of the documents that writes of each kind have reached; nil: the call has no such
	// writes.
	InsertedCount, MatchedCount, ModifiedCount, DeletedCount, UpsertedCount *int64
	// InsertedIDs has the ids of the documents that were inserted, and UpsertedIDs of those that
	// upserts inserted.
	InsertedIDs, UpsertedIDs []client.IndexedID
	// WriteErrors has the errors of the commands before the last, which ended the call. If a
	// *mongoerr.WriteException ended the call, WriteErrors may be empty: the exception has them.
	WriteErrors []mongoerr.WriteError
	// WriteConcernError is the first one of all commands. It is told unless what ended the call has
	// one itself.
	WriteConcernError *mongoerr.WriteConcernError
	// Response has them instead if the call failed after it had answered; else nil.
	Response interface {
		GetWriteErrors() []*mooringv1.WriteError
		GetWriteConcernError() *mooringv1.WriteConcernError
	}
}

// IsAny reports whether anything was done.
func (r *Result) IsAny() bool {
	for _, n := range []*int64{r.InsertedCount, r.ModifiedCount, r.DeletedCount, r.UpsertedCount} {
		if n != nil && *n > 0 {
			return true
		}
	}
	return false
}

// Before returns err, which ended the call, with the result, if that has anything to tell.
func (r *Result) Before(err error) error {
	if !r.IsAny() && !r.hasErrors() {
		return err
	}
	return &PartialError{Result: *r, Err: err}
}

func (r *Result) hasErrors() bool {
	return len(r.WriteErrors) > 0 || r.WriteConcernError != nil || r.Response != nil &&
		(len(r.Response.GetWriteErrors()) > 0 || r.Response.GetWriteConcernError() != nil)
}

func (e *PartialError) Error() string { return e.Err.Error() }

// Unwrap returns the error that ended the call.
func (e *PartialError) Unwrap() error { return e.Err }
