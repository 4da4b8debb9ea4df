package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that this one extends
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/rpcerr"
)

// grpc reads a message of any length for as long as the client likes, and keeps a response until
// the client takes it. So the messages of all calls pass through this file: it reads a message in
// pieces whose progress is watched, and learns when a response has left the process.

// transportStream lists the methods of grpc's transport stream that read a message in pieces and
// end a call whose handler is blocked.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	WriteStatus(st *status.Status) error
}

// stream wraps a stream of grpc so that the client must keep pace.
type stream struct {
	grpc.ServerStream
	ctx      context.Context //nolint:containedctx // as grpc has it
	cfg      *GRPCConfig
	raw      transportStream
	client   *client
	limit    int           // of a message, in bytes
	patience time.Duration // for each piece of a message
	// several says that the client sends a stream, and may wait before each message.
	several bool
	// stall is how long the client may leave a message of this stream unread.
	stall time.Duration

	// The state of the messages on their way: at most one in each direction.
	header  [5]byte
	reading reading
	sending outgoing
}

// wrap returns the stream of a call.
func (cfg *GRPCConfig) wrap(ctx context.Context, ss grpc.ServerStream, method string) *stream {
	raw, ok := grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	if !ok {
		panic("bug: server: grpc's stream has other methods")
	}
	s := &stream{
		ServerStream: ss, ctx: ctx, cfg: cfg, raw: raw, limit: cfg.MaxRequestSize,
		patience: pacePatience,
	}
	if cfg.MaxSizeOf != nil {
		s.limit = min(s.limit, cfg.MaxSizeOf(method))
	}
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(*clientAddr); ok {
			s.client = a.client
		}
	}
	return s
}

// Context returns the context that Authenticate has returned.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg receives a message. It blocks until the message is there, the stream has ended, or the
// client does not keep pace.
func (s *stream) RecvMsg(m any) error {
	err := s.receive(m)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if _, ok := status.FromError(err); ok {
		return err // of grpc: the stream has ended
	}
	if _, ours := errors.AsType[*rpcerr.Error](err); !ours {
		err = &rpcerr.Error{
			Reason: rpcerr.Canceled, Message: "the request could not be read: " + err.Error(),
		}
	}
	return rpcerr.Status(err).Err()
}

func (s *stream) receive(m any) error {
	header, watched := &s.header, &s.reading
	watched.patience, watched.of = s.patience, s
	if !s.several {
		s.cfg.dog.watch(watched)
		defer s.cfg.dog.arrived(watched)
	}
	err := s.raw.ReadMessageHeader(header[:])
	switch {
	case errors.Is(err, io.EOF) && !s.several:
		return &rpcerr.Error{Reason: rpcerr.InvalidArgument, Message: "the call has no request"}
	case err != nil:
		return err
	}
	if s.several {
		s.cfg.dog.watch(watched)
		defer s.cfg.dog.arrived(watched)
	}
	length := int64(binary.BigEndian.Uint32(header[1:]))
	switch {
	case header[0] != 0:
		return &rpcerr.Error{
			Reason: rpcerr.Unimplemented, Message: "the message is compressed",
		}
	case length > int64(s.limit):
		return &rpcerr.Error{
			Reason:  rpcerr.MessageTooLarge,
			Message: fmt.Sprintf("the message has %d bytes, of at most %d", length, s.limit),
		}
	}
	if err := s.decode(watched, int(length), m); err != nil {
		return err
	}
	if s.several {
		return nil
	}
	// The client must end its side.
	if err = s.raw.ReadMessageHeader(header[:]); err == nil {
		return &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Message: "the call has more than one request",
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// cut ends the call, whose client does not keep pace.
func (s *stream) cut(why string) {
	// The error is that the call has ended meanwhile.
	_ = s.raw.WriteStatus(rpcerr.Status(&rpcerr.Error{
		Reason: rpcerr.BodyTimeout, Message: why,
	}))
}

// decode reads the bytes of a message as they arrive, and decodes it.
func (s *stream) decode(watched *reading, length int, m any) error {
	into, ok := m.(proto.Message)
	if !ok {
		panic(fmt.Sprintf("bug: server: %T is no message", m))
	}
	var data mem.BufferSlice
	defer func() { data.Free() }()
	for left := length; left > 0; {
		n := min(left, paceBytes)
		piece, err := s.raw.Read(n)
		if err != nil {
			return err
		}
		if data == nil {
			data = piece
		} else {
			data = append(data, piece...)
		}
		if left -= n; left > 0 {
			s.cfg.dog.moved(watched, n)
		}
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := proto.Unmarshal(whole.ReadOnlyData(), into); err != nil {
		return &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Err: err,
			Message: "the message is not one of this call",
		}
	}
	return nil
}

// SendMsg sends a message. The connection is closed if the client does not take it.
func (s *stream) SendMsg(m any) error {
	if s.client == nil {
		return s.ServerStream.SendMsg(m)
	}
	s.sending = outgoing{message: m, stream: s}
	err := s.ServerStream.SendMsg(&s.sending)
	s.sending.message = nil // a stream may wait long for the next one
	return err
}

// outgoing carries a message, and whose it is, to the codec.
type outgoing struct {
	message any
	stream  *stream
}

// codec writes the messages of streams.
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

// Marshal returns the bytes of a message. It watches them until grpc frees them, which it does when
// they are written to the connection.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*outgoing)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	m, ok := out.message.(proto.Message)
	if !ok {
		return c.CodecV2.Marshal(out.message)
	}
	size := proto.Size(m)
	if mem.IsBelowBufferPoolingThreshold(size) {
		return c.CodecV2.Marshal(m) // it is small, and nothing says when it is freed
	}
	pool := mem.DefaultBufferPool()
	text := pool.Get(size)
	written, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*text)[:0], m)
	if err != nil {
		pool.Put(text)
		return nil, err
	}
	*text = written
	return mem.BufferSlice{mem.NewBuffer(text, out.stream.watch(size, pool))}, nil
}

// watch begins to watch a message to the client. It returns the pool that the buffer of the message
// is returned to when it is written.
func (s *stream) watch(size int, pool mem.BufferPool) mem.BufferPool {
	out := &sending{
		size: size, to: s.client,
		patience: pacePatience, deadline: time.Now().Add(sendTime(size)),
	}
	if s.stall > 0 {
		out.patience, out.deadline = s.stall, time.Now().Add(s.stall)
	}
	s.cfg.dog.send(out)
	return &release{pool, s.cfg.dog, out}
}

// release acts as the pool of one buffer.
type release struct {
	mem.BufferPool
	dog *watchdog
	out *sending
}

// Put ends the watching of the message, and returns its buffer.
func (r *release) Put(text *[]byte) {
	r.dog.sent(r.out)
	r.BufferPool.Put(text)
}
