package mongoerr

import (
	"context"
	"errors"
	"strings"
)

// class holds a set of meanings that a server's error code has for a driver.
type class uint8

const (
	notWritablePrimary class = 1 << iota // the server is no longer the primary
	recovering                           // the server is between states
	shutdown                             // …because it is going away: its connections, too
	retryableRead                        // a read may be sent again
	timeout                              // the server gave up for want of time
)

// codes are the error codes that have a meaning for drivers, by Server Discovery and Monitoring
// and Retryable Reads.
var codes = map[int32]struct {
	name  string
	class class
}{
	6:     {"HostUnreachable", retryableRead},
	7:     {"HostNotFound", retryableRead},
	50:    {"MaxTimeMSExpired", timeout},
	89:    {"NetworkTimeout", retryableRead | timeout},
	91:    {"ShutdownInProgress", recovering | shutdown | retryableRead},
	134:   {"ReadConcernMajorityNotAvailableYet", retryableRead},
	189:   {"PrimarySteppedDown", recovering | retryableRead},
	262:   {"ExceededTimeLimit", retryableRead | timeout},
	9001:  {"SocketException", retryableRead},
	10058: {"LegacyNotPrimary", notWritablePrimary},
	10107: {"NotWritablePrimary", notWritablePrimary | retryableRead},
	11600: {"InterruptedAtShutdown", recovering | shutdown | retryableRead},
	11602: {"InterruptedDueToReplStateChange", recovering | retryableRead},
	13435: {"NotPrimaryNoSecondaryOk", notWritablePrimary | retryableRead},
	13436: {"NotPrimaryOrSecondary", recovering | retryableRead},
}

// codeNames name the codes of replies that carry no codeName (writeErrors never do).
var codeNames = map[int32]string{
	2: "BadValue", 8: "UnknownError", 9: "FailedToParse", 13: "Unauthorized",
	18: "AuthenticationFailed",
	20: "IllegalOperation", 26: "NamespaceNotFound", 27: "IndexNotFound", 43: "CursorNotFound",
	48: "NamespaceExists", 59: "CommandNotFound", 64: "WriteConcernFailed", 66: "ImmutableField",
	112: "WriteConflict", 115: "CommandNotSupported", 121: "DocumentValidationFailure",
	251: "NoSuchTransaction", 391: "ReauthenticationRequired", 11000: "DuplicateKey",
	11601: "Interrupted",
}

func nameOf(code int32, given string) string {
	if given != "" {
		return given
	}
	if c, ok := codes[code]; ok {
		return c.name
	}
	return codeNames[code]
}

// IsNotWritablePrimary reports whether the server said that it is not, or no longer, the primary.
func IsNotWritablePrimary(err error) bool { return stateClass(err)&notWritablePrimary != 0 }

// IsRecovering reports whether the server said that it is between two states (in the
// specification: "node is recovering").
func IsRecovering(err error) bool { return stateClass(err)&recovering != 0 }

// IsStateChange reports whether the description of the server is out of date, by its own words.
func IsStateChange(err error) bool { return stateClass(err)&(notWritablePrimary|recovering) != 0 }

// IsShutdown reports whether the server said that it is shutting down.
func IsShutdown(err error) bool { return stateClass(err)&shutdown != 0 }

// IsNetwork reports whether err is, or wraps, a NetworkError.
func IsNetwork(err error) bool {
	_, ok := errors.AsType[*NetworkError](err)
	return ok
}

// IsMalformed reports whether err is a reply that breaks the protocol. Errors of other packages
// take part by a method Malformed() bool.
func IsMalformed(err error) bool {
	m, ok := errors.AsType[interface {
		error
		Malformed() bool
	}](err)
	return ok && m.Malformed()
}

// IsTimeout reports whether time ran out: that of the context, the connection or the server.
func IsTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout() || replyClass(err)&timeout != 0
}

// IsCanceled reports whether the caller gave up, which says nothing about the server.
func IsCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// Code returns the server's code in err: that of the command error, else of the write concern
// error, else of the first write error; 0 if there is none.
func Code(err error) int32 {
	if code, _, ok := replyCode(err); ok {
		return code
	}
	if e, ok := errors.AsType[*WriteException](err); ok && len(e.WriteErrors) > 0 {
		return e.WriteErrors[0].Code
	}
	return 0
}

// IsRetryableWriteCode reports whether servers before 4.4, which do not label their errors, allow a
// write to be sent again after an error with this code (Retryable Writes).
func IsRetryableWriteCode(code int32) bool {
	return code != codeMajorityNotAvailable && codes[code].class&retryableRead != 0
}

// codeMajorityNotAvailable concerns reads only.
const codeMajorityNotAvailable = 134

func replyClass(err error) class {
	code, _, _ := replyCode(err)
	return codes[code].class
}

// stateClass returns the class of the code. If the server sent none, its words decide; otherwise
// they are ignored.
func stateClass(err error) class {
	code, message, ok := replyCode(err)
	switch {
	case !ok:
		return 0
	case code != 0:
		return codes[code].class
	case strings.Contains(message, "not master or secondary"),
		strings.Contains(message, "node is recovering"):
		return recovering
	case strings.Contains(message, "not master"):
		return notWritablePrimary
	}
	return 0
}

// replyCode returns what the server said of the whole command. Write errors concern single
// statements and are ignored.
func replyCode(err error) (code int32, message string, ok bool) {
	if e, ok := errors.AsType[*CommandError](err); ok {
		return e.Code, e.Message, true
	}
	if e, ok := errors.AsType[*WriteConcernError](err); ok {
		return e.Code, e.Message, true
	}
	return 0, "", false
}
