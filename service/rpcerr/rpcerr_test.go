package rpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/auth"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/conn"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
	"github.com/mooringdb/mooring/core/pool"
	"github.com/mooringdb/mooring/core/seedlist"
	"github.com/mooringdb/mooring/core/topology"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

func command(code int32, name string, labels ...string) error {
	return &mongoerr.CommandError{Code: code, Name: name, Message: "no", Labels: labels}
}

// login returns the error of a login that the server refuses.
func login(k auth.Kind, refusal error) error {
	return &auth.Error{
		Address: "db:27017", Mechanism: "MONGODB-X509", User: "CN=app", Source: "$external",
		Kind: k, Err: refusal,
	}
}

func writes(codes ...int32) error {
	e := &mongoerr.WriteException{}
	for i, code := range codes {
		e.WriteErrors = append(e.WriteErrors,
			mongoerr.WriteError{Index: 3 * i, Code: code, Message: "no"})
	}
	return e
}

// ended returns the error of a bulk write of which one write was done, one failed and is told with
// it, and the rest ended with err. Its write concern was not met.
func ended(err error) error {
	failed := []mongoerr.WriteError{{Code: 11000, Message: "E11000"}}
	unconfirmed := &mongoerr.WriteConcernError{Code: 64}
	return &rpcerr.PartialError{
		Err: &client.NamespacedBulkWriteError{
			Err: err, WriteErrors: failed,
			WriteConcernErrors: []*mongoerr.WriteConcernError{unconfirmed},
		},
		Result: rpcerr.Result{
			InsertedCount: new(int64(1)), WriteErrors: failed, WriteConcernError: unconfirmed,
		},
	}
}

func TestTable(t *testing.T) {
	sent := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.ErrUnexpectedEOF}
	late := &mongoerr.NetworkError{Op: "read", Sent: true, Err: context.DeadlineExceeded}
	dialed := &mongoerr.NetworkError{
		Op: "dial",
		Err: errors.Join(context.DeadlineExceeded,
			errors.New("not connected within 10s (connectTimeoutMS)")),
	}
	shutting := &rpcerr.Error{Reason: rpcerr.ShuttingDown, Message: "shutting down"}
	for _, test := range []struct {
		err    error
		code   codes.Code
		http   int
		reason string
		retry  string
	}{
		{command(2, "BadValue"), codes.InvalidArgument, 400, "BadValue", "never"},
		{command(4, ""), codes.InvalidArgument, 400, "NoSuchKey", "never"},
		{command(9, "FailedToParse"), codes.InvalidArgument, 400, "FailedToParse", "never"},
		{command(14, "TypeMismatch"), codes.InvalidArgument, 400, "TypeMismatch", "never"},
		{command(72, "InvalidOptions"), codes.InvalidArgument, 400, "InvalidOptions", "never"},
		{command(73, "InvalidNamespace"), codes.InvalidArgument, 400, "InvalidNamespace", "never"},
		{command(40324, ""), codes.InvalidArgument, 400, "Location40324", "never"},
		{command(40415, "Location40415"), codes.InvalidArgument, 400, "Location40415", "never"},
		{command(10334, "BSONObjectTooLarge"), codes.InvalidArgument, 413, "BSONObjectTooLarge", "never"},
		{writes(17280), codes.InvalidArgument, 413, "KeyTooLong", "never"},
		{command(13, "Unauthorized"), codes.PermissionDenied, 403, "Unauthorized", "never"},
		{command(31, "RoleNotFound"), codes.PermissionDenied, 403, "RoleNotFound", "never"},
		{command(96, "OperationFailed"), codes.PermissionDenied, 403, "OperationFailed", "never"},
		{command(26, "NamespaceNotFound"), codes.NotFound, 404, "NamespaceNotFound", "never"},
		{command(27, "IndexNotFound"), codes.NotFound, 404, "IndexNotFound", "never"},
		{command(43, "CursorNotFound"), codes.NotFound, 404, "CursorNotFound", "restart"},
		{writes(11000), codes.AlreadyExists, 409, "DuplicateKey", "never"},
		{command(11000, "DuplicateKey"), codes.AlreadyExists, 409, "DuplicateKey", "never"},
		{command(11001, ""), codes.AlreadyExists, 409, "DuplicateKey", "never"},
		{command(48, "NamespaceExists"), codes.AlreadyExists, 409, "NamespaceExists", "never"},
		{command(85, "IndexOptionsConflict"), codes.AlreadyExists, 409, "IndexOptionsConflict", "never"},
		{command(86, "IndexKeySpecsConflict"), codes.AlreadyExists, 409, "IndexKeySpecsConflict", "never"},
		{command(112, "WriteConflict"), codes.Aborted, 409, "WriteConflict", "never"},
		{command(112, "WriteConflict", "TransientTransactionError"), codes.Aborted, 409, "WriteConflict", "transaction"},
		{command(251, "NoSuchTransaction"), codes.Aborted, 409, "NoSuchTransaction", "never"},
		{command(246, "SnapshotUnavailable", "TransientTransactionError"), codes.Aborted, 409, "SnapshotUnavailable", "transaction"},
		{command(286, "ChangeStreamHistoryLost"), codes.FailedPrecondition, 410, "ChangeStreamHistoryLost", "restart"},
		{command(280, "ChangeStreamFatalError"), codes.FailedPrecondition, 410, "ChangeStreamFatalError", "restart"},
		{command(136, "CappedPositionLost"), codes.FailedPrecondition, 410, "CappedPositionLost", "restart"},
		{command(260, "InvalidResumeToken"), codes.FailedPrecondition, 410, "InvalidResumeToken", "restart"},
		{writes(121, 11000), codes.FailedPrecondition, 422, "DocumentValidationFailure", "never"},
		{command(20, "IllegalOperation"), codes.FailedPrecondition, 422, "IllegalOperation", "never"},
		{command(51024, "Location51024"), codes.FailedPrecondition, 422, "Location51024", "never"},
		{command(51024, ""), codes.FailedPrecondition, 422, "Location51024", "never"},
		{command(50, "MaxTimeMSExpired"), codes.DeadlineExceeded, 504, "MaxTimeMSExpired", "never"},
		{&operation.TimeoutError{Err: command(50, "MaxTimeMSExpired")}, codes.DeadlineExceeded, 504, "MaxTimeMSExpired", "never"},
		{command(262, "ExceededTimeLimit"), codes.DeadlineExceeded, 504, "ExceededTimeLimit", "never"},
		{command(59, "CommandNotFound"), codes.Unimplemented, 501, "CommandNotFound", "never"},
		{command(18, "AuthenticationFailed"), codes.Internal, 500, "AuthenticationFailed", "never"},
		{command(10107, "NotWritablePrimary"), codes.Unavailable, 503, "NotWritablePrimary", "same-request"},
		{command(11600, "InterruptedAtShutdown"), codes.Unavailable, 503, "InterruptedAtShutdown", "same-request"},
		{command(11600, "InterruptedAtShutdown", "NoWritesPerformed"), codes.Unavailable, 503, "InterruptedAtShutdown", "same-request"},
		{command(462, "IngressRequestRateLimitExceeded", "SystemOverloadedError", "RetryableError"), codes.Unavailable, 503, "IngressRequestRateLimitExceeded", "same-request"},
		{command(462, "IngressRequestRateLimitExceeded", "SystemOverloadedError", "RetryableError", "TransientTransactionError"), codes.Aborted, 409, "IngressRequestRateLimitExceeded", "transaction"},
		{command(462, "IngressRequestRateLimitExceeded", "SystemOverloadedError"), codes.Unavailable, 503, "IngressRequestRateLimitExceeded", "same-request"},
		{command(261, "TooManyLogicalSessions"), codes.Unavailable, 503, "TooManyLogicalSessions", "same-request"},
		{command(91, "ShutdownInProgress", "TransientTransactionError"), codes.Aborted, 409, "ShutdownInProgress", "transaction"},
		{&mongoerr.CommandError{Message: "not master"}, codes.Unavailable, 503, "Location0", "same-request"},
		{&mongoerr.CommandError{Message: "node is recovering"}, codes.Unavailable, 503, "Location0", "same-request"},
		{&mongoerr.CommandError{Message: "not master or secondary; cannot currently read"}, codes.Unavailable, 503, "Location0", "same-request"},
		{&mongoerr.CommandError{Code: 20, Message: "node is recovering"}, codes.FailedPrecondition, 422, "IllegalOperation", "never"},
		{&mongoerr.WriteConcernError{Message: "node is recovering"}, codes.Unavailable, 503, "Location0", "never"},
		{&conn.NotLoadBalancedError{}, codes.Internal, 500, "Configuration", "never"},
		{login(auth.KindRejected, command(18, "AuthenticationFailed")), codes.Internal, 500, "AuthenticationFailed", "never"},
		{login(auth.KindRejected, command(11, "UserNotFound")), codes.Internal, 500, "Configuration", "never"},
		{login(auth.KindRejected, command(13, "Unauthorized")), codes.Internal, 500, "Configuration", "never"},
		{login(auth.KindRejected, command(17, "ProtocolError")), codes.Internal, 500, "Configuration", "never"},
		{login(auth.KindMechanism, command(2, "BadValue")), codes.Internal, 500, "Configuration", "never"},
		{login(auth.KindMechanism, command(59, "CommandNotFound")), codes.Internal, 500, "Configuration", "never"},
		{login(auth.KindMechanism, command(334, "MechanismUnavailable")), codes.Internal, 500, "Configuration", "never"},
		{login(auth.KindRejected, command(91, "ShutdownInProgress")), codes.Unavailable, 503, "ShutdownInProgress", "same-request"},
		{login(auth.KindRejected, &mongoerr.CommandError{Message: "node is recovering"}), codes.Unavailable, 503, "Location0", "same-request"},
		{login(auth.KindRejected, command(462, "IngressRequestRateLimitExceeded")), codes.Unavailable, 503, "IngressRequestRateLimitExceeded", "same-request"},
		{login(auth.KindRejected, command(50, "MaxTimeMSExpired")), codes.DeadlineExceeded, 504, "MaxTimeMSExpired", "never"},
		{login(auth.KindConnection, dialed), codes.Unavailable, 503, "NetworkError", "same-request"},
		{login(auth.KindServer, errors.New("no \"s=\"")), codes.Internal, 500, "Configuration", "never"},
		{&seedlist.LookupError{Err: errors.New("server failure")}, codes.Unavailable, 503, "NoSuitableServer", "same-request"},

		{context.DeadlineExceeded, codes.DeadlineExceeded, 504, "DeadlineExceeded", "never"},
		{late, codes.DeadlineExceeded, 504, "DeadlineExceeded", "never"},
		{&mongoerr.SelectionError{Err: context.DeadlineExceeded}, codes.DeadlineExceeded, 504, "DeadlineExceeded", "same-request"},
		{&pool.WaitQueueTimeoutError{Err: context.DeadlineExceeded}, codes.DeadlineExceeded, 504, "DeadlineExceeded", "same-request"},
		{context.Canceled, codes.Canceled, 499, "Canceled", "never"},
		{&mongoerr.SelectionError{Timeout: time.Second}, codes.Unavailable, 503, "NoSuitableServer", "same-request"},
		{&pool.WaitQueueTimeoutError{}, codes.Unavailable, 503, "ConnectionPoolFull", "same-request"},
		{&pool.PoolClearedError{}, codes.Unavailable, 503, "ConnectionPoolCleared", "same-request"},
		{&pool.ClosedError{}, codes.Unavailable, 503, "ConnectionPoolCleared", "same-request"},
		{pool.ErrClosed, codes.Unavailable, 503, "ConnectionPoolCleared", "same-request"},
		{&mongoerr.SelectionError{Err: topology.ErrClosed}, codes.Unavailable, 503, "ShuttingDown", "same-request"},
		{sent, codes.Unavailable, 503, "NetworkError", "same-request"},
		{dialed, codes.Unavailable, 503, "NetworkError", "same-request"},

		{&operation.OutcomeUnknownError{Err: sent}, codes.Unknown, 500, "WriteOutcomeUnknown", "never"},
		{&operation.OutcomeUnknownError{Err: late}, codes.DeadlineExceeded, 504, "WriteOutcomeUnknown", "never"},
		{&operation.OutcomeUnknownError{Err: shutting}, codes.Unknown, 500, "WriteOutcomeUnknown", "never"},

		{&client.ArgumentError{Argument: "update", Problem: "no operators"}, codes.InvalidArgument, 400, "InvalidArgument", "never"},
		{&payload.Error{Field: "filter.a", Offset: 7, Problem: "no"}, codes.InvalidArgument, 400, "MalformedDocument", "never"},
		{&payload.Error{Field: "filter", Offset: 7, Problem: "too large", TooLarge: true}, codes.InvalidArgument, 413, "TooLarge", "never"},
		{&extjson.SyntaxError{Path: "a", Problem: "no"}, codes.InvalidArgument, 400, "MalformedDocument", "never"},
		{&extjson.SyntaxError{Path: "a", TooLarge: true}, codes.InvalidArgument, 413, "TooLarge", "never"},
		{&payload.Error{Field: "filter", Offset: payload.NoOffset, Problem: "neither"}, codes.InvalidArgument, 400, "InvalidArgument", "never"},
		{&operation.TooLargeError{}, codes.InvalidArgument, 413, "TooLarge", "never"},
		{paging.ErrCursorNotFound, codes.NotFound, 404, "CursorNotFound", "restart"},
		{paging.ErrCursorTokenReused, codes.Aborted, 409, "CursorTokenReused", "restart"},
		{paging.ErrCursorEvicted, codes.Aborted, 409, "CursorEvicted", "restart"},
		{paging.ErrCursorPositionUnknown, codes.Aborted, 409, "CursorPositionUnknown", "restart"},
		{paging.ErrOwnerGone, codes.NotFound, 404, "CursorOwnerGone", "restart"},
		{handle.ErrNotFound, codes.NotFound, 404, "HandleNotFound", "never"},
		{&mongoerr.NetworkError{Sent: true, Err: errors.Join(context.Canceled, cursor.ErrClosed)}, codes.NotFound, 404, "CursorNotFound", "restart"},
		{&client.NamespacedBulkWriteError{WriteErrors: []mongoerr.WriteError{{Code: 11000}}}, codes.AlreadyExists, 409, "DuplicateKey", "never"},
		{ended(sent), codes.Unavailable, 503, "NetworkError", "never"},
		{ended(&operation.TimeoutError{Err: errors.New("late")}), codes.DeadlineExceeded, 504, "DeadlineExceeded", "never"},
		{ended(late), codes.DeadlineExceeded, 504, "DeadlineExceeded", "never"},
		{ended(context.Canceled), codes.Canceled, 499, "Canceled", "never"},
		{ended(&mongoerr.SelectionError{Timeout: time.Second}), codes.Unavailable, 503, "NoSuitableServer", "never"},
		{ended(&pool.PoolClearedError{}), codes.Unavailable, 503, "ConnectionPoolCleared", "never"},
		{ended(&mongoerr.MalformedReplyError{}), codes.Internal, 500, "MalformedReply", "never"},
		{ended(command(10107, "NotWritablePrimary")), codes.Unavailable, 503, "NotWritablePrimary", "never"},
		{ended(&operation.OutcomeUnknownError{Err: sent}), codes.Unknown, 500, "WriteOutcomeUnknown", "never"},
		{&client.NamespacedBulkWriteError{Err: sent}, codes.Unavailable, 503, "NetworkError", "same-request"},
		{&client.NamespacedBulkWriteError{WriteConcernErrors: []*mongoerr.WriteConcernError{{Code: 64, Name: "WriteConcernFailed"}}}, codes.Unavailable, 503, "WriteConcernFailed", "never"},
		{changestream.ErrNoResumeToken, codes.InvalidArgument, 400, "InvalidArgument", "never"},
		{&caller.Error{}, codes.Unauthenticated, 401, "Unauthenticated", "never"},
		{&caller.Error{Problem: caller.Invalid}, codes.Unauthenticated, 401, "Unauthenticated", "never"},
		{&caller.Error{Problem: caller.TooMany}, codes.ResourceExhausted, 429, "TooManyAttempts", "same-request"},
		{&admission.Error{}, codes.ResourceExhausted, 429, "QuotaExceeded", "same-request"},
		{&admission.Error{Cause: admission.Full}, codes.Unavailable, 503, "Overloaded", "same-request"},
		{&admission.Error{Cause: admission.TooMuch}, codes.InvalidArgument, 413, "TooLarge", "never"},
		{&caller.Error{Problem: caller.Unavailable}, codes.Unavailable, 503, "IssuerUnavailable", "same-request"},
		{&caller.Error{Problem: caller.Busy}, codes.Unavailable, 503, "Overloaded", "same-request"},
		{cursor.ErrBusy, codes.Internal, 500, "Internal", "never"},
		{paging.ErrNotHere, codes.NotFound, 404, "CursorNotFound", "restart"},
		{&paging.MovedError{}, codes.NotFound, 404, "CursorNotFound", "restart"},
		{&handle.LimitError{Max: 100}, codes.ResourceExhausted, 429, "HandleLimitExceeded", "same-request"},
		{&pool.PinLimitError{Max: 80, Cursors: 80}, codes.ResourceExhausted, 429, "PinLimitExceeded", "same-request"},
		{&paging.UnreachableError{Address: "b:1", Err: context.DeadlineExceeded}, codes.Unavailable, 503, "ReplicaUnreachable", "same-request"},
		{shutting, codes.Unavailable, 503, "ShuttingDown", "restart"},
		{&rpcerr.Error{Reason: rpcerr.ShuttingDown, Retry: rpcerr.SameRequest}, codes.Unavailable, 503, "ShuttingDown", "same-request"},
		{&mongoerr.NetworkError{Sent: true, Err: errors.Join(context.Canceled, shutting)}, codes.Unavailable, 503, "ShuttingDown", "restart"},
		{&rpcerr.Error{Reason: rpcerr.Unimplemented, Field: "session"}, codes.Unimplemented, 501, "Unimplemented", "never"},
		{&mongoerr.MalformedReplyError{}, codes.Internal, 500, "MalformedReply", "never"},
		{errors.New("what?"), codes.Internal, 500, "Internal", "never"},
		{status.Error(codes.ResourceExhausted, "too large"), codes.ResourceExhausted, 429, "ResourceExhausted", "never"},
	} {
		for _, err := range []error{test.err, fmt.Errorf("wrapped: %w", test.err)} {
			t.Run(err.Error(), func(t *testing.T) {
				f := rpcerr.Explain(err, call.Call{Local: call.Local{RequestID: "r1"}})
				want := fmt.Sprint(test.code, int32(test.code), test.http, test.reason, test.retry)
				if id := f.HTTP().Body.GetError().GetRequestId(); id != "r1" {
					t.Errorf("request id %q", id)
				}
				for form, r := range map[string]rpcerr.Response{
					"the error": f.HTTP(), "its status": rpcerr.HTTP(f.GRPCStatus().Err()),
				} {
					e := r.Body.GetError()
					if got := fmt.Sprint(f.Code(), e.GetCode(), r.Code, e.GetReason(),
						e.GetRetry()); got != want {
						t.Errorf("%s: %s, want %s", form, got, want)
					}
					if (r.RetryAfter > 0) != (test.code == codes.Unavailable ||
						test.code == codes.ResourceExhausted &&
							test.reason != "ResourceExhausted") {
						t.Errorf("%s: RetryAfter = %v", form, r.RetryAfter)
					}
				}
			})
		}
	}
	if st := rpcerr.Status(nil); st.Code() != codes.OK {
		t.Errorf("Status(nil) = %v", st)
	}
}

// A refusal of the gateway's login tells a client neither the server's words nor the user.
func TestRefusedLogin(t *testing.T) {
	err := login(auth.KindRejected, &mongoerr.CommandError{
		Address: "db:27017", Code: 11, Name: "UserNotFound",
		Message: "Could not find user \"CN=app\" for db \"$external\"",
	})
	for _, terse := range []bool{false, true} {
		e := rpcerr.HTTP(rpcerr.Explain(err, call.Call{Terse: terse})).Body.GetError()
		if e.GetServer() != nil || strings.Contains(e.String(), "CN=app") ||
			strings.Contains(e.GetMessage(), "login (code 11)") == terse {
			t.Errorf("terse %v: %v", terse, e)
		}
	}
}

// A client is told that it was its own deadline, and what was waited for then.
func TestDeadlineMessages(t *testing.T) {
	late := &mongoerr.NetworkError{
		Address: "db:27017", Op: "read", Sent: true, Err: context.DeadlineExceeded,
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{context.DeadlineExceeded, "the deadline of the call passed"},
		{fmt.Errorf("insert: %w", context.DeadlineExceeded), "the deadline of the call passed"},
		{late, "the deadline of the call passed while it waited for the answer of db:27017"},
		{
			&mongoerr.SelectionError{Selector: "writes", Topology: "Unknown []", Err: context.DeadlineExceeded},
			"the deadline of the call passed while it waited for a server for writes; topology: Unknown []",
		},
		{
			&pool.WaitQueueTimeoutError{Address: "db:27017", Err: context.DeadlineExceeded},
			"the deadline of the call passed while it waited for a connection to db:27017",
		},
		{&operation.TimeoutError{Err: errors.New("no time left for the round trip")}, "the deadline of the call passed: no time left for the round trip"},
		{
			&operation.OutcomeUnknownError{Err: late},
			"the deadline of the call passed while it waited for the answer of db:27017; the write may or may not have been done",
		},
	} {
		if got := rpcerr.Status(test.err).Message(); got != test.want {
			t.Errorf("message of %v:\n%q, want\n%q", test.err, got, test.want)
		}
	}
}

func TestReasonsHaveTheirOwnRow(t *testing.T) {
	for _, r := range rpcerr.Reasons() {
		e := rpcerr.HTTP(&rpcerr.Error{Reason: r, Message: "m"}).Body.GetError()
		if e.GetReason() != string(r) || e.GetMessage() != "m" {
			t.Errorf("%s: %v", r, e)
		}
	}
}

func duplicate(index, size int) mongoerr.WriteError {
	raw := bson.NewBuilder(nil).Int32("index", int32(index)).Int32("code", 11000).
		OpenDocument("keyPattern").Int32("sku", 1).Close().
		OpenDocument("keyValue").String("sku", strings.Repeat("x", size)).Close().Finish()
	return mongoerr.WriteError{
		Index: index, Code: 11000, Message: "E11000 duplicate key " + strings.Repeat("ü", size),
		Raw: raw,
	}
}

func TestDetails(t *testing.T) {
	err := &mongoerr.WriteException{
		WriteErrors: []mongoerr.WriteError{duplicate(4, 3), duplicate(7, 3)},
		WriteConcernError: &mongoerr.WriteConcernError{
			Code: 64, Name: "WriteConcernFailed", Message: "late",
		},
		Labels: []string{"A", "B\xff"},
	}
	ids := []client.IndexedID{{Index: 0, ID: bson.Int32Value(5)}}
	r := rpcerr.HTTP(&rpcerr.PartialError{
		Result: rpcerr.Result{InsertedCount: new(int64(len(ids))), InsertedIDs: ids}, Err: err,
	})
	e := r.Body.GetError()
	if e.GetStatus() != "ALREADY_EXISTS" || r.Code != 409 || e.GetServer().GetCode() != 11000 ||
		e.GetServer().GetCodeName() != "DuplicateKey" {
		t.Errorf("error %v", e)
	}
	if w := e.GetWriteErrors(); len(w) != 2 || w[1].GetIndex() != 7 ||
		w[1].GetKeyPattern() == nil || w[1].GetCodeName() != "DuplicateKey" {
		t.Errorf("write errors %v", w)
	}
	if w := e.GetWriteConcernError(); w.GetCode() != 64 || w.GetMessage() != "late" {
		t.Errorf("write concern error %v", w)
	}
	if e.GetServer().GetKeyPattern() == nil || e.GetServer().GetKeyValue() == nil ||
		len(e.GetServer().GetLabels()) != 2 || e.GetTruncated() {
		t.Errorf("server %v", e.GetServer())
	}
	if res := r.Body.GetResult(); res.GetInsertedCount() != 1 || len(res.GetInsertedIds()) != 1 {
		t.Errorf("result %v", res)
	}
	if e.GetServer().GetWriteErrors() != nil || e.GetServer().GetWriteConcernError() != nil {
		t.Errorf("what REST has beside server is in it, too: %v", e.GetServer())
	}
	field := rpcerr.HTTP(&payload.Error{
		Field: "filter.a", Offset: 0, Problem: "no",
	}).Body.GetError()
	if field.GetField() != "filter.a" || field.Offset == nil {
		t.Errorf("field %v", field)
	}
}

// TestNotOfAServer checks that an error that no server returned has no server's details, also if a
// part of the call was done, and that it is concealed as such.
func TestNotOfAServer(t *testing.T) {
	err := &mongoerr.NetworkError{Op: "read", Err: errors.New("dial 10.0.0.7:27017")}
	partial := &rpcerr.PartialError{Result: rpcerr.Result{InsertedCount: new(int64(1))}, Err: err}
	r := rpcerr.HTTP(partial)
	if s := r.Body.GetError().GetServer(); s != nil || r.Body.GetResult().GetInsertedCount() != 1 {
		t.Errorf("server %v, result %v", s, r.Body.GetResult())
	}
	terse := rpcerr.HTTP(rpcerr.Explain(partial, call.Call{Terse: true}))
	if text := terse.Body.GetError().GetMessage(); strings.Contains(text, "10.0.0.7") {
		t.Errorf("the message has an address: %s", text)
	}
}

// TestPartsWithoutServer checks the details of a call of which a part was done before an error that
// no server returned: the errors of single writes and of the write concern are in them, and nothing
// if there are none.
func TestPartsWithoutServer(t *testing.T) {
	concern := &mongoerr.WriteConcernError{Code: 64}
	for _, done := range []rpcerr.Result{
		{}, {WriteErrors: []mongoerr.WriteError{duplicate(4, 3)}}, {WriteConcernError: concern},
	} {
		err := done.Before(&mongoerr.NetworkError{Op: "read", Err: errors.New("broken")})
		st := rpcerr.Explain(err, call.Call{}).GRPCStatus()
		var server *mooringv1.ServerError
		for _, d := range st.Details() {
			if s, ok := d.(*mooringv1.ServerError); ok {
				server = s
			}
		}
		none := done.WriteErrors == nil && done.WriteConcernError == nil
		if (server == nil) != none || len(server.GetWriteErrors()) != len(done.WriteErrors) ||
			(server.GetWriteConcernError().GetCode() == 64) != (done.WriteConcernError != nil) {
			t.Errorf("%+v: the server's details are %v", done, server)
		}
	}
}

// TestEndedBulk checks what is told of a bulk write on many collections that ended early: why it
// did, in words without those of a write, and with the errors beside it.
func TestEndedBulk(t *testing.T) {
	lost := &mongoerr.NetworkError{Op: "read", Sent: true, Err: io.EOF}
	unknown := rpcerr.HTTP(ended(&operation.OutcomeUnknownError{Err: lost})).Body.GetError()
	if text := unknown.GetMessage(); !strings.Contains(text, "EOF") ||
		strings.Contains(text, "E11000") {
		t.Errorf("of an unknown outcome: %q", text)
	}
	err := ended(&mongoerr.SelectionError{Selector: "writes", Topology: "of db:27017"})
	for terse, want := range map[bool]string{
		false: (&mongoerr.SelectionError{Selector: "writes", Topology: "of db:27017"}).Error(),
		true:  "no MongoDB server is available",
	} {
		f := rpcerr.Explain(err, call.Call{Terse: terse})
		for form, r := range map[string]rpcerr.Response{
			"the error": f.HTTP(), "its status": rpcerr.HTTP(rpcerr.Explain(f.GRPCStatus().Err(), call.Call{Terse: terse})),
		} {
			e := r.Body.GetError()
			if e.GetMessage() != want || len(e.GetWriteErrors()) != 1 ||
				e.GetWriteConcernError().GetCode() != 64 ||
				r.Body.GetResult().GetInsertedCount() != 1 {
				t.Errorf("terse %t, %s: %v", terse, form, r.Body)
			}
		}
	}
}

// TestCommitLabel checks that the error of a commit whose outcome is unknown has the label that
// says so, once.
func TestCommitLabel(t *testing.T) {
	const label = mongoerr.LabelUnknownTransactionCommitResult
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"of the server":  {command(91, "ShutdownInProgress", "A", label), []string{"A", label}},
		"of the gateway": {mongoerr.WithLabel(command(91, "ShutdownInProgress", "A"), label), []string{"A", label}},
		"of no server":   {mongoerr.WithLabel(&mongoerr.NetworkError{Op: "read", Err: io.EOF}, label), []string{label}},
	} {
		if got := rpcerr.HTTP(c.err).Body.GetError().GetServer().
			GetLabels(); !slices.Equal(got, c.want) {
			t.Errorf("%s: labels %q, want %q", name, got, c.want)
		}
	}
}

// TestCause checks that an error of the gateway leads to its cause.
func TestCause(t *testing.T) {
	if err := (&rpcerr.Error{Reason: rpcerr.Internal, Err: io.EOF}); !errors.Is(err, io.EOF) {
		t.Errorf("%v does not lead to its cause", err)
	}
}

// TestDetailsOnGRPC looks at the details that clients know from other services.
func TestDetailsOnGRPC(t *testing.T) {
	err := &rpcerr.Error{Reason: rpcerr.InvalidArgument, Field: "filter.total", Message: "is wrong"}
	st := rpcerr.Explain(err, call.Call{Local: call.Local{RequestID: "r1"}}).GRPCStatus()
	want := []proto.Message{
		&errdetails.ErrorInfo{
			Reason: "InvalidArgument", Domain: "mooring.v1",
			Metadata: map[string]string{"retry": "never", "httpStatus": "400"},
		},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "filter.total", Description: "filter.total: is wrong"},
		}},
		&errdetails.RequestInfo{RequestId: "r1"},
	}
	details := st.Details()
	if len(details) != len(want) {
		t.Fatalf("details %v", details)
	}
	for i := range want {
		if got, ok := details[i].(proto.Message); !ok || !proto.Equal(got, want[i]) {
			t.Errorf("detail %d: %v, want %v", i, details[i], want[i])
		}
	}
}

// TestEncodingOfDetails has details in the form that the call asked for, and leaves out what that
// form cannot carry.
func TestEncodingOfDetails(t *testing.T) {
	pattern := func(key string) bson.Raw {
		return bson.NewBuilder(nil).OpenDocument("keyPattern").Int32("sku", 1).Close().
			OpenDocument("keyValue").String("sku", key).Close().
			OpenDocument("errInfo").Int64("n", 7).Close().Finish()
	}
	err := func(key string) error {
		return &rpcerr.PartialError{
			Err: &mongoerr.WriteException{
				WriteErrors: []mongoerr.WriteError{
					{Code: 11000, Message: "E11000", Raw: pattern(key)},
				},
				WriteConcernError: &mongoerr.WriteConcernError{Code: 64, Raw: pattern(key)},
			},
			Result: rpcerr.Result{
				InsertedCount: new(int64(1)),
				InsertedIDs:   []client.IndexedID{{Index: 3, ID: bson.StringValue(key)}},
			},
		}
	}
	server := func(m *mooringv1.ServerError) []*mooringv1.Document {
		w, c := m.GetWriteErrors()[0], m.GetWriteConcernError()
		return []*mooringv1.Document{
			m.GetKeyPattern(), m.GetKeyValue(), m.GetErrInfo(), w.GetKeyPattern(), w.GetKeyValue(), w.GetErrInfo(), c.GetErrInfo(),
		}
	}
	for _, test := range []struct {
		enc       payload.Encoding
		key, want string // keyValue, errInfo and the inserted id
		truncated bool
	}{
		{payload.JSON, "a", `{"sku":"a"} {"n":7} "a"`, false},
		{payload.CanonicalJSON, "a", `{"sku":"a"} {"n":{"$numberLong":"7"}} "a"`, false},
		{payload.JSON, "\xff", ` {"n":7} `, true},
		{payload.BSON, "\xff", `  `, false},
	} {
		for name, err := range map[string]error{
			"the error": err(test.key), "as a replica sends it": rpcerr.Status(err(test.key)).Err(),
			"as a replica sends it in that form": rpcerr.Explain(err(test.key),
				call.Call{Encoding: test.enc}).GRPCStatus().Err(),
		} {
			var m *mooringv1.ServerError
			var res *mooringv1.BulkWriteResult
			for _, d := range rpcerr.Explain(err, call.Call{Encoding: test.enc}).GRPCStatus().
				Details() {
				switch d := d.(type) {
				case *mooringv1.ServerError:
					m = d
				case *mooringv1.BulkWriteResult:
					res = d
				}
			}
			got := fmt.Sprint(m.GetKeyValue().GetJson(), " ", m.GetErrInfo().GetJson(), " ",
				res.GetInsertedIds()[0].GetId().GetJson())
			if got = strings.ReplaceAll(got, `: `, `:`); got != test.want ||
				res.GetTruncated() != test.truncated {
				t.Errorf("%v, %s: %s, truncated %v, want %s", test.enc, name, got,
					res.GetTruncated(), test.want)
			}
			for i, d := range server(m) {
				if d != nil && (d.GetBson() == nil) != (test.enc != payload.BSON) {
					t.Errorf("%v, %s: document %d is %v", test.enc, name, i, d)
				}
			}
		}
	}
	bad := &mooringv1.Document{
		Encoding: &mooringv1.Document_Bson{Bson: bson.NewBuilder(nil).String("a", "\xff").Finish()},
	}
	sent, detailErr := status.New(codes.Internal, "").
		WithDetails(&mooringv1.ServerError{Code: 1, KeyPattern: bad})
	if detailErr != nil {
		t.Fatal(detailErr)
	}
	for enc, want := range map[payload.Encoding]bool{payload.BSON: false, payload.JSON: true} {
		details := rpcerr.Explain(sent.Err(), call.Call{Encoding: enc}).GRPCStatus().Details()
		if m, _ := details[len(details)-1].(*mooringv1.ServerError); m == nil ||
			m.GetTruncated() != want || (m.KeyPattern == nil) != want {
			t.Errorf("%v: a document that has no such form: %v", enc, details)
		}
	}
	for _, enc := range []payload.Encoding{payload.BSON, payload.JSON} {
		w := rpcerr.WriteError(mongoerr.WriteError{Code: 11000, Raw: pattern("a")}, enc)
		c := rpcerr.WriteConcernError(&mongoerr.WriteConcernError{Code: 64, Raw: pattern("a")}, enc)
		if (w.GetKeyValue().GetJson() != "") != (enc == payload.JSON) ||
			(c.GetErrInfo().GetJson() != "") != (enc == payload.JSON) {
			t.Errorf("%v: %v, %v", enc, w, c)
		}
	}
	if rpcerr.WriteConcernError(nil, payload.JSON) != nil {
		t.Error("a write concern error of nothing")
	}
}

// TestWhatFits has details beside too many write errors. Each small one is kept, and each large
// one is left out, whatever the others are.
func TestWhatFits(t *testing.T) {
	const many = 500
	document := func(size int) bson.Raw {
		return bson.NewBuilder(nil).Binary("v", 0, make([]byte, size)).Finish()
	}
	names := []string{"keyPattern", "keyValue", "errInfo"}
	for large := range 1 << len(names) {
		b := bson.NewBuilder(nil)
		for i, name := range names {
			b.Document(name, document(10+4000*(large>>i&1)))
		}
		e := &mongoerr.WriteException{Labels: []string{"Small", strings.Repeat("x", 4000)}}
		for i := range many {
			e.WriteErrors = append(e.WriteErrors,
				mongoerr.WriteError{Index: i, Code: 11000, Message: "E11000"})
		}
		e.WriteErrors[0].Raw = b.Finish()
		st := rpcerr.Status(e)
		m, _ := st.Details()[1].(*mooringv1.ServerError)
		for i, got := range []*mooringv1.Document{
			m.GetKeyPattern(), m.GetKeyValue(), m.GetErrInfo(),
		} {
			if (got == nil) != (large>>i&1 == 1) {
				t.Errorf("large %03b: %s is %v", large, names[i], got)
			}
		}
		if len(m.GetLabels()) != 1 || len(m.GetWriteErrors()) == 0 ||
			len(m.GetWriteErrors()) == many || !m.GetTruncated() || proto.Size(st.Proto()) >= 4096 {
			t.Errorf("large %03b: labels %v, %d write errors, truncated %v", large, m.GetLabels(),
				len(m.GetWriteErrors()), m.GetTruncated())
		}
	}
}

func TestStatusStaysSmall(t *testing.T) {
	long := strings.Repeat("ü", 5000)
	many := &mongoerr.WriteException{}
	var ids []client.IndexedID
	for i := range 1000 {
		many.WriteErrors = append(many.WriteErrors, duplicate(i, 100))
		ids = append(ids, client.IndexedID{Index: i, ID: bson.StringValue(long[:100])})
	}
	huge := &mongoerr.WriteException{
		WriteErrors:       []mongoerr.WriteError{duplicate(0, 10_000)},
		WriteConcernError: &mongoerr.WriteConcernError{Message: long, Name: long},
		Labels:            []string{long, "short"},
	}
	for name, err := range map[string]error{
		"many write errors":        many,
		"many with a result":       &rpcerr.PartialError{Err: many, Result: rpcerr.Result{InsertedCount: new(int64(len(ids))), InsertedIDs: ids}},
		"huge":                     huge,
		"a long message":           errors.New(long),
		"a long field":             &payload.Error{Field: long, Problem: long},
		"a long server message":    &mongoerr.CommandError{Code: 9, Name: long, Message: long},
		"a long command and label": &mongoerr.CommandError{Code: 1, Name: "X", Labels: []string{long}, Reply: bson.NewBuilder(nil).Document("errInfo", bson.NewBuilder(nil).String("a", long).Finish()).Finish()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, enc := range []payload.Encoding{
				payload.BSON, payload.JSON, payload.CanonicalJSON,
			} {
				f := rpcerr.Explain(err,
					call.Call{Local: call.Local{RequestID: strings.Repeat("r", 64)}, Encoding: enc})
				if n := proto.Size(f.GRPCStatus().Proto()); n >= 4096 {
					t.Errorf("encoding %v: a status of %d bytes", enc, n)
				}
				cut, whole := rpcerr.HTTP(f.GRPCStatus().Err()), f.HTTP()
				if cut.Body.GetError().GetServer() != nil && !cut.Body.GetError().GetTruncated() {
					t.Errorf("encoding %v: cut, but not marked as truncated", enc)
				}
				if strings.HasPrefix(name, "many") &&
					len(cut.Body.GetError().GetWriteErrors()) == 0 {
					t.Errorf("encoding %v: no write error is left", enc)
				}
				if whole.Body.GetError().GetTruncated() ||
					len(whole.Body.GetError().GetMessage()) < len(cut.Body.GetError().
						GetMessage()) {
					t.Errorf("REST: %v", whole.Body)
				}
				if strings.HasPrefix(name, "many") &&
					len(whole.Body.GetError().GetWriteErrors()) != 1000 {
					t.Errorf("REST: %d write errors, want 1000",
						len(whole.Body.GetError().GetWriteErrors()))
				}
			}
		})
	}
}

// TestCursorNotFoundHintsAtABalancer checks the message of a server's CursorNotFound.
func TestCursorNotFoundHintsAtABalancer(t *testing.T) {
	st := rpcerr.Status(&mongoerr.CommandError{
		Code: 43, Name: "CursorNotFound", Message: "cursor id 5 not found",
	})
	const want = "cursor id 5 not found (if the server's address is that of a load balancer, the " +
		"connection string needs loadBalanced=true)"
	if st.Message() != want {
		t.Errorf("message %q, want %q", st.Message(), want)
	}
}

// TestText checks the text of errors that are part of an answer: none for nil, and at most as
// long as the message of a status.
func TestText(t *testing.T) {
	if got := rpcerr.Text(nil); got != "" {
		t.Errorf("Text(nil) = %q, want none", got)
	}
	if got := rpcerr.Text(errors.New("refused")); got != "refused" {
		t.Errorf("Text = %q, want the error's", got)
	}
	if got := rpcerr.Text(errors.New(strings.Repeat("é", 10_000))); len(got) == 0 ||
		len(got) > 4096 || !utf8.ValidString(got) {
		t.Errorf("Text of a long error has %d bytes, want valid UTF-8 of at most 4096", len(got))
	}
}

// TestRetryAfter checks that a client is told the wait that the refusal of its call has computed.
func TestRetryAfter(t *testing.T) {
	err := &admission.Error{RetryAfter: 7 * time.Second}
	if got := rpcerr.HTTP(err).RetryAfter; got != 7*time.Second {
		t.Errorf("RetryAfter = %v, want 7s", got)
	}
	large := rpcerr.HTTP(&rpcerr.Error{Reason: rpcerr.MessageTooLarge})
	if large.RetryAfter != 0 {
		t.Errorf("a message that is too large: RetryAfter = %v", large.RetryAfter)
	}
}

func TestIsListed(t *testing.T) {
	for reason, want := range map[string]bool{
		"Overloaded": true, "DuplicateKey": true, "NameOfAServer": false, "": false,
	} {
		if got := rpcerr.IsListed(reason); got != want {
			t.Errorf("IsListed(%q) = %v", reason, got)
		}
	}
}
