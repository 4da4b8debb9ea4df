// Package rawconn exchanges messages with a MongoDB server over plain TCP. It frames them itself:
// nothing of the product's wire protocol takes part, so that what it records and what it runs
// checks the product against something else. It knows neither logins nor TLS.
package rawconn

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
)

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	headerBytes = 16
	maxMessage  = 48 << 20
)

// Msg returns an OP_MSG with a command and its document sequences.
func Msg(id int32, body []byte, sequences map[string][][]byte) []byte {
	payload := append([]byte{0, 0, 0, 0, 0}, body...)
	for _, identifier := range slices.Sorted(maps.Keys(sequences)) {
		content := append([]byte(identifier), 0)
		for _, document := range sequences[identifier] {
			content = append(content, document...)
		}
		payload = append(payload, 1)
		payload = binary.LittleEndian.AppendUint32(payload, uint32(4+len(content)))
		payload = append(payload, content...)
	}
	return frame(id, opMsg, payload)
}

// Query returns an OP_QUERY with a command of the database admin.
func Query(id int32, body []byte) []byte {
	payload := append([]byte{4, 0, 0, 0}, "admin.$cmd\x00"...)
	payload = append(payload, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF)
	return frame(id, opQuery, append(payload, body...))
}

func frame(id int32, opcode uint32, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(headerBytes+len(payload)))
	b = binary.LittleEndian.AppendUint32(b, uint32(id))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint32(b, opcode)
	return append(b, payload...)
}

// RoundTrip writes a request and returns the reply, both whole messages.
func RoundTrip(nc net.Conn, request []byte) ([]byte, error) {
	if _, err := nc.Write(request); err != nil {
		return nil, err
	}
	reply := make([]byte, 4)
	if _, err := io.ReadFull(nc, reply); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(reply)
	if n < headerBytes || n > maxMessage {
		return nil, fmt.Errorf("a reply of %d bytes", n)
	}
	reply = append(reply, make([]byte, n-4)...)
	_, err := io.ReadFull(nc, reply[4:])
	return reply, err
}

// Document returns the body of an OP_MSG, or the one document of an OP_REPLY.
func Document(reply []byte) ([]byte, error) {
	before := map[uint32]int{opMsg: headerBytes + 5, opReply: headerBytes + 20}
	opcode := binary.LittleEndian.Uint32(reply[12:])
	if start, ok := before[opcode]; ok && len(reply) > start {
		return reply[start:], nil
	}
	return nil, fmt.Errorf("a reply of %d bytes with the opcode %d", len(reply), opcode)
}
