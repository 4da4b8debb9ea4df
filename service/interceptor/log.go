package interceptor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// log writes one line at Debug for each call. At higher levels it writes a line for a call that
// failed by a fault of the gateway or the servers, for one that was refused or ended by the
// shutdown, one whose client is told that the server's words are kept back, and one that was slow.
// The logger limits lines that repeat.
func (x *Chain) log(ctx context.Context, c *pass) (err error) {
	start := time.Now()
	err = c.next(ctx)
	defer func() { _ = recover() }() // a log that panics changes no outcome
	r := record{pass: c, took: time.Since(start)}
	if f, ok := errors.AsType[*rpcerr.Failure](err); ok {
		r.code, r.reason, r.message = f.Code(), f.Reason(), f.Logged()
		r.kept = f.IsKept()
	}
	level, message := rpcerr.LogLevel(r.code, rpcerr.Reason(r.reason))
	if r.kept {
		level = max(level, slog.LevelInfo) // the client is told less than the log has
	}
	if level > slog.LevelDebug && x.cfg.Logger.Enabled(ctx, level) {
		//nolint:sloglint // one of the constants of LogLevel
		x.cfg.Logger.LogAttrs(ctx, level, message, r.attrs()...)
	}
	if slow := x.cfg.SlowRequest; slow > 0 && r.took >= slow && c.stream == nil {
		x.logSlow(ctx, &r)
	}
	if x.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
		x.cfg.Logger.LogAttrs(ctx, slog.LevelDebug, "request", r.attrs()...)
	}
	return err
}

// record holds what the log says of a call.
type record struct {
	*pass
	took            time.Duration
	code            codes.Code
	reason, message string
	kept            bool // the server's words, from the client
}

// attrs returns the attributes that all lines of a call have.
func (r *record) attrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("method", r.method),
		slog.String("request_id", r.call.RequestID),
		slog.String("code", r.code.String()),
	}
	if r.reason != "" {
		attrs = append(attrs, slog.String("reason", r.reason))
	}
	if r.call.Principal != "" {
		attrs = append(attrs, slog.String("principal", r.call.Principal))
	}
	if client := r.call.Client; client.IsValid() {
		attrs = append(attrs, slog.String("client", client.String()))
	}
	attrs = append(attrs, slog.Duration("duration", r.took))
	if r.message != "" {
		attrs = append(attrs, slog.String("err", r.message))
	}
	return attrs
}

// logSlow logs a slow call with its namespace and the shapes of its documents.
func (x *Chain) logSlow(ctx context.Context, r *record) {
	attrs := r.attrs()
	if namespace := audit.Namespace(r.request); namespace != "" {
		attrs = append(attrs, slog.String("namespace", namespace))
	}
	attrs = append(attrs, shapes(r.request)...)
	x.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "slow request", attrs...)
}
