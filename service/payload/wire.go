package payload

import (
	"errors"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Wire holds a message that is to be written in protobuf's form. It appends the documents of a
// response itself: package proto looks at each one by reflection, twice, which costs more than to
// copy it. The message must not change until it is written.
type Wire struct {
	rest      proto.Message // the message, or one with all fields but documents
	documents []*mooringv1.Document
	number    protowire.Number // of the field documents
	size      int
}

// fewDocuments is up to how many documents of a response are left to package proto.
const fewDocuments = 4

// WireOf returns a message as it will be written.
func WireOf(m proto.Message) Wire {
	list, ok := m.(interface{ GetDocuments() []*mooringv1.Document })
	if !ok || len(list.GetDocuments()) <= fewDocuments {
		return Wire{rest: m, size: proto.Size(m)}
	}
	w := Wire{documents: list.GetDocuments()}
	of := m.ProtoReflect()
	rest := of.New()
	of.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.Name() == "documents" {
			w.number = field.Number()
		} else {
			rest.Set(field, v) // they are shared, and only read
		}
		return true
	})
	rest.SetUnknown(of.GetUnknown())
	w.rest = rest.Interface()
	w.size = proto.Size(w.rest)
	tag := protowire.SizeTag(w.number)
	for _, d := range w.documents {
		w.size += tag + protowire.SizeBytes(sizeOfDocument(d))
	}
	return w
}

// Size returns the length of what Append appends.
func (w *Wire) Size() int { return w.size }

var errNotUTF8 = errors.New("bug: the Extended JSON of a document is not UTF-8")

// Append appends the message to b.
func (w *Wire) Append(b []byte) ([]byte, error) {
	options := proto.MarshalOptions{UseCachedSize: true}
	b, err := options.MarshalAppend(slices.Grow(b, w.size), w.rest)
	if err != nil {
		return nil, err
	}
	for _, d := range w.documents {
		b = protowire.AppendTag(b, w.number, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeOfDocument(d)))
		switch of := d.GetEncoding().(type) {
		case *mooringv1.Document_Bson:
			b = protowire.AppendTag(b, bsonField, protowire.BytesType)
			b = protowire.AppendBytes(b, of.Bson)
		case *mooringv1.Document_Json:
			if !utf8.ValidString(of.Json) {
				return nil, errNotUTF8
			}
			b = protowire.AppendTag(b, jsonField, protowire.BytesType)
			b = protowire.AppendString(b, of.Json)
		}
		b = append(b, unknownOf(d)...)
	}
	return b, nil
}

// The numbers of the fields of Document.
const (
	bsonField = 1
	jsonField = 2
)

func sizeOfDocument(d *mooringv1.Document) int {
	n := len(unknownOf(d))
	switch of := d.GetEncoding().(type) {
	case *mooringv1.Document_Bson:
		n += protowire.SizeTag(bsonField) + protowire.SizeBytes(len(of.Bson))
	case *mooringv1.Document_Json:
		n += protowire.SizeTag(jsonField) + protowire.SizeBytes(len(of.Json))
	}
	return n
}

// unknownOf returns the fields of a document that a later version of another replica has written.
func unknownOf(d *mooringv1.Document) []byte {
	if d == nil {
		return nil
	}
	return d.ProtoReflect().GetUnknown()
}
