package rpcerr

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// duplicateKey is the reason of an error about a key that exists.
const duplicateKey = "DuplicateKey"

// keptBack is what a client is told in place of the server's words. It names the option that shows
// them.
const keptBack = "the server refuses the request; its message is withheld (errors.serverTexts)"

// sentence returns what a client is told in place of the server's words.
func sentence(reason string) string {
	if reason == duplicateKey {
		return "a document with this key exists"
	}
	return keptBack
}

// hushed returns what a client is told of the server's words: all of them if they can only quote
// the client's own request.
func hushed(code int32, reason, text string) string {
	if isTold(code, text) {
		return text
	}
	return sentence(reason)
}

// hush takes the server's words and documents out of an explanation, unless they can only be about
// the request. They could tell of documents or fields that the client may not read.
func (x *explanation) hush() {
	if x.server == nil {
		return
	}
	if x.said {
		x.message = hushed(x.server.GetCode(), string(x.reason), x.message)
		x.kept = x.message == keptBack
	}
	x.server.KeyPattern, x.server.KeyValue = nil, nil
	x.server.ErrInfo, x.server.Violations = nil, nil
	if !x.hushed {
		hushParts(x.server.GetWriteErrors(), x.server.GetWriteConcernError())
	}
}

func hushParts(writes []*mooringv1.WriteError, concern *mooringv1.WriteConcernError) {
	for _, w := range writes {
		w.Message = hushed(w.GetCode(), w.GetCodeName(), w.GetMessage())
		w.KeyPattern, w.KeyValue, w.ErrInfo, w.Violations = nil, nil, nil, nil
	}
	if concern != nil {
		concern.Message, concern.ErrInfo = "the write concern was not met", nil
	}
}

// Hider decides about the server's words in a response.
type Hider interface {
	// Hides reports whether the client does not see them. Hush calls it for each error.
	Hides() bool
}

// Hush takes the server's words out of the errors in a response, as they are taken out of an error
// whose call is quiet. It leaves those that h does not hide as they are.
func Hush(response proto.Message, h Hider) { hushMessage(response.ProtoReflect(), h) }

func hushMessage(m protoreflect.Message, h Hider) {
	for _, fd := range errorFields[m.Descriptor()] {
		if !m.Has(fd) {
			continue
		}
		v := m.Get(fd)
		if !fd.IsList() {
			hushOne(v.Message(), h)
			continue
		}
		for i := range v.List().Len() {
			hushOne(v.List().Get(i).Message(), h)
		}
	}
}

func hushOne(m protoreflect.Message, h Hider) {
	switch m := m.Interface().(type) {
	case *mooringv1.WriteError:
		if h.Hides() {
			hushParts([]*mooringv1.WriteError{m}, nil)
		}
	case *mooringv1.WriteConcernError:
		if h.Hides() {
			hushParts(nil, m)
		}
	default:
		hushMessage(m.ProtoReflect(), h) // an ErrorResponse has them in its Error
	}
}

// errorFields lists the fields of each message of the API in which errors of the server can be,
// also further inside. Other messages have none, so that Hush does not look at their fields.
var errorFields = findErrorFields()

func findErrorFields() map[protoreflect.MessageDescriptor][]protoreflect.FieldDescriptor {
	found := map[protoreflect.MessageDescriptor][]protoreflect.FieldDescriptor{
		(*mooringv1.WriteError)(nil).ProtoReflect().Descriptor():        {},
		(*mooringv1.WriteConcernError)(nil).ProtoReflect().Descriptor(): {},
	}
	var all []protoreflect.MessageDescriptor
	pkg := mooringv1.File_mooring_v1_error_proto.Package()
	protoregistry.GlobalFiles.RangeFilesByPackage(pkg, func(f protoreflect.FileDescriptor) bool {
		all = appendMessages(all, f.Messages())
		return true
	})
	for before := 0; before < len(found); { // until no message is found by those within it
		before = len(found)
		for _, m := range all {
			if fields := fieldsOf(m, found); len(fields) > 0 {
				found[m] = fields
			}
		}
	}
	return found
}

func appendMessages(
	all []protoreflect.MessageDescriptor, more protoreflect.MessageDescriptors,
) []protoreflect.MessageDescriptor {
	for i := range more.Len() {
		all = appendMessages(append(all, more.Get(i)), more.Get(i).Messages())
	}
	return all
}

// fieldsOf returns the fields of a message that are messages of found.
func fieldsOf(
	m protoreflect.MessageDescriptor,
	found map[protoreflect.MessageDescriptor][]protoreflect.FieldDescriptor,
) (fields []protoreflect.FieldDescriptor) {
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		if inner := fd.Message(); inner == nil || fd.IsMap() {
			continue
		}
		if _, ok := found[fd.Message()]; ok {
			fields = append(fields, fd)
		}
	}
	return fields
}
