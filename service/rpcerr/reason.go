package rpcerr

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Reason names the cause of an error in one word: a reason of the gateway's own, as below, or the
// name of a server's code. Clients rely on the names, so the list only grows.
type Reason string

// The gateway's own reasons.
const (
	InvalidArgument      Reason = "InvalidArgument"
	MalformedDocument    Reason = "MalformedDocument"
	TooLarge             Reason = "TooLarge"
	MessageTooLarge      Reason = "MessageTooLarge"
	Unimplemented        Reason = "Unimplemented"
	RouteNotFound        Reason = "RouteNotFound"
	MethodNotAllowed     Reason = "MethodNotAllowed"
	NotAcceptable        Reason = "NotAcceptable"
	URITooLong           Reason = "URITooLong"
	HeaderTooLarge       Reason = "HeaderTooLarge"
	UnsupportedMediaType Reason = "UnsupportedMediaType"
	BodyTimeout          Reason = "BodyTimeout"
	InvalidUTF8          Reason = "InvalidUTF8"

	IdempotencyKeyUnsupported Reason = "IdempotencyKeyUnsupported"
	IdempotencyKeyReused      Reason = "IdempotencyKeyReused"
	IdempotencyUnavailable    Reason = "IdempotencyUnavailable"

	Unauthenticated   Reason = "Unauthenticated"
	TooManyAttempts   Reason = "TooManyAttempts"
	IssuerUnavailable Reason = "IssuerUnavailable"
	QuotaExceeded     Reason = "QuotaExceeded"
	Overloaded        Reason = "Overloaded"
	UnknownHost       Reason = "UnknownHost"
	CrossOrigin       Reason = "CrossOrigin"
	PolicyRefused     Reason = "PolicyRefused"

	DocumentNotFound      Reason = "DocumentNotFound"
	PreconditionFailed    Reason = "PreconditionFailed"
	SessionNotFound       Reason = "SessionNotFound"
	CursorNotFound        Reason = "CursorNotFound"
	CursorTokenReused     Reason = "CursorTokenReused"
	CursorEvicted         Reason = "CursorEvicted"
	CursorPositionUnknown Reason = "CursorPositionUnknown"
	CursorOwnerGone       Reason = "CursorOwnerGone"
	TransactionNotFound   Reason = "TransactionNotFound"
	TransactionBusy       Reason = "TransactionBusy"
	TransactionAborted    Reason = "TransactionAborted"
	TransactionCommitted  Reason = "TransactionCommitted"
	TransactionOwnerGone  Reason = "TransactionOwnerGone"
	StatementOutOfOrder   Reason = "StatementOutOfOrder"
	StatementResultLost   Reason = "StatementResultLost"
	ExpectationFailed     Reason = "ExpectationFailed"
	StreamStalled         Reason = "StreamStalled"
	ChangeStreamBehind    Reason = "ChangeStreamBehind"
	PinLimitExceeded      Reason = "PinLimitExceeded"
	HandleLimitExceeded   Reason = "HandleLimitExceeded"
	HandleNotFound        Reason = "HandleNotFound"
	ReplicaUnreachable    Reason = "ReplicaUnreachable"

	DeadlineExceeded      Reason = "DeadlineExceeded"
	Canceled              Reason = "Canceled"
	NoSuitableServer      Reason = "NoSuitableServer"
	NetworkError          Reason = "NetworkError"
	ConnectionPoolCleared Reason = "ConnectionPoolCleared"
	ConnectionPoolFull    Reason = "ConnectionPoolFull"
	ShuttingDown          Reason = "ShuttingDown"
	WriteOutcomeUnknown   Reason = "WriteOutcomeUnknown"
	UnknownCommitResult   Reason = "UnknownTransactionCommitResult"
	MalformedReply        Reason = "MalformedReply"
	Configuration         Reason = "Configuration"
	Internal              Reason = "Internal"
)

// Retry tells a client whether it may repeat a call.
type Retry string

// The values of Retry. SameRequest is only used where a repeated call cannot apply a write twice.
const (
	Never       Retry = "never"
	SameRequest Retry = "same-request"
	Transaction Retry = "transaction"
	Restart     Retry = "restart"
)

// row holds what a client sees of an error.
type row struct {
	code   codes.Code
	http   int
	reason Reason
	retry  Retry
}

// statusClientClosedRequest is the status of a call that its client has canceled.
const statusClientClosedRequest = 499

// reasons holds the row of each of the gateway's own reasons.
var reasons = byReason([]row{
	{codes.InvalidArgument, http.StatusBadRequest, InvalidArgument, Never},
	{codes.InvalidArgument, http.StatusBadRequest, MalformedDocument, Never},
	{codes.InvalidArgument, http.StatusRequestEntityTooLarge, TooLarge, Never},
	{codes.ResourceExhausted, http.StatusRequestEntityTooLarge, MessageTooLarge, Never},
	{codes.Unimplemented, http.StatusNotImplemented, Unimplemented, Never},
	{codes.NotFound, http.StatusNotFound, RouteNotFound, Never},
	{codes.Unimplemented, http.StatusMethodNotAllowed, MethodNotAllowed, Never},
	{codes.InvalidArgument, http.StatusNotAcceptable, NotAcceptable, Never},
	{codes.InvalidArgument, http.StatusRequestURITooLong, URITooLong, Never},
	{codes.InvalidArgument, http.StatusRequestHeaderFieldsTooLarge, HeaderTooLarge, Never},
	{codes.InvalidArgument, http.StatusUnsupportedMediaType, UnsupportedMediaType, Never},
	{codes.DeadlineExceeded, http.StatusRequestTimeout, BodyTimeout, SameRequest},
	{codes.FailedPrecondition, http.StatusUnprocessableEntity, InvalidUTF8, Never},

	{codes.InvalidArgument, http.StatusBadRequest, IdempotencyKeyUnsupported, Never},
	{codes.FailedPrecondition, http.StatusUnprocessableEntity, IdempotencyKeyReused, Never},
	{codes.Unavailable, http.StatusServiceUnavailable, IdempotencyUnavailable, SameRequest},

	{codes.Unauthenticated, http.StatusUnauthorized, Unauthenticated, Never},
	{codes.ResourceExhausted, http.StatusTooManyRequests, TooManyAttempts, SameRequest},
	{codes.Unavailable, http.StatusServiceUnavailable, IssuerUnavailable, SameRequest},
	{codes.ResourceExhausted, http.StatusTooManyRequests, QuotaExceeded, SameRequest},
	{codes.Unavailable, http.StatusServiceUnavailable, Overloaded, SameRequest},
	{codes.PermissionDenied, http.StatusMisdirectedRequest, UnknownHost, Never},
	{codes.PermissionDenied, http.StatusForbidden, CrossOrigin, Never},
	{codes.PermissionDenied, http.StatusForbidden, PolicyRefused, Never},

	{codes.NotFound, http.StatusNotFound, DocumentNotFound, Never},
	{codes.FailedPrecondition, http.StatusPreconditionFailed, PreconditionFailed, Never},
	{codes.NotFound, http.StatusNotFound, SessionNotFound, Restart},
	{codes.NotFound, http.StatusNotFound, CursorNotFound, Restart},
	{codes.Aborted, http.StatusConflict, CursorTokenReused, Restart},
	{codes.Aborted, http.StatusConflict, CursorEvicted, Restart},
	{codes.Aborted, http.StatusConflict, CursorPositionUnknown, Restart},
	{codes.NotFound, http.StatusNotFound, CursorOwnerGone, Restart},
	// Not Transaction: it may be committed, and forgotten since.
	{codes.NotFound, http.StatusNotFound, TransactionNotFound, Never},
	{codes.Aborted, http.StatusConflict, TransactionBusy, SameRequest},
	{codes.Aborted, http.StatusConflict, TransactionAborted, Transaction},
	{codes.Aborted, http.StatusConflict, TransactionCommitted, Never},
	{codes.Aborted, http.StatusConflict, TransactionOwnerGone, Transaction},
	{codes.Aborted, http.StatusConflict, StatementOutOfOrder, Never},
	{codes.Aborted, http.StatusConflict, StatementResultLost, Transaction},
	{codes.FailedPrecondition, http.StatusPreconditionFailed, ExpectationFailed, Never},
	{codes.DeadlineExceeded, http.StatusRequestTimeout, StreamStalled, Restart},
	{codes.Unavailable, http.StatusServiceUnavailable, ChangeStreamBehind, Restart},
	{codes.ResourceExhausted, http.StatusTooManyRequests, PinLimitExceeded, SameRequest},
	{codes.ResourceExhausted, http.StatusTooManyRequests, HandleLimitExceeded, SameRequest},
	{codes.NotFound, http.StatusNotFound, HandleNotFound, Never},
	{codes.Unavailable, http.StatusServiceUnavailable, ReplicaUnreachable, SameRequest},

	{codes.DeadlineExceeded, http.StatusGatewayTimeout, DeadlineExceeded, Never},
	{codes.Canceled, statusClientClosedRequest, Canceled, Never},
	{codes.Unavailable, http.StatusServiceUnavailable, NoSuitableServer, SameRequest},
	{codes.Unavailable, http.StatusServiceUnavailable, NetworkError, SameRequest},
	{codes.Unavailable, http.StatusServiceUnavailable, ConnectionPoolCleared, SameRequest},
	{codes.Unavailable, http.StatusServiceUnavailable, ConnectionPoolFull, SameRequest},
	{codes.Unavailable, http.StatusServiceUnavailable, ShuttingDown, Restart},
	{codes.Unknown, http.StatusInternalServerError, WriteOutcomeUnknown, Never},
	{codes.Unavailable, http.StatusServiceUnavailable, UnknownCommitResult, SameRequest},
	{codes.Internal, http.StatusInternalServerError, MalformedReply, Never},
	{codes.Internal, http.StatusInternalServerError, Configuration, Never},
	{codes.Internal, http.StatusInternalServerError, Internal, Never},
})

// IsListed reports whether a reason is in a table: one of the gateway's own, or a server's name of
// a code. Servers may have other names, too.
func IsListed(reason string) bool { return listed[Reason(reason)] }

var listed = func() map[Reason]bool {
	all := make(map[Reason]bool, len(reasons)+len(serverCodes))
	for reason := range reasons {
		all[reason] = true
	}
	for _, r := range serverCodes {
		all[r.reason] = true
	}
	return all
}()

func byReason(rows []row) map[Reason]row {
	m := make(map[Reason]row, len(rows))
	for _, r := range rows {
		m[r.reason] = r
	}
	return m
}

// The rows that server codes share.
var (
	badRequest = row{code: codes.InvalidArgument, http: http.StatusBadRequest, retry: Never}
	tooLarge   = row{
		code: codes.InvalidArgument, http: http.StatusRequestEntityTooLarge, retry: Never,
	}
	forbidden   = row{code: codes.PermissionDenied, http: http.StatusForbidden, retry: Never}
	notFound    = row{code: codes.NotFound, http: http.StatusNotFound, retry: Never}
	gone        = row{code: codes.NotFound, http: http.StatusNotFound, retry: Restart}
	exists      = row{code: codes.AlreadyExists, http: http.StatusConflict, retry: Never}
	conflict    = row{code: codes.Aborted, http: http.StatusConflict, retry: Never}
	lostHistory = row{code: codes.FailedPrecondition, http: http.StatusGone, retry: Restart}
	refused     = row{
		code: codes.FailedPrecondition, http: http.StatusUnprocessableEntity, retry: Never,
	}
	timedOut    = row{code: codes.DeadlineExceeded, http: http.StatusGatewayTimeout, retry: Never}
	unknown     = row{code: codes.Unimplemented, http: http.StatusNotImplemented, retry: Never}
	unavailable = row{code: codes.Unavailable, http: http.StatusServiceUnavailable, retry: Never}
	// It has executed nothing.
	overloaded = row{
		code: codes.Unavailable, http: http.StatusServiceUnavailable, retry: SameRequest,
	}
	gatewayFault = row{code: codes.Internal, http: http.StatusInternalServerError, retry: Never}
)

// server returns a row for a server's error code, with the name that servers have for the code.
func server(name Reason, like row) row {
	like.reason = name
	return like
}

// serverCodes holds the rows of the codes that are not plain refusals. A write error has no name,
// so its name comes from this table.
var serverCodes = map[int32]row{
	2:     server("BadValue", badRequest),
	4:     server("NoSuchKey", badRequest),
	9:     server("FailedToParse", badRequest),
	14:    server("TypeMismatch", badRequest),
	72:    server("InvalidOptions", badRequest),
	73:    server("InvalidNamespace", badRequest),
	40324: server("Location40324", badRequest), // unrecognized pipeline stage
	40415: server("Location40415", badRequest), // unknown field in a command

	10334: server("BSONObjectTooLarge", tooLarge),
	17280: server("KeyTooLong", tooLarge),

	13: server("Unauthorized", forbidden),
	31: server("RoleNotFound", forbidden),
	96: server("OperationFailed", forbidden),

	26: server("NamespaceNotFound", notFound),
	27: server("IndexNotFound", notFound),
	43: server("CursorNotFound", gone),

	11000: server("DuplicateKey", exists),
	11001: server("DuplicateKey", exists),
	48:    server("NamespaceExists", exists),
	85:    server("IndexOptionsConflict", exists),
	86:    server("IndexKeySpecsConflict", exists),

	112: server("WriteConflict", conflict),
	251: server("NoSuchTransaction", conflict),

	136: server("CappedPositionLost", lostHistory),
	260: server("InvalidResumeToken", lostHistory),
	280: server("ChangeStreamFatalError", lostHistory),
	286: server("ChangeStreamHistoryLost", lostHistory),

	20:  server("IllegalOperation", refused),
	66:  server("ImmutableField", refused),
	121: server("DocumentValidationFailure", refused),

	50:  server("MaxTimeMSExpired", timedOut),
	262: server("ExceededTimeLimit", timedOut),

	59: server("CommandNotFound", unknown),

	18: server("AuthenticationFailed", gatewayFault),

	261: server("TooManyLogicalSessions", overloaded),
	462: server("IngressRequestRateLimitExceeded", overloaded),

	// The server reports that it cannot answer now.
	6:     server("HostUnreachable", unavailable),
	7:     server("HostNotFound", unavailable),
	64:    server("WriteConcernFailed", unavailable),
	89:    server("NetworkTimeout", unavailable),
	91:    server("ShutdownInProgress", unavailable),
	133:   server("FailedToSatisfyReadPreference", unavailable),
	134:   server("ReadConcernMajorityNotAvailableYet", unavailable),
	189:   server("PrimarySteppedDown", unavailable),
	9001:  server("SocketException", unavailable),
	10058: server("LegacyNotPrimary", unavailable),
	10107: server("NotWritablePrimary", unavailable),
	11600: server("InterruptedAtShutdown", unavailable),
	11602: server("InterruptedDueToReplStateChange", unavailable),
	13435: server("NotPrimaryNoSecondaryOk", unavailable),
	13436: server("NotPrimaryOrSecondary", unavailable),
}
