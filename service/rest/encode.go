package rest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/csv"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/literal"
	"github.com/mooringdb/mooring/service/payload"
)

// encoder appends messages to a buffer as JSON. Fields without a value are left out if they have
// presence, and written if not.
type encoder struct {
	buf  []byte
	mode extjson.Mode
	// sparse leaves out empty lists and texts, and false, but no numbers. It is for errors, where
	// index 0 is the first write.
	sparse bool
	// flush, if it is set, is called between the items of a list, and within BSON, when buf has
	// Chunk bytes. It empties buf.
	flush func()
	// room, if it is set, is called before a document or a value is appended. It returns an error
	// if there is no memory for the text.
	room roomMaker
	// rows, if it is set, writes documents as rows of CSV.
	rows *csv.Encoder
	// texts, if it is set, has the text of the response's list of documents. When that follows, buf
	// becomes a part of its memory, and texts nil.
	texts *texts
}

// roomMaker charges a call with the text of a large document.
type roomMaker interface {
	MakeRoom(dst, doc []byte) ([]byte, error)
}

// response appends a whole response. Its own document is null when it is unset.
func (e *encoder) response(p *plan, m message) error {
	return e.object(p, m, true)
}

func (e *encoder) object(p *plan, m message, whole bool) error {
	first := true
	e.buf = append(e.buf, '{')
	for _, f := range p.fields {
		isSet := m.Has(f.fd)
		null := !isSet && whole &&
			f.kind == kindDocument && !f.repeated && !f.fd.HasOptionalKeyword()
		if !isSet && !null && (f.fd.HasPresence() || f.omitted || e.sparse && !f.isNumber()) {
			continue
		}
		if !first {
			e.buf = append(e.buf, ',')
		}
		first = false
		e.buf = append(e.buf, f.quoted...)
		if null {
			e.buf = append(e.buf, "null"...)
			continue
		}
		if err := e.field(f, m); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	e.buf = append(e.buf, '}')
	return nil
}

func (e *encoder) field(f *field, m message) error {
	v := m.Get(f.fd)
	switch {
	case f.kind == kindTextMap:
		return e.textMap(v.Map())
	case !f.repeated:
		return e.value(f, v)
	}
	if e.texts != nil && f.kind == kindDocument {
		e.buf, e.texts = e.texts.around(e.buf), nil
		return nil
	}
	e.buf = append(e.buf, '[')
	list := v.List()
	for i := range list.Len() {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		if err := e.value(f, list.Get(i)); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
		if e.flush != nil && len(e.buf) >= front.Chunk {
			e.flush()
		}
	}
	e.buf = append(e.buf, ']')
	return nil
}

func (e *encoder) value(f *field, v protoreflect.Value) error {
	switch f.kind {
	case kindDocument:
		d, _ := v.Message().Interface().(*mooringv1.Document)
		return e.document(d)
	case kindValue:
		d, _ := v.Message().Interface().(*mooringv1.Value)
		return e.anyValue(d)
	case kindMessage:
		return e.message(f.message, v.Message())
	case kindString:
		return e.text(v.String())
	case kindBool:
		e.buf = strconv.AppendBool(e.buf, v.Bool())
	case kindInt32, kindInt64:
		e.buf = strconv.AppendInt(e.buf, v.Int(), 10)
	case kindTime:
		t, _ := v.Message().Interface().(*timestamppb.Timestamp)
		e.buf = append(t.AsTime().AppendFormat(append(e.buf, '"'), time.RFC3339Nano), '"')
	case kindTextMap, kindUnsupported:
		panic("bug: rest: no value of this kind: " + f.name)
	}
	return nil
}

func (e *encoder) message(p *plan, m message) error {
	switch p.shape {
	case shapeBare:
		return e.field(p.fields[0], m)
	case shapeUnion:
		for _, f := range p.fields {
			if m.Has(f.fd) {
				return e.field(f, m)
			}
		}
		e.buf = append(e.buf, "null"...)
		return nil
	case shapeObject, shapeModeOnly:
	}
	return e.object(p, m, false)
}

func (e *encoder) document(d *mooringv1.Document) error {
	buf, err := e.makeRoom(d.GetBson())
	if err != nil {
		return err
	}
	if e.rows != nil {
		buf, err = e.rows.AppendRow(buf, d.GetBson())
	} else {
		buf, err = extjson.Append(buf, d.GetBson(), e.mode)
	}
	if err != nil {
		if _, ok := errors.AsType[*literal.TypeError](err); ok {
			return refuseField(columnsParam, err.Error())
		}
		return payload.Unencodable(err)
	}
	e.buf = buf
	return nil
}

// raw appends BSON as it is. It is flushed within a document, too, so that buf stays small.
func (e *encoder) raw(doc []byte) {
	for e.flush != nil && len(e.buf)+len(doc) >= front.Chunk {
		n := front.Chunk - len(e.buf)
		e.buf = append(e.buf, doc[:n]...)
		doc = doc[n:]
		e.flush()
	}
	e.buf = append(e.buf, doc...)
}

// makeRoom returns the buffer with room for the text of a document.
func (e *encoder) makeRoom(doc []byte) ([]byte, error) {
	if e.room == nil {
		return e.buf, nil
	}
	return e.room.MakeRoom(e.buf, doc)
}

func (e *encoder) anyValue(d *mooringv1.Value) error {
	v, ok := bson.Raw(d.GetBson()).Lookup(payload.ValueKey)
	if !ok {
		return fmt.Errorf("bug: a Value without %q", payload.ValueKey)
	}
	buf, err := e.makeRoom(d.GetBson())
	if err != nil {
		return err
	}
	if buf, err = extjson.AppendValue(buf, v, e.mode); err != nil {
		return payload.Unencodable(err)
	}
	e.buf = buf
	return nil
}

func (e *encoder) textMap(m protoreflect.Map) error {
	keys := make([]string, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k.String())
		return true
	})
	slices.Sort(keys)
	e.buf = append(e.buf, '{')
	for i, k := range keys {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		if err := e.text(k); err != nil {
			return err
		}
		e.buf = append(e.buf, ':')
		if err := e.text(m.Get(protoreflect.ValueOfString(k).MapKey()).String()); err != nil {
			return err
		}
	}
	e.buf = append(e.buf, '}')
	return nil
}

func (e *encoder) text(s string) error {
	if isPlain(s) {
		e.buf = append(append(append(e.buf, '"'), s...), '"')
		return nil
	}
	buf, err := extjson.AppendValue(e.buf, bson.StringValue(s), extjson.Relaxed)
	if err != nil {
		return err
	}
	e.buf = buf
	return nil
}

// isPlain reports whether s needs no escapes in JSON.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
