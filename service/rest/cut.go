package rest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"mime"
	"strconv"
	"unsafe"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/front"
	"github.com/mooringdb/mooring/service/media"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// cutBuffer is how much of the body is read at once. A document that is larger is charged by
// itself.
const cutBuffer = 64 << 10

// documentCost is what a byte of a document costs, for the document and the message to the server.
// The service charges what lines become.
const documentCost = 2

// cutter cuts the body of an import into documents.
type cutter struct {
	body   *bufio.Reader
	memory *front.Memory
	most   int // bytes of a line
	// next cuts the next document off, and returns its size. It returns io.EOF after the last one,
	// and a *contentError if what follows cannot be cut.
	next func() (doc *mooringv1.Document, n int, err error)
	// charged is what the request is charged with for large documents; the caller sets it to 0
	// when they are no longer its own.
	charged int64
	// read is the number of documents so far.
	read  int
	array array
}

// contentError reports a body that has arrived, and whose next document cannot be cut.
type contentError struct{ err *rpcerr.Error }

func (e *contentError) Error() string { return e.err.Error() }

// Unwrap returns the error that the client gets.
func (e *contentError) Unwrap() error { return e.err }

// newCutter returns the cutter of a body that has the type of the request.
func newCutter(c *call, body io.Reader) (*cutter, error) {
	in := &cutter{memory: &c.x.Memory, most: int(c.x.Body.MaxBytes())}
	kind, params, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if kind == media.CSV.String() {
		return in, in.openRows(body, c.query, params["header"])
	}
	for _, name := range rowParams {
		if c.query.Has(name) {
			return nil, refuseField(name, "is only for a body of the type "+media.CSV.String())
		}
	}
	in.body = bufio.NewReaderSize(body, cutBuffer)
	switch kind {
	case media.BSON.String():
		in.next = in.nextBSON
	case media.JSON.String(), media.EJSON.String():
		in.next = in.nextItem
	default:
		in.next = in.nextLine
	}
	return in, nil
}

// nextLine cuts the next line off that is not empty.
func (in *cutter) nextLine() (doc *mooringv1.Document, n int, err error) {
	for {
		if _, err := in.skipSpace(); err != nil {
			return nil, 0, err
		}
		before := in.charged
		line, err := in.line()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			// Nothing else has the bytes, so that they can be a string.
			text := unsafe.String(unsafe.SliceData(line), len(line))
			arm := &mooringv1.Document_Json{Json: text}
			return &mooringv1.Document{Encoding: arm}, len(line), nil
		}
		if err != nil {
			return nil, 0, io.EOF
		}
		in.memory.Release(in.charged - before)
		in.charged = before
	}
}

// skipSpace returns the next byte that is not a space of JSON, and leaves it.
func (in *cutter) skipSpace() (byte, error) {
	for {
		buffered, err := in.buffered()
		if err != nil {
			return 0, err
		}
		rest := bytes.TrimLeft(buffered, " \t\r\n")
		in.discard(len(buffered) - len(rest))
		if len(rest) > 0 {
			return rest[0], nil
		}
	}
}

// buffered returns what has arrived of the body and is not read, at least one byte.
func (in *cutter) buffered() ([]byte, error) {
	if _, err := in.body.Peek(1); err != nil {
		return nil, err
	}
	return in.body.Peek(in.body.Buffered())
}

// discard reads n bytes that have arrived.
func (in *cutter) discard(n int) {
	_, _ = in.body.Discard(n) // it is buffered
	in.array.offset += n
}

// line returns the next line, in a buffer of its own.
func (in *cutter) line() ([]byte, error) {
	part, err := in.body.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return bytes.Clone(part), err
	}
	var line front.Piece
	defer func() { in.charged += line.Charged }()
	for {
		if len(line.B)+len(part) > in.most {
			return nil, refuse(rpcerr.TooLarge, "a line is longer than "+
				strconv.Itoa(in.most)+" bytes")
		}
		if err := line.Grow(in.memory, len(part), in.most, 1); err != nil {
			return nil, err
		}
		line.B = append(line.B, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line.B, err
		}
		part, err = in.body.ReadSlice('\n')
	}
}

// nextBSON cuts the next document off. If the body ends within it, or its length is none, it
// returns the bytes that are there, and the service refuses them by their index.
func (in *cutter) nextBSON() (doc *mooringv1.Document, n int, err error) {
	const lengthBytes, least = 4, 5
	head, err := in.body.Peek(lengthBytes)
	size := lengthBytes
	if err == nil {
		size = int(int32(binary.LittleEndian.Uint32(head)))
	}
	if size < least || size > int(payload.MaxDocument) {
		size = len(head)
	}
	if err != nil && (!errors.Is(err, io.EOF) || size == 0) {
		return nil, 0, err
	}
	raw, err := in.take(size)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, 0, err
	}
	return payload.NewDocument(raw), len(raw), nil
}

// take reads so many bytes, in a buffer of their own.
func (in *cutter) take(size int) ([]byte, error) {
	if size <= cutBuffer {
		raw := make([]byte, size)
		n, err := io.ReadFull(in.body, raw)
		return raw[:n], err
	}
	var raw front.Piece
	err := raw.ReadFull(in.memory, in.body, size, documentCost)
	in.charged += raw.Charged
	return raw.B, err
}
