// Package payload converts the API's Documents and Values to BSON views, and back.
//
// It validates documents of requests once; later code relies on that. It never copies BSON. A view
// shares the message's bytes, so neither may be changed afterwards. The package does no I/O and
// knows nothing of HTTP.
package payload

import (
	"bytes"
	"errors"
	"strconv"
	"unsafe"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// Error reports which field of a request is malformed, and where. It is the client's error.
type Error struct {
	// Field is the path to the problem: "filter.total.$gt".
	Field string
	// Offset is the position of the problem, in bytes from the beginning of the field's BSON or
	// JSON, or NoOffset.
	Offset int
	// Problem describes the problem.
	Problem string
	// TooLarge is set if the size is the only problem.
	TooLarge bool
}

// MaxDocument limits the BSON of one JSON document or value. It is the largest document that
// servers accept, plus room for what they add themselves. A text of 64 MiB can become several times
// longer; it is refused before all of it is in memory.
const MaxDocument extjson.Limit = 16<<20 + 16<<10

// NoOffset is the Offset of a problem that has no position, because there is no text.
const NoOffset = -1

// Error returns "<field>: <problem> (offset <n>)".
func (e *Error) Error() string {
	if e.Offset < 0 {
		return e.Field + ": " + e.Problem
	}
	return e.Field + ": " + e.Problem + " (offset " + strconv.Itoa(e.Offset) + ")"
}

// Decoder reads the Documents and Values of requests. Its zero value validates all of them.
type Decoder struct {
	// Built is true if the process has itself built the BSON. Such BSON is not validated again.
	Built bool
	// By does the work of the call; nil: nothing is charged, and there are no turns.
	By Worker
}

// smallText is how long a text is whose BSON is not charged.
const smallText = 4 << 10

// parse returns the document that a text is.
func (from Decoder) parse(text string) (bson.Raw, error) {
	json := bytesOf(text)
	if err := from.work(len(json)); err != nil {
		return nil, err
	}
	if from.By == nil || len(json) <= smallText {
		return MaxDocument.Parse(make([]byte, 0, len(json)+minChunk), json)
	}
	m, room := NewMaker(from.By, 0), roomOf(json)
	if err := m.Take(room); err != nil {
		return nil, err
	}
	return m.parser().Parse(make([]byte, 0, room), json)
}

// roomOf returns about how long the BSON of a text is, and seldom less: about as long as the text,
// without most of its escapes. The buffer grows if it is longer.
func roomOf(json []byte) int {
	const shorter, shortest = 3, 1 // \uXXXX is at most three bytes, \u00XX at most two
	room := len(json) - shorter*bytes.Count(json, []byte(`\u`)) -
		shortest*bytes.Count(json, []byte(`\u00`))
	return max(room, 0) + minChunk
}

// parseValue returns the value that a text is.
func (from Decoder) parseValue(text string) (bson.Value, error) {
	json := bytesOf(text)
	if err := from.work(len(json)); err != nil {
		return bson.Value{}, err
	}
	if from.By == nil || len(json) <= smallText {
		v, _, err := MaxDocument.ParseValue(nil, json)
		return v, err
	}
	m := NewMaker(from.By, 0)
	v, _, err := m.parser().ParseValue(nil, json)
	return v, err
}

// Raw validates the document and returns it. A nil message is an unset field, for which Raw returns
// nil. A message with neither form set is an error.
func (from Decoder) Raw(field string, d *mooringv1.Document) (bson.Raw, error) {
	if d == nil {
		return nil, nil
	}
	switch e := d.GetEncoding().(type) {
	case *mooringv1.Document_Bson:
		raw := bson.Raw(e.Bson)
		if err := from.validate(raw); err != nil {
			return nil, inField(field, err)
		}
		return raw, nil
	case *mooringv1.Document_Json:
		raw, err := from.parse(e.Json)
		if err != nil {
			return nil, inField(field, err)
		}
		return raw, nil
	}
	return nil, unset(field)
}

func (from Decoder) validate(raw bson.Raw) error {
	if from.Built {
		return nil
	}
	if err := from.work(len(raw) / validated); err != nil {
		return err
	}
	return raw.Validate()
}

const (
	// validated is how many bytes of BSON are validated while one of JSON is parsed.
	validated = 4
	// document is what a document costs beside its text: as much as parsing so many bytes.
	document = 128
)

// work says that work on so many bytes of JSON comes next.
func (from Decoder) work(bytes int) error {
	if from.By == nil {
		return nil
	}
	return from.By.Do(document + bytes)
}

// Keys does what Raw does for documents whose order matters. Their JSON may also be an array of
// pairs, as AppendPairs reads it. The BSON of pairs is short: it is charged once it is there.
func (from Decoder) Keys(field string, d *mooringv1.Document) (bson.Raw, error) {
	e, isJSON := d.GetEncoding().(*mooringv1.Document_Json)
	if !isJSON || !IsPairs(bytesOf(e.Json)) {
		return from.Raw(field, d)
	}
	raw, err := from.parsePairs(e.Json)
	if err != nil {
		return nil, inField(field, err)
	}
	return raw, nil
}

// parsePairs returns the document that an array of pairs is.
func (from Decoder) parsePairs(text string) (bson.Raw, error) {
	json := bytesOf(text)
	if err := from.work(len(json)); err != nil {
		return nil, err
	}
	raw, n, err := AppendPairs(nil, json)
	if err != nil {
		return nil, err
	}
	if n += skipSpace(json[n:]); n < len(json) {
		return nil, &extjson.SyntaxError{Offset: n, Problem: "unexpected text after the array"}
	}
	m := NewMaker(from.By, 0)
	return raw, m.Take(len(raw))
}

// bytesOf returns the bytes of a text. Nothing changes them.
func bytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// List does what Raw does for each of docs. The field of an error has the form "documents.3".
func (from Decoder) List(field string, docs []*mooringv1.Document) ([]bson.Raw, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	raws := make([]bson.Raw, len(docs))
	for i, d := range docs {
		raw, err := from.Raw("", d)
		if err != nil {
			return nil, inField(field+"."+strconv.Itoa(i), err)
		}
		if raw == nil {
			return nil, unset(field + "." + strconv.Itoa(i))
		}
		raws[i] = raw
	}
	return raws, nil
}

// Value validates the value and returns it. A nil message is an unset field, for which Value
// returns the zero Value. A message with neither form set is an error.
func (from Decoder) Value(field string, v *mooringv1.Value) (bson.Value, error) {
	if v == nil {
		return bson.Value{}, nil
	}
	switch e := v.GetEncoding().(type) {
	case *mooringv1.Value_Bson:
		raw := bson.Raw(e.Bson)
		if err := from.validate(raw); err != nil {
			return bson.Value{}, inField(field, err)
		}
		value, ok := raw.Lookup(ValueKey)
		if !ok || raw.Len() != 1 {
			return bson.Value{}, &Error{
				Field:   field,
				Problem: `a value's BSON is a document with exactly one element, "v"`,
			}
		}
		return value, nil
	case *mooringv1.Value_Json:
		value, err := from.parseValue(e.Json)
		if err != nil {
			return bson.Value{}, inField(field, err)
		}
		return value, nil
	}
	return bson.Value{}, unset(field)
}

// ValueKey is the key of a Value's only element.
const ValueKey = "v"

// Native holds the message of a document in its native form, as one value that can be a part of
// another one.
type Native struct {
	message mooringv1.Document
	arm     mooringv1.Document_Bson
}

// Set sets the document and returns its message, which is a part of n.
func (n *Native) Set(raw bson.Raw) *mooringv1.Document {
	n.arm.Bson = raw
	n.message.Encoding = &n.arm
	return &n.message
}

// NewDocument returns the message of a document in its native form.
func NewDocument(raw bson.Raw) *mooringv1.Document { return new(Native).Set(raw) }

// nativeValue holds the message of a value in its native form, as one value that can be a part of
// another one.
type nativeValue struct {
	message mooringv1.Value
	arm     mooringv1.Value_Bson
}

// set sets the value and returns its message, which is a part of n. The message takes valueSize
// bytes of room, and set returns the rest.
func (n *nativeValue) set(v bson.Value, room []byte) (message *mooringv1.Value, rest []byte) {
	size := valueSize(v)
	n.arm.Bson = bson.NewBuilder(room[:0:size]).Value(ValueKey, v).Finish()
	n.message.Encoding = &n.arm
	return &n.message, room[size:]
}

// valueSize returns how many bytes the message of a value has in its native form.
func valueSize(v bson.Value) int { return len("size") + len("t"+ValueKey+"\x00") + len(v.Data) + 1 }

// NewValue returns the message of a value in its native form.
func NewValue(v bson.Value) *mooringv1.Value {
	message, _ := new(nativeValue).set(v, make([]byte, valueSize(v)))
	return message
}

func unset(field string) error {
	return &Error{Field: field, Offset: NoOffset, Problem: "neither bson nor json is set"}
}

// inField returns an *Error for an error of bson or extjson. It prefixes the field of an *Error
// with field. It returns other errors, those of a Worker, as they are.
func inField(field string, err error) error {
	if malformed, ok := errors.AsType[*bson.ValidationError](err); ok {
		return &Error{
			Field: join(field, malformed.Path), Offset: malformed.Offset,
			Problem: "malformed BSON: " + malformed.Problem,
		}
	}
	if syntax, ok := errors.AsType[*extjson.SyntaxError](err); ok {
		e := &Error{
			Field: join(field, syntax.Path), Offset: syntax.Offset,
			Problem: syntax.Problem, TooLarge: syntax.TooLarge,
		}
		if !e.TooLarge {
			e.Problem = "malformed Extended JSON: " + e.Problem
		}
		return e
	}
	if nested, ok := errors.AsType[*Error](err); ok {
		moved := *nested
		moved.Field = join(field, nested.Field)
		return &moved
	}
	return err
}

func join(field, path string) string {
	if field == "" || path == "" {
		return field + path
	}
	return field + "." + path
}
