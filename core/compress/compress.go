// Package compress is the three compressors of MongoDB's wire protocol, by their ids. It knows bytes, not messages:
// what is negotiated, and the envelope around compressed bytes, are up to the packages conn and wire. All functions
// may be called at the same time; what encoders and decoders need is pooled.
package compress

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// ID is a compressor, as an OP_COMPRESSED names it.
type ID uint8

// The compressors that exist. Noop leaves the bytes as they are; nobody negotiates it, but a message may carry it.
const (
	Noop ID = iota
	Snappy
	Zlib
	Zstd
)

// DefaultLevel is zlib's own choice, and the only level of the other compressors.
const DefaultLevel = -1

// codec is one compressor. maxRatio is how many bytes one compressed byte can stand for at most: a claim beyond it is
// a lie that costs nothing to see.
type codec struct {
	name     string
	maxRatio int
	append   func(dst []byte, level int, src []byte) []byte
	expand   func(dst []byte, size int, src []byte) ([]byte, error)
}

var codecs = [...]codec{
	Noop:   {"noop", 1, appendNoop, expandNoop},
	Snappy: {"snappy", 64, appendSnappy, expandSnappy},      // a copy of 64 bytes takes more than one
	Zlib:   {"zlib", 1032, appendZlib, expandZlib},          // 258 bytes in two bits, the most that deflate can do
	Zstd:   {"zstd", 128 << 10 / 3, appendZstd, expandZstd}, // a block of 128 KiB takes more than three bytes
}

func (id ID) known() bool { return int(id) < len(codecs) }

// String is the compressor's name, by which it is negotiated.
func (id ID) String() string {
	if !id.known() {
		return fmt.Sprintf("compressor %d", uint8(id))
	}
	return codecs[id].name
}

// ByName finds a compressor that can be negotiated.
func ByName(name string) (ID, bool) {
	for id := Snappy; id.known(); id++ {
		if codecs[id].name == name {
			return id, true
		}
	}
	return Noop, false
}

// IsAllowed says whether a message with this command may be compressed: not one that carries secrets, nor hello.
func IsAllowed(command string) bool {
	switch command {
	case "hello", "isMaster", "ismaster", "saslStart", "saslContinue", "getnonce", "authenticate", "createUser", "updateUser",
		"copydbSaslStart", "copydbsaslstart", "copydbgetnonce", "copydb":
		return false
	default:
		return true
	}
}

// Compress appends src, compressed, to dst. level, from -1 to 9, matters to zlib only. dst and src must not overlap.
func Compress(dst []byte, id ID, level int, src []byte) []byte {
	if !id.known() || level < -1 || level > 9 {
		panic(fmt.Sprintf("bug: compress with %v at level %d", id, level))
	}
	return codecs[id].append(dst, level, src)
}

// Error is compressed data that cannot be what it claims.
type Error struct {
	ID      ID
	Problem string
	Err     error // of the decoder, or nil
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("decompress %v: %s: %v", e.ID, e.Problem, e.Err)
	}
	return fmt.Sprintf("decompress %v: %s", e.ID, e.Problem)
}

func (e *Error) Unwrap() error { return e.Err }

// Malformed is true: see mongoerr.IsMalformed.
func (e *Error) Malformed() bool { return true }

// Decompress appends what src stands for to dst: exactly size bytes, which is the sender's claim. It takes memory, size
// bytes once, only if size is not above limit and src can be that much. Its error is an *Error.
func Decompress(dst []byte, id ID, size, limit int, src []byte) ([]byte, error) {
	switch {
	case !id.known():
		return nil, &Error{id, "unknown", nil}
	case size < 0 || size > limit:
		return nil, &Error{id, fmt.Sprintf("size %d is not between 0 and %d", size, limit), nil}
	case len(src) < math.MaxInt/codecs[id].maxRatio && size > len(src)*codecs[id].maxRatio:
		return nil, &Error{id, fmt.Sprintf("%d bytes cannot be %d", len(src), size), nil}
	}
	out, err := codecs[id].expand(dst, size, src)
	if err != nil {
		return nil, err
	}
	if got := len(out) - len(dst); got != size {
		return nil, wrongSize(id, size, got)
	}
	return out, nil
}

func wrongSize(id ID, size, got int) error {
	return &Error{id, fmt.Sprintf("%d bytes where %d were announced", got, size), nil}
}

func corrupted(id ID, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // nothing has come to a good end
	}
	return &Error{id, "corrupted data", err}
}

func appendNoop(dst []byte, _ int, src []byte) []byte { return append(dst, src...) }

func expandNoop(dst []byte, size int, src []byte) ([]byte, error) {
	if len(src) != size {
		return nil, wrongSize(Noop, size, len(src))
	}
	return append(slices.Grow(dst, size), src...), nil
}
