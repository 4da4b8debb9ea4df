package compress

import (
	"slices"

	"github.com/klauspost/compress/snappy"
)

func appendSnappy(dst []byte, _ int, src []byte) []byte {
	dst = slices.Grow(dst, snappy.MaxEncodedLen(len(src)))
	out := snappy.Encode(dst[len(dst):cap(dst)], src)
	return dst[:len(dst)+len(out)]
}

func expandSnappy(dst []byte, size int, src []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return nil, corrupted(Snappy, err)
	}
	if n != size {
		return nil, wrongSize(Snappy, size, n)
	}
	dst = slices.Grow(dst, size)
	room := dst[len(dst) : len(dst)+size : len(dst)+size]
	if _, err := snappy.Decode(room, src); err != nil {
		return nil, corrupted(Snappy, err)
	}
	return dst[:len(dst)+size], nil
}
