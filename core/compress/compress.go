// Package compress implements the three compressors of MongoDB's wire protocol, by their ids. It
// knows bytes, not messages: packages conn and wire negotiate the compressor and frame the
// compressed bytes. All functions are safe for concurrent use; encoders and decoders are pooled.
package compress

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/klauspost/compress/snappy"
)

// ID names a compressor as OP_COMPRESSED does.
type ID uint8

// The compressors. Noop leaves the bytes as they are: it is never negotiated, but a message may
// use it.
const (
	Noop ID = iota
	Snappy
	Zlib
	Zstd
)

// DefaultLevel is zlib's own choice, and the only level of the other compressors.
const DefaultLevel = -1

// codec holds one compressor. maxRatio bounds how many bytes one compressed byte can become: a
// message that claims more is refused before any memory is used.
type codec struct {
	name     string
	maxRatio int
	append   func(dst []byte, level int, src []byte) []byte
	expand   func(dst []byte, size int, src []byte) ([]byte, error)
}

var codecs = [...]codec{
	Noop:   {"noop", 1, appendNoop, expandNoop},
	Snappy: {"snappy", 64, appendSnappy, expandSnappy},      // a copy of 64 bytes takes over one
	Zlib:   {"zlib", 1032, appendZlib, expandZlib},          // at most 258 bytes in two bits
	Zstd:   {"zstd", 128 << 10 / 3, appendZstd, expandZstd}, // 128 KiB take over three bytes
}

func (id ID) known() bool { return int(id) < len(codecs) }

// String returns the compressor's name, by which it is negotiated.
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

// IsAllowed reports whether a message with this command may be compressed. Commands that carry
// secrets, and hello, may not.
func IsAllowed(command string) bool {
	switch command {
	case "hello", "isMaster", "ismaster", "saslStart", "saslContinue", "getnonce", "authenticate",
		"createUser", "updateUser",
		"copydbSaslStart", "copydbsaslstart", "copydbgetnonce", "copydb":
		return false
	default:
		return true
	}
}

// Compress appends src, compressed, to dst. level, from -1 to 9, matters to zlib only. dst and src
// must not overlap.
func Compress(dst []byte, id ID, level int, src []byte) []byte {
	if !id.known() || level < -1 || level > 9 {
		panic(fmt.Sprintf("bug: compress with %v at level %d", id, level))
	}
	return codecs[id].append(dst, level, src)
}

// Most returns how long n bytes can become by Compress, which then allocates nothing if dst has so
// much room.
func Most(id ID, n int) int {
	if id == Snappy {
		return snappy.MaxEncodedLen(n)
	}
	return n + n>>8 + 1<<10 // blocks that do not become shorter are stored, with a head each
}

// Cost returns how many bytes Compress takes for n bytes: their room, and the window of the
// compressor, of which zlib has one for each call. zstd has as many as there are processors.
func Cost(id ID, n int) int {
	const window = 1 << 20
	if id == Zlib {
		return Most(id, n) + window
	}
	return Most(id, n)
}

// Error reports compressed data that is malformed or longer than it claims.
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

// Malformed reports true; see mongoerr.IsMalformed.
func (e *Error) Malformed() bool { return true }

// Check returns an *Error if the compressor is unknown, if size, which the sender claims for the
// decompressed src, is not within limit, or if src cannot be that long.
func Check(id ID, size, limit int, src []byte) error {
	switch {
	case !id.known():
		return &Error{id, "unknown", nil}
	case size < 0 || size > limit:
		return &Error{id, fmt.Sprintf("size %d is not between 0 and %d", size, limit), nil}
	case len(src) < math.MaxInt/codecs[id].maxRatio && size > len(src)*codecs[id].maxRatio:
		return &Error{id, fmt.Sprintf("%d bytes cannot be %d", len(src), size), nil}
	}
	return nil
}

// Decompress appends the decompressed src to dst: exactly size bytes, as the sender claims. It
// allocates size bytes, once, and only after Check. Its error is an *Error.
func Decompress(dst []byte, id ID, size, limit int, src []byte) ([]byte, error) {
	if err := Check(id, size, limit, src); err != nil {
		return nil, err
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
	return &Error{id, fmt.Sprintf("%d bytes, but uncompressedSize is %d", got, size), nil}
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
