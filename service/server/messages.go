package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that this one extends
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/coding"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// grpc reads a message of any length for as long as the client likes, and keeps a response until
// the client takes it. So the messages of all calls pass through this file: it reads a message in
// pieces whose progress is watched, and learns when a response has left the process.

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
	// unary says that the client gets one message at most.
	unary bool
	// arrived says that a request has arrived. The goroutine that receives may outlive the handler.
	arrived atomic.Bool
	// broken is the error of a call that cut has ended; nil: it has ended none.
	broken atomic.Pointer[rpcerr.Failure]
	// free says that the call needs no credential.
	free bool
	// coding compresses the messages that say so, in both directions.
	coding coding.Coding
	// stall is how long the client may leave a message of this stream unread.
	stall time.Duration
	// charged is the account of the last request, and of a large response until grpc has it. A
	// unary call, and a stream of a client that is not watched, use it for all their memory.
	charged admission.Account
	local   call.LocalContext
	// lent is the memory that a response has views of: the codec copies them.
	lent call.Lent

	// The state of the messages on their way: at most one in each direction.
	header  [5]byte
	reading reading
	work    admission.Work // of decode
	sending outgoing
}

// wrap returns the stream of a call.
func (cfg *GRPCConfig) wrap(
	ctx context.Context, ss grpc.ServerStream, method string,
) (*stream, error) {
	raw, err := transportOf(ctx)
	if err != nil {
		return nil, rpcerr.Status(err).Err()
	}
	s := &stream{
		ServerStream: ss, ctx: ctx, cfg: cfg, raw: raw, limit: cfg.MaxRequestSize,
		patience: pacePatience,
	}
	s.coding, _ = coding.Of(raw.RecvCompress()) // grpc refuses those that it does not know
	if cfg.MaxSizeOf != nil {
		s.limit = min(s.limit, cfg.MaxSizeOf(method))
	}
	s.client = clientOf(ctx)
	return s, nil
}

// clientOf returns the connection of a call, nil if no listener of this package has accepted it.
func clientOf(ctx context.Context) *client {
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.Addr.(*clientAddr); ok {
			return a.client
		}
	}
	return nil
}

// Context returns the context that Authenticate has returned.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg receives a message. A call whose number of requests is not that of its method is
// Unimplemented, as gRPC has it. It blocks until the message is there, the stream has ended, or the
// client does not keep pace.
func (s *stream) RecvMsg(m any) error {
	err := s.receive(m)
	if err == nil || errors.Is(err, io.EOF) {
		s.arrived.Store(true)
		return err
	}
	if broken := s.broken.Load(); broken != nil {
		return broken
	}
	if _, ok := status.FromError(err); ok {
		return err // of grpc: the stream has ended
	}
	_, ours := errors.AsType[*rpcerr.Error](err)
	_, refused := errors.AsType[*admission.Error](err)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Message: "the request ends within a message",
		}
	case !ours && !refused:
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
		return &rpcerr.Error{Reason: rpcerr.Unimplemented, Message: "the call has no request"}
	case err != nil:
		return err
	}
	if s.several {
		s.cfg.dog.watch(watched)
		defer s.cfg.dog.arrived(watched)
	}
	length := int64(binary.BigEndian.Uint32(header[1:]))
	switch {
	case header[0] > 1:
		return &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Message: "the message has unknown flags",
		}
	case length > int64(s.limit):
		return &rpcerr.Error{
			Reason:  rpcerr.MessageTooLarge,
			Message: fmt.Sprintf("the message has %d bytes, of at most %d", length, s.limit),
		}
	}
	if err := s.decode(watched, int(length), header[0] == 1, m); err != nil {
		return err
	}
	if s.several {
		return nil
	}
	// The client must end its side.
	if err = s.raw.ReadMessageHeader(header[:]); err == nil {
		return &rpcerr.Error{
			Reason: rpcerr.Unimplemented, Message: "the call has more than one request",
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// cut ends the call, whose client does not keep pace.
func (s *stream) cut(why string) {
	failure := rpcerr.Explain(rpcerr.BrokenOff(&rpcerr.Error{
		Reason: rpcerr.BodyTimeout, Message: why,
	}, s.arrived.Load(), nil), call.Call{Local: call.LocalFrom(s.ctx)})
	s.broken.Store(failure)
	_ = s.raw.WriteStatus(failure.GRPCStatus()) // fails if the call has ended meanwhile
}

// decode reads the bytes of a message as they arrive, and decodes it.
func (s *stream) decode(watched *reading, length int, compressed bool, m any) error {
	into, ok := m.(proto.Message)
	if !ok {
		panic(fmt.Sprintf("bug: server: %T is not a message", m))
	}
	s.charged.Shrink(s.charged.Held()) // the handler of a stream has used the last request
	text, err := s.read(watched, length)
	if err != nil {
		return err
	}
	defer text.Free()
	data := text.ReadOnlyData()
	if compressed {
		if data, err = s.inflate(data); err != nil {
			return err
		}
	}
	if len(data) > smallRequest {
		defer s.charged.Vacate(int64(len(data))) // the message keeps nothing of it
	}
	s.work = s.charged.Work(s.ctx)
	defer s.work.Rest() // Do takes a turn also when it returns an error
	if err := s.work.Do(len(data)); err != nil {
		return err
	}
	if err := s.checkItems(into, data); err != nil {
		return err
	}
	if err := proto.Unmarshal(data, into); err != nil {
		return &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Err: err,
			Message: "the message is not one of this call",
		}
	}
	return nil
}

// A request is charged as on REST, unless it is small: requestCost bytes for each byte of the
// buffer that it is read into, for the buffer and what is decoded from it. The buffer grows as the
// bytes arrive.
const (
	smallRequest = 16 << 10
	requestCost  = 2
	// streamWindow is how many bytes of a request the client may send before they are asked for.
	// They are not charged.
	streamWindow = 64 << 10
)

// read reads the bytes of a message as they arrive.
func (s *stream) read(watched *reading, length int) (mem.Buffer, error) {
	if length <= smallRequest {
		pieces, err := s.raw.Read(length)
		if err != nil {
			return nil, err
		}
		defer pieces.Free()
		return pieces.MaterializeToBuffer(mem.DefaultBufferPool()), nil
	}
	account := &s.charged
	if err := account.CheckTotal(int64(requestCost * length)); err != nil {
		return nil, err
	}
	var text []byte
	for len(text) < length {
		if len(text) == cap(text) {
			larger := min(length, max(2*cap(text), paceBytes))
			if err := account.Grow(s.ctx, int64(requestCost*(larger-cap(text)))); err != nil {
				return nil, err
			}
			text = append(make([]byte, 0, larger), text...)
		}
		n := min(cap(text)-len(text), paceBytes)
		pieces, err := s.raw.Read(n)
		if err != nil {
			return nil, err
		}
		text = text[:len(text)+n]
		pieces.CopyTo(text[len(text)-n:])
		pieces.Free()
		if len(text) < length {
			s.cfg.dog.moved(watched, n)
		}
	}
	return mem.SliceBuffer(text), nil
}

// openAccount opens the account of the messages, before the handler runs: a goroutine of its stream
// may still receive when it has returned, and finds an account that has been closed.
func (s *stream) openAccount() {
	if s.cfg.OpenAccount != nil {
		s.cfg.OpenAccount(s.ctx, &s.charged)
	}
}

// lendAccount gives the account, which is open, to a call. A unary one reserves room for its
// response there. After GoOn of a stream, its messages wait for memory as all else does.
func (s *stream) lendAccount() {
	if s.cfg.OpenAccount != nil {
		s.local.Account = &s.charged
	}
}

// inform tells the call what ends with this stream. The caller closes s.lent when the handler has
// ended, and its response is sent.
func (s *stream) inform() {
	s.local = call.LocalContext{Context: s.ctx, Local: call.LocalFrom(s.ctx)}
	s.local.Lent = &s.lent
	s.ctx = &s.local
}

// An item takes at least leastItem bytes in a message, and about itemCost bytes in memory: the
// messages that hold it, its place in lists, and its id in the response.
const (
	leastItem = 2
	itemCost  = 512
)

// checkItems counts the items of a request, and charges the client with them if they are many.
func (s *stream) checkItems(m proto.Message, text []byte) error {
	most := s.cfg.MaxItems
	if most == 0 {
		most = math.MaxInt
	}
	if len(text)/leastItem <= min(most, smallRequest/itemCost) {
		return nil
	}
	n := coding.CountItems(m.ProtoReflect().Descriptor(), text, most)
	switch {
	case n > most:
		return &rpcerr.Error{
			Reason:  rpcerr.MessageTooLarge,
			Message: fmt.Sprintf("the request has more than %d items", most),
		}
	case n*itemCost <= smallRequest:
		return nil
	}
	return s.work.Charge(int64(n * itemCost))
}

// largeResponse is the size of the smallest response that is charged.
const largeResponse = 64 << 10

// SendMsg sends a message. The connection is closed if the client does not take it. A large message
// is charged until it is written to the connection, which may be after the end of the call. For a
// client that is not watched, SendMsg blocks until then.
func (s *stream) SendMsg(m any) error {
	s.sending = outgoing{message: m, stream: s, last: s.unary}
	if err := s.sending.charge(); err != nil {
		return rpcerr.Status(err).Err()
	}
	send := s.ServerStream.SendMsg
	if s.coding != coding.Identity {
		send = func(any) error { return s.sendCoded(&s.sending) }
	}
	err := send(&s.sending)
	if freed := s.sending.freed; err == nil && freed != nil {
		select {
		case <-freed:
		case <-s.ctx.Done(): // also of a connection that has broken, whose messages are not freed
		}
	}
	if err != nil || s.client == nil {
		s.sending.release()
	}
	// A stream may wait long for the next one.
	s.sending.message, s.sending.wire = nil, payload.Wire{}
	return err
}

// outgoing carries a message, and whose it is, to the codec.
type outgoing struct {
	message any
	stream  *stream
	wire    payload.Wire       // of the message, once it is charged
	account *admission.Account // of a large message; nil: it is not charged
	held    int64              // by account, for this message
	freed   freed              // of a large message whose client is not watched
	// last says that no other message follows. A small one may be in place then; a large one would
	// stay for as long as the call's stream does, which is longer than it is charged.
	last  bool
	place [1]mem.Buffer
}

// Size returns how many bytes the message has on the wire.
func (o *outgoing) Size() int { return o.wire.Size() }

// slice returns the bytes of the message as grpc has them, which may hold them for longer than the
// call takes.
func (o *outgoing) slice(b mem.Buffer) mem.BufferSlice {
	if o.last && o.account == nil {
		o.place[0] = b
		return o.place[:]
	}
	return mem.BufferSlice{b}
}

// charge charges the client with a message. It blocks until the message fits, for a short time, or
// for longer after GoOn. The response of a unary call uses what the call has reserved for it. A
// stream that has the account keeps the message there until it is written: if it handed that over,
// it would return the overdraft, and one stream after the other could exceed the budget.
func (o *outgoing) charge() error {
	m, ok := o.message.(proto.Message)
	if !ok {
		return nil // the codec refuses it
	}
	o.wire = payload.WireOf(m)
	size := o.wire.Size()
	if size < largeResponse || o.stream.cfg.OpenAccount == nil {
		return nil
	}
	of, n := &o.stream.charged, int64(responses.room(size))
	if err := of.GrowLast(o.stream.ctx, n); err != nil {
		return err
	}
	o.account, o.held = of, n
	if s := o.stream; s.unary || s.local.Account != of {
		o.account = &admission.Account{}
		of.OpenFor(o.account)
		of.HandOver(o.account, n)
	}
	return nil
}

// release returns what the message is charged with.
func (o *outgoing) release() {
	o.account.Shrink(o.held)
	o.held = 0
}

// codec writes the messages of streams.
type codec struct{ encoding.CodecV2 }

// NewCodec returns the codec of a server whose calls pass through this package.
func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

// Marshal returns the bytes of a message. It watches them until grpc frees them, which it does when
// they are written to the connection.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	out, ok := v.(*outgoing)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	if _, ok := out.message.(proto.Message); !ok {
		return c.CodecV2.Marshal(out.message)
	}
	size := out.wire.Size()
	if size <= leastPooled {
		text, err := out.wire.Append(nil)
		if err != nil {
			return nil, err
		}
		return out.slice(mem.SliceBuffer(text)), nil
	}
	if mem.IsBelowBufferPoolingThreshold(size) { // it is not watched
		text, err := marshal(&out.wire, smallResponses)
		if err != nil {
			return nil, err
		}
		return out.slice(mem.NewBuffer(text, smallResponses)), nil
	}
	turn := out.account.Turn()
	turn.Take()
	defer turn.Leave()
	text, err := marshal(&out.wire, responses)
	if err != nil {
		return nil, err
	}
	return out.slice(mem.NewBuffer(text, out.stream.watch(size, out))), nil
}

// marshal returns the bytes of a message, in a buffer of a pool.
func marshal(w *payload.Wire, pool mem.BufferPool) (*[]byte, error) {
	text := pool.Get(w.Size())
	written, err := w.Append((*text)[:0])
	if err != nil {
		pool.Put(text)
		return nil, err
	}
	*text = written
	return text, nil
}

// watch begins to watch a message to the client. It returns the pool that the buffer of the message
// is returned to when it is written.
func (s *stream) watch(size int, o *outgoing) mem.BufferPool {
	switch {
	case s.client == nil && o.account == nil:
		return responses
	case s.client == nil:
		o.freed = make(freed)
		return o.freed
	}
	out := &sending{
		dog: s.cfg.dog, size: size, to: s.client, account: o.account,
		patience: pacePatience, deadline: time.Now().Add(sendTime(size)),
	}
	if s.stall > 0 {
		out.patience = s.stall + statusTime
		out.deadline = time.Now().Add(out.patience)
	}
	s.cfg.dog.send(out)
	return out
}

var _ mem.BufferPool = (*sending)(nil)

// Get returns a buffer.
func (*sending) Get(size int) *[]byte { return responses.Get(size) }

// Put ends the watching of the message, and returns its buffer.
func (s *sending) Put(text *[]byte) {
	responses.Put(text)
	s.dog.sent(s)
}

// freed acts as the pool of the buffer of one message. It is closed when that is returned.
type freed chan struct{}

// Get returns a buffer.
func (freed) Get(size int) *[]byte { return responses.Get(size) }

// Put returns the buffer.
func (f freed) Put(text *[]byte) {
	responses.Put(text)
	close(f)
}

const (
	// leastPooled is the size up to which a response has memory of its own.
	leastPooled = 128
	// smallRoom is the size of the buffers of smallResponses. It is one of the sizes that Go has
	// memory in, and above the size from which grpc returns buffers to their pools.
	smallRoom = 1152
)

// smallResponses is the pool of the buffers of responses that are not watched, all of one size.
var smallResponses = &smallPool{sync.Pool{New: func() any {
	text := make([]byte, smallRoom)
	return &text
}}}

type smallPool struct{ pool sync.Pool }

// Get returns a buffer of n bytes, at most smallRoom.
func (p *smallPool) Get(n int) *[]byte {
	text, _ := p.pool.Get().(*[]byte) // always
	*text = (*text)[:n]
	return text
}

// Put returns a buffer.
func (p *smallPool) Put(text *[]byte) { p.pool.Put(text) }

// responses is the pool of the buffers of responses. It keeps none over maxPooled bytes, which
// would hold memory that is not charged.
var responses = newResponsePool()

const maxPooled = 1 << 20

// responsePool has buffers whose sizes are powers of two, up to maxPooled.
type responsePool struct{ mem.BufferPool }

func newResponsePool() responsePool {
	tiers, err := mem.NewBinaryTieredBufferPool(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic("bug: server: " + err.Error())
	}
	return responsePool{tiers}
}

// room returns the size of the buffer for a response of n bytes.
func (responsePool) room(n int) int {
	if n > maxPooled {
		return n
	}
	return 1 << bits.Len(uint(n-1))
}

// Get returns a buffer of n bytes.
func (p responsePool) Get(n int) *[]byte {
	if n > maxPooled {
		text := make([]byte, n)
		return &text
	}
	return p.BufferPool.Get(n)
}

// Put returns a buffer.
func (p responsePool) Put(text *[]byte) {
	if cap(*text) <= maxPooled {
		p.BufferPool.Put(text)
	}
}
