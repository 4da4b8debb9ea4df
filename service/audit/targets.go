package audit

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// targets holds what a call works on.
type targets struct {
	// namespace is the database and the collection that the call names; empty: it names none, or
	// several.
	namespace string
	// all has an element for each operation of a call that has several, and for each namespace that
	// a call reaches beside its own.
	all []target
	// writes says that a stage or a command in the request writes.
	writes bool
}

// target names one operation on one namespace.
type target struct{ namespace, operation string }

// targetsOf returns what a request works on.
func targetsOf(request any) (t targets) {
	switch r := request.(type) {
	case nil:
		return t
	case *mooringv1.TransactionServiceRunRequest:
		for _, o := range r.GetOperations() {
			t.transaction(o.ProtoReflect())
		}
	case *mooringv1.BulkWriteRequest:
		t.bulk(r)
	default:
		t.single(request)
		return t
	}
	t.namespace = t.only()
	return t
}

// single adds a request for one database or one collection.
func (t *targets) single(request any) {
	database, ok := request.(interface{ GetDatabase() string })
	if !ok {
		return
	}
	t.namespace = named(request)
	if r, ok := request.(interface{ GetPipeline() []*mooringv1.Document }); ok {
		t.pipeline(database.GetDatabase(), r.GetPipeline())
	}
	if r, ok := request.(interface{ GetCommand() *mooringv1.Document }); ok {
		t.command(database.GetDatabase(), r.GetCommand())
	}
	if r, ok := request.(*mooringv1.RenameCollectionRequest); ok {
		to := r.GetToDatabase()
		if to == "" {
			to = r.GetDatabase()
		}
		t.add(to+"."+r.GetTo(), "to")
	}
}

// named returns the database and the collection that a request names.
func named(request any) string {
	database, _ := request.(interface{ GetDatabase() string })
	if database == nil {
		return ""
	}
	collection, _ := request.(interface{ GetCollection() string })
	if collection == nil || collection.GetCollection() == "" {
		return database.GetDatabase()
	}
	return database.GetDatabase() + "." + collection.GetCollection()
}

// bulk adds each write of a bulk write, on one collection or many.
func (t *targets) bulk(r *mooringv1.BulkWriteRequest) {
	of := ""
	if r.GetCollection() != "" {
		of = named(r)
	}
	if len(r.GetModels()) == 0 && of != "" {
		t.add(of, "bulkWrite")
	}
	t.all = slices.Grow(t.all, len(r.GetModels()))
	for _, m := range r.GetModels() {
		namespace := of
		if namespace == "" {
			namespace = m.GetNamespace()
		}
		t.add(namespace, models[kindOf(m)])
	}
}

// transaction adds an operation of a transaction.
func (t *targets) transaction(operation protoreflect.Message) {
	field := operation.WhichOneof(operation.Descriptor().Oneofs().ByName("operation"))
	if field == nil {
		return
	}
	request := operation.Get(field).Message().Interface()
	if many, ok := request.(*mooringv1.BulkWriteRequest); ok {
		t.bulk(many)
		return
	}
	t.add(named(request), field.JSONName())
	if r, ok := request.(interface{ GetPipeline() []*mooringv1.Document }); ok {
		database, _ := request.(interface{ GetDatabase() string })
		t.pipeline(database.GetDatabase(), r.GetPipeline())
	}
}

// models has the names of the kinds of a WriteModel, and "" for none.
var models = func() map[protoreflect.FieldNumber]string {
	names := map[protoreflect.FieldNumber]string{}
	kinds := (*mooringv1.WriteModel)(nil).ProtoReflect().Descriptor().Oneofs().ByName("kind")
	for i := range kinds.Fields().Len() {
		names[kinds.Fields().Get(i).Number()] = kinds.Fields().Get(i).JSONName()
	}
	return names
}()

// kindOf returns the number of the field that is set, 0 for none.
func kindOf(m *mooringv1.WriteModel) protoreflect.FieldNumber {
	switch m.GetKind().(type) {
	case *mooringv1.WriteModel_InsertOne:
		return 2
	case *mooringv1.WriteModel_UpdateOne:
		return 3
	case *mooringv1.WriteModel_UpdateMany:
		return 4
	case *mooringv1.WriteModel_ReplaceOne:
		return 5
	case *mooringv1.WriteModel_DeleteOne:
		return 6
	case *mooringv1.WriteModel_DeleteMany:
		return 7
	}
	return 0
}

func (t *targets) add(namespace, operation string) {
	if operation == "" {
		operation = "?"
	}
	t.all = append(t.all, target{namespace, operation})
}

// only returns the namespace if all operations have the same, else "".
func (t *targets) only() string {
	for _, one := range t.all {
		if one.namespace != t.all[0].namespace {
			return ""
		}
	}
	if len(t.all) == 0 {
		return ""
	}
	return t.all[0].namespace
}

const (
	// maxNamespace is the length at which a namespace is cut off: clients choose it, and a call
	// that was refused can have any. Servers take 255 bytes.
	maxNamespace = 512
	// maxList is the length at which the list of a line ends, and the rest begins another line.
	maxList = 64 << 10
)

func cut(name string) string {
	if len(name) <= maxNamespace {
		return name
	}
	return strings.ToValidUTF8(name[:maxNamespace], "") + "…"
}

// list returns the namespaces as lists in JSON, each for one line: an object for each namespace,
// with the number of its operations of each kind. It sorts t.all.
func (t *targets) list() (lists []string) {
	slices.SortFunc(t.all, func(a, b target) int {
		if c := strings.Compare(a.namespace, b.namespace); c != 0 {
			return c
		}
		return strings.Compare(a.operation, b.operation)
	})
	text := []byte{'['}
	for rest := t.all; len(rest) > 0; {
		same := rest[:runOf(rest, func(a, b target) bool { return a.namespace == b.namespace })]
		rest = rest[len(same):]
		text = appendObject(text, same)
		if len(text) >= maxList || len(rest) == 0 {
			lists = append(lists, string(append(text, ']')))
			text = text[:1]
			continue
		}
		text = append(text, ',')
	}
	return lists
}

// appendObject appends the object of one namespace.
func appendObject(text []byte, same []target) []byte {
	text = appendString(append(text, `{"name":`...), cut(same[0].namespace))
	for len(same) > 0 {
		n := runOf(same, func(a, b target) bool { return a.operation == b.operation })
		text = appendString(append(text, ','), same[0].operation)
		text = strconv.AppendInt(append(text, ':'), int64(n), 10)
		same = same[n:]
	}
	return append(text, '}')
}

// runOf returns how many elements at the beginning are alike.
func runOf(list []target, alike func(a, b target) bool) int {
	n := slices.IndexFunc(list, func(t target) bool { return !alike(t, list[0]) })
	if n < 0 {
		return len(list)
	}
	return n
}

func appendString(text []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // strings have none
		return append(text, `"?"`...)
	}
	return append(text, quoted...)
}

// Namespace returns the database and the collection that a request names, cut to what a log takes;
// of several it returns the first, and says so.
func Namespace(request any) string {
	if m, ok := request.(proto.Message); !ok || m == nil {
		return ""
	}
	t := targetsOf(request)
	if t.namespace == "" && len(t.all) > 0 {
		return cut(t.all[0].namespace) + ",…"
	}
	return cut(t.namespace)
}
