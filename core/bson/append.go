package bson

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"

	"github.com/mooringdb/mooring/core/bson/internal/regex"
)

var errRegexNUL = errors.New("bson: zero byte in a regular expression")

var empty = [minDocument]byte{minDocument}

func orEmpty(d []byte) []byte {
	if len(d) == 0 {
		return append([]byte(nil), empty[:]...)
	}
	return d
}

func appendInt32(dst []byte, n int) []byte {
	if n > math.MaxInt32 {
		panic("bug: bson: value is longer than 2 GiB")
	}
	return binary.LittleEndian.AppendUint32(dst, uint32(n))
}

func appendString(dst []byte, s string) []byte {
	dst = appendInt32(dst, len(s)+1)
	dst = append(dst, s...)
	return append(dst, 0)
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendBinary(dst []byte, subtype byte, data []byte) []byte {
	if subtype == SubtypeBinaryOld {
		dst = appendInt32(dst, len(data)+4)
		dst = append(dst, subtype)
		dst = appendInt32(dst, len(data))
	} else {
		dst = appendInt32(dst, len(data))
		dst = append(dst, subtype)
	}
	return append(dst, data...)
}

func appendRegex(dst []byte, pattern, options string) ([]byte, error) {
	if strings.IndexByte(pattern, 0) >= 0 || strings.IndexByte(options, 0) >= 0 {
		return dst, errRegexNUL
	}
	dst = append(dst, pattern...)
	dst = append(dst, 0)
	at := len(dst)
	dst = append(dst, options...)
	regex.SortOptions(dst[at:])
	return append(dst, 0), nil
}

func appendCodeWithScope(dst []byte, code string, scope Raw) []byte {
	if len(scope) == 0 {
		scope = empty[:]
	}
	dst = appendInt32(dst, 4+len(code)+5+len(scope))
	dst = appendString(dst, code)
	return append(dst, scope...)
}

func appendDecimal128(dst []byte, d Decimal128) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, d.L)
	return binary.LittleEndian.AppendUint64(dst, d.H)
}

// appendIndex appends n in decimal: the key of an array's element.
func appendIndex(dst []byte, n int) []byte {
	if n < 10 {
		return append(dst, '0'+byte(n))
	}
	var tmp [20]byte
	i := len(tmp)
	for ; n > 0; n /= 10 {
		i--
		tmp[i] = '0' + byte(n%10)
	}
	return append(dst, tmp[i:]...)
}
