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
)

// Class says what a method does.
type Class uint8

// The classes. An unknown method counts as a write.
const (
	Unknown Class = iota
	Read
	Write
	Admin    // changes or shows what belongs to other clients, or to the deployment
	Pipeline // an aggregation, which writes if its pipeline does
	Command  // any command
)

// classes has the class of each method, by the name of its service without the package.
var classes = map[string]Class{
	"CatalogService/ListDatabases": Read, "CatalogService/ListCollections": Read,
	"CatalogService/ListIndexes": Read, "CatalogService/ListSearchIndexes": Read,
	"CatalogService/CreateCollection": Admin, "CatalogService/DropCollection": Admin,
	"CatalogService/DropDatabase": Admin, "CatalogService/RenameCollection": Admin,
	"CatalogService/CollMod": Admin, "CatalogService/CreateIndexes": Admin,
	"CatalogService/DropIndexes": Admin, "CatalogService/CreateSearchIndexes": Admin,
	"CatalogService/UpdateSearchIndex": Admin, "CatalogService/DropSearchIndex": Admin,

	"ChangeStreamService/Watch": Read, "ChangeStreamService/CreateTicket": Read,

	"CommandService/RunCommand": Command, "CommandService/RunCursorCommand": Command,
	"CommandService/StreamRunCursorCommand": Command,

	"CursorService/NextPage": Read, "CursorService/Stream": Read,
	"CursorService/CloseCursor": Read,

	"DeploymentService/GetTopology": Read, "DeploymentService/WatchTopology": Read,
	"DeploymentService/ListPools": Read, "DeploymentService/ListHandles": Admin,
	"DeploymentService/KillHandle": Admin,

	"DocumentResourceService/GetDocument":    Read,
	"DocumentResourceService/PutDocument":    Write,
	"DocumentResourceService/PatchDocument":  Write,
	"DocumentResourceService/DeleteDocument": Write,

	"DocumentService/FindOne": Read, "DocumentService/Find": Read,
	"DocumentService/StreamFind": Read, "DocumentService/Aggregate": Pipeline,
	"DocumentService/StreamAggregate": Pipeline, "DocumentService/Distinct": Read,
	"DocumentService/CountDocuments": Read, "DocumentService/EstimatedDocumentCount": Read,
	"DocumentService/InsertOne": Write, "DocumentService/InsertMany": Write,
	"DocumentService/UpdateOne": Write, "DocumentService/UpdateMany": Write,
	"DocumentService/ReplaceOne": Write, "DocumentService/DeleteOne": Write,
	"DocumentService/DeleteMany": Write, "DocumentService/FindOneAndUpdate": Write,
	"DocumentService/FindOneAndReplace": Write, "DocumentService/FindOneAndDelete": Write,
	"DocumentService/ExplainFind": Read, "DocumentService/ExplainAggregate": Read,
	"DocumentService/BulkWrite": Write, "DocumentService/Import": Write,

	"SessionService/Start": Read, "SessionService/End": Read,

	"TransactionService/Begin": Read, "TransactionService/Commit": Write,
	"TransactionService/Abort": Write, "TransactionService/Run": Write,
}

// ClassOf returns the class of a method such as /mooring.v1.CursorService/NextPage.
func ClassOf(method string) Class { return classes[strings.TrimPrefix(method, methodPrefix)] }

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
	switch ClassOf(e.Method) {
	case Read:
		return false
	case Pipeline:
		return mayWrite(e.Request)
	case Unknown, Write, Admin, Command:
	}
	return true
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
	method := strings.TrimPrefix(e.Method, methodPrefix)
	method = method[:min(len(method), maxMethod)]
	r, ok := e.Request.(interface{ GetCommand() *mooringv1.Document })
	if !ok || ClassOf(e.Method) != Command {
		return method
	}
	name := bson.Raw(r.GetCommand().GetBson()).FirstKey()
	if name == "" {
		name = firstKey(r.GetCommand().GetJson())
	}
	if len(name) > maxName || strings.ContainsFunc(name, isStrange) {
		name = "?"
	}
	return method + " " + name
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
