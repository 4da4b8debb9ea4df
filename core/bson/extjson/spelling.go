package extjson

import "encoding/binary"

// spelling describes eight bytes of a date: digits, and what stands between them. What is between
// them is checked together with the digits.
type spelling struct {
	text uint64 // each digit is 0
	over uint64 // what makes a byte, after exclusive or with text, exceed 0x7F if it is wrong
}

func spell(text string) (s spelling) {
	for i := range 8 {
		c, over := uint64(0), uint64(0x7F) // only 0 is right
		if i < len(text) {
			c = uint64(text[i])
		}
		if c == '0' {
			over = 0x76 // 0 to 9 are
		}
		s.text, s.over = s.text|c<<(8*i), s.over|over<<(8*i)
	}
	return s
}

// pairs returns, in each byte of a digit that another digit follows, the number of both.
func (s spelling) pairs(w uint64) (pairs uint64, ok bool) {
	x := w ^ s.text
	return x*10 + x>>8, (x+s.over|x)&highBits == 0
}

var (
	spelledMonth  = spell("0000-00-")
	spelledMinute = spell("00T00:00")
	spelledSecond = spell(":00Z")
	spelledMilli  = spell(":00.000Z")
)

// readDate reads the date that s begins with, if it is spelled 2006-01-02T15:04:05Z or
// 2006-01-02T15:04:05.000Z, and returns its length, or else 0.
func readDate(s []byte) (ms int64, n int) {
	const noFraction, fraction = len("2006-01-02T15:04:05Z"), len("2006-01-02T15:04:05.000Z")
	if len(s) < noFraction {
		return 0, 0
	}
	month, ok1 := spelledMonth.pairs(binary.LittleEndian.Uint64(s))
	minute, ok2 := spelledMinute.pairs(binary.LittleEndian.Uint64(s[8:]))
	var second uint64
	var ok3 bool
	if s[noFraction-1] == 'Z' {
		n = noFraction
		second, ok3 = spelledSecond.pairs(uint64(binary.LittleEndian.Uint32(s[16:])))
	} else if n = fraction; len(s) >= n {
		second, ok3 = spelledMilli.pairs(binary.LittleEndian.Uint64(s[16:]))
	}
	if !ok1 || !ok2 || !ok3 {
		return 0, 0
	}
	seconds, ok := moment(100*int(byte(month))+int(byte(month>>16)), int(byte(month>>40)),
		int(byte(minute)), int(byte(minute>>24)), int(byte(minute>>48)), int(byte(second>>8)))
	if !ok {
		return 0, 0
	}
	// The last digit has Z behind it, which is 0 here.
	return seconds*1000 + int64(byte(second>>32))*10 + int64(byte(second>>48))/10, n
}
