package api

import (
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// maxBare is the size of the largest request that has no documents, such as one with a token.
const maxBare = 1 << 20

// MaxSizeOf returns the size of the largest request of each method: most, if it can have documents.
func MaxSizeOf(most int) func(method string) int {
	bare := map[string]bool{}
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
				bare[name] = !hasDocuments(m.Input(), map[protoreflect.FullName]bool{})
			}
		}
		return true
	})
	return func(method string) int {
		if bare[method] {
			return min(most, maxBare)
		}
		return most
	}
}

// hasDocuments reports whether a message has a document or value in it. seen has the messages that
// were looked at.
func hasDocuments(
	m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool,
) bool {
	switch seen[m.FullName()] = true; m.FullName() {
	case (*mooringv1.Document)(nil).ProtoReflect().Descriptor().FullName(),
		(*mooringv1.Value)(nil).ProtoReflect().Descriptor().FullName():
		return true
	}
	for i := range m.Fields().Len() {
		inner := m.Fields().Get(i).Message()
		if inner != nil && !seen[inner.FullName()] && hasDocuments(inner, seen) {
			return true
		}
	}
	return false
}
