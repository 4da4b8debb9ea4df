package canned

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	headerSize     = 16
	maxMessageSize = 48_000_000

	// piece is how much of a large reply is written at a time. The kernel would take many megabytes
	// at once, for milliseconds, in which other connections wait.
	piece = 64 << 10

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
func (p *parts) write(c net.Conn, reply []byte, turns *sync.Mutex) error {
	if p.size == 0 {
		_, err := c.Write(reply)
		return err
	}
	from := 0
	for i, at := range p.places {
		if _, err := c.Write(reply[from:at]); err != nil {
			return err
		}
		if err := writeInTurns(c, p.texts[i], turns); err != nil {
			return err
		}
		from = at
	}
	_, err := c.Write(reply[from:])
	return err
}

// writeInTurns writes a large text in pieces. One connection at a time writes a piece, and none
// while it waits for its peer, so that small replies of other connections find a processor: a
// database has a machine of its own, and this server often shares one with the load.
func writeInTurns(c net.Conn, text []byte, turns *sync.Mutex) error {
	raw, err := rawConn(c)
	if err != nil {
		return err
	}
	for len(text) > 0 {
		var n int
		var failed error
		err := raw.Write(func(fd uintptr) (done bool) {
			turns.Lock()
			defer turns.Unlock()
			n, failed = syscall.Write(int(fd), text[:min(len(text), piece)])
			return !errors.Is(failed, syscall.EAGAIN)
		})
		if err == nil && failed != nil && !errors.Is(failed, syscall.EINTR) {
			err = failed
		}
		if err != nil {
			return err
		}
		text = text[max(n, 0):]
	}
	return nil
}

func rawConn(c net.Conn) (syscall.RawConn, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sc.SyscallConn()
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
		if err := inserted.write(c, out, &s.large); err != nil {
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
