// Package audit keeps the log of who has changed what: writes, administrative calls and refusals.
// It decides which calls belong there, and describes each, without any value of a document. One
// goroutine writes the lines, behind a queue with bounds, so that no call waits for the log. It
// does not know why a call was refused.
package audit

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
	"github.com/mooringdb/mooring/internal/spans"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// methodPrefix begins the methods of the API.
const methodPrefix = "/mooring.v1."

// Entry describes a call that has ended.
type Entry struct {
	Principal, RequestID string
	Method               string     // such as /mooring.v1.CursorService/NextPage, or a path of REST
	Request              any        // the message; nil: none has arrived
	Client               netip.Addr // zero: it is not known
	Code                 codes.Code // of the status
	Reason               string     // of the error; empty: the call succeeded
}

// Ended records a call if it belongs to the log. It does not block, unless the call has so many
// namespaces that they need several lines: these wait for room in the queue, for longWait at most.
func (l *Log) Ended(ctx context.Context, e *Entry) {
	if l == nil {
		return
	}
	targets := targetsOf(e.Request)
	switch why := belongs(e, targets); {
	case why == never:
		return
	case why == perhaps && !l.admit(e):
		return
	}
	outcome := e.Reason
	if e.Code == codes.OK {
		outcome = "ok"
	}
	one := line{
		at: time.Now(), principal: e.Principal, action: action(e), outcome: outcome,
		requestID: e.RequestID, traceID: spans.TraceID(ctx), client: e.Client,
		namespace: cut(targets.namespace), part: 1, parts: 1,
	}
	if len(targets.all) == 0 {
		l.queue.put(&one)
		return
	}
	l.putAll(&one, targets.list()) //nolint:contextcheck // the call has ended
}

// putAll puts one line for each part of the list of namespaces.
func (l *Log) putAll(one *line, parts []string) {
	one.parts = len(parts)
	if one.parts == 1 {
		one.namespaces = parts[0]
		l.queue.put(one)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), longWait)
	defer cancel()
	for i, part := range parts {
		one.part, one.namespaces = i+1, part
		l.queue.putInTime(ctx, one)
	}
}

// longWait is how long the lines of one call wait for room in the queue.
const longWait = 5 * time.Second

// membership says whether a call belongs to the log.
type membership uint8

const (
	never membership = iota
	always
	// perhaps is a refusal that clients can cause at any rate, so that it is written or counted.
	perhaps
)

// belongs returns whether a call belongs to the log.
func belongs(e *Entry, of targets) membership {
	refused := isRefusal(e)
	switch {
	case refused && e.Principal == "":
		return perhaps
	case refused && e.Code == codes.PermissionDenied, changes(e, of):
		return always
	case refused:
		return perhaps
	}
	return never
}

// isRefusal reports whether a call was refused for what its client is, may do or has used.
func isRefusal(e *Entry) bool {
	return e.Code == codes.PermissionDenied || e.Code == codes.Unauthenticated ||
		e.Code == codes.ResourceExhausted ||
		e.Code == codes.Unavailable && e.Reason == string(rpcerr.Overloaded)
}

// changes reports whether a call is one that may change anything.
func changes(e *Entry, of targets) bool {
	if !strings.HasPrefix(e.Method, methodPrefix) { // it has reached no method
		return false
	}
	m := method.Of(e.Method)
	switch {
	case m == nil: // it counts as a write
		return true
	case of.writes:
		return true
	case m.Audit == mooringv1.Method_AUDIT_PIPELINE:
		return e.Request == nil
	}
	return m.Audit != mooringv1.Method_AUDIT_READ
}

// maxName is the length of the longest name of a command that is logged: clients choose it.
const maxName = 64

// maxMethod is the length of the longest path that is logged.
const maxMethod = 256

// action returns the method and, of a command, its name.
func action(e *Entry) string {
	called := strings.TrimPrefix(e.Method, methodPrefix)
	called = strings.ToValidUTF8(called[:min(len(called), maxMethod)], "")
	m := method.Of(e.Method)
	r, ok := e.Request.(interface{ GetCommand() *mooringv1.Document })
	if !ok || m == nil || m.Audit != mooringv1.Method_AUDIT_COMMAND {
		return called
	}
	name := bson.Raw(r.GetCommand().GetBson()).FirstKey()
	if name == "" {
		name = firstKey(r.GetCommand().GetJson())
	}
	if len(name) > maxName || strings.ContainsFunc(name, isStrange) {
		name = "?"
	}
	return called + " " + name
}

// firstKey returns the first key of an object in JSON, if no escape is in it. It returns "?" if the
// text does not begin as an object: what is in quotes can be a value then.
func firstKey(text string) string {
	before, text, _ := strings.Cut(text, `"`)
	key, after, _ := strings.Cut(text, `"`)
	if strings.TrimSpace(before) != "{" || !strings.HasPrefix(strings.TrimSpace(after), ":") {
		return "?"
	}
	return key
}

func isStrange(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_')
}
