package rest

import (
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// decoder reads one JSON text into a message, in one pass. It converts each document to BSON when
// it reaches the document.
type decoder struct {
	json []byte
	at   int
	// root is the plan of a body, nil for other texts. The path has some of its fields.
	root *plan
	make *payload.Maker
	// items counts the items of all lists and maps, within limit.
	items int
	limit itemLimit
}

// decode reads a whole body into m. Errors are *rpcerr.Error, and those of the call's memory.
func decode(
	p *plan, m message, json []byte, make *payload.Maker, items itemLimit,
) error {
	d := decoder{json: json, root: p, make: make, limit: items}
	if c, err := d.peek(); err != nil || c != '{' {
		return d.fail("expected an object")
	}
	if err := d.object(p, m); err != nil {
		return err
	}
	return d.end()
}

// decodeField reads the whole of json as the value of one field of m.
func decodeField(
	f *field, m message, json []byte, make *payload.Maker, items itemLimit,
) error {
	d := decoder{json: json, make: make, limit: items}
	if err := d.field(f, m); err != nil {
		return inField(f.name, err)
	}
	if err := d.end(); err != nil {
		return inField(f.name, err)
	}
	return nil
}

func (d *decoder) end() error {
	d.space()
	if d.at < len(d.json) {
		return d.fail("unexpected text after the value")
	}
	return nil
}

// object reads `{"field": …}`.
func (d *decoder) object(p *plan, m message) error {
	d.at++
	if d.take('}') {
		return nil
	}
	for {
		if err := d.member(p, m); err != nil {
			return err
		}
		if d.take('}') {
			return nil
		}
		if !d.take(',') {
			return d.fail(`expected "," or "}"`)
		}
	}
}

func (d *decoder) member(p *plan, m message) error {
	name, err := d.name()
	if err != nil {
		return err
	}
	f := p.byName[string(name)]
	switch {
	case f == nil:
		return refuseField(string(name), "there is no such field"+p.meant(string(name), d.root))
	case f.inPath && p == d.root:
		return refuseField(f.name, "belongs to the path, not to the body")
	case f.isSet(m):
		return inField(f.name, d.fail("the field is repeated"))
	case f.oneof != nil && m.WhichOneof(f.oneof) != nil:
		other := m.WhichOneof(f.oneof).JSONName()
		return inField(f.name, d.fail(other+" is set already: only one of the two can be set"))
	}
	if !d.take(':') {
		return d.fail(`expected ":"`)
	}
	if err := d.field(f, m); err != nil {
		return inField(f.name, err)
	}
	return nil
}

// isSet reports whether an earlier member has set the field. It does not detect a zero value of a
// field without presence, which is harmless.
func (f *field) isSet(m message) bool { return m.Has(f.fd) }

// field reads the field's value and sets it.
func (d *decoder) field(f *field, m message) error {
	c, err := d.peek()
	if err != nil {
		return err
	}
	if c == 'n' && f.kind != kindValue {
		return d.fail("null is not a value here; leave the field out")
	}
	switch {
	case f.repeated:
		return d.list(f, m)
	case f.kind == kindTextMap:
		return d.textMap(m.Mutable(f.fd).Map())
	}
	var empty message
	if f.kind == kindMessage {
		empty = m.NewField(f.fd).Message()
	}
	v, err := d.value(f, c, empty)
	if err != nil {
		return err
	}
	m.Set(f.fd, v)
	return nil
}

// itemLimit limits the items of all lists and maps of a request. An item of three bytes takes
// hundreds of bytes in memory.
type itemLimit struct {
	most int
	// call is charged with the memory of items; nil: nothing is.
	call payload.Worker
}

// Items are charged in steps of itemStep, itemCost bytes each, beside the bytes of the request: the
// messages that hold them, the list of their documents, and their ids in the response.
const (
	itemStep = 1000
	itemCost = 512
)

// item counts an item of a list or a map.
func (d *decoder) item() error {
	if d.items == d.limit.most {
		return refuse(rpcerr.TooLarge,
			"the request has more than "+strconv.Itoa(d.limit.most)+" items")
	}
	d.items++
	if d.items%itemStep == 0 && d.limit.call != nil {
		return d.limit.call.Charge(itemStep * itemCost)
	}
	return nil
}

// list reads `[…]`.
func (d *decoder) list(f *field, m message) error {
	if !d.take('[') {
		return d.fail("expected an array")
	}
	list := m.Mutable(f.fd).List()
	if d.take(']') {
		return nil
	}
	for i := 0; ; i++ {
		if err := d.item(); err != nil {
			return err
		}
		c, err := d.peek()
		if err != nil {
			return err
		}
		var empty message
		if f.kind == kindMessage {
			empty = list.NewElement().Message()
		}
		v, err := d.value(f, c, empty)
		if err != nil {
			return inField(strconv.Itoa(i), err)
		}
		list.Append(v)
		if d.take(']') {
			return nil
		}
		if !d.take(',') {
			return d.fail(`expected "," or "]"`)
		}
	}
}

// value reads one value, which begins with c; empty is the message to fill, for kindMessage.
func (d *decoder) value(f *field, c byte, empty message) (protoreflect.Value, error) {
	switch f.kind {
	case kindDocument:
		doc, err := d.document(f, c)
		return protoreflect.ValueOfMessage(doc.ProtoReflect()), err
	case kindValue:
		v, err := d.anyValue()
		return protoreflect.ValueOfMessage(v.ProtoReflect()), err
	case kindMessage:
		return protoreflect.ValueOfMessage(empty), d.message(f.message, empty, c)
	case kindString:
		s, err := d.text()
		return protoreflect.ValueOfString(s), err
	case kindBool:
		b, err := d.bool()
		return protoreflect.ValueOfBool(b), err
	case kindInt32:
		n, err := d.integer(math.MinInt32, math.MaxInt32)
		return protoreflect.ValueOfInt32(int32(n)), err
	case kindInt64:
		n, err := d.integer(math.MinInt64, math.MaxInt64)
		return protoreflect.ValueOfInt64(n), err
	case kindTextMap, kindTime, kindUnsupported:
	}
	panic("bug: rest: no value of this kind: " + f.name)
}

// message reads a message in its own shape.
func (d *decoder) message(p *plan, m message, c byte) error {
	switch {
	case p.shape == shapeBare:
		return d.field(p.fields[0], m)
	case p.shape == shapeUnion:
		for _, f := range p.fields {
			if f.takes(c) {
				return d.field(f, m)
			}
		}
		return d.fail("expected " + p.expected())
	case p.shape == shapeModeOnly && c == '"':
		return d.field(p.fields[0], m)
	case p.shape == shapeModeOnly && c != '{':
		return d.fail("expected an object or a string")
	case c != '{':
		return d.fail("expected an object")
	}
	return d.object(p, m)
}

func (d *decoder) document(f *field, c byte) (*mooringv1.Document, error) {
	read := d.make.Document
	switch {
	case f.ordered && c != '[' && c != '{':
		return nil, d.fail("expected an object, or an array of pairs")
	case f.ordered:
		read = d.make.Keys
	case c != '{':
		return nil, d.fail("expected an object")
	}
	raw, n, err := read(d.json[d.at:])
	if err != nil {
		return nil, d.syntax(err)
	}
	d.at += n
	return payload.NewDocument(raw), nil
}

func (d *decoder) anyValue() (*mooringv1.Value, error) {
	v, err := d.extended()
	if err != nil {
		return nil, err
	}
	if err := d.make.Take(len(v.Data)); err != nil {
		return nil, err
	}
	return payload.NewValue(v), nil
}

// extended reads any Extended JSON value. The value is valid until the next one is read.
func (d *decoder) extended() (bson.Value, error) {
	d.space()
	v, n, err := d.make.Value(d.json[d.at:])
	if err != nil {
		return bson.Value{}, d.syntax(err)
	}
	d.at += n
	return v, nil
}

func (d *decoder) textMap(m protoreflect.Map) error {
	if !d.take('{') {
		return d.fail("expected an object")
	}
	if d.take('}') {
		return nil
	}
	for {
		if err := d.item(); err != nil {
			return err
		}
		name, err := d.text()
		if err != nil {
			return err
		}
		if !d.take(':') {
			return d.fail(`expected ":"`)
		}
		value, err := d.text()
		if err != nil {
			return inField(name, err)
		}
		key := protoreflect.ValueOfString(name).MapKey()
		if m.Has(key) {
			return inField(name, d.fail("the field is repeated"))
		}
		m.Set(key, protoreflect.ValueOfString(value))
		if d.take('}') {
			return nil
		}
		if !d.take(',') {
			return d.fail(`expected "," or "}"`)
		}
	}
}

// integer reads a number, a number in a string, or Extended JSON's wrapper of one.
func (d *decoder) integer(low, high int64) (int64, error) {
	d.space()
	at := d.at
	v, err := d.extended()
	if err != nil {
		return 0, err
	}
	n, ok := v.AsInt64()
	if s, isString := v.Str(); isString {
		n, err = strconv.ParseInt(s, 10, 64)
		ok = err == nil && s[0] != '+'
	}
	tooLarge := ok && (n < low || n > high)
	if f, isDouble := v.Double(); isDouble && !ok {
		tooLarge = math.Trunc(f) == f // integral, and not an int64
	}
	switch {
	case tooLarge:
		d.at = at
		return 0, d.fail("the integer is too large")
	case !ok:
		d.at = at
		return 0, d.fail("expected an integer")
	}
	return n, nil
}

func (d *decoder) bool() (bool, error) {
	d.space()
	rest := d.json[d.at:]
	switch {
	case len(rest) >= 4 && string(rest[:4]) == "true":
		d.at += 4
		return true, nil
	case len(rest) >= 5 && string(rest[:5]) == "false":
		d.at += 5
		return false, nil
	}
	return false, d.fail("expected true or false")
}

func (d *decoder) text() (string, error) {
	b, err := d.name()
	return string(b), err
}

// name reads a string. The bytes are valid until the next value is read.
func (d *decoder) name() ([]byte, error) {
	c, err := d.peek()
	if err != nil {
		return nil, err
	}
	if c != '"' {
		return nil, d.fail("expected a string in double quotes")
	}
	if b, ok := d.plainText(); ok {
		return b, nil
	}
	v, err := d.extended()
	if err != nil {
		return nil, err
	}
	s, _ := v.Str()
	return []byte(s), nil
}

// plainText reads a string without escapes.
func (d *decoder) plainText() ([]byte, bool) {
	begin := d.at + 1
	for i := begin; i < len(d.json); i++ {
		switch c := d.json[i]; {
		case c == '"':
			if !utf8.Valid(d.json[begin:i]) {
				return nil, false
			}
			d.at = i + 1
			return d.json[begin:i], true
		case c == '\\' || c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// space skips white space.
func (d *decoder) space() {
	for d.at < len(d.json) {
		switch d.json[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte.
func (d *decoder) peek() (byte, error) {
	d.space()
	if d.at == len(d.json) {
		return 0, d.fail("unexpected end of the text")
	}
	return d.json[d.at], nil
}

// take skips white space, then c if it is next. It reports whether it has skipped c.
func (d *decoder) take(c byte) bool {
	d.space()
	if d.at == len(d.json) || d.json[d.at] != c {
		return false
	}
	d.at++
	return true
}

// fail returns the error of the byte that is next. Other languages have single quotes, and shells
// remove double ones.
func (d *decoder) fail(message string) error {
	if d.at < len(d.json) && d.json[d.at] == '\'' {
		message += ": JSON has no single quotes"
	}
	return malformed("", d.at, message)
}

// syntax returns the *rpcerr.Error of an error of extjson, and other errors as they are. Offsets of
// err count from d.at.
func (d *decoder) syntax(err error) error {
	if s, ok := errors.AsType[*extjson.SyntaxError](err); ok {
		if s.TooLarge {
			return &rpcerr.Error{Reason: rpcerr.TooLarge, Field: s.Path, Message: s.Problem}
		}
		return malformed(s.Path, d.at+s.Offset, "malformed Extended JSON: "+s.Problem)
	}
	return err
}

// inField prefixes the field of an error with name.
func inField(name string, err error) error {
	if e, ok := errors.AsType[*rpcerr.Error](err); ok {
		if e.Field == "" {
			e.Field = name
		} else {
			e.Field = name + "." + e.Field
		}
	}
	return err
}
