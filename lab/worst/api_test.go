package worst_test

import (
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/mooringdb/mooring/gen/mooring/v1" // the descriptors
)

// rpcs returns all RPCs of the API.
func rpcs() []protoreflect.MethodDescriptor {
	var all []protoreflect.MethodDescriptor
	protoregistry.GlobalFiles.RangeFilesByPackage("mooring.v1", func(
		file protoreflect.FileDescriptor,
	) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				all = append(all, methods.Get(j))
			}
		}
		return true
	})
	return all
}

// nameOf returns the name of an RPC as the audit log has it.
func nameOf(m protoreflect.MethodDescriptor) string {
	return string(m.Parent().Name()) + "/" + string(m.Name())
}

// binding is how REST reaches an RPC.
type binding struct {
	method, path string
	field        string // the body is this field; empty: all of the request
}

const document = "/v1/databases/d/collections/c/documents/1"

// bindings lists those of the RPCs that have no annotation. Import has protocols of its own.
var bindings = map[string]binding{
	"DocumentResourceService/GetDocument":    {http.MethodGet, document, ""},
	"DocumentResourceService/PutDocument":    {http.MethodPut, document, "replacement"},
	"DocumentResourceService/PatchDocument":  {http.MethodPatch, document, "update"},
	"DocumentResourceService/DeleteDocument": {http.MethodDelete, document, ""},
}

// bindingOf returns how REST reaches an RPC: by its first binding.
func bindingOf(m protoreflect.MethodDescriptor) (b binding, ok bool) {
	if b, ok = bindings[nameOf(m)]; ok {
		return b, true
	}
	rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
	if b.method, b.path = http.MethodPost, rule.GetPost(); b.path == "" {
		b.method, b.path = http.MethodGet, rule.GetGet()
	}
	b.path = strings.NewReplacer("{database}", "d", "{collection}", "c").Replace(b.path)
	return b, b.path != ""
}

// action is one of the Atlas Data API, and the field that has most room.
type action struct{ name, field string }

// actions lists them by the RPC that they run.
var actions = map[string]action{
	"DocumentService/FindOne":    {"findOne", "filter"},
	"DocumentService/Find":       {"find", "filter"},
	"DocumentService/Aggregate":  {"aggregate", "pipeline"},
	"DocumentService/InsertOne":  {"insertOne", "document"},
	"DocumentService/InsertMany": {"insertMany", "documents"},
	"DocumentService/UpdateOne":  {"updateOne", "update"},
	"DocumentService/UpdateMany": {"updateMany", "update"},
	"DocumentService/ReplaceOne": {"replaceOne", "replacement"},
	"DocumentService/DeleteOne":  {"deleteOne", "filter"},
	"DocumentService/DeleteMany": {"deleteMany", "filter"},
}

// site is the place of a payload in a request: a field of it, or one of a message in it.
type site []protoreflect.FieldDescriptor

func (s site) last() protoreflect.FieldDescriptor { return s[len(s)-1] }

// holds reports whether the field takes documents, and whether it takes many.
func (s site) holds() (documents, many bool) {
	f := s.last()
	if f.Message() == nil {
		return false, false
	}
	return f.Message().FullName() == "mooring.v1.Document", f.IsList()
}

// room orders sites: those that take many documents have most room, then those of documents that
// are written. All others are read in the same way.
func (s site) room() int {
	documents, many := s.holds()
	isWrite := map[protoreflect.Name]bool{
		"command": true, "document": true, "replacement": true, "operators": true, "stages": true,
	}[s.last().Name()]
	switch {
	case documents && many:
		return 4
	case documents && isWrite:
		return 3
	case documents:
		return 2
	case s.last().Message() != nil: // a Value
		return 1
	}
	return 0
}

// sitesOf returns the places for documents, values and texts in a request.
func sitesOf(m protoreflect.MessageDescriptor) []site { return appendSites(nil, nil, m) }

func appendSites(all []site, path site, m protoreflect.MessageDescriptor) []site {
	const deepest = 5
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		here := append(path[:len(path):len(path)], f)
		switch {
		case f.IsMap() || len(here) > deepest:
		case f.Kind() == protoreflect.StringKind && f.Name() != "database" &&
			f.Name() != "collection":
			all = append(all, here)
		case f.Message() == nil:
		case f.Message().FullName() == "mooring.v1.Document",
			f.Message().FullName() == "mooring.v1.Value":
			all = append(all, here)
		default:
			all = appendSites(all, here, f.Message())
		}
	}
	return all
}

// roomiest returns the first of the places with most room, or none.
func roomiest(m protoreflect.MessageDescriptor) (best site) {
	for _, s := range sitesOf(m) {
		if best == nil || s.room() > best.room() {
			best = s
		}
	}
	return best
}
