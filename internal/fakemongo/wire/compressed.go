package wire

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
)

const zlibID = 2

// Decompress returns the message that an OP_COMPRESSED stands for. It knows zlib only.
func (m Message) Decompress() (Message, error) {
	const start = HeaderSize + 9 // the opcode, the size and the compressor
	if len(m) < start {
		return nil, io.ErrUnexpectedEOF
	}
	h := m.Header()
	h.OpCode = binary.LittleEndian.Uint32(m[HeaderSize:])
	size := binary.LittleEndian.Uint32(m[HeaderSize+4:])
	if id := m[start-1]; id != zlibID || size > MaxMessage {
		return nil, fmt.Errorf("compressor %d, %d bytes", id, size)
	}
	r, err := zlib.NewReader(bytes.NewReader(m[start:]))
	if err != nil {
		return nil, err
	}
	out := h.Append(nil, make([]byte, size)...)
	out.SetLength(0)
	_, err = io.ReadFull(r, out[HeaderSize:])
	return out, err
}

// Compress returns the OP_COMPRESSED, by zlib, that stands for a message.
func (m Message) Compress() Message {
	var b bytes.Buffer
	b.Write(m[:HeaderSize])
	b.Write(m[12:HeaderSize]) // the opcode
	_ = binary.Write(&b, binary.LittleEndian, uint32(len(m)-HeaderSize))
	b.WriteByte(zlibID)
	w := zlib.NewWriter(&b)
	_, _ = w.Write(m[HeaderSize:]) // a buffer takes everything
	_ = w.Close()
	out := Message(b.Bytes())
	binary.LittleEndian.PutUint32(out[12:], OpCompressed)
	out.SetLength(0)
	return out
}
