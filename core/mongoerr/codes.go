package mongoerr

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// class is what a driver makes of a server's error code.
type class uint8

const (
	notWritablePrimary class = 1 << iota // the server is no longer the primary
	recovering                           // the server is between states
	shutdown                             // …because it is going away: its connections, too
	retryableRead                        // a read may be sent again
	timeout                              // the server gave up for want of time
)

// codes are the codes that mean something to a driver.
// "not writable primary" and "node is recovering": Server Discovery and Monitoring. Retryable: Retryable Reads.
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
	2: "BadValue", 8: "UnknownError", 9: "FailedToParse", 13: "Unauthorized", 18: "AuthenticationFailed",
	20: "IllegalOperation", 26: "NamespaceNotFound", 27: "IndexNotFound", 43: "CursorNotFound",
	48: "NamespaceExists", 59: "CommandNotFound", 64: "WriteConcernFailed", 66: "ImmutableField",
	112: "WriteConflict", 115: "CommandNotSupported", 121: "DocumentValidationFailure",
	251: "NoSuchTransaction", 391: "ReauthenticationRequired", 11000: "DuplicateKey", 11601: "Interrupted",
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

// HasLabel reports whether err, or an error that it wraps, carries the label.
func HasLabel(err error, label string) bool {
	return slices.Contains(Labels(err), label)
}

// Labels returns the labels of the reply, or of the broken connection, that err stands for.
func Labels(err error) []string {
	if e, ok := errors.AsType[*OverloadError](err); ok {
		return append([]string{LabelSystemOverloaded, LabelRetryable}, Labels(e.Err)...)
	}
	if e, ok := errors.AsType[*CommandError](err); ok {
		return e.Labels
	}
	if e, ok := errors.AsType[*WriteException](err); ok {
		return e.Labels
	}
	if e, ok := errors.AsType[*WriteConcernError](err); ok {
		return e.Labels
	}
	if e, ok := errors.AsType[*NetworkError](err); ok {
		return e.Labels
	}
	return nil
}

// IsNotWritablePrimary tells whether the server said that it is not, or no longer, the primary.
func IsNotWritablePrimary(err error) bool { return stateClass(err)&notWritablePrimary != 0 }

// IsRecovering tells whether the server said that it is between two states (spec: "node is recovering").
func IsRecovering(err error) bool { return stateClass(err)&recovering != 0 }

// IsStateChange tells whether the server's description is out of date, by what the server itself said.
func IsStateChange(err error) bool { return stateClass(err)&(notWritablePrimary|recovering) != 0 }

// IsShutdown tells whether the server said that it is shutting down.
func IsShutdown(err error) bool { return stateClass(err)&shutdown != 0 }

// IsNetwork tells whether err is, or wraps, a NetworkError.
func IsNetwork(err error) bool {
	_, ok := errors.AsType[*NetworkError](err)
	return ok
}

// IsMalformed reports whether err is a reply that breaks the protocol. Errors of other packages take part
// by a method Malformed() bool.
func IsMalformed(err error) bool {
	m, ok := errors.AsType[interface {
		error
		Malformed() bool
	}](err)
	return ok && m.Malformed()
}

// IsTimeout tells whether time ran out: the context's, the connection's, or the server's.
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

// IsCanceled tells whether the caller gave up, which says nothing about the server.
func IsCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// Code is the server's code in err: that of the command error, else of the write concern error, else of the first
// write error; 0 where there is none.
func Code(err error) int32 {
	if code, _, ok := replyCode(err); ok {
		return code
	}
	if e, ok := errors.AsType[*WriteException](err); ok && len(e.WriteErrors) > 0 {
		return e.WriteErrors[0].Code
	}
	return 0
}

func replyClass(err error) class {
	code, _, _ := replyCode(err)
	return codes[code].class
}

// stateClass is replyClass, and where the server gave no code, its words decide. (Where it gave one, they never do.)
func stateClass(err error) class {
	code, message, ok := replyCode(err)
	switch {
	case !ok:
		return 0
	case code != 0:
		return codes[code].class
	case strings.Contains(message, "not master or secondary"), strings.Contains(message, "node is recovering"):
		return recovering
	case strings.Contains(message, "not master"):
		return notWritablePrimary
	}
	return 0
}

// replyCode is what the server said of the whole command. Write errors are statements' own and never examined.
func replyCode(err error) (code int32, message string, ok bool) {
	if e, ok := errors.AsType[*CommandError](err); ok {
		return e.Code, e.Message, true
	}
	if e, ok := errors.AsType[*WriteConcernError](err); ok {
		return e.Code, e.Message, true
	}
	return 0, "", false
}
