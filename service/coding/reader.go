package coding

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Reader inflates a body of any length as it arrives. The body may be several compressed ones, each
// after the other. A Reader has one owner at a time.
type Reader struct {
	coding Coding
	from   source
	z      io.Reader // nil until the first Read
	close  func()
}

// NewReader returns a Reader of what r has. It reads from r only in Read, and Close frees it.
func (c Coding) NewReader(r io.Reader) *Reader {
	return &Reader{coding: c, from: source{r: r}, close: func() {}}
}

// ReaderCost returns how many bytes of memory a Reader takes at most.
func (c Coding) ReaderCost() int64 {
	switch c {
	case Gzip:
		return readerCost
	case Zstd:
		return readerCost + maxWindow + blockBuffers*largestBlock
	default:
		return 0
	}
}

// Read inflates some bytes. Its errors are those of the reader it reads from, ErrTooLarge for a
// window that is too large, and ErrMalformed, also for a body that ends early.
func (r *Reader) Read(p []byte) (int, error) {
	if r.z == nil {
		if err := r.open(); err != nil {
			return 0, r.explain(err)
		}
	}
	n, err := r.z.Read(p)
	return n, r.explain(err)
}

func (r *Reader) open() error {
	switch r.coding {
	case Gzip:
		z, err := gzip.NewReader(&r.from)
		if err != nil {
			return err
		}
		r.z = z
	case Zstd:
		z, err := zstd.NewReader(&r.from, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
		r.z, r.close = z, z.Close
	default:
		r.z = &r.from
	}
	return nil
}

// explain returns an error of the library as one of Read.
func (r *Reader) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case r.from.err != nil && !errors.Is(r.from.err, io.EOF):
		return r.from.err
	case err == io.EOF && r.z != nil: //nolint:errorlint // as io.Reader says the end
		return err
	case isLargeWindow(err):
		return ErrTooLarge
	}
	// An early end is not an error of the body that was read: it is not wrapped.
	return fmt.Errorf("%w: %s: %v", ErrMalformed, r.coding, err) //nolint:errorlint // see above
}

// Close frees what the Reader has. It does not close what it reads from.
func (r *Reader) Close() { r.close() }

// source remembers the error of a reader.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.err = err
	return n, err
}
