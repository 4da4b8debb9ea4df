// Package wire turns MongoDB's messages into bytes and back: OP_MSG, OP_QUERY and OP_REPLY (which
// only the hello to a server without OP_MSG uses), and the envelope of OP_COMPRESSED. Encoding
// appends to the caller's buffer; decoding is strict and returns views on it. It does not
// compress, does no I/O but Length, ReadFrom and ReadInto, and looks at no document beyond the
// frame that carries it: a Raw in a decoded message has a checked length and unchecked contents.
package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/mooringdb/mooring/core/bson"
)

// DefaultMaxMessageSize is the largest message that a server takes or sends unless its hello says
// otherwise.
const DefaultMaxMessageSize int32 = 48_000_000

// HeaderSize is the size of the header that every message begins with.
const HeaderSize = 16

// OpCode names the kind of a message.
type OpCode int32

// The message kinds that are still in use.
const (
	OpReply      OpCode = 1
	OpQuery      OpCode = 2004
	OpCompressed OpCode = 2012
	OpMsg        OpCode = 2013
)

func (o OpCode) String() string {
	switch o {
	case OpReply:
		return "OP_REPLY"
	case OpQuery:
		return "OP_QUERY"
	case OpCompressed:
		return "OP_COMPRESSED"
	case OpMsg:
		return "OP_MSG"
	default:
		return fmt.Sprintf("opcode %d", int32(o))
	}
}

// Header begins every message. Length counts the whole message, the header included.
type Header struct {
	Length     int32
	RequestID  int32
	ResponseTo int32
	OpCode     OpCode
}

// Message holds a *Msg, *Query, *Reply or *Compressed.
type Message interface {
	opCode() OpCode
	appendTo(dst []byte) []byte
}

// FormatError says what is wrong in a message, and at which offset. The connection that it was
// read from must be closed.
type FormatError struct {
	Offset  int
	Problem string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("malformed message: %s (offset %d)", e.Problem, e.Offset)
}

// Malformed reports true; see mongoerr.IsMalformed.
func (e *FormatError) Malformed() bool { return true }

// Length returns the length of the next message, after it has checked that the length is between
// HeaderSize and max (0 stands for DefaultMaxMessageSize). It blocks until the length has arrived,
// and reads nothing. io.EOF means that the peer closed the connection between two messages,
// io.ErrUnexpectedEOF inside a message.
func Length(r *bufio.Reader, max int32) (int32, error) {
	if max <= 0 {
		max = DefaultMaxMessageSize
	}
	head, err := r.Peek(4)
	if err != nil {
		if err == io.EOF && len(head) > 0 {
			return 0, io.ErrUnexpectedEOF
		}
		return 0, err
	}
	length := int32(binary.LittleEndian.Uint32(head))
	if length < HeaderSize || length > max {
		problem := fmt.Sprintf("message length %d is not between %d and %d",
			length, HeaderSize, max)
		return 0, &FormatError{0, problem}
	}
	return length, nil
}

// ReadFrom reads one message with one allocation. It blocks until the message is complete. Its
// errors are those of Length.
func ReadFrom(r *bufio.Reader, max int32) ([]byte, error) {
	length, err := Length(r, max)
	if err != nil {
		return nil, err
	}
	msg := make([]byte, length)
	return msg, ReadInto(r, msg)
}

// ReadInto reads the message of the length that Length has returned into msg, which is as long. It
// blocks until the message is complete.
func ReadInto(r *bufio.Reader, msg []byte) error {
	_, err := io.ReadFull(r, msg)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// ParseHeader reads the header of b, which must hold at least HeaderSize bytes.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, &FormatError{0, fmt.Sprintf("%d bytes are too few for a header", len(b))}
	}
	return Header{
		Length:     int32(binary.LittleEndian.Uint32(b)),
		RequestID:  int32(binary.LittleEndian.Uint32(b[4:])),
		ResponseTo: int32(binary.LittleEndian.Uint32(b[8:])),
		OpCode:     OpCode(binary.LittleEndian.Uint32(b[12:])),
	}, nil
}

// Parse decodes b, which must be exactly one message. The result holds views on b.
func Parse(b []byte) (Header, Message, error) { return ParseInto(&Msg{}, b) }

// ParseInto does what Parse does. It uses msg, which must be zero, for an OP_MSG, so that a caller
// that needs the message for a short time can have it on its stack.
func ParseInto(msg *Msg, b []byte) (Header, Message, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return h, nil, err
	}
	if int64(h.Length) != int64(len(b)) {
		problem := fmt.Sprintf("length %d in the header of %d bytes", h.Length, len(b))
		return h, nil, &FormatError{0, problem}
	}
	r := &reader{buf: b, pos: HeaderSize}
	var m Message
	switch h.OpCode {
	case OpMsg:
		m, err = msg, msg.parse(r)
	case OpReply:
		m, err = parseReply(r)
	case OpQuery:
		m, err = parseQuery(r)
	case OpCompressed:
		m, err = parseCompressed(r)
	default:
		err = &FormatError{12, "unknown " + h.OpCode.String()}
	}
	if err != nil {
		return h, nil, err
	}
	return h, m, nil
}

// Append appends m with a header to dst. The header's length and opcode are filled in here.
func Append(dst []byte, h Header, m Message) []byte {
	start := len(dst)
	h.OpCode = m.opCode()
	dst = m.appendTo(appendHeader(dst, h))
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	if msg, ok := m.(*Msg); ok && msg.Flags&ChecksumPresent != 0 {
		dst = appendChecksum(dst, start)
	}
	return dst
}

// SetRequestID writes the request's id into a built message, which starts at msg[0].
func SetRequestID(msg []byte, id int32) { binary.LittleEndian.PutUint32(msg[4:], uint32(id)) }

func appendHeader(dst []byte, h Header) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Length))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.RequestID))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.ResponseTo))
	return binary.LittleEndian.AppendUint32(dst, uint32(h.OpCode))
}

// reader walks over one message; every method checks the length that is left before it takes
// anything.
type reader struct {
	buf []byte
	pos int
}

func (r *reader) left() int { return len(r.buf) - r.pos }

func (r *reader) fail(format string, args ...any) error {
	return &FormatError{r.pos, fmt.Sprintf(format, args...)}
}

func (r *reader) uint32(what string) (uint32, error) {
	if r.left() < 4 {
		return 0, r.fail("truncated %s", what)
	}
	v := binary.LittleEndian.Uint32(r.buf[r.pos:])
	r.pos += 4
	return v, nil
}

func (r *reader) int32(what string) (int32, error) {
	v, err := r.uint32(what)
	return int32(v), err
}

func (r *reader) int64(what string) (int64, error) {
	if r.left() < 8 {
		return 0, r.fail("truncated %s", what)
	}
	v := binary.LittleEndian.Uint64(r.buf[r.pos:])
	r.pos += 8
	return int64(v), nil
}

func (r *reader) byte(what string) (byte, error) {
	if r.left() < 1 {
		return 0, r.fail("truncated %s", what)
	}
	v := r.buf[r.pos]
	r.pos++
	return v, nil
}

// cstring takes the text up to the next NUL.
func (r *reader) cstring(what string) (string, error) {
	for i := r.pos; i < len(r.buf); i++ {
		if r.buf[i] == 0 {
			s := string(r.buf[r.pos:i])
			r.pos = i + 1
			return s, nil
		}
	}
	return "", r.fail("%s without a terminating zero", what)
}

// document takes one document and checks the frame around it.
func (r *reader) document(what string) (bson.Raw, error) {
	doc, rest, err := bson.Read(r.buf[r.pos:])
	if err != nil {
		return nil, r.fail("%s: %v", what, err)
	}
	r.pos = len(r.buf) - len(rest)
	return doc[:len(doc):len(doc)], nil
}

// documents takes documents to the end of the message. It counts first, so that the slice is never
// larger than the documents that are really there.
func (r *reader) documents(what string) ([]bson.Raw, error) {
	count := 0
	for scan := (&reader{r.buf, r.pos}); scan.left() > 0; count++ {
		if _, err := scan.document(what); err != nil {
			return nil, err
		}
	}
	docs := make([]bson.Raw, count)
	for i := range docs {
		docs[i], _ = r.document(what)
	}
	return docs, nil
}
