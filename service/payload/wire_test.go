package payload_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
)

func inBSON(b []byte) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: b}}
}

func inJSON(text string) *mooringv1.Document {
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}
}

// someDocuments are of each kind, and of lengths around those at which a length takes a byte more.
func someDocuments() (all []*mooringv1.Document) {
	for _, n := range []int{0, 1, 5, 120, 127, 128, 129, 16_380, 16_384, 70_000} {
		all = append(all, inBSON(bytes.Repeat([]byte{7}, n)), inJSON(strings.Repeat("é", n)))
	}
	later := inBSON([]byte("x"))
	later.ProtoReflect().SetUnknown(
		protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "later"))
	return append(all, &mooringv1.Document{}, nil, later)
}

// fill sets each field of a message to some value.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap(), f.Name() == "documents":
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			list := m.Mutable(f).List()
			if depth > 0 {
				fill(list.AppendMutable().Message(), depth-1)
			}
		case f.IsList():
		case f.Kind() == protoreflect.MessageKind:
			if depth > 0 {
				fill(m.Mutable(f).Message(), depth-1)
			}
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString("text"))
		case f.Kind() == protoreflect.BytesKind:
			m.Set(f, protoreflect.ValueOfBytes([]byte("bytes")))
		case f.Kind() == protoreflect.BoolKind:
			m.Set(f, protoreflect.ValueOfBool(true))
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(1<<40))
		}
	}
	m.SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 9999, protowire.VarintType), 7))
}

// TestWire writes every message of the API that has a list of documents, with all other fields, and
// reads it with package proto.
func TestWire(t *testing.T) {
	messages := 0
	protoregistry.GlobalTypes.RangeMessages(func(kind protoreflect.MessageType) bool {
		empty := kind.New()
		if _, ok := empty.Interface().(interface {
			GetDocuments() []*mooringv1.Document
		}); !ok {
			return true
		}
		messages++
		for _, n := range []int{0, 1, 4, 5, len(someDocuments())} {
			m := kind.New()
			fill(m, 2)
			field := m.Descriptor().Fields().ByName("documents")
			list := m.Mutable(field).List()
			for _, d := range someDocuments()[:n] {
				list.Append(protoreflect.ValueOfMessage(d.ProtoReflect()))
			}
			before := proto.CloneOf(m.Interface())
			w := payload.WireOf(m.Interface())
			written, err := w.Append([]byte("before"))
			if err != nil || w.Size() != len(written)-len("before") ||
				w.Size() != proto.Size(m.Interface()) {
				t.Fatalf("%s of %d documents: %d bytes, %v, Size() = %d, want %d",
					m.Descriptor().Name(), n, len(written), err, w.Size(),
					proto.Size(m.Interface()))
			}
			read := kind.New().Interface()
			if err := proto.Unmarshal(written[len("before"):], read); err != nil ||
				!proto.Equal(read, before) || !proto.Equal(m.Interface(), before) {
				t.Errorf("%s of %d documents is read as another one, or has changed: %v",
					m.Descriptor().Name(), n, err)
			}
		}
		return true
	})
	if messages < 10 {
		t.Errorf("%d messages have documents", messages)
	}
}

// TestWireRefuses checks that no text is written that a client could not read.
func TestWireRefuses(t *testing.T) {
	m := &mooringv1.FindResponse{}
	for range 9 {
		m.Documents = append(m.Documents, inJSON("\xff"))
	}
	w := payload.WireOf(m)
	if _, err := w.Append(nil); err == nil {
		t.Error("a text that is not UTF-8 is written")
	}
}

func BenchmarkWire(b *testing.B) {
	m := &mooringv1.FindResponse{Cursor: proto.String("a cursor")}
	for range 100 {
		m.Documents = append(m.Documents, inBSON(make([]byte, 1000)))
	}
	buffer := make([]byte, 0, 200_000)
	for name, write := range map[string]func(){
		"proto": func() {
			_ = proto.Size(m)
			_, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(buffer, m)
		},
		"wire": func() {
			w := payload.WireOf(m)
			_, _ = w.Append(buffer)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				write()
			}
		})
	}
}
