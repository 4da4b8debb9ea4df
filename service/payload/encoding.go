package payload

import (
	"context"
	"errors"
	"fmt"
	"math"

	"google.golang.org/grpc/metadata"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// EncodingKey is the metadata key with which a gRPC client chooses the form of Documents and
// Values in responses.
const EncodingKey = "mooring-document-encoding"

// Encoding selects the form of Documents and Values in a response.
type Encoding uint8

// The encodings. The zero value is the native one.
const (
	BSON Encoding = iota // unset
	// JSON stands for "json": relaxed Extended JSON, in which integers that JavaScript cannot
	// represent are $numberLong.
	JSON
	CanonicalJSON // "canonical-json"
)

// EncodingFrom returns the encoding that the call's metadata asks for. If the encoding is unknown,
// it returns an *Error.
func EncodingFrom(ctx context.Context) (Encoding, error) {
	asked := metadata.ValueFromIncomingContext(ctx, EncodingKey)
	if len(asked) == 0 {
		return BSON, nil
	}
	if len(asked) == 1 {
		switch asked[0] {
		case "json":
			return JSON, nil
		case "canonical-json":
			return CanonicalJSON, nil
		}
	}
	return BSON, &Error{
		Field: EncodingKey, Offset: NoOffset,
		Problem: fmt.Sprintf("%q is not json or canonical-json", asked),
	}
}

func (e Encoding) mode() extjson.Mode {
	if e == CanonicalJSON {
		return extjson.Canonical
	}
	return extjson.RelaxedSafe
}

// Document returns the message of a document, or nil for nil. Errors are *EncodeError.
func (e Encoding) Document(raw bson.Raw) (*mooringv1.Document, error) {
	if raw == nil {
		return nil, nil
	}
	if e == BSON {
		return NewDocument(raw), nil
	}
	text, err := extjson.Append(nil, raw, e.mode())
	if err != nil {
		return nil, Unencodable(err)
	}
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: string(text)}}, nil
}

// Documents returns the messages of docs, in three allocations for the native form. If a document
// cannot be encoded, it returns an *EncodeError and the messages of the documents before it.
func (e Encoding) Documents(docs []bson.Raw) ([]*mooringv1.Document, error) {
	return e.Leading(docs, math.MaxInt)
}

// Natives holds the messages of documents in their native form, which can be used again.
type Natives struct {
	list     []*mooringv1.Document
	messages []mooringv1.Document
	arms     []mooringv1.Document_Bson
}

// Documents returns the messages of docs. They are those that it has returned before, as far as
// there are so many.
func (n *Natives) Documents(docs []bson.Raw) []*mooringv1.Document {
	if len(docs) > len(n.list) {
		n.list = make([]*mooringv1.Document, len(docs))
		n.messages = make([]mooringv1.Document, len(docs))
		n.arms = make([]mooringv1.Document_Bson, len(docs))
		for i := range n.list {
			n.messages[i].Encoding = &n.arms[i]
			n.list[i] = &n.messages[i]
		}
	}
	for i, raw := range docs {
		n.arms[i].Bson = raw
	}
	return n.list[:len(docs):len(docs)]
}

// Leading does what Documents does for the leading documents that have at most so many bytes of
// JSON together, and for at least one document. In the native form it returns all documents.
func (e Encoding) Leading(docs []bson.Raw, bytes int) ([]*mooringv1.Document, error) {
	if e == BSON {
		return new(Natives).Documents(docs), nil
	}
	list := make([]*mooringv1.Document, len(docs))
	messages := make([]mooringv1.Document, len(docs))
	var text []byte
	for i, raw := range docs {
		var err error
		if text, err = extjson.Append(text[:0], raw, e.mode()); err != nil {
			return list[:i], Unencodable(err)
		}
		if bytes -= len(text); bytes < 0 && i > 0 {
			return list[:i], nil
		}
		messages[i].Encoding = &mooringv1.Document_Json{Json: string(text)}
		list[i] = &messages[i]
	}
	return list, nil
}

// Value returns the message of a value, or nil for the zero Value. Errors are *EncodeError.
func (e Encoding) Value(v bson.Value) (*mooringv1.Value, error) {
	if v.IsZero() {
		return nil, nil
	}
	if e == BSON {
		return NewValue(v), nil
	}
	text, err := extjson.AppendValue(nil, v, e.mode())
	if err != nil {
		return nil, Unencodable(err)
	}
	return &mooringv1.Value{Encoding: &mooringv1.Value_Json{Json: string(text)}}, nil
}

// Values returns the messages of values, in three allocations for the native form. Errors are
// *EncodeError.
func (e Encoding) Values(values []bson.Value) ([]*mooringv1.Value, error) {
	list := make([]*mooringv1.Value, len(values))
	if e == BSON {
		nativeValues(list, values)
		return list, nil
	}
	for i, v := range values {
		var err error
		if list[i], err = e.Value(v); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func nativeValues(list []*mooringv1.Value, values []bson.Value) {
	size := 0
	for _, v := range values {
		size += valueSize(v)
	}
	natives, room := make([]nativeValue, len(values)), make([]byte, size)
	for i, v := range values {
		if !v.IsZero() {
			list[i], room = natives[i].set(v, room)
		}
	}
}

// EncodeError reports that a document or value of a response cannot be encoded as JSON. The call
// itself has been run.
type EncodeError struct {
	// InvalidUTF8 is set if the only problem is a string that is not UTF-8. Otherwise the BSON is
	// malformed.
	InvalidUTF8 bool
	// Err is the error of extjson.
	Err error
}

// Unencodable returns an *EncodeError that wraps an error of extjson.
func Unencodable(err error) error {
	e := &EncodeError{Err: err}
	if syntax, ok := errors.AsType[*extjson.SyntaxError](err); ok {
		e.InvalidUTF8 = syntax.InvalidUTF8
	}
	return e
}

func (e *EncodeError) Error() string {
	return "the result has a document that JSON cannot carry; ask for BSON: " + e.Err.Error()
}

// Unwrap returns the error of extjson.
func (e *EncodeError) Unwrap() error { return e.Err }
