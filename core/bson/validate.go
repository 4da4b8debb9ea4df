package bson

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// ValidationError says what is wrong with a document, and where.
type ValidationError struct {
	Path    string // of the element, as "a.b.3"; "" for the document itself
	Offset  int    // in bytes from the beginning of the document
	Problem string
}

// Error returns the text "bson: <problem> at <path> (offset <n>)".
func (e *ValidationError) Error() string {
	at := ""
	if e.Path != "" {
		at = " at " + e.Path
	}
	return "bson: " + e.Problem + at + " (offset " + strconv.Itoa(e.Offset) + ")"
}

// The problems that a walk can find.
const (
	problemLength     = "value does not fit in its document"
	problemType       = "unknown type byte"
	problemKey        = "key is not terminated"
	problemUTF8       = "invalid UTF-8"
	problemString     = "string length is below 1"
	problemTerminator = "string does not end with a zero byte"
	problemBool       = "boolean is neither 0 nor 1"
	problemBinaryOld  = "inner length of binary subtype 2 is wrong"
	problemScope      = "code with scope has a wrong length"
	problemRegex      = "regular expression is not terminated"
	problemDocument   = "document length is wrong"
	problemEnd        = "document does not end with a zero byte"
	problemEarly      = "document ends before its length"
	problemDepth      = "documents nest too deeply"
)

// Validate checks the whole document in one walk: lengths, terminators, types,
// UTF-8, booleans, inner lengths of binary subtype 2 and of code with scope, and
// MaxDepth. The keys of arrays and the order of a regular expression's options
// are taken as they are, as the specification wants it of a reader; see
// AppendNormal. The error is a *ValidationError.
func (d Raw) Validate() error { return d.ValidateDepth(MaxDepth) }

// ValidateDepth does what Validate does, with another limit of depth. A document without embedded
// documents has depth 1.
func (d Raw) ValidateDepth(limit int) error {
	if _, rest, err := Read(d); err != nil {
		return err
	} else if len(rest) > 0 {
		return &ValidationError{Offset: len(d) - len(rest), Problem: "bytes after the document"}
	}
	offset, problem := validate(d, limit)
	if problem == "" {
		return nil
	}
	return &ValidationError{Path: PathAt(d, offset), Offset: offset, Problem: problem}
}

// validate walks b, whose own frame has been checked. The open documents are in
// ends, not on the goroutine's stack.
func validate(b []byte, limit int) (offset int, problem string) {
	ends := make([]int, 0, 32) // terminators of the documents around this one
	end := len(b) - 1
	if limit < 1 {
		return 0, problemDepth
	}
	for pos := 4; ; {
		if pos == end {
			if len(ends) == 0 {
				return 0, ""
			}
			pos = end + 1
			end = ends[len(ends)-1]
			ends = ends[:len(ends)-1]
			continue
		}
		t := Type(b[pos])
		l := layouts[t]
		start := pos
		n := keyLen(b[pos+1 : end])
		if t == 0 || l == layoutInvalid || n < 0 {
			return start, elementProblem(t, n)
		}
		pos += n + 2
		if l < layoutInvalid {
			if pos+int(l) > end {
				return start, problemLength
			}
			if t == TypeBool && b[pos] > 1 {
				return pos, problemBool
			}
			pos += int(l)
			continue
		}
		if l != layoutDocument && l != layoutScope {
			n, problem := validateValue(l, b[pos:end])
			if problem != "" {
				return pos, problem
			}
			pos += n
			continue
		}
		if l == layoutScope {
			n, problem := validateCode(b[pos:end])
			if problem != "" {
				return pos, problem
			}
			pos += n
		}
		if end-pos < minDocument {
			return pos, problemLength
		}
		n = readInt32(b[pos:])
		switch {
		case n < minDocument:
			return pos, problemDocument
		case n > end-pos:
			return pos, problemLength
		case b[pos+n-1] != 0:
			return pos, problemEnd
		case len(ends)+1 >= limit:
			return pos, problemDepth
		}
		ends = append(ends, end)
		end = pos + n - 1
		pos += 4
	}
}

// elementProblem names what is wrong with an element's head.
func elementProblem(t Type, keyLen int) string {
	switch {
	case t == 0:
		return problemEarly
	case layouts[t] == layoutInvalid:
		return problemType
	case keyLen == keyInvalid:
		return problemUTF8
	}
	return problemKey
}

const (
	keyUnterminated = -1
	keyInvalid      = -2
)

// keyLen returns what cstringLen returns, and checks that the key is UTF-8.
func keyLen(b []byte) int {
	var high uint64
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		z := zeroBytes(w)
		if z == 0 {
			high |= w
			continue
		}
		n := bits.TrailingZeros64(z) >> 3
		high |= w & (1<<(8*n) - 1)
		i += n
		if high&highBits != 0 && !utf8.Valid(b[:i]) {
			return keyInvalid
		}
		return i
	}
	for ; i < len(b); i++ {
		high |= uint64(b[i])
		if b[i] == 0 {
			if high&highBits != 0 && !utf8.Valid(b[:i]) {
				return keyInvalid
			}
			return i
		}
	}
	return keyUnterminated
}

// validateValue checks a value that is neither of a fixed length nor nested, and
// returns its length.
func validateValue(l layout, b []byte) (n int, problem string) {
	if l == layoutRegex {
		return validateRegex(b)
	}
	if len(b) < 4 {
		return 0, problemLength
	}
	n = readInt32(b)
	if l == layoutBinary {
		if n < 0 || n > len(b)-5 {
			return 0, problemLength
		}
		if b[4] == SubtypeBinaryOld && (n < 4 || readInt32(b[5:]) != n-4) {
			return 0, problemBinaryOld
		}
		return n + 5, ""
	}
	switch {
	case n < 1:
		return 0, problemString
	case n > len(b)-4:
		return 0, problemLength
	case b[n+3] != 0:
		return 0, problemTerminator
	case !validUTF8(b[4 : n+3]):
		return 0, problemUTF8
	case l == layoutString:
		return n + 4, ""
	case n > len(b)-16: // a DBPointer's ObjectId
		return 0, problemLength
	}
	return n + 16, ""
}

// validUTF8 returns what utf8.Valid returns. It is faster for short and for ASCII strings.
func validUTF8(b []byte) bool {
	if len(b) >= 8 {
		last := binary.LittleEndian.Uint64(b[len(b)-8:])
		for i := 0; i < len(b)-8; i += 8 {
			if binary.LittleEndian.Uint64(b[i:])&highBits != 0 {
				return utf8.Valid(b)
			}
		}
		return last&highBits == 0 || utf8.Valid(b)
	}
	var high byte
	for _, c := range b {
		high |= c
	}
	return high < utf8.RuneSelf || utf8.Valid(b)
}

func validateRegex(b []byte) (int, string) {
	n := 0
	for range 2 {
		k := keyLen(b[n:])
		if k == keyInvalid {
			return 0, problemUTF8
		}
		if k < 0 {
			return 0, problemRegex
		}
		n += k + 1
	}
	return n, ""
}

// validateCode checks a code with scope up to its scope, whose beginning it
// returns: the lengths must meet.
func validateCode(b []byte) (int, string) {
	if len(b) < minScope {
		return 0, problemLength
	}
	size := readInt32(b)
	if size < minScope || size > len(b) {
		return 0, problemScope
	}
	n, problem := validateValue(layoutString, b[4:size])
	if problem != "" {
		return 0, problem
	}
	n += 4
	if size-n < minDocument || readInt32(b[n:]) != size-n {
		return 0, problemScope
	}
	return n, ""
}
