package coding

import (
	"bytes"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// WriterCost is the number of bytes that a Writer takes.
const WriterCost = 1 << 20

// zstdWindow is the window of what is written.
const zstdWindow = 128 << 10

// Writer compresses what is written to it. Flush writes what it holds back, and Close the end.
// Coding.Writer returns one. It is not safe for concurrent use.
type Writer struct {
	compressor
	coding Coding
}

// compressor describes the writers of both packages.
type compressor interface {
	io.WriteCloser
	Flush() error
	Reset(to io.Writer)
}

// pools keep the compressors that are not in use. Those of zstd start no goroutines.
var pools = [numCodings]sync.Pool{
	Gzip: {New: func() any {
		w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		return must(w, err)
	}},
	Zstd: {New: func() any {
		w, err := zstd.NewWriter(io.Discard, zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithWindowSize(zstdWindow))
		return must(w, err)
	}},
}

func must(w compressor, err error) compressor {
	if err != nil {
		panic("bug: coding: " + err.Error())
	}
	return w
}

// Writer returns a Writer that writes to w. The coding is not Identity. The caller calls Free when
// it does not use the Writer any more.
func (c Coding) Writer(w io.Writer) *Writer {
	z, _ := pools[c].Get().(compressor)
	z.Reset(w)
	return &Writer{z, c}
}

// Free makes the Writer's memory available to others. It writes nothing.
func (w *Writer) Free() {
	w.Reset(io.Discard) // it keeps nothing of what was written
	pools[w.coding].Put(w.compressor)
	w.compressor = nil
}

// Append appends the compressed data to dst. It takes about as much memory as data has, however
// well data can be compressed.
func (c Coding) Append(dst, data []byte) []byte {
	if c == Identity {
		return append(dst, data...)
	}
	const rest = 64 // what cannot be compressed becomes a little longer
	out := bytes.NewBuffer(slices.Grow(dst, len(data)+len(data)>>10+rest))
	w := c.Writer(out)
	defer w.Free()
	_, _ = w.Write(data) // a bytes.Buffer takes everything
	_ = w.Close()
	return out.Bytes()
}
