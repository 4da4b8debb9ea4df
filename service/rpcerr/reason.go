package rpcerr

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Reason is what happened, as one word: the gateway's own, as below, or a server's code name.
// Clients rely on them: the list only grows.
type Reason string

// The gateway's own reasons.
const (
	InvalidArgument      Reason = "InvalidArgument"
	MalformedDocument    Reason = "MalformedDocument"
	TooLarge             Reason = "TooLarge"
	Unimplemented        Reason = "Unimplemented"
	RouteNotFound        Reason = "RouteNotFound"
	MethodNotAllowed     Reason = "MethodNotAllowed"
	NotAcceptable        Reason = "NotAcceptable"
	URITooLong           Reason = "URITooLong"
	UnsupportedMediaType Reason = "UnsupportedMediaType"
	BodyTimeout          Reason = "BodyTimeout"
	InvalidUTF8          Reason = "InvalidUTF8"

	CursorNotFound        Reason = "CursorNotFound"
	CursorTokenReused     Reason = "CursorTokenReused"
	CursorPositionUnknown Reason = "CursorPositionUnknown"
	CursorOwnerGone       Reason = "CursorOwnerGone"
	StreamStalled         Reason = "StreamStalled"
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
	MalformedReply        Reason = "MalformedReply"
	Configuration         Reason = "Configuration"
	Internal              Reason = "Internal"
)

// Retry says whether to repeat a call.
type Retry string

// The answers. SameRequest only where repeating cannot apply a write twice.
const (
	Never       Retry = "never"
	SameRequest Retry = "same-request"
	Transaction Retry = "transaction"
	Restart     Retry = "restart"
)

// row is one line of the table: what an error is to a client.
type row struct {
	code   codes.Code
	http   int
	reason Reason
	retry  Retry
}

// statusClientClosedRequest is what a client that went away would see if it were there.
const statusClientClosedRequest = 499

// reasons has the row of each reason of our own.
var reasons = map[Reason]row{
	InvalidArgument:      {codes.InvalidArgument, http.StatusBadRequest, InvalidArgument, Never},
	MalformedDocument:    {codes.InvalidArgument, http.StatusBadRequest, MalformedDocument, Never},
	TooLarge:             {codes.InvalidArgument, http.StatusRequestEntityTooLarge, TooLarge, Never},
	Unimplemented:        {codes.Unimplemented, http.StatusNotImplemented, Unimplemented, Never},
	RouteNotFound:        {codes.NotFound, http.StatusNotFound, RouteNotFound, Never},
	MethodNotAllowed:     {codes.Unimplemented, http.StatusMethodNotAllowed, MethodNotAllowed, Never},
	NotAcceptable:        {codes.InvalidArgument, http.StatusNotAcceptable, NotAcceptable, Never},
	URITooLong:           {codes.InvalidArgument, http.StatusRequestURITooLong, URITooLong, Never},
	UnsupportedMediaType: {codes.InvalidArgument, http.StatusUnsupportedMediaType, UnsupportedMediaType, Never},
	BodyTimeout:          {codes.DeadlineExceeded, http.StatusRequestTimeout, BodyTimeout, SameRequest},
	InvalidUTF8:          {codes.FailedPrecondition, http.StatusUnprocessableEntity, InvalidUTF8, Never},

	CursorNotFound:        {codes.NotFound, http.StatusNotFound, CursorNotFound, Restart},
	CursorTokenReused:     {codes.Aborted, http.StatusConflict, CursorTokenReused, Restart},
	CursorPositionUnknown: {codes.Aborted, http.StatusConflict, CursorPositionUnknown, Restart},
	CursorOwnerGone:       {codes.NotFound, http.StatusNotFound, CursorOwnerGone, Restart},
	StreamStalled:         {codes.DeadlineExceeded, http.StatusRequestTimeout, StreamStalled, Restart},
	PinLimitExceeded:      {codes.ResourceExhausted, http.StatusTooManyRequests, PinLimitExceeded, SameRequest},
	HandleLimitExceeded:   {codes.ResourceExhausted, http.StatusTooManyRequests, HandleLimitExceeded, SameRequest},
	HandleNotFound:        {codes.NotFound, http.StatusNotFound, HandleNotFound, Never},
	ReplicaUnreachable:    {codes.Unavailable, http.StatusServiceUnavailable, ReplicaUnreachable, SameRequest},

	DeadlineExceeded:      {codes.DeadlineExceeded, http.StatusGatewayTimeout, DeadlineExceeded, Never},
	Canceled:              {codes.Canceled, statusClientClosedRequest, Canceled, Never},
	NoSuitableServer:      {codes.Unavailable, http.StatusServiceUnavailable, NoSuitableServer, SameRequest},
	NetworkError:          {codes.Unavailable, http.StatusServiceUnavailable, NetworkError, SameRequest},
	ConnectionPoolCleared: {codes.Unavailable, http.StatusServiceUnavailable, ConnectionPoolCleared, SameRequest},
	ConnectionPoolFull:    {codes.Unavailable, http.StatusServiceUnavailable, ConnectionPoolFull, SameRequest},
	ShuttingDown:          {codes.Unavailable, http.StatusServiceUnavailable, ShuttingDown, Restart},
	WriteOutcomeUnknown:   {codes.Unknown, http.StatusInternalServerError, WriteOutcomeUnknown, Never},
	MalformedReply:        {codes.Internal, http.StatusInternalServerError, MalformedReply, Never},
	Configuration:         {codes.Internal, http.StatusInternalServerError, Configuration, Never},
	Internal:              {codes.Internal, http.StatusInternalServerError, Internal, Never},
}

// The lines that server codes share.
var (
	badRequest   = row{code: codes.InvalidArgument, http: http.StatusBadRequest, retry: Never}
	tooLarge     = row{code: codes.InvalidArgument, http: http.StatusRequestEntityTooLarge, retry: Never}
	forbidden    = row{code: codes.PermissionDenied, http: http.StatusForbidden, retry: Never}
	notFound     = row{code: codes.NotFound, http: http.StatusNotFound, retry: Never}
	gone         = row{code: codes.NotFound, http: http.StatusNotFound, retry: Restart}
	exists       = row{code: codes.AlreadyExists, http: http.StatusConflict, retry: Never}
	conflict     = row{code: codes.Aborted, http: http.StatusConflict, retry: Never}
	lostHistory  = row{code: codes.FailedPrecondition, http: http.StatusGone, retry: Restart}
	refused      = row{code: codes.FailedPrecondition, http: http.StatusUnprocessableEntity, retry: Never}
	timedOut     = row{code: codes.DeadlineExceeded, http: http.StatusGatewayTimeout, retry: Never}
	unknown      = row{code: codes.Unimplemented, http: http.StatusNotImplemented, retry: Never}
	unavailable  = row{code: codes.Unavailable, http: http.StatusServiceUnavailable, retry: Never}
	gatewayFault = row{code: codes.Internal, http: http.StatusInternalServerError, retry: Never}
)

// server is a row for a server's error code, with the name that the server would give it.
func server(name Reason, like row) row {
	like.reason = name
	return like
}

// serverCodes has the rows of the codes that are not plain refusals. Write errors carry no name,
// so theirs comes from here.
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

	// A server that cannot answer now, by what it says itself.
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
