package server

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// A client whose requests are compressed gets compressed responses. grpc learns the names of the
// codings here, and no more: it would forget a compressed response as soon as it is queued, and
// requests do not pass through it.

// isRegistered says that grpc knows the codings. It must before the first call.
var _ = registerCodings()

func registerCodings() (isRegistered bool) {
	for _, c := range []coding.Coding{coding.Gzip, coding.Zstd} {
		encoding.RegisterCompressor(compressor{c})
	}
	return true
}

// compressor implements a coding for grpc's clients in this process.
type compressor struct{ coding.Coding }

// Name returns the name of the coding.
func (c compressor) Name() string { return c.String() }

// Compress returns a writer that compresses what it has got when it is closed.
func (c compressor) Compress(w io.Writer) (io.WriteCloser, error) {
	return &compressing{to: w, how: c.Coding}, nil
}

// Decompress returns a reader of what r was compressed from.
func (c compressor) Decompress(r io.Reader) (io.Reader, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	data, err = c.Inflate(data, math.MaxInt32, nil)
	return bytes.NewReader(data), err
}

type compressing struct {
	bytes.Buffer
	to  io.Writer
	how coding.Coding
}

// Close compresses what was written, and writes it on.
func (c *compressing) Close() error {
	_, err := c.to.Write(c.how.Append(nil, c.Bytes()))
	return err
}

// inflate returns the bytes of a compressed request. They are charged as they are inflated, and
// are at most as many as a request may have.
func (s *stream) inflate(text []byte) ([]byte, error) {
	if s.coding == coding.Identity {
		return nil, &rpcerr.Error{
			Reason:  rpcerr.Unimplemented,
			Message: "the message is compressed, with none of " + coding.All,
		}
	}
	account := &s.charged
	work := account.Work(s.ctx)
	defer work.Rest()
	if err := work.Do(inflation * len(text)); err != nil {
		return nil, err
	}
	out, err := s.coding.Inflate(text, s.limit, func(n int64) error {
		account.Shrink(max(-n, 0))
		return work.Charge(n)
	})
	switch {
	case errors.Is(err, coding.ErrTooLarge):
		return nil, &rpcerr.Error{
			Reason:  rpcerr.MessageTooLarge,
			Message: fmt.Sprintf("the message has more than %d bytes", s.limit),
		}
	case errors.Is(err, coding.ErrMalformed):
		return nil, &rpcerr.Error{Reason: rpcerr.InvalidArgument, Err: err, Message: err.Error()}
	case err != nil:
		return nil, err
	}
	// The inflated bytes are charged once.
	return out, work.Charge((requestCost - 1) * int64(len(out)))
}

// inflation is about how many times a compressed message grows.
const inflation = 8

// sendCoded sends a message to a client whose requests are compressed. The message is watched, and
// charged, as others are. While it is compressed it is in memory three times: as it is, compressed,
// and in the buffer that is kept. It is sent as it is if it is small, or if there is no memory to
// spare: nothing is refused for that.
func (s *stream) sendCoded(out *outgoing) error {
	m, ok := out.message.(proto.Message)
	if !ok {
		return s.ServerStream.SendMsg(out) // the codec refuses it
	}
	more := int64(2 * out.Size())
	if out.Size() < cmp.Or(s.cfg.MinCompressed, coding.DefaultMinSize) || !out.account.Spare(more) {
		data, err := NewCodec().Marshal(out)
		if err != nil {
			return err
		}
		defer data.Free()
		return s.queue(0, data)
	}
	out.held += more
	text, err := s.pack(out.account.Turn(), m)
	if err != nil {
		return err
	}
	if mem.IsBelowBufferPoolingThreshold(len(text)) {
		out.release() // it is small now, and nothing says when it is freed
		return s.queue(1, mem.BufferSlice{mem.SliceBuffer(text)})
	}
	kept := responses.Get(len(text))
	*kept = append((*kept)[:0], text...)
	out.account.Shrink(more)
	out.held -= more
	data := mem.BufferSlice{mem.NewBuffer(kept, s.watch(len(text), out))}
	defer data.Free()
	return s.queue(1, data)
}

// pack returns the compressed bytes of a message. It does its work in its turn.
func (s *stream) pack(turn admission.Turn, m proto.Message) ([]byte, error) {
	turn.Take()
	defer turn.Leave()
	text, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return s.coding.Append(nil, text), nil
}

// queue gives grpc a message as it is on the wire, after its flags and its length. What grpc
// exports is not enough: it compresses into buffers of its own, of SendMsg and of PreparedMsg
// alike, and nothing says which message a buffer belongs to when it is freed.
func (s *stream) queue(flags byte, data mem.BufferSlice) error {
	write, err := writerOf(s.raw)
	if err != nil {
		return rpcerr.Status(err).Err()
	}
	header := []byte{flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(header[1:], uint32(data.Len()))
	return write(header, data)
}
