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
	// next cuts the next document off, and returns its size. It returns io.EOF after the last one.
	next func() (doc *mooringv1.Document, n int, err error)
	// charged is what the request is charged with for large documents; the caller sets it to 0
	// when they are no longer its own.
	charged int64
}

func newCutter(c *call) *cutter {
	in := &cutter{
		body:   bufio.NewReaderSize(&c.x.Body, cutBuffer),
		memory: &c.x.Memory, most: int(c.x.Body.MaxBytes()),
	}
	in.next = in.nextLine
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if kind == media.BSON.String() {
		in.next = in.nextBSON
	}
	return in
}

// nextLine cuts the next line off that is not empty.
func (in *cutter) nextLine() (doc *mooringv1.Document, n int, err error) {
	for {
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
