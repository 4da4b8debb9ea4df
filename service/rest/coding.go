package rest

import (
	"bufio"
	"io"
	"net/http"

	"github.com/mooringdb/mooring/service/coding"
)

// codingFor returns the coding of a response whose text has that length. Streams are always
// compressed, if the client takes that.
func (c *call) codingFor(length int) coding.Coding {
	if !coding.IsWorth(length) {
		return coding.Identity
	}
	return c.acceptedCoding()
}

// acceptedCoding returns the coding that the client prefers.
func (c *call) acceptedCoding() coding.Coding {
	return coding.Choose(c.r.Header["Accept-Encoding"])
}

// compress begins a body in a coding. It sets the header, which is not written yet.
func (c *call) compress(in coding.Coding) {
	if in == coding.Identity {
		return
	}
	c.w.Header()["Content-Encoding"] = []string{in.String()}
	if c.r.Method == http.MethodHead {
		return // nothing is written
	}
	c.account.Force(coding.WriterCost)
	c.compressed = bufio.NewWriterSize(pacedWriter{c}, writeChunk)
	c.compressor = in.Writer(c.compressed)
}

// write writes a part of the body, and reports whether it could.
func (c *call) write(b []byte) bool {
	if c.compressor == nil {
		defer c.pause()()
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
	if c.compressor.Close() == nil {
		_ = c.compressed.Flush() // if it fails, the client has gone away
	}
	c.compressor.Free()
	c.compressor = nil
}

// pacedWriter writes bytes to a call's client: at once on a stream, whose sends have their own
// deadline, and with a deadline for each chunk otherwise.
type pacedWriter struct{ call *call }

func (p pacedWriter) Write(b []byte) (int, error) {
	if p.call.route != nil && p.call.route.stream {
		return p.call.writePieces(b)
	}
	defer p.call.pause()()
	if !writeAll(p.call.w, b) {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}
