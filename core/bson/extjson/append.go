package extjson

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/internal/regex"
)

// Append appends the JSON text of d to dst. On error dst is returned as it was.
func Append(dst []byte, d bson.Raw, m Mode) ([]byte, error) {
	if len(d) == 0 {
		return append(dst, '{', '}'), nil
	}
	w := writer{src: slices.Clip(d), mode: m}
	out, next := w.document(dst, 0, len(d), 1, false)
	if next < 0 {
		return dst, &SyntaxError{
			Path: bson.PathAt(d, w.offset), Offset: w.offset,
			Problem: w.problem, InvalidUTF8: w.problem == problemUTF8,
		}
	}
	if next != len(d) {
		return dst, &SyntaxError{Offset: next, Problem: "bytes after the document"}
	}
	return out, nil
}

// AppendValue appends the JSON text of v to dst. On error dst is returned as it was.
func AppendValue(dst []byte, v bson.Value, m Mode) ([]byte, error) {
	w := writer{src: slices.Clip(v.Data), mode: m}
	out, next := w.value(dst, v.Type, 0, len(v.Data), 0)
	if next < 0 {
		invalid := w.problem == problemUTF8
		err := &SyntaxError{Offset: w.offset, Problem: w.problem, InvalidUTF8: invalid}
		if v.Type == bson.TypeDocument || v.Type == bson.TypeArray {
			err.Path = bson.PathAt(v.Data, w.offset)
		}
		return dst, err
	}
	if next != len(v.Data) {
		return dst, &SyntaxError{Offset: next, Problem: "bytes after the value"}
	}
	return out, nil
}

// writer walks the bytes of src. Its methods take the position to read at and
// the limit that they must not read beyond, and return the position after what
// they have read, or -1 with offset and problem set.
type writer struct {
	src     []byte // has no capacity beyond its end: strings are read up to their capacity
	mode    Mode
	offset  int
	problem string
}

// The problems that writing can find.
const (
	problemTruncated = "BSON value does not fit in its document"
	problemString    = "BSON string has a wrong length"
	problemUTF8      = "invalid UTF-8"
	problemKey       = "BSON key is not terminated"
	problemType      = "unknown BSON type"
	problemDocument  = "BSON document has a wrong length"
	problemBool      = "BSON boolean is neither 0 nor 1"
	problemBinary    = "BSON binary has a wrong length"
	problemScope     = "BSON code with scope has a wrong length"
	problemDepth     = "documents nest too deeply"
)

func (w *writer) fail(dst []byte, offset int, problem string) ([]byte, int) {
	w.offset, w.problem = offset, problem
	return dst, -1
}

func (w *writer) document(dst []byte, pos, limit, depth int, array bool) ([]byte, int) {
	if limit-pos < 5 {
		return w.fail(dst, pos, problemTruncated)
	}
	n := readInt32(w.src[pos:])
	if n < 5 || n > limit-pos || w.src[pos+n-1] != 0 {
		return w.fail(dst, pos, problemDocument)
	}
	if depth > MaxDepth {
		return w.fail(dst, pos, problemDepth)
	}
	end := pos + n - 1
	pos += 4
	if array {
		dst = append(dst, '[')
	} else {
		dst = append(dst, '{')
	}
	for first := true; pos < end; first = false {
		if !first {
			dst = append(dst, ',')
		}
		t := bson.Type(w.src[pos])
		pos++
		if array {
			if pos = w.index(pos, end); pos < 0 {
				return dst, -1
			}
		} else if dst, pos = w.key(dst, pos, end); pos < 0 {
			return dst, -1
		}
		if dst, pos = w.value(dst, t, pos, end, depth); pos < 0 {
			return dst, -1
		}
	}
	if array {
		return append(dst, ']'), end + 1
	}
	return append(dst, '}'), end + 1
}

// index skips the key of an array's element.
func (w *writer) index(pos, limit int) int {
	n := plainLen(w.src[pos:limit])
	if pos+n < limit && w.src[pos+n] == 0 {
		return pos + n + 1
	}
	n = cstringLen(w.src[pos:limit])
	if n < 0 {
		_, n = w.fail(nil, pos-1, problemKey)
		return n
	}
	if !utf8.Valid(w.src[pos : pos+n]) {
		_, n = w.fail(nil, pos-1, problemUTF8)
		return n
	}
	return pos + n + 1
}

// key writes a key with its colon.
func (w *writer) key(dst []byte, pos, limit int) ([]byte, int) {
	if dst, n := appendKey(dst, w.src[pos:limit]); n > 0 {
		return dst, pos + n
	}
	n := plainLen(w.src[pos:limit])
	if pos+n == limit {
		return w.fail(dst, pos-1, problemKey)
	}
	if w.src[pos+n] == 0 {
		dst = append(dst, '"')
		dst = append(dst, w.src[pos:pos+n]...)
		return append(dst, '"', ':'), pos + n + 1
	}
	n = cstringLen(w.src[pos:limit])
	if n < 0 {
		return w.fail(dst, pos-1, problemKey)
	}
	dst, ok := appendString(dst, w.src[pos:pos+n])
	if !ok {
		return w.fail(dst, pos-1, problemUTF8)
	}
	return append(dst, ':'), pos + n + 1
}

// value writes a value of type t.
func (w *writer) value(dst []byte, t bson.Type, pos, limit, depth int) ([]byte, int) {
	switch t {
	case bson.TypeString:
		return w.text(dst, pos, limit)
	case bson.TypeDocument:
		return w.document(dst, pos, limit, depth+1, false)
	case bson.TypeArray:
		return w.document(dst, pos, limit, depth+1, true)
	case bson.TypeNull:
		return append(dst, "null"...), pos
	case bson.TypeBool:
		return w.boolean(dst, pos, limit)
	case bson.TypeInt32:
		if limit-pos < 4 {
			return w.fail(dst, pos, problemTruncated)
		}
		return w.int32(dst, int64(readInt32(w.src[pos:]))), pos + 4
	case bson.TypeDouble, bson.TypeDateTime, bson.TypeTimestamp, bson.TypeInt64:
		if limit-pos < 8 {
			return w.fail(dst, pos, problemTruncated)
		}
		return w.wide(dst, t, binary.LittleEndian.Uint64(w.src[pos:])), pos + 8
	case bson.TypeObjectID:
		if limit-pos < 12 {
			return w.fail(dst, pos, problemTruncated)
		}
		return w.objectID(dst, w.src[pos:pos+12]), pos + 12
	}
	if w.mode == Plain {
		return w.plain(dst, t, pos, limit, depth)
	}
	return w.wrapped(dst, t, pos, limit, depth)
}

// wrapped writes the types that are wrappers in both formats and not frequent.
func (w *writer) wrapped(dst []byte, t bson.Type, pos, limit, depth int) ([]byte, int) {
	switch t {
	case bson.TypeBinary:
		return w.binary(dst, pos, limit, `{"$binary":{"base64":"`)
	case bson.TypeUndefined:
		return append(dst, `{"$undefined":true}`...), pos
	case bson.TypeRegex:
		return w.regex(dst, pos, limit, `{"$regularExpression":{"pattern":`, `,"options":`, `}}`)
	case bson.TypeDBPointer:
		dst, pos = w.text(append(dst, `{"$dbPointer":{"$ref":`...), pos, limit)
		if pos < 0 || limit-pos < 12 {
			return w.truncated(dst, pos)
		}
		dst = w.objectID(append(dst, `,"$id":`...), w.src[pos:pos+12])
		return append(dst, `}}`...), pos + 12
	case bson.TypeJavaScript:
		dst, pos = w.text(append(dst, `{"$code":`...), pos, limit)
		return append(dst, '}'), pos
	case bson.TypeSymbol:
		dst, pos = w.text(append(dst, `{"$symbol":`...), pos, limit)
		return append(dst, '}'), pos
	case bson.TypeCodeWithScope:
		return w.codeWithScope(dst, pos, limit, depth, `{"$code":`, `,"$scope":`)
	case bson.TypeDecimal128:
		if limit-pos < 16 {
			return w.fail(dst, pos, problemTruncated)
		}
		dst = w.decimal(append(dst, `{"$numberDecimal":"`...), pos)
		return append(dst, `"}`...), pos + 16
	case bson.TypeMinKey:
		return append(dst, `{"$minKey":1}`...), pos
	case bson.TypeMaxKey:
		return append(dst, `{"$maxKey":1}`...), pos
	}
	return w.fail(dst, pos, problemType)
}

// truncated fails at pos, unless something before has failed.
func (w *writer) truncated(dst []byte, pos int) ([]byte, int) {
	if pos < 0 {
		return dst, -1
	}
	return w.fail(dst, pos, problemTruncated)
}

// booleans has the texts false and true, to be written without a branch.
var booleans = [2]uint64{
	'f' | 'a'<<8 | 'l'<<16 | 's'<<24 | 'e'<<32, 't' | 'r'<<8 | 'u'<<16 | 'e'<<24,
}

func (w *writer) boolean(dst []byte, pos, limit int) ([]byte, int) {
	if pos == limit {
		return w.fail(dst, pos, problemTruncated)
	}
	b := w.src[pos]
	if b > 1 {
		return w.fail(dst, pos, problemBool)
	}
	return appendWord(dst, booleans[b], 5-int(b)), pos + 1
}

// textAt returns the bytes of the string at pos.
func (w *writer) textAt(pos, limit int) (s []byte, next int) {
	if limit-pos < 5 {
		_, next = w.fail(nil, pos, problemTruncated)
		return nil, next
	}
	n := readInt32(w.src[pos:])
	if n < 1 || n > limit-pos-4 || w.src[pos+3+n] != 0 {
		_, next = w.fail(nil, pos, problemString)
		return nil, next
	}
	return w.src[pos+4 : pos+3+n], pos + 4 + n
}

func (w *writer) text(dst []byte, pos, limit int) ([]byte, int) {
	s, next := w.textAt(pos, limit)
	if next < 0 {
		return dst, -1
	}
	dst, ok := appendString(dst, s)
	if !ok {
		return w.fail(dst, pos, problemUTF8)
	}
	return dst, next
}

func (w *writer) int32(dst []byte, n int64) []byte {
	if w.mode != Canonical {
		return appendInt(dst, n)
	}
	dst = appendInt(append(dst, `{"$numberInt":"`...), n)
	return append(dst, '"', '}')
}

// wide writes the types of eight bytes.
func (w *writer) wide(dst []byte, t bson.Type, bits uint64) []byte {
	switch t {
	case bson.TypeDouble:
		return w.double(dst, math.Float64frombits(bits))
	case bson.TypeInt64:
		return w.int64(dst, int64(bits))
	case bson.TypeDateTime:
		return w.dateTime(dst, int64(bits))
	}
	before, between, after := `{"$timestamp":{"t":`, `,"i":`, "}}"
	if w.mode == Plain {
		before, between, after = `{"T":`, `,"I":`, "}"
	}
	dst = appendUint(append(dst, before...), bits>>32)
	dst = appendUint(append(dst, between...), bits&math.MaxUint32)
	return append(dst, after...)
}

// maxSafe is the largest integer that a double counts to without a gap.
const maxSafe = 1<<53 - 1

func (w *writer) int64(dst []byte, n int64) []byte {
	if w.mode != Canonical && (w.mode != RelaxedSafe || n <= maxSafe && n >= -maxSafe) {
		return appendInt(dst, n)
	}
	dst = appendInt(append(dst, `{"$numberLong":"`...), n)
	return append(dst, '"', '}')
}

func (w *writer) double(dst []byte, f float64) []byte {
	finite := f-f == 0
	switch {
	case w.mode == Plain && finite:
		return appendPlainDouble(dst, f)
	case w.mode == Plain:
		return append(dst, "null"...)
	case w.mode != Canonical && finite:
		return appendDouble(dst, f)
	}
	dst = append(dst, `{"$numberDouble":"`...)
	switch {
	case finite:
		dst = appendDouble(dst, f)
	case f > 0:
		dst = append(dst, "Infinity"...)
	case f < 0:
		dst = append(dst, "-Infinity"...)
	default:
		dst = append(dst, "NaN"...)
	}
	return append(dst, '"', '}')
}

func (w *writer) dateTime(dst []byte, ms int64) []byte {
	switch {
	case w.mode == Plain:
		return append(appendPlainDate(append(dst, '"'), ms), '"')
	case w.mode == Canonical || ms < 0 || ms > maxDate:
		dst = appendInt(append(dst, `{"$date":{"$numberLong":"`...), ms)
		return append(dst, `"}}`...)
	}
	dst = append(dst, `{"$date":"`...)
	dst = appendDate(dst, ms, ms%1000 != 0)
	return append(dst, '"', '}')
}

func (w *writer) objectID(dst, id []byte) []byte {
	const text = `{"$oid":"000000000000000000000000"}`
	if w.mode == Plain {
		dst = append(dst, `"000000000000000000000000"`...)
		putHex(dst[len(dst)-25:], id)
		return dst
	}
	dst = append(dst, text...)
	putHex(dst[len(dst)-26:], id)
	return dst
}

// binary writes a binary that begins with before: base64 first, or subtype first
// for Plain.
func (w *writer) binary(dst []byte, pos, limit int, before string) ([]byte, int) {
	if limit-pos < 5 {
		return w.fail(dst, pos, problemTruncated)
	}
	n, subtype := readInt32(w.src[pos:]), w.src[pos+4]
	if n < 0 || n > limit-pos-5 {
		return w.fail(dst, pos, problemBinary)
	}
	data, next := w.src[pos+5:pos+5+n], pos+5+n
	if subtype == bson.SubtypeBinaryOld {
		if n < 4 || readInt32(data) != n-4 {
			return w.fail(dst, pos, problemBinary)
		}
		data = data[4:]
	}
	dst = append(dst, before...)
	if w.mode == Plain {
		dst = appendUint(dst, uint64(subtype))
		dst = base64.StdEncoding.AppendEncode(append(dst, `,"Data":"`...), data)
		return append(dst, `"}`...), next
	}
	dst = base64.StdEncoding.AppendEncode(dst, data)
	dst = append(dst, `","subType":"`...)
	return append(dst, hexDigits[subtype>>4], hexDigits[subtype&15], '"', '}', '}'), next
}

func (w *writer) regex(dst []byte, pos, limit int, before, between, after string) ([]byte, int) {
	for i, intro := range [...]string{before, between} {
		n := cstringLen(w.src[pos:limit])
		if n < 0 {
			return w.fail(dst, pos, problemTruncated)
		}
		text := w.src[pos : pos+n]
		if i == 1 {
			text = regex.Sorted(text)
		}
		var ok bool
		if dst, ok = appendString(append(dst, intro...), text); !ok {
			return w.fail(dst, pos, problemUTF8)
		}
		pos += n + 1
	}
	return append(dst, after...), pos
}

func (w *writer) codeWithScope(
	dst []byte, pos, limit, depth int, before, between string,
) ([]byte, int) {
	if limit-pos < 4 {
		return w.fail(dst, pos, problemTruncated)
	}
	n := readInt32(w.src[pos:])
	if n < 14 || n > limit-pos {
		return w.fail(dst, pos, problemScope)
	}
	start, end := pos, pos+n
	if dst, pos = w.text(append(dst, before...), pos+4, end); pos < 0 {
		return dst, -1
	}
	if dst, pos = w.document(append(dst, between...), pos, end, depth+1, false); pos < 0 {
		return dst, -1
	}
	if pos != end {
		return w.fail(dst, start, problemScope)
	}
	return append(dst, '}'), end
}

func (w *writer) decimal(dst []byte, pos int) []byte {
	return bson.Decimal128{
		H: binary.LittleEndian.Uint64(w.src[pos+8:]),
		L: binary.LittleEndian.Uint64(w.src[pos:]),
	}.Append(dst)
}

func readInt32(b []byte) int { return int(int32(binary.LittleEndian.Uint32(b))) }
