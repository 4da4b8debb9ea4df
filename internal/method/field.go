package method

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Field describes a field of a request in which a policy checks something.
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

// types has what each check takes: messages of the API by their names, and other kinds of fields.
// Those that are missing take any.
var types = map[mooringv1.Check][]string{
	mooringv1.Check_CHECK_FILTER:        {"Document"},
	mooringv1.Check_CHECK_PROJECTION:    {"Document"},
	mooringv1.Check_CHECK_KEYS:          {"Document"},
	mooringv1.Check_CHECK_FIELD_NAME:    {"string"},
	mooringv1.Check_CHECK_HINT:          {"Hint"},
	mooringv1.Check_CHECK_COLLATION:     {"Document"},
	mooringv1.Check_CHECK_EXPRESSIONS:   {"Document"},
	mooringv1.Check_CHECK_PIPELINE:      {"repeated Document"},
	mooringv1.Check_CHECK_OPTIONS:       {"Document"},
	mooringv1.Check_CHECK_RETURN_KEY:    {"bool"},
	mooringv1.Check_CHECK_INSERT:        {"Document", "repeated Document"},
	mooringv1.Check_CHECK_REPLACEMENT:   {"Document"},
	mooringv1.Check_CHECK_UPDATE:        {"Update"},
	mooringv1.Check_CHECK_ARRAY_FILTERS: {"repeated Document"},
	mooringv1.Check_CHECK_ID:            {"Value"},
	mooringv1.Check_CHECK_IF_MATCH:      {"repeated string"},
	mooringv1.Check_CHECK_VIEW_ON:       {"string"},
	mooringv1.Check_CHECK_RENAME:        {"string"},
}

func typeOf(fd protoreflect.FieldDescriptor) string {
	name := fd.Kind().String()
	if m := fd.Message(); m != nil {
		name = string(m.Name())
	}
	if fd.IsList() {
		return "repeated " + name
	}
	return name
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
		if takes := types[f.Check]; takes != nil && !slices.Contains(takes, typeOf(f)) {
			return fmt.Errorf("%s is a %s, which %s does not take",
				f.FullName(), typeOf(f), f.Check)
		}
		switch f.Check {
		case mooringv1.Check_CHECK_UNSPECIFIED:
			return fmt.Errorf("%s does not have the option mooring.v1.check", f.FullName())
		case mooringv1.Check_CHECK_NONE:
			continue
		case mooringv1.Check_CHECK_PARTS:
			if f.Message() == nil {
				return fmt.Errorf("%s is not a message, and has no parts", f.FullName())
			}
			if err := t.check(f.Message()); err != nil {
				return err
			}
		default:
		}
		t.checked[m] = append(t.checked[m], f)
	}
	return nil
}
