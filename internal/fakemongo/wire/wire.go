// Package wire frames MongoDB's messages by hand. It shares nothing with core/wire but the
// documents, so that fake servers, recorded exchanges and the product check each other. It makes
// any bytes that a caller asks for, also those that no server and no client may send. It knows
// neither commands nor connections.
package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
)

// The opcodes.
const (
	OpReply      uint32 = 1
	OpQuery      uint32 = 2004
	OpCompressed uint32 = 2012
	OpMsg        uint32 = 2013
)

// The flags of an OP_MSG.
const (
	ChecksumPresent uint32 = 1 << 0
	MoreToCome      uint32 = 1 << 1
	ExhaustAllowed  uint32 = 1 << 16
)

const (
	// HeaderSize is the size of the header that each message begins with.
	HeaderSize = 16
	// MaxMessage is the size of the largest message.
	MaxMessage = 48_000_000

	flagsSize = 4
	room      = 64 // for what stands before a document
	replySize = 20 // of what stands between the header of an OP_REPLY and its documents
)

// Message holds one message, its header included. Read returns messages whose header is whole; its
// other methods are for these.
type Message []byte

// Read reads one message into buf, or into a new buffer if it does not fit there. It blocks until
// the message is complete.
func Read(r io.Reader, buf []byte) (Message, error) {
	buf = slices.Grow(buf[:0], HeaderSize)[:HeaderSize]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, err
	}
	length := int64(int32(binary.LittleEndian.Uint32(buf)))
	if length < HeaderSize || length > MaxMessage {
		return nil, fmt.Errorf("message length %d", length)
	}
	buf = slices.Grow(buf, int(length)-HeaderSize)[:length]
	_, err := io.ReadFull(r, buf[HeaderSize:])
	return buf, err
}

// Header begins each message. Length counts the whole message.
type Header struct {
	Length         uint32
	ID, ResponseTo int32
	OpCode         uint32
}

// Header returns the header of a message.
func (m Message) Header() Header {
	return Header{
		Length:     binary.LittleEndian.Uint32(m),
		ID:         int32(binary.LittleEndian.Uint32(m[4:])),
		ResponseTo: int32(binary.LittleEndian.Uint32(m[8:])),
		OpCode:     binary.LittleEndian.Uint32(m[12:]),
	}
}

// Append appends a header as it is, whatever its length says, and what follows it.
func (h Header) Append(dst []byte, rest ...byte) Message {
	dst = binary.LittleEndian.AppendUint32(dst, h.Length)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.ID))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.ResponseTo))
	dst = binary.LittleEndian.AppendUint32(dst, h.OpCode)
	return append(dst, rest...)
}

// SetLength writes the length of a message into its header: its own, and what follows elsewhere.
func (m Message) SetLength(elsewhere int) {
	binary.LittleEndian.PutUint32(m, uint32(len(m)+elsewhere))
}

// Answer has a finished reply answer another request.
func (m Message) Answer(id int32) { binary.LittleEndian.PutUint32(m[8:], uint32(id)) }

// Flags returns the flags of an OP_MSG.
func (m Message) Flags() uint32 {
	if len(m) < HeaderSize+flagsSize {
		return 0
	}
	return binary.LittleEndian.Uint32(m[HeaderSize:])
}

// Section holds one section of an OP_MSG.
type Section struct {
	Body bool
	// Name is a document sequence's.
	Name []byte
	// Documents are back to back. The body is one.
	Documents []byte
}

// Sections returns the sections of an OP_MSG. It stops behind the first error.
func (m Message) Sections() iter.Seq2[Section, error] {
	return func(yield func(Section, error) bool) {
		b, err := m.sections()
		for err == nil && len(b) > 0 {
			var s Section
			if s, b, err = cutSection(b); err == nil && !yield(s, nil) {
				return
			}
		}
		if err != nil {
			yield(Section{}, err)
		}
	}
}

// sections returns the bytes of the sections.
func (m Message) sections() ([]byte, error) {
	if len(m) < HeaderSize+flagsSize {
		return nil, io.ErrUnexpectedEOF
	}
	flags, b := m.Flags(), m[HeaderSize+flagsSize:]
	if unknown := flags & 0xFFFF &^ (ChecksumPresent | MoreToCome); unknown != 0 {
		return nil, fmt.Errorf("flags %#x", flags)
	}
	if flags&ChecksumPresent != 0 {
		if len(b) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		b = b[:len(b)-4]
	}
	return b, nil
}

func cutSection(b []byte) (s Section, rest []byte, err error) {
	kind, b := b[0], b[1:]
	size := 0
	if len(b) >= 4 {
		size = int(int32(binary.LittleEndian.Uint32(b)))
	}
	switch {
	case kind > 1:
		return s, nil, fmt.Errorf("section kind %d", kind)
	case size < 5 || size > len(b):
		return s, nil, fmt.Errorf("section of %d bytes", size)
	case kind == 0:
		return Section{Body: true, Documents: b[:size:size]}, b[size:], nil
	}
	name, documents, err := cutString(b[4:size:size])
	return Section{Name: name, Documents: documents}, b[size:], err
}

// Documents returns documents that are back to back. Only their lengths are checked. It stops
// behind the first error.
func Documents(b []byte) iter.Seq2[bson.Raw, error] {
	return func(yield func(bson.Raw, error) bool) {
		for len(b) > 0 {
			doc, rest, err := cutDocument(b)
			if !yield(doc, err) || err != nil {
				return
			}
			b = rest
		}
	}
}

func cutDocument(b []byte) (doc bson.Raw, rest []byte, err error) {
	if len(b) < 5 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	size := int(int32(binary.LittleEndian.Uint32(b)))
	if size < 5 || size > len(b) {
		return nil, nil, fmt.Errorf("document of %d bytes", size)
	}
	return bson.Raw(b[:size:size]), b[size:], nil
}

func cutString(b []byte) (s, rest []byte, err error) {
	end := slices.Index(b, 0)
	if end < 0 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	return b[:end], b[end+1:], nil
}

// Query returns the namespace and the document of an OP_QUERY.
func (m Message) Query() (namespace string, doc bson.Raw, err error) {
	if len(m) < HeaderSize+flagsSize {
		return "", nil, io.ErrUnexpectedEOF
	}
	name, b, err := cutString(m[HeaderSize+flagsSize:])
	if err != nil {
		return "", nil, err
	}
	const skipAndReturn = 8
	if len(b) < skipAndReturn {
		return "", nil, io.ErrUnexpectedEOF
	}
	doc, rest, err := cutDocument(b[skipAndReturn:])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the query", len(rest))
	}
	return string(name), doc, err
}

// Document returns the body of an OP_MSG that has nothing else, or the one document of an OP_REPLY.
func (m Message) Document() (bson.Raw, error) {
	start, known := map[uint32]int{
		OpMsg: HeaderSize + flagsSize + 1, OpReply: HeaderSize + replySize,
	}[m.Header().OpCode]
	if !known || len(m) <= start {
		return nil, fmt.Errorf("a reply of %d bytes with the opcode %d", len(m),
			m.Header().OpCode)
	}
	return bson.Raw(m[start:]), nil
}

// Begin appends the header of a message and what stands before its first document: of an OP_MSG
// with flags, or of an OP_REPLY with one document. The caller appends the rest, and calls
// SetLength.
func Begin(dst []byte, h Header, flags uint32) Message {
	dst = binary.LittleEndian.AppendUint32(h.Append(dst), flags)
	if h.OpCode == OpReply {
		dst = append(dst, make([]byte, replySize-8)...) // the cursor, and where it starts
		return binary.LittleEndian.AppendUint32(dst, 1)
	}
	return append(dst, 0) // the kind of the body
}

// AwaitCapable is the flag that servers set in an OP_REPLY.
const AwaitCapable uint32 = 8

// Msg returns an OP_MSG with a body and its document sequences, in the order of their names.
func Msg(h Header, flags uint32, body bson.Raw, sequences map[string][]bson.Raw) Message {
	h.OpCode = OpMsg
	m := append(Begin(make([]byte, 0, len(body)+room), h, flags), body...)
	for _, name := range slices.Sorted(maps.Keys(sequences)) {
		m = append(m, 1)
		start := len(m)
		m = append(append(append(m, 0, 0, 0, 0), name...), 0)
		for _, doc := range sequences[name] {
			m = append(m, doc...)
		}
		binary.LittleEndian.PutUint32(m[start:], uint32(len(m)-start))
	}
	if flags&ChecksumPresent != 0 {
		m = append(m, 0, 0, 0, 0) // no receiver here reads it
	}
	m.SetLength(0)
	return m
}

// Query returns an OP_QUERY with a command of the database admin.
func Query(id int32, body bson.Raw) Message {
	const secondaryOK = 1 << 2
	m := Header{ID: id, OpCode: OpQuery}.Append(nil, secondaryOK, 0, 0, 0)
	m = append(m, "admin.$cmd\x00"...)
	m = append(m, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF) // skip nothing, return one
	m = append(m, body...)
	m.SetLength(0)
	return m
}

// Reply returns an OP_REPLY with one document.
func Reply(h Header, doc bson.Raw) Message {
	h.OpCode = OpReply
	m := append(Begin(make([]byte, 0, len(doc)+room), h, AwaitCapable), doc...)
	m.SetLength(0)
	return m
}

// RoundTrip writes a request and returns the reply. It blocks until the reply is complete.
func RoundTrip(rw io.ReadWriter, request Message) (Message, error) {
	if _, err := rw.Write(request); err != nil {
		return nil, err
	}
	return Read(rw, nil)
}
