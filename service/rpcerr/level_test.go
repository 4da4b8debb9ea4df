package rpcerr_test

import (
	"log/slog"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/rpcerr"
)

func TestLogLevel(t *testing.T) {
	const refused, failed = "request refused", "request failed"
	want := map[codes.Code]struct {
		level   slog.Level
		message string
	}{
		codes.Internal: {slog.LevelError, failed}, codes.DataLoss: {slog.LevelError, failed},
		codes.Unknown: {slog.LevelWarn, failed}, codes.Unavailable: {slog.LevelWarn, failed},
		codes.DeadlineExceeded: {slog.LevelWarn, failed},
		codes.Unauthenticated:  {slog.LevelInfo, refused}, codes.PermissionDenied: {slog.LevelInfo, refused},
		codes.ResourceExhausted: {slog.LevelInfo, refused},
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		w, ok := want[code]
		if !ok {
			w.level, w.message = slog.LevelDebug, refused
		}
		if level, message := rpcerr.LogLevel(code, rpcerr.Overloaded); level != w.level ||
			message != w.message {
			t.Errorf("LogLevel(%s) = %s, %q; want %s, %q", code, level, message, w.level, w.message)
		}
	}
	const ended = "request ended by the shutdown"
	level, message := rpcerr.LogLevel(codes.Unavailable, rpcerr.ShuttingDown)
	if level != slog.LevelInfo || message != ended {
		t.Errorf("LogLevel(ShuttingDown) = %s, %q; want %s, %q", level, message, slog.LevelInfo,
			ended)
	}
}
