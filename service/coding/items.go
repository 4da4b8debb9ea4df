package coding

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// CountItems returns the number of items of all lists and maps of an encoded message, also of those
// of the messages within. It stops as soon as there are more than most, and at bytes that are no
// message: the decoder reports them. A byte of a packed list counts as an item, which is never too
// few.
func CountItems(m protoreflect.MessageDescriptor, text []byte, most int) (n int) {
	for n <= most {
		number, kind, size := protowire.ConsumeTag(text)
		if size < 0 { // also at the end
			return n
		}
		text = text[size:]
		if size = protowire.ConsumeFieldValue(number, kind, text); size < 0 {
			return n
		}
		value := text[:size]
		text = text[size:]
		field := m.Fields().ByNumber(number)
		if field == nil {
			continue
		}
		inner := value
		if kind == protowire.BytesType {
			inner, _ = protowire.ConsumeBytes(value)
		}
		switch {
		case field.IsList() && kind == protowire.BytesType && field.IsPacked():
			n += len(inner)
		case field.Cardinality() == protoreflect.Repeated:
			n++
		}
		if field.Message() != nil && kind == protowire.BytesType {
			n += CountItems(field.Message(), inner, most-n)
		}
	}
	return n
}

// Items returns the number of items of all lists and maps of a message, also of those of the
// messages within. It stops soon when there are more than most.
func Items(m protoreflect.Message, most int) (n int) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsList():
			list := v.List()
			n += list.Len()
			for i := 0; field.Message() != nil && i < list.Len() && n <= most; i++ {
				n += Items(list.Get(i).Message(), most-n)
			}
		case field.IsMap():
			n += v.Map().Len()
			if field.MapValue().Message() == nil {
				break
			}
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				n += Items(v.Message(), most-n)
				return n <= most
			})
		case field.Message() != nil:
			n += Items(v.Message(), most-n)
		}
		return n <= most
	})
	return n
}
