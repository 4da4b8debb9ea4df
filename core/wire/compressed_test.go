package wire_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/mooringdb/mooring/core/compress"
	"github.com/mooringdb/mooring/core/wire"
)

// pack makes an OP_COMPRESSED of a finished message, unpack parses what it stands for.
func pack(id compress.ID, msg []byte) []byte {
	packed := wire.BeginCompressed(nil, msg, uint8(id))
	packed = compress.Compress(packed, id, compress.DefaultLevel, msg[wire.HeaderSize:])
	wire.EndMsg(packed)
	return packed
}

func unpack(packed []byte, limit int) (wire.Header, wire.Message, error) {
	h, m, err := wire.Parse(packed)
	if err != nil {
		return h, m, err
	}
	c, ok := m.(*wire.Compressed)
	if !ok {
		return h, m, nil
	}
	msg, err := compress.Decompress(c.BeginOriginal(nil, h), compress.ID(c.Compressor),
		int(c.UncompressedSize), limit, c.Data)
	if err != nil {
		return h, nil, err
	}
	return wire.Parse(msg)
}

func TestCompressedRoundTrip(t *testing.T) {
	for name, m := range messages() {
		if _, ok := m.(*wire.Compressed); ok {
			continue
		}
		for _, id := range []compress.ID{
			compress.Noop, compress.Snappy, compress.Zlib, compress.Zstd,
		} {
			msg := wire.Append(nil, wire.Header{RequestID: 7, ResponseTo: 8}, m)
			packed := pack(id, msg)
			h, outer, err := wire.Parse(packed)
			c, ok := outer.(*wire.Compressed)
			if err != nil || !ok || h.RequestID != 7 || h.ResponseTo != 8 ||
				int(c.UncompressedSize) != len(msg)-wire.HeaderSize || c.Compressor != uint8(id) {
				t.Fatalf("%s with %v: %+v, %+v, %v", name, id, h, outer, err)
			}
			if !bytes.Equal(wire.Append(nil, h, c), packed) {
				t.Errorf("%s with %v: Append makes another message", name, id)
			}
			h, got, err := unpack(packed, 1<<20)
			if err != nil || h.RequestID != 7 || h.ResponseTo != 8 || int(h.Length) != len(msg) ||
				!reflect.DeepEqual(got, m) {
				t.Errorf("%s with %v: %+v, %+v, %v", name, id, h, got, err)
			}
		}
	}
}

func TestBeginCompressedOfHalfAMessage(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	wire.BeginCompressed(nil, make([]byte, 15), 1)
}

// Whatever an OP_COMPRESSED says, unpacking it neither panics nor takes more memory than the limit.
func FuzzCompressed(f *testing.F) {
	msg := wire.Append(nil, wire.Header{RequestID: 7}, &wire.Msg{Body: doc(1)})
	for _, id := range []compress.ID{compress.Noop, compress.Snappy, compress.Zlib, compress.Zstd} {
		_, m, _ := wire.Parse(pack(id, msg))
		c := m.(*wire.Compressed)
		f.Add(int32(c.OriginalOpCode), c.UncompressedSize, c.Compressor, c.Data)
	}
	f.Fuzz(func(t *testing.T, original, size int32, id uint8, data []byte) {
		packed := wire.Append(nil, wire.Header{}, &wire.Compressed{
			OriginalOpCode: wire.OpCode(original), UncompressedSize: size, Compressor: id,
			Data: data,
		})
		const limit = 1 << 20
		h, m, err := unpack(packed, limit)
		if err == nil && (h.Length > limit+wire.HeaderSize || m == nil) {
			t.Errorf("unpacked to %d bytes, %v", h.Length, m)
		}
	})
}
