// Package failure has the errors that MongoDB servers answer with, for the servers of this module
// and of lab: one table of codes and names, and the replies that say them. It shares nothing with
// core/mongoerr, which reads such replies.
package failure

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
)

// Code identifies an error. The constants are named as MongoDB names them.
type Code int32

// The codes that the servers use by name.
const (
	InternalError                      Code = 1
	BadValue                           Code = 2
	FailedToParse                      Code = 9
	Unauthorized                       Code = 13
	TypeMismatch                       Code = 14
	InvalidLength                      Code = 16
	IllegalOperation                   Code = 20
	AlreadyInitialized                 Code = 23
	NamespaceNotFound                  Code = 26
	IndexNotFound                      Code = 27
	CursorNotFound                     Code = 43
	NoMatchingDocument                 Code = 47
	NamespaceExists                    Code = 48
	MaxTimeMSExpired                   Code = 50
	DollarPrefixedFieldName            Code = 52
	CommandNotFound                    Code = 59
	ImmutableField                     Code = 66
	InvalidOptions                     Code = 72
	NoReplicationEnabled               Code = 76
	IndexKeySpecsConflict              Code = 86
	NotSecondary                       Code = 95
	WriteConflict                      Code = 112
	ConflictingOperationInProgress     Code = 117
	DocumentValidationFailure          Code = 121
	NotAReplicaSet                     Code = 123
	IncompleteTransactionHistory       Code = 217
	TransactionTooOld                  Code = 225
	NotImplemented                     Code = 238
	SnapshotTooOld                     Code = 239
	SnapshotUnavailable                Code = 246
	NoSuchTransaction                  Code = 251
	TransactionCommitted               Code = 256
	InvalidResumeToken                 Code = 260
	TooManyLogicalSessions             Code = 261
	OperationNotSupportedInTransaction Code = 263
	ChangeStreamFatalError             Code = 280
	ChangeStreamHistoryLost            Code = 286
	APIVersionError                    Code = 322
	APIStrictError                     Code = 323
	APIDeprecationError                Code = 324
	CannotConvertIndexToUnique         Code = 359
	CollectionUUIDMismatch             Code = 361
	NotWritablePrimary                 Code = 10107
	DuplicateKey                       Code = 11000
	InterruptedAtShutdown              Code = 11600
	NotPrimaryNoSecondaryOk            Code = 13435
	SearchNotEnabled                   Code = 31082

	// These have a number only.
	UndefinedVariable Code = 17276
	UnknownStage      Code = 40324
	UnknownField      Code = 40415
	OnlyReplicaSets   Code = 40573
	BelowLimit        Code = 51024
)

var names = map[Code]string{
	1: "InternalError", 2: "BadValue", 5: "GraphContainsCycle", 6: "HostUnreachable",
	7: "HostNotFound", 9: "FailedToParse", 13: "Unauthorized", 14: "TypeMismatch",
	15: "Overflow", 16: "InvalidLength", 18: "AuthenticationFailed", 20: "IllegalOperation",
	23: "AlreadyInitialized", 26: "NamespaceNotFound", 27: "IndexNotFound", 28: "PathNotViable",
	31: "RoleNotFound", 34: "CannotBackfillArray", 40: "ConflictingUpdateOperators",
	43: "CursorNotFound", 47: "NoMatchingDocument", 48: "NamespaceExists",
	50: "MaxTimeMSExpired", 52: "DollarPrefixedFieldName", 53: "InvalidIdField",
	54: "NotSingleValueField", 56: "EmptyFieldName", 57: "DottedFieldName",
	59: "CommandNotFound", 61: "ShardKeyNotFound", 64: "WriteConcernFailed",
	66: "ImmutableField", 67: "CannotCreateIndex", 68: "IndexAlreadyExists",
	72: "InvalidOptions", 73: "InvalidNamespace", 76: "NoReplicationEnabled",
	85: "IndexOptionsConflict", 86: "IndexKeySpecsConflict", 89: "NetworkTimeout",
	91: "ShutdownInProgress", 95: "NotSecondary", 111: "NotExactValueField",
	112: "WriteConflict", 115: "CommandNotSupported", 117: "ConflictingOperationInProgress",
	118: "NamespaceNotSharded", 121: "DocumentValidationFailure", 123: "NotAReplicaSet",
	134: "ReadConcernMajorityNotAvailableYet", 143: "CursorInUse", 146: "ExceededMemoryLimit",
	159: "DurationOverflow", 165: "ViewDepthLimitExceeded", 166: "CommandNotSupportedOnView",
	167: "OptionNotSupportedOnView", 181: "AmbiguousIndexKeyPattern", 189: "PrimarySteppedDown",
	197: "InvalidIndexSpecificationOption", 216: "ElectionInProgress",
	217: "IncompleteTransactionHistory", 224: "QueryFeatureNotAllowed",
	225: "TransactionTooOld", 232: "MaxSubPipelineDepthExceeded", 238: "NotImplemented",
	239: "SnapshotTooOld", 241: "ConversionFailure", 246: "SnapshotUnavailable",
	251: "NoSuchTransaction", 256: "TransactionCommitted", 260: "InvalidResumeToken",
	261: "TooManyLogicalSessions", 262: "ExceededTimeLimit",
	263: "OperationNotSupportedInTransaction", 276: "IndexBuildAborted",
	280: "ChangeStreamFatalError", 286: "ChangeStreamHistoryLost", 322: "APIVersionError",
	323: "APIStrictError", 324: "APIDeprecationError", 359: "CannotConvertIndexToUnique",
	361: "CollectionUUIDMismatch", 391: "ReauthenticationRequired", 9001: "SocketException",
	10107: "NotWritablePrimary", 10334: "BSONObjectTooLarge", 11000: "DuplicateKey",
	11600: "InterruptedAtShutdown", 11601: "Interrupted",
	11602: "InterruptedDueToReplStateChange",
	12587: "BackgroundOperationInProgressForNamespace", 13113: "MergeStageNoMatchingDocument",
	13435: "NotPrimaryNoSecondaryOk", 13436: "NotPrimaryOrSecondary", 31082: "SearchNotEnabled",
}

// String returns the name of a code. Where MongoDB has none, that is Location and the number.
func (c Code) String() string { return cmp.Or(names[c], fmt.Sprintf("Location%d", int32(c))) }

// Errorf returns an error with this code.
func (c Code) Errorf(format string, args ...any) error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// Is reports whether an error has this code.
func (c Code) Is(err error) bool { return err != nil && Of(err).Code == c }

// Error reports an error that a server answers with.
type Error struct {
	Code    Code
	Message string
	Details bson.Raw // further fields of the reply; nil: none
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Of returns an error as one that a server answers with: any other is an internal error.
func Of(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: InternalError, Message: err.Error()}
}

// transient are the errors of a command after which its whole transaction may be run again, and
// fatal those that no change stream can be resumed behind.
var (
	transient = []Code{
		WriteConflict, SnapshotTooOld, SnapshotUnavailable, NoSuchTransaction,
		InterruptedAtShutdown,
	}
	fatal = []Code{ChangeStreamFatalError, ChangeStreamHistoryLost}
)

// Reply returns the reply that says an error, with the label that a server gives it.
// inTransaction says that the command was one of a transaction.
func Reply(err error, inTransaction bool) bson.Raw {
	e := Of(err)
	b := bson.NewBuilder(nil).Double("ok", 0).String("errmsg", e.Message).
		Int32("code", int32(e.Code)).String("codeName", e.Code.String()).AppendElements(e.Details)
	switch {
	case inTransaction && slices.Contains(transient, e.Code):
		b.OpenArray("errorLabels").String("", "TransientTransactionError").Close()
	case slices.Contains(fatal, e.Code):
		b.OpenArray("errorLabels").String("", "NonResumableChangeStreamError").Close()
	}
	return b.Finish()
}
