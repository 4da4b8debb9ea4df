package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of all messages
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/interceptor"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// forwardingKey carries a Forwarding. Only the listener for replicas reads it, whose callers have
// proved a handle key.
const forwardingKey = "mooring-forwarding-bin"

// sizesKey is there if the caller wants a replicav1.Size before each large message.
const sizesKey = "mooring-sizes"

var _ interceptor.Replicas = (*Transport)(nil)

// API holds what the listener serves beside the calls of replicas: the calls of clients that other
// replicas forward.
type API struct {
	// Register registers the services.
	Register func(grpc.ServiceRegistrar)
	Unary    grpc.UnaryServerInterceptor
	Stream   grpc.StreamServerInterceptor
	// OpenAccount opens the account of a call, which is charged with its request before that is
	// read: as server.GRPCConfig has it. If it is nil, nothing is charged.
	OpenAccount func(context.Context, *admission.Account)
}

// SetAPI sets what serves the calls that other replicas forward. It is called before Serve; without
// it they are refused.
func (t *Transport) SetAPI(a API) { t.api = a }

// newForwarding returns the metadata that say what a replica is told of a client and its call.
func newForwarding(l call.Local) (string, error) {
	m := &replicav1.Forwarding{
		Owner: newID(l.Owner), RequestId: l.RequestID, Text: l.Text, Casual: l.Casual,
		Quiet: l.Quiet, Whole: l.Whole, Client: l.Client.AsSlice(), Taken: []byte(l.Taken),
	}
	if id := l.Identity; id != nil {
		claims, err := json.Marshal(id.Claims)
		if err != nil {
			return "", err
		}
		m.Principal, m.Groups, m.Claims = id.Principal, id.Groups, claims
	}
	b, err := proto.Marshal(m)
	return string(b), err
}

// forwarding reads what newForwarding has returned.
func (r *reader) forwarding(text string) call.Local {
	m := &replicav1.Forwarding{}
	if err := proto.Unmarshal([]byte(text), m); err != nil {
		r.fail()
	}
	l := call.Local{
		Forwarded: true, Owner: r.id(m.GetOwner()), RequestID: m.GetRequestId(),
		Text: m.GetText(), Casual: m.GetCasual(), Quiet: m.GetQuiet(), Whole: m.GetWhole(),
		Client: r.client(m.GetClient()), Taken: string(m.GetTaken()),
	}
	if m.Claims != nil {
		l.Identity = &caller.Identity{Principal: m.GetPrincipal(), Groups: m.GetGroups()}
		if err := json.Unmarshal(m.GetClaims(), &l.Identity.Claims); err != nil {
			r.fail()
		}
	}
	return l
}

// forwarded returns the context of a call that another replica forwards. A call of the API that
// does not say for which client it is made is refused.
func forwarded(ctx context.Context) (context.Context, error) {
	texts := metadata.ValueFromIncomingContext(ctx, forwardingKey)
	if len(texts) != 1 {
		return ctx, errMessage
	}
	var r reader
	local := r.forwarding(texts[0])
	return &call.LocalContext{Context: ctx, Local: local}, r.err
}

// Forward makes a call of a client at another replica. It implements interceptor.Replicas.
func (t *Transport) Forward(ctx context.Context, f *call.Forwarding) (call.Reply, error) {
	text, err := newForwarding(f.Local)
	if err != nil {
		return call.Reply{}, err
	}
	md := metadata.MD(f.Metadata).Copy()
	md.Set(forwardingKey, text)
	md.Set(sizesKey, "true")
	s, err := t.open(ctx, f, md)
	switch {
	case err != nil:
		return call.Reply{}, err
	case f.Streams:
		return call.Reply{Stream: s}, nil
	}
	response, err := s.only()
	return call.Reply{Response: response}, err
}

// with returns a context with more metadata of the call.
func with(ctx context.Context, md metadata.MD) context.Context {
	signed, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewOutgoingContext(ctx, metadata.Join(signed, md))
}

// largeMessage is the size of the smallest message whose size comes before it.
const largeMessage = 64 << 10

// codec implements the codec of one call. failed is the error of a request that has no encoding,
// or too long a one: the replica was not asked.
type codec struct {
	encoding.CodecV2
	limit   int
	account *admission.Account
	failed  error
	// next is the size of the next message, if that was received, and not a message.
	next int64
}

// Marshal encodes a message.
func (c *codec) Marshal(v any) (mem.BufferSlice, error) {
	b, err := c.CodecV2.Marshal(v)
	if n := b.Len(); err == nil && n > c.limit {
		b.Free()
		b, err = nil, &rpcerr.Error{
			Reason: rpcerr.TooLarge,
			Message: fmt.Sprintf("the request has %d bytes between gateway replicas, of at most %d",
				n, c.limit),
		}
	}
	c.failed = err
	return b, err
}

// Unmarshal decodes a message into v, or the size of the next one into next.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	if c.next = readSize(data); c.next > 0 {
		return nil
	}
	if data.Len() >= largeMessage {
		turn := c.account.Turn()
		turn.Take()
		defer turn.Leave()
	}
	return c.CodecV2.Unmarshal(data, v)
}

// readSize returns what a replicav1.Size says, 0 for a message of the API: none has its field.
func readSize(data mem.BufferSlice) int64 {
	m := &replicav1.Size{}
	if data.Len() > maxSizeBytes || proto.Unmarshal(data.Materialize(), m) != nil {
		return 0
	}
	return m.GetBytes()
}

// maxSizeBytes is how long a replicav1.Size is at most.
const maxSizeBytes = 16

// open makes a call. It returns when the replica has agreed: when it has sent its header, or a
// message.
func (t *Transport) open(
	ctx context.Context, f *call.Forwarding, md metadata.MD,
) (*relayed, error) {
	t.called.Add(1)
	address := f.To.Address
	p, err := t.connections.get(address)
	if err != nil {
		t.lost(address)
		return nil, &paging.UnreachableError{Address: address, Err: err}
	}
	s := &relayed{t: t, of: f, to: p, codec: codec{
		CodecV2: encoding.GetCodecV2("proto"), limit: t.limit, account: admission.From(ctx),
	}}
	ctx, cancel := context.WithCancel(ctx)
	s.caller = ctx
	s.close = sync.OnceFunc(func() {
		cancel()
		t.connections.put(p)
	})
	err = s.begin(with(t.signed(ctx), md), grpc.Peer(&s.via), grpc.ForceCodecV2(&s.codec))
	switch {
	case s.codec.failed != nil:
		err = s.codec.failed
	case err != nil:
		err = t.explain(ctx, f.To, p, &s.via, err)
	default:
		return s, nil
	}
	s.close()
	return nil, err
}

// relayed receives what another replica sends to a client. The call is charged with a large message
// before that is read: until then it waits at the other replica.
type relayed struct {
	t       *Transport
	of      *call.Forwarding
	to      *connection
	caller  context.Context //nolint:containedctx // lives as long as this value
	wire    grpc.ClientStream
	codec   codec
	charged int64 // for the last message of a stream
	ended   bool  // without a message
	via     peer.Peer
	close   func()
}

// begin sends the request, and waits until the replica agrees.
func (s *relayed) begin(ctx context.Context, opts ...grpc.CallOption) (err error) {
	all := &grpc.StreamDesc{ServerStreams: true}
	s.wire, err = s.to.conn.NewStream(ctx, all, s.of.Method, opts...)
	if err != nil {
		return err
	}
	if err := s.wire.SendMsg(s.of.Request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.wire.CloseSend(); err != nil {
		return err
	}
	header, err := s.wire.Header()
	if err != nil || header != nil {
		return err
	}
	err = s.wire.RecvMsg(s.of.Answer.New().Interface()) // the status
	s.ended = errors.Is(err, io.EOF)
	if s.ended {
		return nil
	}
	return err
}

// Recv returns the next message. The last one is no longer used.
func (s *relayed) Recv() (proto.Message, error) {
	s.codec.account.Shrink(s.charged)
	s.charged = 0
	m, err := s.receive()
	if err != nil {
		s.close()
	}
	return m, err
}

// only returns the response of a unary call, which is charged until the end of the call.
func (s *relayed) only() (proto.Message, error) {
	defer s.close()
	response, err := s.receive()
	if err == nil {
		_, err = s.receive() // the status
	}
	switch {
	case err == nil:
		err = s.explain(errors.New("it has sent more than one response"))
	case !errors.Is(err, io.EOF):
	case response == nil:
		err = s.explain(errors.New("it has sent no response"))
	default:
		return response, nil
	}
	s.codec.account.Shrink(s.charged)
	return nil, err
}

// receive returns the next message, or io.EOF.
func (s *relayed) receive() (proto.Message, error) {
	for !s.ended {
		m := s.of.Answer.New().Interface()
		err := s.wire.RecvMsg(m)
		switch {
		case errors.Is(err, io.EOF):
			return nil, err
		case err != nil:
			return nil, s.explain(err)
		case s.codec.next == 0:
			return m, nil
		}
		if err := s.codec.account.GrowLast(s.caller, s.codec.next); err != nil {
			return nil, err
		}
		s.charged += s.codec.next
	}
	return nil, io.EOF
}

func (s *relayed) explain(err error) error {
	return s.t.explain(s.caller, s.of.To, s.to, &s.via, err)
}

// Close ends the stream.
func (s *relayed) Close() { s.close() }
