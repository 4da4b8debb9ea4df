package deployment

import (
	"errors"
	"fmt"

	"github.com/mooringdb/mooring/core/bson"
)

// serverError reports an error that a server answers with.
type serverError struct {
	code    int32
	message string
	details bson.Raw // further fields of the reply; nil: none
}

func (e *serverError) Error() string { return e.message }

func fail(code int32, format string, args ...any) error {
	return &serverError{code: code, message: fmt.Sprintf(format, args...)}
}

// The codes that are used, and their names; fail points may use others.
const (
	onlyReplicaSets      = 40573
	invalidResumeToken   = 260
	changeStreamFatal    = 280
	onlyAtlas            = 31082
	badValue             = 2
	unauthorized         = 13
	invalidLength        = 16
	illegalOperation     = 20
	notInTransaction     = 263
	conflictingOperation = 117
	noSuchTransaction    = 251
	transactionCommitted = 256
	writeConflict        = 112
	snapshotUnavailable  = 246
	notReplicaSetMember  = 123
	transactionTooOld    = 225
	tooManySessions      = 261
	uuidMismatch         = 361
	validationFailure    = 121
	immutableField       = 66
	belowLimit           = 51024
	alreadyInitialized   = 23
	incompleteHistory    = 217
	failedToParse        = 9
	typeMismatch         = 14
	dollarPrefixed       = 52
	invalidOptions       = 72
	indexNotFound        = 27
	indexKeyConflict     = 86
	namespaceExists      = 48
	noMatchingDocument   = 47
	cursorNotFound       = 43
	notReplicaSet        = 76
	notSecondary         = 95
	unknownField         = 40415
	unknownStage         = 40324
	duplicateKey         = 11000

	apiVersionError     = 322
	apiStrictError      = 323
	apiDeprecationError = 324
	namespaceNotFound   = 26
	cannotConvertIndex  = 359
	undefinedVariable   = 17276

	notWritablePrimary = 10107
)

var codeNames = map[int32]string{
	onlyReplicaSets:      "Location40573",
	invalidResumeToken:   "InvalidResumeToken",
	changeStreamFatal:    "ChangeStreamFatalError",
	216:                  "ElectionInProgress",
	onlyAtlas:            "SearchNotEnabled",
	badValue:             "BadValue",
	noMatchingDocument:   "NoMatchingDocument",
	illegalOperation:     "IllegalOperation",
	unauthorized:         "Unauthorized",
	invalidLength:        "InvalidLength",
	notReplicaSetMember:  "NotAReplicaSet",
	transactionTooOld:    "TransactionTooOld",
	tooManySessions:      "TooManyLogicalSessions",
	uuidMismatch:         "CollectionUUIDMismatch",
	validationFailure:    "DocumentValidationFailure",
	immutableField:       "ImmutableField",
	belowLimit:           "Location51024",
	alreadyInitialized:   "AlreadyInitialized",
	40156:                "Location40156",
	40158:                "Location40158",
	40160:                "Location40160",
	incompleteHistory:    "IncompleteTransactionHistory",
	6:                    "HostUnreachable",
	7:                    "HostNotFound",
	failedToParse:        "FailedToParse",
	typeMismatch:         "TypeMismatch",
	18:                   "AuthenticationFailed",
	cursorNotFound:       "CursorNotFound",
	namespaceExists:      "NamespaceExists",
	59:                   "CommandNotFound",
	apiVersionError:      "APIVersionError",
	apiStrictError:       "APIStrictError",
	apiDeprecationError:  "APIDeprecationError",
	namespaceNotFound:    "NamespaceNotFound",
	indexNotFound:        "IndexNotFound",
	indexKeyConflict:     "IndexKeySpecsConflict",
	cannotConvertIndex:   "CannotConvertIndexToUnique",
	dollarPrefixed:       "DollarPrefixedFieldName",
	64:                   "WriteConcernFailed",
	invalidOptions:       "InvalidOptions",
	notReplicaSet:        "NoReplicationEnabled",
	notSecondary:         "NotSecondary",
	89:                   "NetworkTimeout",
	91:                   "ShutdownInProgress",
	writeConflict:        "WriteConflict",
	snapshotUnavailable:  "SnapshotUnavailable",
	noSuchTransaction:    "NoSuchTransaction",
	transactionCommitted: "TransactionCommitted",
	notInTransaction:     "OperationNotSupportedInTransaction",
	conflictingOperation: "ConflictingOperationInProgress",
	134:                  "ReadConcernMajorityNotAvailableYet",
	189:                  "PrimarySteppedDown",
	262:                  "ExceededTimeLimit",
	391:                  "ReauthenticationRequired",
	9001:                 "SocketException",
	notWritablePrimary:   "NotWritablePrimary",
	duplicateKey:         "DuplicateKey",
	11600:                "InterruptedAtShutdown",
	11601:                "Interrupted",
	11602:                "InterruptedDueToReplStateChange",
	13435:                "NotPrimaryNoSecondaryOk",
	13436:                "NotPrimaryOrSecondary",
	51368:                "Location51368",
	undefinedVariable:    "Location17276",
	unknownStage:         "Location40324",
	unknownField:         "Location40415",
}

func refusal(err error) bson.Raw {
	e, ok := errors.AsType[*serverError](err)
	if !ok {
		e = &serverError{code: 1, message: "internal error: " + err.Error()}
	}
	return bson.NewBuilder(nil).Double("ok", 0).String("errmsg", e.message).Int32("code", e.code).
		String("codeName", codeNames[e.code]).AppendElements(e.details).Finish()
}
