package extjson

import (
	"encoding/binary"
	"math/bits"
)

// Eight digits are computed together, each in its own byte of a word, so that no digit waits for
// the one beside it and none of them needs a branch.

const (
	pow8  = 100_000_000
	zeros = 0x3030303030303030 // the text "00000000"
)

// digits8 returns the digits of n, which is below 10^8: the first is the low byte. They are numbers
// and no text yet.
func digits8(n uint64) uint64 {
	x := n/10_000 | n%10_000<<32 // two numbers of four digits
	hundreds := x * 10_486 >> 20 & 0x0000_007F_0000_007F
	x = hundreds | (x-100*hundreds)<<16 // four of two
	tens := x * 103 >> 10 & 0x000F_000F_000F_000F
	return tens | (x-10*tens)<<8
}

// parse8 returns the number that eight digits are, and whether they are digits.
func parse8(w uint64) (n uint64, ok bool) {
	x := w ^ zeros
	ok = (x+0x7676_7676_7676_7676|x)&highBits == 0 // 10 and more exceed 0x7F
	x = x*10 + x>>8                                // of two digits, in every second byte
	const pairs, hundred, million = 0x0000_00FF_0000_00FF, 100, 1_000_000
	n = ((x&pairs)*(hundred+million<<32) + (x>>16&pairs)*(1+10_000<<32)) >> 32
	return n, ok
}

// appendUint writes n in decimal.
func appendUint(dst []byte, n uint64) []byte {
	if n >= pow8 {
		dst = appendUint(dst, n/pow8)
		return binary.LittleEndian.AppendUint64(dst, digits8(n%pow8)|zeros)
	}
	x := digits8(n)
	leading := min(bits.TrailingZeros64(x)>>3, 7) // zeros that are not written
	return appendWord(dst, (x|zeros)>>(8*leading), 8-leading)
}

// appendInt writes n in decimal.
func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return appendUint(append(dst, '-'), -uint64(n))
	}
	return appendUint(dst, uint64(n))
}

// appendWord appends the first n bytes of w. A buffer with just enough room does not grow.
func appendWord(dst []byte, w uint64, n int) []byte {
	if cap(dst)-len(dst) < 8 {
		return appendLast(dst, w, n)
	}
	return binary.LittleEndian.AppendUint64(dst, w)[:len(dst)+n]
}

func appendLast(dst []byte, w uint64, n int) []byte {
	for range n {
		dst = append(dst, byte(w))
		w >>= 8
	}
	return dst
}

// pairs has the texts of 00 to 99. The low byte is the first digit.
var pairs = func() (p [100]uint16) {
	for i := range p {
		p[i] = uint16('0'+i/10) | uint16('0'+i%10)<<8
	}
	return p
}()

// put2 writes the two digits of n, which is below 100.
func put2(b []byte, n uint32) { binary.LittleEndian.PutUint16(b, pairs[n]) }

// hexPairs has the two hexadecimal digits of each byte.
var hexPairs = func() (p [256]uint16) {
	for i := range p {
		p[i] = uint16(hexDigits[i>>4]) | uint16(hexDigits[i&15])<<8
	}
	return p
}()

// putHex writes the 24 hexadecimal digits of id, which has 12 bytes.
func putHex(b, id []byte) {
	b = b[:24]
	for i, c := range id[:12] {
		binary.LittleEndian.PutUint16(b[2*i:], hexPairs[c])
	}
}
