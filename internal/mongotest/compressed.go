package mongotest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/mooringdb/mooring/core/bson"
)

const (
	opCompressed = 2012
	zlibID       = 2
)

// WithZlib adds to a reply to hello that messages may be compressed with zlib. A message that comes
// compressed is answered so.
func WithZlib(hello Reply) Reply {
	b := bson.NewBuilder(nil).OpenArray("compression").String("", "zlib").Close()
	return hello.With(b.Finish())
}

// decompress returns what the body of an OP_COMPRESSED stands for.
func decompress(b []byte) (op uint32, body []byte, err error) {
	if len(b) < 9 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	op, size := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if b[8] != zlibID || size > maxMessage {
		return 0, nil, fmt.Errorf("compressor %d, %d bytes", b[8], size)
	}
	r, err := zlib.NewReader(bytes.NewReader(b[9:]))
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, size)
	_, err = io.ReadFull(r, body)
	return op, body, err
}

// compress returns the OP_COMPRESSED that stands for a message.
func compress(m []byte) []byte {
	var b bytes.Buffer
	b.Write(m[:16])
	b.Write(m[12:16]) // the opcode
	_ = binary.Write(&b, binary.LittleEndian, uint32(len(m)-16))
	b.WriteByte(zlibID)
	w := zlib.NewWriter(&b)
	_, _ = w.Write(m[16:]) // a buffer takes everything
	_ = w.Close()
	out := b.Bytes()
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	binary.LittleEndian.PutUint32(out[12:], opCompressed)
	return out
}
