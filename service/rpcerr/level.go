package rpcerr

import (
	"log/slog"

	"google.golang.org/grpc/codes"
)

// LogLevel returns the level and the message with which a call that ended with the code of an error
// is logged. Only faults of the gateway or the servers, and refusals that an operator may want to
// know of, are above Debug.
func LogLevel(code codes.Code) (slog.Level, string) {
	switch code {
	case codes.Internal, codes.DataLoss:
		return slog.LevelError, "request failed"
	case codes.Unknown, codes.Unavailable, codes.DeadlineExceeded:
		return slog.LevelWarn, "request failed"
	case codes.Unauthenticated, codes.PermissionDenied, codes.ResourceExhausted:
		return slog.LevelInfo, "request refused"
	case codes.OK, codes.Canceled, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented:
	}
	return slog.LevelDebug, "request refused"
}
