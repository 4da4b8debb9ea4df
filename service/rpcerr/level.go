package rpcerr

import (
	"log/slog"

	"google.golang.org/grpc/codes"
)

// LogLevel returns the level and the message with which a call that ended with an error of that
// code and reason is logged. Faults of the gateway or the servers are Warn or Error; refusals that
// an operator may want to know of, and calls that ended because the gateway stops, are Info.
func LogLevel(code codes.Code, reason Reason) (slog.Level, string) {
	if reason == ShuttingDown {
		return slog.LevelInfo, "request ended by the shutdown"
	}
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
