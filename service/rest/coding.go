package rest

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// coding identifies a content coding of a response, which the client's Accept-Encoding chooses.
type coding uint8

const (
	identity coding = iota
	gzipped
	zstandard
	numCodings
)

var codingNames = [numCodings]string{identity: "identity", gzipped: "gzip", zstandard: "zstd"}

func (c coding) String() string { return codingNames[c] }

// minCompressed is the length of the shortest text that is compressed: a shorter one hardly
// becomes shorter. Streams are always compressed.
const minCompressed = 1 << 10

// acceptCoding returns the coding that the client prefers. Of those that it likes equally, zstd
// comes before gzip, and both before none.
func acceptCoding(header []string) coding {
	if len(header) == 0 {
		return identity
	}
	const unsaid = -1
	weights := [numCodings]float64{unsaid, unsaid, unsaid}
	others := float64(unsaid)
	for _, line := range header {
		for element := range strings.SplitSeq(line, ",") {
			name, weight := parseWeighted(element)
			switch name {
			case "*":
				others = weight
			case "gzip", "x-gzip":
				weights[gzipped] = weight
			case "zstd":
				weights[zstandard] = weight
			case "identity":
				weights[identity] = weight
			}
		}
	}
	best, most := identity, max(weights[identity], 0)
	for _, c := range [...]coding{gzipped, zstandard} {
		w := weights[c]
		if w == unsaid {
			w = others
		}
		if w > 0 && w >= most {
			best, most = c, w
		}
	}
	return best
}

// parseWeighted parses an element such as gzip;q=0.5. A weight that is none is 0.
func parseWeighted(element string) (name string, weight float64) {
	name, params, _ := strings.Cut(element, ";")
	weight = 1
	if key, value, ok := strings.Cut(params, "="); ok &&
		strings.EqualFold(strings.TrimSpace(key), "q") {
		var err error
		weight, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(weight >= 0 && weight <= 1) {
			weight = 0
		}
	}
	return strings.ToLower(strings.TrimSpace(name)), weight
}

// compressor compresses what is written to it. Flush writes what it holds back.
type compressor interface {
	io.Writer
	Flush() error
	Close() error
	Reset(io.Writer)
}

// compressors keeps the compressors that are not in use. Each takes compressorCost bytes.
type compressors struct{ pools [numCodings]sync.Pool }

const (
	compressorCost = 1 << 20
	zstdWindow     = 128 << 10
)

// get returns a compressor that writes to w. The caller gives it back with put, or drops it.
func (p *compressors) get(c coding, w io.Writer) compressor {
	z, ok := p.pools[c].Get().(compressor)
	if !ok {
		z = newCompressor(c)
	}
	z.Reset(w)
	return z
}

func (p *compressors) put(c coding, z compressor) {
	z.Reset(io.Discard)
	p.pools[c].Put(z)
}

func newCompressor(c coding) compressor {
	var z compressor
	var err error
	if c == gzipped {
		z, err = gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
	} else {
		z, err = zstd.NewWriter(io.Discard, zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(zstdWindow),
			zstd.WithLowerEncoderMem(true))
	}
	if err != nil {
		panic("bug: rest: " + err.Error())
	}
	return z
}

// codingFor returns the coding of a response whose text has that length.
func (c *call) codingFor(length int) coding {
	if length < minCompressed {
		return identity
	}
	return acceptCoding(c.r.Header["Accept-Encoding"])
}

// compress begins a body in a coding. It sets the header, which is not written yet.
func (c *call) compress(in coding) {
	if in == identity {
		return
	}
	c.w.Header()["Content-Encoding"] = []string{in.String()}
	if c.r.Method == http.MethodHead {
		return // nothing is written
	}
	c.account.Force(compressorCost)
	c.coding = in
	c.compressor = c.handler.compressors.get(in, pacedWriter{c})
}

// write writes a part of the body, and reports whether it could.
func (c *call) write(b []byte) bool {
	if c.compressor == nil {
		return writeAll(c.w, b)
	}
	_, err := c.compressor.Write(b)
	return err == nil
}

// endBody writes the end of a compressed body.
func (c *call) endBody() {
	if c.compressor == nil {
		return
	}
	_ = c.compressor.Close() // if it fails, the client has gone away
	c.handler.compressors.put(c.coding, c.compressor)
	c.compressor = nil
}

// pacedWriter writes compressed bytes to a call's client: at once on a stream, whose sends have
// their own deadline, and with a deadline for each chunk otherwise.
type pacedWriter struct{ call *call }

func (p pacedWriter) Write(b []byte) (int, error) {
	if p.call.route != nil && p.call.route.stream {
		return p.call.w.Write(b)
	}
	if !writeAll(p.call.w, b) {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}
