package rpcerr

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// duplicateKey is the reason of an error about a key that exists.
const duplicateKey = "DuplicateKey"

// sentence returns what a client is told in place of the server's words.
func sentence(reason string) string {
	if reason == duplicateKey {
		return "a document with this key exists"
	}
	return "the server refuses the request; its words are kept back"
}

// hush takes the server's words and documents out of an explanation. They could tell of documents
// or fields that the client may not read.
func (x *explanation) hush() {
	if x.server == nil {
		return
	}
	x.message = sentence(string(x.reason))
	x.server.KeyPattern, x.server.KeyValue, x.server.ErrInfo = nil, nil, nil
	hushParts(x.server.GetWriteErrors(), x.server.GetWriteConcernError())
}

func hushParts(writes []*mooringv1.WriteError, concern *mooringv1.WriteConcernError) {
	for _, w := range writes {
		w.Message = sentence(w.GetCodeName())
		w.KeyPattern, w.KeyValue, w.ErrInfo = nil, nil, nil
	}
	if concern != nil {
		concern.Message, concern.ErrInfo = "the write concern was not met", nil
	}
}

// Hush takes the server's words out of the errors in a response, as they are taken out of an error
// whose call is quiet. It calls hide for each of them, and leaves those for which hide reports
// false as they are.
func Hush(response proto.Message, hide func() bool) {
	response.ProtoReflect().Range(func(_ protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch v := v.Interface().(type) {
		case protoreflect.List:
			for i := range v.Len() {
				item, ok := v.Get(i).Interface().(protoreflect.Message)
				if !ok {
					break
				}
				hushMessage(item, hide)
			}
		case protoreflect.Message:
			hushMessage(v, hide)
		}
		return true
	})
}

func hushMessage(m protoreflect.Message, hide func() bool) {
	switch m := m.Interface().(type) {
	case *mooringv1.WriteError:
		if hide() {
			hushParts([]*mooringv1.WriteError{m}, nil)
		}
	case *mooringv1.WriteConcernError:
		if hide() {
			hushParts(nil, m)
		}
	case *mooringv1.Document, *mooringv1.Value:
	default:
		Hush(m, hide) // a transaction's response has those of its operations
	}
}
