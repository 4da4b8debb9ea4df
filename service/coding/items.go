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
