package interceptor

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/audit"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Refusals records the requests that are refused before they are calls: in the metrics, the audit
// log, the log and, if their clients may make calls, among the calls that are remembered. It holds
// these back as those of calls. A field that is nil does nothing.
type Refusals struct {
	Logger *slog.Logger
	Meter  interface {
		Refused(code codes.Code, reason string)
	}
	Audit     *audit.Log
	Recent    *recent.List
	Admission *admission.Admission
}

// Refusals returns what records refusals where the interceptors record calls.
func (x *Chain) Refusals() Refusals {
	return Refusals{
		Logger: x.cfg.Logger, Meter: x.cfg.Meter, Audit: x.cfg.Audit, Recent: x.cfg.Recent,
		Admission: x.cfg.Admission,
	}
}

// Refusal describes a request that was refused before it was a call.
type Refusal struct {
	RequestID string
	// Principal names the client; empty: it is not known, or has no name.
	Principal string
	// Admitted says that the client may make calls: it is known, or need not be.
	Admitted bool
	// Method is the gRPC method. Of a request of HTTP it is the method of HTTP; then Path is the
	// path, Status the status of the answer, and RPC the gRPC method, empty if it is not known.
	Method, Path, RPC string
	Status            int
	// Client is the client's address; zero: not known, as over a Unix domain socket.
	Client netip.Addr
	Code   codes.Code
	Reason string
	// Message is the text for the log; empty: none.
	Message string
}

// Refused records a refusal. It blocks while it holds back that of a client that has had many.
func (r *Refusals) Refused(ctx context.Context, e *Refusal) {
	if r.Meter != nil {
		r.Meter.Refused(e.Code, e.Reason)
	}
	e.Method = LogPath(e.Method)
	method := e.Method
	switch {
	case e.RPC != "":
		method = e.RPC
	case e.Path != "":
		method += " " + e.Path
	}
	r.Audit.Ended(ctx, &audit.Entry{
		Principal: e.Principal, RequestID: e.RequestID, Method: method, Client: e.Client,
		Code: e.Code, Reason: e.Reason,
	})
	r.log(ctx, e)
	if !e.Admitted || !isRefusal(e.Code, e.Reason) {
		return
	}
	r.Recent.Add(recent.Refused, &recent.Call{
		Method: method, Principal: e.Principal, Code: e.Code, Reason: e.Reason,
		RequestID: e.RequestID, Client: e.Client, Message: e.Message, End: time.Now(),
	})
	r.Admission.HoldBack(ctx, admission.PrincipalOf(e.Principal, e.Client))
}

// log writes the line of a refusal.
func (r *Refusals) log(ctx context.Context, e *Refusal) {
	if r.Logger == nil {
		return
	}
	level, message := rpcerr.LogLevel(e.Code, rpcerr.Reason(e.Reason))
	if r.Logger.Enabled(ctx, level) {
		//nolint:sloglint // one of the constants of LogLevel
		r.Logger.LogAttrs(ctx, level, message, e.attrs()...)
	}
}

// attrs returns the attributes of the line in the log.
func (e *Refusal) attrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("request_id", e.RequestID), slog.String("method", e.Method),
	}
	if e.Path != "" {
		attrs = append(attrs, slog.String("path", e.Path), slog.Int("status", e.Status))
	} else {
		attrs = append(attrs, slog.String("code", e.Code.String()))
	}
	attrs = append(attrs, slog.String("reason", e.Reason))
	if e.Principal != "" {
		attrs = append(attrs, slog.String("principal", e.Principal))
	}
	if e.Client.IsValid() {
		attrs = append(attrs, slog.String("client", e.Client.String()))
	}
	if e.Message != "" {
		attrs = append(attrs, slog.String("err", e.Message))
	}
	return attrs
}

// maxSegment is the length of the longest segment of a path in a log. Every key and token is
// longer, and no segment of the API is.
const maxSegment = 48

// LogPath returns a path, or the name of a method, for the log: a segment that may be a key or a
// token, wherever a client has put it, is not in it.
func LogPath(path string) string {
	long := func(segment string) bool { return len(segment) > maxSegment }
	found := false
	for segment := range strings.SplitSeq(path, "/") {
		found = found || long(segment)
	}
	if !found {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if long(s) {
			segments[i] = "…"
		}
	}
	return strings.Join(segments, "/")
}
