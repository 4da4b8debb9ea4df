package wire

import "encoding/binary"

// Compressed holds an OP_COMPRESSED: the compressed bytes of another message after its header.
type Compressed struct {
	OriginalOpCode   OpCode
	UncompressedSize int32 // of the original message without its header; a claim of the sender
	Compressor       uint8
	Data             []byte
}

func (*Compressed) opCode() OpCode { return OpCompressed }

// BeginCompressed begins in dst, which must be empty, the OP_COMPRESSED that stands for msg, a
// finished message: with the same ids. The caller appends msg[HeaderSize:], compressed, and calls
// EndMsg.
func BeginCompressed(dst, msg []byte, compressor uint8) []byte {
	h, err := ParseHeader(msg)
	if err != nil {
		panic("bug: compression of an unfinished message")
	}
	original := h.OpCode
	h.OpCode = OpCompressed
	dst = binary.LittleEndian.AppendUint32(appendHeader(dst, h), uint32(original))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(msg)-HeaderSize))
	return append(dst, compressor)
}

// BeginOriginal begins in dst, which must be empty, the message that m, which came with the header
// h, stands for. What comes next is m.Data, decompressed to UncompressedSize bytes; then it is
// ready for Parse.
func (m *Compressed) BeginOriginal(dst []byte, h Header) []byte {
	h.Length, h.OpCode = HeaderSize+m.UncompressedSize, m.OriginalOpCode
	return appendHeader(dst, h)
}

func (m *Compressed) appendTo(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.OriginalOpCode))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.UncompressedSize))
	dst = append(dst, m.Compressor)
	return append(dst, m.Data...)
}

func parseCompressed(r *reader) (*Compressed, error) {
	m := new(Compressed)
	original, err := r.int32("originalOpcode")
	if err != nil {
		return nil, err
	}
	m.OriginalOpCode = OpCode(original)
	if m.OriginalOpCode == OpCompressed {
		return nil, &FormatError{HeaderSize, "OP_COMPRESSED inside OP_COMPRESSED"}
	}
	if m.UncompressedSize, err = r.int32("uncompressedSize"); err != nil {
		return nil, err
	}
	if m.UncompressedSize < 0 {
		return nil, &FormatError{HeaderSize + 4, "negative uncompressedSize"}
	}
	if m.Compressor, err = r.byte("compressorId"); err != nil {
		return nil, err
	}
	m.Data = r.buf[r.pos:]
	return m, nil
}
