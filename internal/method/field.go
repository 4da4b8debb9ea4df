package method

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Field is a field of a request in which a policy checks something.
type Field struct {
	protoreflect.FieldDescriptor
	Check mooringv1.Check
}

// Checked returns the fields of a message in which a policy checks something: all but those with
// CHECK_NONE, which most fields have. Of a message that is no part of the API's requests it returns
// all fields, with CHECK_UNSPECIFIED.
func Checked(m protoreflect.MessageDescriptor) []Field {
	if fields, ok := methods.checked[m]; ok {
		return fields
	}
	fields := make([]Field, m.Fields().Len())
	for i := range fields {
		fields[i].FieldDescriptor = m.Fields().Get(i)
	}
	return fields
}

// check adds the fields of a message, and those of its parts.
func (t *table) check(m protoreflect.MessageDescriptor) error {
	if _, ok := t.checked[m]; ok {
		return nil
	}
	t.checked[m] = nil
	for i := range m.Fields().Len() {
		f := Field{FieldDescriptor: m.Fields().Get(i)}
		f.Check, _ = proto.GetExtension(f.Options(), mooringv1.E_Check).(mooringv1.Check)
		switch f.Check {
		case mooringv1.Check_CHECK_UNSPECIFIED:
			return fmt.Errorf("%s does not have the option mooring.v1.check", f.FullName())
		case mooringv1.Check_CHECK_NONE:
			continue
		case mooringv1.Check_CHECK_PARTS:
			if err := t.check(f.Message()); err != nil {
				return err
			}
		default:
		}
		t.checked[m] = append(t.checked[m], f)
	}
	return nil
}
