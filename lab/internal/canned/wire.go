package canned

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	headerSize     = 16
	maxMessageSize = 48_000_000

	// largeBuffer is how much of a large reply the kernel takes at a time: it would take many
	// megabytes, for milliseconds, in which other connections wait.
	largeBuffer = 256 << 10

	flagChecksumPresent = 1 << 0
	flagMoreToCome      = 1 << 1
)

// request holds one command as it was received: its body, and how many documents its kind-1
// sections hold.
type request struct {
	body      bsoncore.Document
	sequences int
	parts     *parts // of the reply
}

// parts holds bytes that are sent from where they are: at each place of a reply, what is inserted
// there.
type parts struct {
	places []int
	texts  [][]byte
	size   int // of all texts
}

func (p *parts) insert(at int, text []byte) {
	p.places, p.texts, p.size = append(p.places, at), append(p.texts, text), p.size+len(text)
}

// write writes a reply with what is inserted.
func (p *parts) write(c net.Conn, reply []byte) error {
	if p.size == 0 {
		_, err := c.Write(reply)
		return err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		// It fails on a connection that has ended, as the write does.
		_ = tcp.SetWriteBuffer(largeBuffer)
	}
	var all net.Buffers
	from := 0
	for i, at := range p.places {
		all = append(all, reply[from:at], p.texts[i])
		from = at
	}
	all = append(all, reply[from:])
	_, err := all.WriteTo(c)
	return err
}

// serve answers the commands of one connection, one after the other, until it ends or sends
// something malformed.
func (s *Server) serve(c net.Conn) {
	r := bufio.NewReaderSize(c, 64<<10)
	var in, out []byte
	for {
		var err error
		var inserted parts
		if in, err = readMessage(r, in); err != nil {
			return
		}
		requestID, opcode := binary.LittleEndian.Uint32(in[4:]), binary.LittleEndian.Uint32(in[12:])
		out = out[:0]
		switch opcode {
		case opMsg:
			flags := binary.LittleEndian.Uint32(in[headerSize:])
			req, err := parseMsg(in[headerSize+4:], flags)
			if err != nil {
				return
			}
			req.parts = &inserted
			out = appendHeader(out, requestID, opMsg)
			out = append(out, 0, 0, 0, 0, 0) // flags, kind 0
			out = s.answer(out, req)
			if flags&flagMoreToCome != 0 {
				continue
			}
		case opQuery: // only the first hello may come so
			body, err := parseQuery(in[headerSize:])
			if err != nil {
				return
			}
			out = appendHeader(out, requestID, opReply)
			out = append(out, make([]byte, 16)...) // flags, cursor id, starting from
			out = append(out, 1, 0, 0, 0)          // one document
			out = s.answer(out, request{body: body, parts: &inserted})
		default:
			return
		}
		binary.LittleEndian.PutUint32(out, uint32(len(out)+inserted.size))
		if err := inserted.write(c, out); err != nil {
			return
		}
	}
}

func readMessage(r io.Reader, buf []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return buf, err
	}
	n := int(binary.LittleEndian.Uint32(size[:]))
	if n < headerSize+4 || n > maxMessageSize {
		return buf, fmt.Errorf("a message of %d bytes", n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	copy(buf, size[:])
	_, err := io.ReadFull(r, buf[4:])
	return buf, err
}

func appendHeader(dst []byte, responseTo uint32, opcode uint32) []byte {
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // length: set at the end; our own request id
	dst = binary.LittleEndian.AppendUint32(dst, responseTo)
	return binary.LittleEndian.AppendUint32(dst, opcode)
}

var errMalformed = errors.New("malformed message")

// parseMsg reads the sections of an OP_MSG.
func parseMsg(b []byte, flags uint32) (request, error) {
	if flags&flagChecksumPresent != 0 {
		if len(b) < 4 {
			return request{}, errMalformed
		}
		b = b[:len(b)-4]
	}
	var req request
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		switch kind {
		case 0:
			doc, rest, ok := bsoncore.ReadDocument(b)
			if !ok || req.body != nil {
				return request{}, errMalformed
			}
			req.body, b = doc, rest
		case 1:
			size, rest, ok := readSequence(b)
			if !ok {
				return request{}, errMalformed
			}
			req.sequences += size
			b = rest
		default:
			return request{}, errMalformed
		}
	}
	if req.body == nil {
		return request{}, errMalformed
	}
	return req, nil
}

// readSequence counts the documents of a kind-1 section.
func readSequence(b []byte) (documents int, rest []byte, ok bool) {
	if len(b) < 4 {
		return 0, nil, false
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if n < 5 || n > len(b) {
		return 0, nil, false
	}
	section, rest := b[4:n], b[n:]
	for i, c := range section {
		if c == 0 {
			section = section[i+1:]
			break
		}
	}
	for len(section) > 0 {
		if _, section, ok = bsoncore.ReadDocument(section); !ok {
			return 0, nil, false
		}
		documents++
	}
	return documents, rest, true
}

// parseQuery gives the document of an OP_QUERY.
func parseQuery(b []byte) (bsoncore.Document, error) {
	if len(b) < 4 {
		return nil, errMalformed
	}
	b = b[4:] // flags
	for len(b) > 0 && b[0] != 0 {
		b = b[1:]
	}
	if len(b) < 9 {
		return nil, errMalformed
	}
	doc, _, ok := bsoncore.ReadDocument(b[9:]) // NUL, skip, return
	if !ok {
		return nil, errMalformed
	}
	return doc, nil
}
