package worst_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// shape is a way to fill a document.
type shape struct {
	name string
	// text appends element i of an object's JSON, and bson the same element.
	text func(dst []byte, i int) []byte
	bson func(dst []byte, i int) []byte
	// array: the elements are those of an array, the object's only field.
	array bool
	// unknown: the payload is fields that the request's message does not have.
	unknown bool
	// unfinished: the last byte does not come. gzip: the body is compressed.
	unfinished, gzip bool
	// spread: all places of documents share the payload.
	spread bool
	// reply: the request is small, and the server answers with documents of this shape.
	reply bool
}

// The elements that shapes have. A name of an array's element in BSON is its index.

func value(dst []byte, _ int) []byte { return append(dst, '1') }

func valueBSON(dst []byte, i int) []byte {
	dst = strconv.AppendInt(append(dst, 0x10), int64(i), 10)
	return append(dst, 0, 1, 0, 0, 0)
}

func empty(dst []byte, _ int) []byte { return append(dst, '{', '}') }

func emptyBSON(dst []byte, i int) []byte {
	dst = strconv.AppendInt(append(dst, 3), int64(i), 10)
	return append(dst, 0, 5, 0, 0, 0, 0)
}

// depth is a little less than what the gateway allows.
const depth = 180

func deep(dst []byte, _ int) []byte {
	dst = append(dst, strings.Repeat("[", depth)...)
	return append(dst, strings.Repeat("]", depth)...)
}

func deepBSON(dst []byte, i int) []byte {
	inner := []byte{5, 0, 0, 0, 0}
	for range depth - 1 {
		inner = finish(append(append([]byte{0, 0, 0, 0}, 4, '0', 0), inner...))
	}
	dst = strconv.AppendInt(append(dst, 4), int64(i), 10)
	return append(append(dst, 0), inner...)
}

func wide(dst []byte, i int) []byte {
	return append(strconv.AppendInt(append(dst, `"f`...), int64(i), 10), `":1`...)
}

func wideBSON(dst []byte, i int) []byte {
	dst = strconv.AppendInt(append(dst, 0x10, 'f'), int64(i), 10)
	return append(dst, 0, 1, 0, 0, 0)
}

var longName = strings.Repeat("n", 64<<10)

func name(dst []byte, i int) []byte { return fmt.Appendf(dst, `"%s%d":1`, longName, i) }

func nameBSON(dst []byte, i int) []byte {
	return append(fmt.Appendf(append(dst, 0x10), "%s%d", longName, i), 0, 1, 0, 0, 0)
}

const texts = 1000 // control characters in one text

func text(dst []byte, i int) []byte {
	dst = fmt.Appendf(dst, `"t%d":"`, i)
	return append(append(dst, strings.Repeat(`\u0001`, texts)...), '"')
}

func textBSON(dst []byte, i int) []byte {
	dst = append(fmt.Appendf(append(dst, 2), "t%d", i), 0)
	dst = binary.LittleEndian.AppendUint32(dst, texts+1)
	return append(append(dst, strings.Repeat("\x01", texts)...), 0)
}

var shapes = []shape{
	{name: "values", text: value, bson: valueBSON, array: true},
	{name: "empties", text: empty, bson: emptyBSON, array: true},
	{name: "deep", text: deep, bson: deepBSON, array: true},
	{name: "wide", text: wide, bson: wideBSON},
	{name: "names", text: name, bson: nameBSON},
	{name: "texts", text: text, bson: textBSON},
	{name: "spread", text: value, bson: valueBSON, array: true, spread: true},
	{name: "unknown", text: value, bson: valueBSON, array: true, unknown: true},
	{name: "unfinished", text: value, bson: valueBSON, array: true, unfinished: true},
	{name: "gzip", text: value, bson: valueBSON, array: true, gzip: true},
}

// replyShapes are the shapes of the documents that servers answer with.
func replyShapes() (all []shape) {
	for _, s := range shapes {
		if !s.spread && !s.unknown && !s.unfinished && !s.gzip {
			s.name, s.reply = "reply of "+s.name, true
			all = append(all, s)
		}
	}
	return all
}

// payload is one document, or more, as JSON and as BSON.
type payload struct{ text, bson [][]byte }

const (
	// largest is what a request may have, less what is beside the payload.
	largest = 64<<20 - 64<<10
	// fits is what a document may have, and perMessage is how many such documents go into one
	// command.
	fits, perMessage = 15 << 20, 3
)

// tooLarge returns a document as large as a request may be, which no server takes.
func (s shape) tooLarge() payload {
	return payload{
		text: [][]byte{s.object(func(b []byte, _ int) bool { return len(b) < largest })},
		bson: [][]byte{s.raw(func(b []byte, _ int) bool { return len(b) < largest })},
	}
}

// largestDocuments returns as many documents of the largest size as a command holds.
func (s shape) largestDocuments() payload {
	count := 0
	bson := s.raw(func(b []byte, n int) bool {
		count = n
		return len(b) < fits
	})
	text := s.object(func(b []byte, n int) bool { return n < count && len(b) < largest })
	p := payload{text: [][]byte{text}, bson: [][]byte{bson}}
	for range perMessage - 1 {
		p.bson = append(p.bson, bson)
		if s.gzip || len(text)*(len(p.text)+1) < largest {
			p.text = append(p.text, text)
		}
	}
	return p
}

// many returns as many small documents as a request may have.
func (s shape) many() (p payload) {
	const items = 99_000 // requests.maxItems, less a few
	small := func(_ []byte, n int) bool { return n < 1 }
	text, bson := s.object(small), s.raw(small)
	for range min(items, largest/2/len(text), largest/2/len(bson)) {
		p.text, p.bson = append(p.text, text), append(p.bson, bson)
	}
	return p
}

// object returns JSON with elements, as long as more reports true.
func (s shape) object(more func(b []byte, n int) bool) []byte {
	b := []byte{'{'}
	if s.array {
		b = []byte(`{"a":[`)
	}
	for i := 0; more(b, i); i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.text(b, i)
	}
	if s.array {
		b = append(b, ']')
	}
	return append(b, '}')
}

// raw returns the same as BSON.
func (s shape) raw(more func(b []byte, n int) bool) []byte {
	b := []byte{0, 0, 0, 0}
	for i := 0; more(b, i); i++ {
		b = s.bson(b, i)
	}
	b = finish(b)
	if s.array {
		b = finish(append([]byte{0, 0, 0, 0, 4, 'a', 0}, b...))
	}
	return b
}

// finish ends a document.
func finish(b []byte) []byte {
	b = append(b, 0)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	return b
}

// list returns JSON texts as an array.
func list(texts [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(texts, []byte{','})...), ']')
}
