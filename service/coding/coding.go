// Package coding compresses and inflates the messages of clients, with gzip and zstd, and counts
// their items. It bounds what a message becomes before it inflates the message. It knows no
// protocol.
package coding

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Coding names a way to compress. The zero value compresses nothing.
type Coding uint8

// The codings.
const (
	Identity Coding = iota
	Gzip
	Zstd
)

var names = [...]string{Identity: "identity", Gzip: "gzip", Zstd: "zstd"}

// String returns the name of the coding in headers.
func (c Coding) String() string { return names[c] }

// All lists the names of the codings that compress, as a header lists them.
const All = "gzip, zstd"

// Of returns the coding of a name. The empty name is Identity.
func Of(name string) (c Coding, ok bool) {
	switch strings.ToLower(name) {
	case "", "identity":
		return Identity, true
	case "gzip", "x-gzip":
		return Gzip, true
	case "zstd":
		return Zstd, true
	}
	return Identity, false
}

// Choose returns the coding that a client prefers by the value of a header such as
// Accept-Encoding: by its weights, and zstd before gzip if they are the same. It returns Identity
// if the client accepts no other.
func Choose(accept string) Coding {
	best, weight := Identity, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(part, ";")
		c, ok := Of(strings.TrimSpace(name))
		if !ok || c == Identity {
			continue
		}
		w := 1.0
		if text, found := strings.CutPrefix(strings.TrimSpace(params), "q="); found {
			var err error
			if w, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		if w > weight || w == weight && w > 0 && c > best {
			best, weight = c, w
		}
	}
	return best
}

// least is the size of the smallest message that is worth the work.
const least = 1 << 10

// IsWorth reports whether a message of n bytes is worth the work.
func IsWorth(n int) bool { return n >= least }

// encoder describes the writers of both packages.
type encoder interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// encoders keeps writers that are not in use. Those of zstd start no goroutines.
var encoders = [...]sync.Pool{
	Gzip: {New: func() any {
		w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		return must(w, err)
	}},
	Zstd: {New: func() any {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
			zstd.WithWindowSize(zstdWindow))
		return must(w, err)
	}},
}

func must(w encoder, err error) encoder {
	if err != nil {
		panic("bug: coding: " + err.Error())
	}
	return w
}

// zstdWindow is the window of what is written. Readers accept windows up to maxWindow.
const (
	zstdWindow = 256 << 10
	maxWindow  = 8 << 20
)

// Append appends the compressed data to dst.
func (c Coding) Append(dst, data []byte) []byte {
	if c == Identity {
		return append(dst, data...)
	}
	out := bytes.NewBuffer(dst)
	w, _ := encoders[c].Get().(encoder)
	w.Reset(out)
	_, _ = w.Write(data) // a bytes.Buffer takes everything
	_ = w.Close()
	w.Reset(nil) // it keeps nothing of the message
	encoders[c].Put(w)
	return out.Bytes()
}

// The errors of Inflate.
var (
	// ErrTooLarge reports that a message becomes longer than its limit, or that a reader of it
	// needs too large a window.
	ErrTooLarge = errors.New("the message becomes too large when it is inflated")
	// ErrMalformed reports bytes that are no compressed message.
	ErrMalformed = errors.New("the message cannot be inflated")
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
	out, err := c.inflate(data, limit, window, charge)
	if isLargeWindow(err) && window < maxWindow { // that of a later frame is larger
		out, err = c.inflate(data, limit, maxWindow, charge)
	}
	if isLargeWindow(err) {
		err = ErrTooLarge
	}
	return out, err
}

// firstWindow returns the window that the first frame of zstd announces.
func (c Coding) firstWindow(data []byte) int64 {
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
	return int64(min(max(h.WindowSize, zstd.MinWindowSize), maxWindow))
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
	data []byte, limit int, window int64, charge func(int64) error,
) (result []byte, failed error) {
	var out []byte
	charged := readerCost + window + blockBuffers*min(window, largestBlock)
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
func (c Coding) reader(data []byte, window int64) (from io.Reader, done func(), err error) {
	if c == Gzip {
		z, err := gzip.NewReader(bytes.NewReader(data))
		return z, func() {}, err
	}
	z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(window)))
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}
