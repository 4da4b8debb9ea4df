package coding

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// The errors of Inflate.
var (
	// ErrTooLarge reports that a message becomes longer than its limit, or that a reader of it
	// needs too large a window.
	ErrTooLarge = errors.New("the decompressed message is too large")
	// ErrMalformed reports bytes that are not a compressed message.
	ErrMalformed = errors.New("the message cannot be decompressed")
)

// step is the number of bytes that are charged before they are inflated.
const step = 64 << 10

// Inflate returns what data was compressed from, if that is at most limit bytes. It calls charge
// with each further piece of memory before it takes the memory, and with a negative number for
// memory that it has released: what stays charged is the result. If charge is nil, nothing is
// charged. Its errors are ErrTooLarge, ErrMalformed and that of charge.
func (c Coding) Inflate(data []byte, limit int, charge func(bytes int64) error) ([]byte, error) {
	if c == Identity {
		if len(data) > limit {
			return nil, ErrTooLarge
		}
		return data, nil
	}
	if charge == nil {
		charge = func(int64) error { return nil }
	}
	window := c.firstWindow(data)
	if window > maxWindow {
		return nil, ErrTooLarge
	}
	out, err := c.inflate(data, limit, window, charge)
	if isLargeWindow(err) && window < maxWindow { // that of a later frame is larger
		out, err = c.inflate(data, limit, maxWindow, charge)
	}
	if isLargeWindow(err) {
		err = ErrTooLarge
	}
	return out, err
}

// maxWindow is the largest window of zstd that is accepted (RFC 9659, 3).
const maxWindow = 8 << 20

// firstWindow returns the window that the first frame of zstd announces.
func (c Coding) firstWindow(data []byte) uint64 {
	var h zstd.Header
	switch {
	case c != Zstd:
		return 0
	case h.Decode(data) != nil:
		return zstd.MinWindowSize // the reader says what is wrong
	case h.Skippable:
		return maxWindow // it is not known
	case h.SingleSegment:
		h.WindowSize = h.FrameContentSize
	}
	return max(h.WindowSize, zstd.MinWindowSize)
}

// isLargeWindow reports whether the window of a frame is larger than the reader's.
func isLargeWindow(err error) bool {
	return errors.Is(err, zstd.ErrWindowSizeExceeded) ||
		errors.Is(err, zstd.ErrDecoderSizeExceeded)
}

// A reader takes readerCost bytes. That of zstd keeps a window, and has up to blockBuffers buffers
// of the largest block that the window allows.
const (
	readerCost   = 48 << 10
	blockBuffers = 5
	largestBlock = 128 << 10
)

// inflate does what Inflate does with a reader that has a window. If it fails, nothing stays
// charged.
func (c Coding) inflate(
	data []byte, limit int, window uint64, charge func(int64) error,
) (result []byte, failed error) {
	var out []byte
	charged := int64(readerCost + window + blockBuffers*min(window, largestBlock))
	if err := charge(charged); err != nil {
		return nil, err
	}
	defer func() { _ = charge(int64(cap(result)) - charged) }() // less never fails
	from, done, err := c.reader(data, window)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, c, err)
	}
	defer done()
	for {
		if len(out) == cap(out) {
			more := min(max(step, len(out)), limit+1-len(out))
			if err := charge(int64(more)); err != nil {
				return nil, err
			}
			charged += int64(more)
			out = append(make([]byte, 0, len(out)+more), out...)
		}
		n, err := from.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case len(out) > limit:
			return nil, ErrTooLarge
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, c, err)
		}
	}
}

// reader returns a reader of what data was compressed from, and what frees it.
func (c Coding) reader(data []byte, window uint64) (from io.Reader, done func(), err error) {
	if c == Gzip {
		z, err := gzip.NewReader(bytes.NewReader(data))
		return z, func() {}, err
	}
	z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}
