package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/mooringdb/mooring/core/bson"
)

// Flags holds the flag bits of an OP_MSG. A receiver must refuse bits 0 to 15 that it does not
// know, and ignores bits 16 to 31.
type Flags uint32

// The flags that exist.
const (
	ChecksumPresent Flags = 1 << 0  // a CRC-32C of the message follows its last section
	MoreToCome      Flags = 1 << 1  // no reply to this request, or another reply follows this one
	ExhaustAllowed  Flags = 1 << 16 // the server may answer with several replies
)

const (
	requiredFlags = Flags(1<<16 - 1)
	flagsOffset   = HeaderSize
	kindBody      = 0
	kindSequence  = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Msg holds an OP_MSG: one command or reply, and the document sequences that replace array fields
// of it.
type Msg struct {
	Flags     Flags
	Body      bson.Raw
	Sequences []Sequence
}

// Sequence holds a kind-1 section: the documents of the array field Identifier.
type Sequence struct {
	Identifier string
	Documents  []bson.Raw
}

// BeginMsg begins an OP_MSG in dst, which must be empty and may have capacity. The caller then
// appends the body document and any AppendSequence, and calls EndMsg. SetRequestID sets the
// request id later.
func BeginMsg(dst []byte, flags Flags) []byte {
	dst = appendHeader(dst, Header{OpCode: OpMsg})
	dst = binary.LittleEndian.AppendUint32(dst, uint32(flags))
	return append(dst, kindBody)
}

// AppendSequence appends a kind-1 section with docs after a message's body.
func AppendSequence(dst []byte, identifier string, docs []bson.Raw) []byte {
	dst, start := BeginSequence(dst, identifier)
	for _, doc := range docs {
		dst = append(dst, doc...)
	}
	return EndSequence(dst, start)
}

// BeginSequence opens a kind-1 section after a message's body. The caller appends documents one
// after the other and passes start to EndSequence. It is for callers that stop at a size limit.
func BeginSequence(dst []byte, identifier string) (out []byte, start int) {
	dst = append(dst, kindSequence)
	start = len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = append(dst, identifier...)
	return append(dst, 0), start
}

// EndSequence closes the section that BeginSequence opened at start.
func EndSequence(dst []byte, start int) []byte {
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}

// CutSequence returns the identifier and the documents of the first section that BeginSequence and
// EndSequence have built, and the sections after it. The documents are back to back.
func CutSequence(sections []byte) (identifier string, docs, rest []byte) {
	end := 1 + int(binary.LittleEndian.Uint32(sections[1:]))
	name, docs, _ := bytes.Cut(sections[1+sequenceSize:end], []byte{0})
	return string(name), docs, sections[end:]
}

// sequenceSize is the size of the length of a kind-1 section.
const sequenceSize = 4

// EndMsg writes the length of a finished message, which starts at msg[0].
func EndMsg(msg []byte) { binary.LittleEndian.PutUint32(msg, uint32(len(msg))) }

// MsgFlags returns the flags of a built OP_MSG, which starts at msg[0].
func MsgFlags(msg []byte) Flags { return Flags(binary.LittleEndian.Uint32(msg[flagsOffset:])) }

func (*Msg) opCode() OpCode { return OpMsg }

func (m *Msg) appendTo(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.Flags))
	dst = append(dst, kindBody)
	dst = append(dst, m.Body...)
	for _, s := range m.Sequences {
		dst = AppendSequence(dst, s.Identifier, s.Documents)
	}
	return dst
}

// appendChecksum appends the checksum to the message at dst[start:] and counts it in its length.
func appendChecksum(dst []byte, start int) []byte {
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start+4))
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func (m *Msg) parse(r *reader) error {
	bits, err := r.uint32("flags")
	if err != nil {
		return err
	}
	m.Flags = Flags(bits)
	if unknown := m.Flags & requiredFlags &^ (ChecksumPresent | MoreToCome); unknown != 0 {
		return &FormatError{flagsOffset, "unknown required flag bits"}
	}
	if m.Flags&ChecksumPresent != 0 {
		if err := r.dropChecksum(); err != nil {
			return err
		}
	}
	s := sections{msg: m}
	for r.left() > 0 {
		if err := s.take(r); err != nil {
			return err
		}
	}
	if m.Body == nil {
		return r.fail("no body section")
	}
	return nil
}

// dropChecksum verifies the checksum at the message's end and takes it off.
func (r *reader) dropChecksum() error {
	if r.left() < 4 {
		return r.fail("truncated checksum")
	}
	end := len(r.buf) - 4
	if crc32.Checksum(r.buf[:end], castagnoli) != binary.LittleEndian.Uint32(r.buf[end:]) {
		return &FormatError{end, "checksum does not match"}
	}
	r.buf = r.buf[:end]
	return nil
}

// sections collects the sections of one message.
type sections struct {
	msg *Msg
	// seen holds identifiers. It is made for the second sequence: most messages have none or one.
	seen map[string]struct{}
}

func (s *sections) take(r *reader) error {
	kind, err := r.byte("section kind")
	if err != nil {
		return err
	}
	switch kind {
	case kindBody:
		return s.takeBody(r)
	case kindSequence:
		return s.takeSequence(r)
	default:
		return &FormatError{r.pos - 1, "unknown section kind"}
	}
}

func (s *sections) takeBody(r *reader) error {
	if s.msg.Body != nil {
		return &FormatError{r.pos - 1, "second body section"}
	}
	body, err := r.document("body")
	s.msg.Body = body
	return err
}

func (s *sections) takeSequence(r *reader) error {
	start := r.pos
	size, err := r.int32("size of a document sequence")
	if err != nil {
		return err
	}
	if size < 5 || int64(size) > int64(len(r.buf)-start) {
		return &FormatError{start, "bad size of a document sequence"}
	}
	end := start + int(size)
	in := &reader{r.buf[:end], r.pos}
	r.pos = end
	identifier, err := in.cstring("identifier of a document sequence")
	if err != nil {
		return err
	}
	if s.isRepeated(identifier) {
		return &FormatError{start, "second document sequence of one identifier"}
	}
	docs, err := in.documents("document sequence")
	if err != nil {
		return err
	}
	s.msg.Sequences = append(s.msg.Sequences, Sequence{identifier, docs})
	return nil
}

func (s *sections) isRepeated(identifier string) bool {
	if len(s.msg.Sequences) == 0 {
		return false
	}
	if s.seen == nil {
		s.seen = map[string]struct{}{s.msg.Sequences[0].Identifier: {}}
	}
	_, repeated := s.seen[identifier]
	s.seen[identifier] = struct{}{}
	return repeated
}
