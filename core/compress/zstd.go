package compress

import (
	"errors"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// One encoder and one decoder serve all callers: within them, what one call needs is pooled, as
// many as there are processors.
var (
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil,
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true),
			zstd.WithWindowSize(zstdWindow))
		if err != nil {
			panic("bug: zstd: " + err.Error())
		}
		return e
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0),
			zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic("bug: zstd: " + err.Error())
		}
		return d
	})
)

// zstdWindow is what the encoder of each processor keeps. No call is charged with it.
const zstdWindow = 1 << 20

func appendZstd(dst []byte, _ int, src []byte) []byte { return zstdEncoder().EncodeAll(src, dst) }

func expandZstd(dst []byte, size int, src []byte) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return nil, corrupted(Zstd, err)
	}
	if h.HasFCS && h.FrameContentSize != uint64(size) {
		return nil, &Error{Zstd, "the size differs from uncompressedSize", nil}
	}
	dst = slices.Grow(dst, size)
	out, err := zstdDecoder().DecodeAll(src, dst[:len(dst):len(dst)+size])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, &Error{Zstd, "more bytes than uncompressedSize", nil}
	}
	if err != nil {
		return nil, corrupted(Zstd, err)
	}
	return out, nil
}
