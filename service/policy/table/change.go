package table

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Change describes a field of a request that a policy has changed. The texts are for people: their
// documents are Extended JSON. A text is empty if the request has no such field.
type Change struct{ Field, Before, After string }

// Changes returns the fields that differ between two requests of one type, in the order of their
// numbers.
func Changes(before, after proto.Message) (changes []Change, err error) {
	fields := before.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		b, err := showField(before, fd)
		if err != nil {
			return nil, err
		}
		a, err := showField(after, fd)
		if err != nil {
			return nil, err
		}
		if a != b {
			changes = append(changes, Change{fd.JSONName(), b, a})
		}
	}
	return changes, nil
}

// showField returns what show does, or nothing for a field that is not there.
func showField(m proto.Message, fd protoreflect.FieldDescriptor) (string, error) {
	if !m.ProtoReflect().Has(fd) {
		return "", nil
	}
	return show(m, fd.JSONName())
}
