package rest

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"unsafe"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// array represents the place of an import in a body that is an array of JSON. It looks for the
// items' ends alone: the service reads the items.
type array struct {
	begun  bool
	offset int // in the body
	// depth is how many objects and arrays of the item are open, and text says that a string is;
	// escaped that the next byte of it has no meaning of its own.
	depth         int
	text, escaped bool
}

// nextItem cuts the next item of the array off.
func (in *cutter) nextItem() (doc *mooringv1.Document, n int, err error) {
	if err := in.findItem(); err != nil {
		return nil, 0, err
	}
	item, err := in.item()
	if err != nil {
		return nil, 0, err
	}
	if len(item) == 0 {
		return nil, 0, in.notArray("expected a document")
	}
	_ = in.memory.Do(len(item)) // as Work

	text := unsafe.String(unsafe.SliceData(item), len(item)) // nothing else has the bytes
	return &mooringv1.Document{Encoding: &mooringv1.Document_Json{Json: text}}, len(item), nil
}

// findItem reads up to the next item.
func (in *cutter) findItem() error {
	c, err := in.skipSpace()
	switch {
	case err != nil:
		return in.mustGoOn(err)
	case !in.array.begun && c != '[':
		return in.notArray("the body must be an array of documents; for one on each line, the " +
			"Content-Type is application/x-ndjson")
	case in.array.begun && c == ']':
		return in.endArray()
	case in.array.begun && c != ',':
		return in.notArray(`expected "," or "]" after a document`)
	}
	first := !in.array.begun
	in.array.begun = true
	in.discard(1)
	if c, err = in.skipSpace(); err != nil {
		return in.mustGoOn(err)
	}
	if first && c == ']' {
		return in.endArray()
	}
	return nil
}

// endArray reads the end of the array, behind which nothing may follow.
func (in *cutter) endArray() error {
	in.discard(1)
	_, err := in.skipSpace()
	if err == nil {
		return in.notArray("unexpected text after the array")
	}
	return err
}

// mustGoOn returns the error of an array that cannot be read on.
func (in *cutter) mustGoOn(err error) error {
	if errors.Is(err, io.EOF) {
		return in.notArray("the array is not closed")
	}
	return err
}

// item returns the item that begins here, in a buffer of its own.
func (in *cutter) item() ([]byte, error) {
	in.array.depth, in.array.text, in.array.escaped = 0, false, false
	var item front.Piece
	defer func() { in.charged += item.Charged }()
	for {
		buffered, err := in.buffered()
		if err != nil {
			return nil, in.mustGoOn(err)
		}
		n := in.array.end(buffered)
		if n < len(buffered) && len(item.B) == 0 {
			whole := bytes.Clone(buffered[:n])
			in.discard(n)
			return bytes.TrimRight(whole, " \t\r\n"), nil
		}
		if len(item.B)+n > in.most {
			return nil, in.content(refuse(rpcerr.TooLarge, "a document is longer than "+
				strconv.Itoa(in.most)+" bytes"))
		}
		if err := item.Grow(in.memory, n, in.most, 1); err != nil {
			return nil, err
		}
		item.B = append(item.B, buffered[:n]...)
		in.discard(n)
		if n < len(buffered) {
			return bytes.TrimRight(item.B, " \t\r\n"), nil
		}
	}
}

// end returns where the item ends in a part of the body; len(part) if it does not.
func (a *array) end(part []byte) int {
	for i, c := range part {
		switch {
		case a.escaped:
			a.escaped = false
		case a.text:
			a.escaped, a.text = c == '\\', c != '"'
		case c == '"':
			a.text = true
		case c == '{' || c == '[':
			a.depth++
		case (c == ',' || c == ']' || c == '}') && a.depth == 0:
			return i
		case c == '}' || c == ']':
			a.depth--
		}
	}
	return len(part)
}

// notArray returns the error of a body that is not an array from here on.
func (in *cutter) notArray(problem string) error {
	return in.content(refuse(rpcerr.MalformedDocument, problem+" (byte "+
		strconv.Itoa(in.array.offset)+" of the body)"))
}

// content returns the error of a document that cannot be cut.
func (in *cutter) content(err *rpcerr.Error) error {
	err.Field = "documents." + strconv.Itoa(in.read)
	return &contentError{err}
}
