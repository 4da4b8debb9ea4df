package interceptor

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Metadata keys of calls.
const (
	// RequestIDKey is the request's id, if the client has one.
	RequestIDKey = "mooring-request-id"
	// TimeoutKey is a timeout beside the call's own deadline, such as "5s". The shorter applies.
	TimeoutKey = "mooring-timeout"
)

const maxRequestIDBytes = 64

// NewRequestID returns a new id. It distinguishes requests and is not a secret.
func NewRequestID() string {
	var id [8]byte
	var text [2 * len(id)]byte
	binary.BigEndian.PutUint64(id[:], rand.Uint64())
	hex.Encode(text[:], id[:])
	return string(text[:])
}

// IsRequestID reports whether a client's id is acceptable: short, and of characters that are safe
// in a log.
func IsRequestID(id string) bool {
	if id == "" || len(id) > maxRequestIDBytes {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}

func (x *Chain) identify(ctx context.Context, c *pass) error {
	c.call.Local, c.call.Terse = localOf(ctx), x.cfg.Terse
	if c.call.Forwarded { // as the other replica has found out
		c.call.Principal = nameOf(&c.call.Local)
	}
	return c.next(ctx)
}

// requestID returns the client's id for a request if it has an acceptable one, else a new id.
func requestID(ids []string) string {
	if len(ids) == 1 && IsRequestID(ids[0]) {
		return ids[0]
	}
	return NewRequestID()
}

// count counts the call.
func (x *Chain) count(ctx context.Context, c *pass) error {
	if x.cfg.Meter == nil {
		return c.next(ctx)
	}
	start := time.Now()
	err := c.next(ctx)
	code, reason := outcomeOf(err)
	x.cfg.Meter.Ended(c.method, c.stream != nil, code, reason, time.Since(start))
	return err
}

// outcomeOf returns the status of a call and, unless it succeeded, the reason.
func outcomeOf(err error) (code codes.Code, reason string) {
	if f, ok := errors.AsType[*rpcerr.Failure](err); ok {
		return f.Code(), f.Reason()
	}
	return codes.OK, ""
}

func (x *Chain) audit(ctx context.Context, c *pass) (err error) {
	err = c.next(ctx)
	if x.cfg.Audit == nil {
		return err
	}
	defer func() { // the call has its outcome, which stays
		if p := recover(); p != nil {
			x.logPanic(ctx, c, p)
		}
	}()
	e := audit.Entry{
		Principal: c.call.Principal, RequestID: c.call.RequestID, Method: c.method,
		Request: c.request, Client: c.call.Client,
	}
	e.Code, e.Reason = outcomeOf(err)
	x.cfg.Audit.Ended(ctx, &e)
	return err
}

func (x *Chain) explain(ctx context.Context, c *pass) (err error) {
	cause := c.next(ctx)
	if cause == nil {
		return nil
	}
	defer func() { // recover comes after this step
		if p := recover(); p != nil {
			x.logPanic(ctx, c, p)
			err = rpcerr.Explain(errPanicked, c.call.Call)
		}
	}()
	c.call.Terse = c.isTerse()
	return rpcerr.Explain(cause, c.call.Call)
}

// errPanicked is the error of a call that has panicked.
var errPanicked = &rpcerr.Error{Reason: rpcerr.Internal, Message: "internal error"}

func (x *Chain) recover(ctx context.Context, c *pass) (err error) {
	defer func() {
		if p := recover(); p != nil {
			x.logPanic(ctx, c, p)
			err = errPanicked
		}
	}()
	return c.next(ctx)
}

// logPanic logs a panic with the stack of the goroutine, which a deferred function still sees.
func (x *Chain) logPanic(ctx context.Context, c *pass, p any) {
	x.cfg.Logger.LogAttrs(ctx, slog.LevelError, "panic",
		slog.String("method", c.method), slog.String("request_id", c.call.RequestID),
		slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
}

// isLate reports whether a call may come after the gate has closed: another replica asks for a
// cursor or a handle, which are here until the pager has drained. The pager refuses what it cannot
// do any more.
func (c *pass) isLate() bool { return c.call.Forwarded && routes[routeOf(c.method)].late }

func (x *Chain) gate(ctx context.Context, c *pass) error {
	ctx, err := x.cfg.Gate.enter(ctx, &c.place, c.isLate())
	if err != nil {
		return err
	}
	defer c.place.leave()
	if c.stream != nil {
		x.live.add(c)
		defer x.live.remove(c)
		if err := x.removed(c); err != nil {
			return err
		}
	}
	return c.ended(ctx, c.next(ctx))
}

func isCanceled(err error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

func (x *Chain) deadline(ctx context.Context, c *pass) error {
	timeout, err := timeoutOf(ctx)
	if err != nil {
		return err
	}
	limits := x.limits.Load()
	if timeout == 0 && c.stream == nil {
		if _, ok := ctx.Deadline(); !ok {
			timeout = limits.Default
		}
	}
	if most := limits.Max; most > 0 && c.stream == nil && (timeout == 0 || timeout > most) {
		timeout = most // an earlier deadline of ctx stays
	}
	if timeout == 0 {
		return c.next(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.next(ctx)
}

// timeoutOf returns the timeout in the call's metadata, or 0 if there is none.
func timeoutOf(ctx context.Context) (time.Duration, error) {
	values := metadata.ValueFromIncomingContext(ctx, TimeoutKey)
	if len(values) == 0 {
		return 0, nil
	}
	timeout, err := time.ParseDuration(values[0])
	if err != nil || timeout <= 0 || len(values) > 1 {
		return 0, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: TimeoutKey,
			Message: fmt.Sprintf("%q is not one positive duration such as 5s", values),
		}
	}
	return timeout, nil
}

// inform puts the call into the handler's context. No other function does so.
func (x *Chain) inform(ctx context.Context, c *pass) (err error) {
	if c.call.Encoding, err = payload.EncodingFrom(ctx); err != nil {
		return err
	}
	c.call.Context, c.call.Sessions = ctx, x.cfg.Sessions
	c.call.Idempotency, c.call.Timeout = x.cfg.Idempotency, x.limits.Load().Default
	if x.cfg.Comment != nil {
		c.call.Comment = x.cfg.Comment(ctx)
	}
	if c.call.Forwarded && c.stream == nil { // what the other replica has allowed; see check
		if err := c.check(&c.call, c.request); err != nil { //nolint:contextcheck // ctx is in it
			return err
		}
	}
	defer func() {
		if w := c.call.Exact; w != nil {
			w.End()
		}
	}()
	return c.next(&c.call) //nolint:contextcheck // ctx is in it
}
