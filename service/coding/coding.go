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

// ErrTooLarge reports that a message becomes longer than its limit.
var ErrTooLarge = errors.New("the message becomes too large when it is inflated")

// step is the number of bytes that are charged before they are inflated.
const step = 64 << 10

// Inflate returns what data was compressed from. If that is longer than limit, it returns
// ErrTooLarge. It calls charge with each further piece of memory before it takes the memory, and
// returns the error of charge; nil: nothing is charged. Other errors say what is wrong with data.
func (c Coding) Inflate(data []byte, limit int, charge func(bytes int64) error) ([]byte, error) {
	if c == Identity {
		if len(data) > limit {
			return nil, ErrTooLarge
		}
		return data, nil
	}
	from, done, err := c.reader(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	defer done()
	var out []byte
	for {
		if len(out) == cap(out) {
			more := min(max(step, len(out)), limit+1-len(out))
			if charge != nil {
				if err := charge(int64(more)); err != nil {
					return nil, err
				}
			}
			out = append(make([]byte, 0, len(out)+more), out...)
		}
		n, err := from.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case len(out) > limit:
			return nil, ErrTooLarge
		case errors.Is(err, io.EOF):
			return out, nil
		case errors.Is(err, zstd.ErrWindowSizeExceeded),
			errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return nil, ErrTooLarge
		case err != nil:
			return nil, fmt.Errorf("%s: %w", c, err)
		}
	}
}

// reader returns a reader of what data was compressed from, and what frees it.
func (c Coding) reader(data []byte) (from io.Reader, done func(), err error) {
	if c == Gzip {
		z, err := gzip.NewReader(bytes.NewReader(data))
		return z, func() {}, err
	}
	z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, nil, err
	}
	return z, z.Close, nil
}
