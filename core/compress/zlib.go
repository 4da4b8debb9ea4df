package compress

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zlib"
)

var (
	zlibEncoders [11]sync.Pool // of *zlibEncoder, by level + 1
	zlibDecoders sync.Pool     // of *zlibDecoder
)

type zlibEncoder struct {
	out    appender
	writer *zlib.Writer
}

// appender writes to the end of a slice.
type appender struct{ buf []byte }

func (a *appender) Write(b []byte) (int, error) {
	a.buf = append(a.buf, b...)
	return len(b), nil
}

func appendZlib(dst []byte, level int, src []byte) []byte {
	pool := &zlibEncoders[level+1]
	e, ok := pool.Get().(*zlibEncoder)
	if !ok {
		e = new(zlibEncoder)
		e.writer, _ = zlib.NewWriterLevel(&e.out, level) // fails for levels that do not exist
	}
	e.out.buf = dst
	e.writer.Reset(&e.out)
	_, err := e.writer.Write(src)
	if err = errors.Join(err, e.writer.Close()); err != nil {
		panic("bug: zlib: " + err.Error()) // an appender never fails
	}
	dst, e.out.buf = e.out.buf, nil
	pool.Put(e)
	return dst
}

type zlibDecoder struct {
	in     bytes.Reader
	reader io.ReadCloser
	past   [1]byte // reads what is after the last byte
}

func expandZlib(dst []byte, size int, src []byte) ([]byte, error) {
	d, ok := zlibDecoders.Get().(*zlibDecoder)
	if !ok {
		d = new(zlibDecoder)
	}
	out, err := d.expand(dst, size, src)
	d.in.Reset(nil)
	if d.reader != nil {
		zlibDecoders.Put(d)
	}
	return out, err
}

func (d *zlibDecoder) expand(dst []byte, size int, src []byte) ([]byte, error) {
	if err := d.begin(src); err != nil {
		return nil, corrupted(Zlib, err)
	}
	dst = slices.Grow(dst, size)
	n, err := d.fill(dst[len(dst) : len(dst)+size])
	if errors.Is(err, io.EOF) {
		return nil, wrongSize(Zlib, size, n)
	}
	if err != nil {
		return nil, corrupted(Zlib, err)
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	return dst[:len(dst)+size], nil
}

// fill reads as much as there is room for. io.EOF means that the data, which is as it should be,
// is shorter.
func (d *zlibDecoder) fill(room []byte) (n int, err error) {
	for n < len(room) && err == nil {
		var m int
		m, err = d.reader.Read(room[n:])
		n += m
	}
	if n == len(room) && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// end reads past the last byte, which also compares the checksum.
func (d *zlibDecoder) end() error {
	n, err := d.reader.Read(d.past[:])
	switch {
	case n > 0:
		return &Error{Zlib, "more bytes than uncompressedSize", nil}
	case !errors.Is(err, io.EOF):
		return corrupted(Zlib, err)
	case d.in.Len() > 0:
		return &Error{Zlib, "more bytes after the data", nil}
	}
	return nil
}

// begin reads the header.
func (d *zlibDecoder) begin(src []byte) (err error) {
	d.in.Reset(src)
	if d.reader == nil {
		d.reader, err = zlib.NewReader(&d.in)
		return err
	}
	return d.reader.(zlib.Resetter).Reset(&d.in, nil)
}
