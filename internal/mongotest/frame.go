package mongotest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	flagMoreToCome     = 1 << 1
	flagExhaustAllowed = 1 << 16

	maxMessage = 48_000_000
)

// readCommand reads one OP_MSG or OP_QUERY, or an OP_COMPRESSED that stands for one. A message that
// is not right ends the connection, as on a real server.
func readCommand(nc net.Conn) (*Command, error) {
	var head [16]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return nil, err
	}
	length := int(int32(binary.LittleEndian.Uint32(head[0:])))
	if length < 16 || length > maxMessage {
		return nil, fmt.Errorf("message length %d", length)
	}
	body := make([]byte, length-16)
	if _, err := io.ReadFull(nc, body); err != nil {
		return nil, err
	}
	cmd := &Command{RequestID: int32(binary.LittleEndian.Uint32(head[4:]))}
	var err error
	op := binary.LittleEndian.Uint32(head[12:])
	if op == opCompressed {
		cmd.Compressed = true
		if op, body, err = decompress(body); err != nil {
			return nil, err
		}
	}
	switch op {
	case opMsg:
		err = cmd.parseMsg(body)
	case opQuery:
		err = cmd.parseQuery(body)
	default:
		err = fmt.Errorf("opcode %d", op)
	}
	if err != nil {
		return nil, err
	}
	cmd.Name = cmd.Body.FirstKey()
	return cmd, nil
}

func (c *Command) parseMsg(b []byte) error {
	if len(b) < 4 {
		return io.ErrUnexpectedEOF
	}
	flags := binary.LittleEndian.Uint32(b)
	if flags&0xFFFF&^3 != 0 {
		return fmt.Errorf("flags %#x", flags)
	}
	c.MoreToCome, c.ExhaustAllowed = flags&flagMoreToCome != 0, flags&flagExhaustAllowed != 0
	b = b[4:]
	if flags&1 != 0 {
		b = b[:max(len(b)-4, 0)]
	}
	for len(b) > 0 {
		kind := b[0]
		var err error
		switch b = b[1:]; kind {
		case 0:
			c.Body, b, err = takeDocument(b)
		case 1:
			b, err = c.parseSequence(b)
		default:
			err = fmt.Errorf("section kind %d", kind)
		}
		if err != nil {
			return err
		}
	}
	if c.Body == nil {
		return fmt.Errorf("no body")
	}
	database, _ := c.Body.Lookup("$db")
	name, ok := database.Str()
	if !ok {
		return fmt.Errorf("no $db")
	}
	c.Database = name
	return nil
}

func (c *Command) parseSequence(b []byte) (rest []byte, err error) {
	if len(b) < 5 {
		return nil, io.ErrUnexpectedEOF
	}
	size := int(int32(binary.LittleEndian.Uint32(b)))
	if size < 5 || size > len(b) {
		return nil, fmt.Errorf("sequence of %d bytes", size)
	}
	section, rest := b[4:size], b[size:]
	name, section, err := takeCString(section)
	if err != nil {
		return nil, err
	}
	docs := []bson.Raw{}
	for len(section) > 0 {
		var doc bson.Raw
		if doc, section, err = takeDocument(section); err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	if c.Sequences == nil {
		c.Sequences = map[string][]bson.Raw{}
	}
	if _, ok := c.Sequences[name]; ok {
		return nil, fmt.Errorf("second sequence %q", name)
	}
	c.Sequences[name] = docs
	return rest, nil
}

func (c *Command) parseQuery(b []byte) error {
	if len(b) < 4 {
		return io.ErrUnexpectedEOF
	}
	namespace, b, err := takeCString(b[4:])
	if err != nil {
		return err
	}
	const command = ".$cmd"
	if len(namespace) <= len(command) || namespace[len(namespace)-len(command):] != command ||
		len(b) < 8 {
		return fmt.Errorf("query of %q", namespace)
	}
	c.Legacy, c.Database = true, namespace[:len(namespace)-len(command)]
	c.Body, b, err = takeDocument(b[8:])
	if err == nil && len(b) > 0 {
		err = fmt.Errorf("%d bytes after the query", len(b))
	}
	return err
}

func takeDocument(b []byte) (doc bson.Raw, rest []byte, err error) {
	if len(b) < 5 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	size := int(int32(binary.LittleEndian.Uint32(b)))
	if size < 5 || size > len(b) {
		return nil, nil, fmt.Errorf("document of %d bytes", size)
	}
	doc = bson.Raw(b[:size:size])
	return doc, b[size:], doc.Validate()
}

func takeCString(b []byte) (s string, rest []byte, err error) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:], nil
		}
	}
	return "", nil, io.ErrUnexpectedEOF
}

// frame makes the message that answers cmd with doc, in the kind that it came in.
func frame(cmd *Command, doc bson.Raw, responseTo int32) []byte {
	m := make([]byte, 0, len(doc)+64)
	m = binary.LittleEndian.AppendUint32(m, 0)
	m = binary.LittleEndian.AppendUint32(m, uint32(cmd.RequestID)+1_000_000)
	m = binary.LittleEndian.AppendUint32(m, uint32(responseTo))
	if cmd.Legacy {
		m = binary.LittleEndian.AppendUint32(m, opReply)
		m = binary.LittleEndian.AppendUint32(m, 8) // flags: AwaitCapable
		m = binary.LittleEndian.AppendUint64(m, 0) // cursor
		m = binary.LittleEndian.AppendUint32(m, 0) // starting from
		m = binary.LittleEndian.AppendUint32(m, 1) // documents
	} else {
		m = binary.LittleEndian.AppendUint32(m, opMsg)
		m = binary.LittleEndian.AppendUint32(m, 0) // flags
		m = append(m, 0)                           // kind: body
	}
	m = append(m, doc...)
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	if cmd.Compressed {
		return compress(m)
	}
	return m
}

// frameMsg makes an OP_MSG with flags and ids of its own.
func frameMsg(flags uint32, ids exchange, doc bson.Raw) []byte {
	m := make([]byte, 0, len(doc)+21)
	m = binary.LittleEndian.AppendUint32(m, uint32(len(doc)+21))
	m = binary.LittleEndian.AppendUint32(m, uint32(ids.id))
	m = binary.LittleEndian.AppendUint32(m, uint32(ids.to))
	m = binary.LittleEndian.AppendUint32(m, opMsg)
	m = binary.LittleEndian.AppendUint32(m, flags)
	m = append(m, 0) // kind: body
	return append(m, doc...)
}
