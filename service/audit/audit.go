// Package audit keeps the log of who has changed what: writes, administrative calls and refusals.
// It decides which calls belong there, and writes one line for each, without any value of a
// document. It does not know why a call was refused.
package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/method"
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

// Log writes entries. A nil Log writes nothing. It is safe for concurrent use.
type Log struct{ log *slog.Logger }

// New returns a log that writes to the logger, or nil if the logger is nil.
func New(log *slog.Logger) *Log {
	if log == nil {
		return nil
	}
	return &Log{log}
}

// Ended records a call if it belongs to the log.
func (l *Log) Ended(ctx context.Context, e *Entry) {
	if l == nil || !belongs(e) {
		return
	}
	outcome := e.Reason
	if e.Code == codes.OK {
		outcome = "ok"
	}
	attrs := []slog.Attr{
		slog.String("principal", e.Principal),
		slog.String("action", action(e)),
		slog.String("namespace", short(namespace(e.Request))),
		slog.String("outcome", outcome),
		slog.String("request_id", e.RequestID),
	}
	if e.Client.IsValid() {
		attrs = append(attrs, slog.String("client", e.Client.String()))
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, "audit", attrs...)
}

// belongs reports whether a call belongs to the log.
func belongs(e *Entry) bool {
	if e.Code == codes.PermissionDenied || e.Code == codes.Unauthenticated {
		return true
	}
	if !strings.HasPrefix(e.Method, methodPrefix) { // it has reached no method
		return false
	}
	m := method.Of(e.Method)
	switch {
	case m == nil: // it counts as a write
		return true
	case m.Audit == mooringv1.Method_AUDIT_PIPELINE:
		return mayWrite(e.Request)
	}
	return m.Audit != mooringv1.Method_AUDIT_READ
}

// mayWrite reports whether a pipeline can have a stage that writes.
func mayWrite(request any) bool {
	r, ok := request.(interface{ GetPipeline() []*mooringv1.Document })
	if !ok {
		return true
	}
	for _, stage := range r.GetPipeline() {
		switch name := bson.Raw(stage.GetBson()).FirstKey(); {
		case name == "$out", name == "$merge":
			return true
		case strings.Contains(stage.GetJson(), `\u`): // it can be a letter of the name
			return true
		case strings.Contains(stage.GetJson(), "$out"), strings.Contains(stage.GetJson(), "$merge"):
			return true
		}
	}
	return false
}

// maxNamespace is the length of the longest text of namespaces that is logged: clients choose it,
// and a call that was refused can have any.
const maxNamespace = 4 << 10

func short(text string) string {
	if len(text) <= maxNamespace {
		return text
	}
	return strings.ToValidUTF8(text[:maxNamespace], "") + "…"
}

// maxName is the length of the longest name of a command that is logged: clients choose it.
const maxName = 64

// maxMethod is the length of the longest path that is logged.
const maxMethod = 256

// action returns the method and, of a command, its name.
func action(e *Entry) string {
	called := strings.TrimPrefix(e.Method, methodPrefix)
	called = called[:min(len(called), maxMethod)]
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

// Namespace returns the database and the collection that a request names, cut to what a log takes.
func Namespace(request any) string { return short(namespace(request)) }

// namespace returns the database and the collection that a request names, and all of a request with
// several, separated by commas.
func namespace(request any) string {
	if run, ok := request.(*mooringv1.TransactionServiceRunRequest); ok {
		var all names
		for _, o := range run.GetOperations() {
			all.add(operationNamespace(o.ProtoReflect()))
		}
		return all.String()
	}
	database, _ := request.(interface{ GetDatabase() string })
	if database == nil {
		return ""
	}
	collection, _ := request.(interface{ GetCollection() string })
	if many, ok := request.(*mooringv1.BulkWriteRequest); ok && many.GetCollection() == "" {
		return namespaces(many)
	}
	if collection == nil || collection.GetCollection() == "" {
		return database.GetDatabase()
	}
	return database.GetDatabase() + "." + collection.GetCollection()
}

// operationNamespace returns the namespace of an operation of a transaction.
func operationNamespace(operation protoreflect.Message) string {
	which := operation.WhichOneof(operation.Descriptor().Oneofs().ByName("operation"))
	if which == nil {
		return ""
	}
	return namespace(operation.Get(which).Message().Interface())
}

// maxNamespaces is the number of namespaces of a request that are logged.
const maxNamespaces = 20

// names collects namespaces, each once.
type names []string

func (n *names) add(name string) {
	if name != "" && len(*n) <= maxNamespaces && !slices.Contains(*n, name) {
		*n = append(*n, name)
	}
}

func (n *names) String() string {
	if len(*n) > maxNamespaces {
		return strings.Join((*n)[:maxNamespaces], ",") + ",…"
	}
	return strings.Join(*n, ",")
}

// namespaces returns the namespaces of a bulk write on many collections.
func namespaces(request *mooringv1.BulkWriteRequest) string {
	var all names
	for _, m := range request.GetModels() {
		all.add(m.GetNamespace())
	}
	return all.String()
}
