package interceptor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/recent"
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
		x.slow(ctx, &r)
	}
	// Strangers are counted in the metrics alone: there can be any number of them.
	if x.cfg.Recent != nil && r.code != codes.Unauthenticated && isRefusal(r.code, r.reason) {
		x.cfg.Recent.Add(recent.Refused, r.remembered(named(r.request)))
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

// slow logs and remembers a slow call, with its namespace, the shapes of its documents, and where
// the time went.
func (x *Chain) slow(ctx context.Context, r *record) {
	c, attrs := r.remembered(audit.Namespace(r.request)), r.attrs()
	documents := shapes(r.request)
	if c.Namespace != "" {
		attrs = append(attrs, slog.String("namespace", c.Namespace))
	}
	attrs = append(attrs, documents...)
	attrs = append(attrs, slog.Duration("queue", c.Took.Queue),
		slog.Duration("selection", c.Took.Selection), slog.Duration("check_out", c.Took.CheckOut),
		slog.Duration("server", c.Took.Server))
	x.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "slow request", attrs...)
	for i, d := range documents {
		if i > 0 {
			c.Shape += " "
		}
		c.Shape += d.Value.String()
	}
	x.cfg.Recent.Add(recent.Slow, c)
}

// remembered returns what operators see of the call, on a namespace.
func (r *record) remembered(namespace string) *recent.Call {
	message := r.message
	if r.kept {
		message = "" // the log has it
	}
	return &recent.Call{
		Method: r.method, Principal: r.call.Principal, Namespace: namespace,
		Code: r.code, Reason: r.reason, Message: message,
		RequestID: r.call.RequestID, Client: r.call.Client, End: time.Now(),
		Took: recent.Times{
			Total: r.took, Queue: r.queued, Selection: r.call.Spent.Selection(),
			CheckOut: r.call.Spent.CheckOut(), Server: r.call.Spent.Server(),
		},
	}
}

// named returns the database and the collection that a request names. Unlike audit.Namespace it
// looks into no document: a refused call can be of any size, and a client can make many.
func named(request any) string {
	r, ok := request.(interface{ GetDatabase() string })
	if !ok {
		return ""
	}
	if in, ok := request.(interface{ GetCollection() string }); ok && in.GetCollection() != "" {
		return r.GetDatabase() + "." + in.GetCollection()
	}
	return r.GetDatabase()
}
