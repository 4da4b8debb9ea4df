package transaction

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/inproc"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Forwarding describes a client's call that another replica makes.
type Forwarding struct {
	// Owner is the replica that keeps the transaction. Another life of it refuses the call.
	Owner page.Instance
	// Method is the full name of the RPC. Request is its request.
	Method  string
	Request []byte
	// Identity is the client's; nil: it is not authenticated.
	Identity  *caller.Identity
	RequestID string
	// Metadata holds the client's metadata that handlers know.
	Metadata metadata.MD
	// Text, Casual and Quiet are those of call.Local.
	Text, Casual, Quiet bool
	// Client is the client's address; zero: not known.
	Client netip.Addr
}

// Replicas reaches the other replicas. Its errors are those of paging.Replicas.
type Replicas interface {
	// Forward makes a unary call at a replica, and returns the response.
	Forward(ctx context.Context, address string, f Forwarding) ([]byte, error)
	// ForwardStream makes a call that answers with a stream, and gives send each message. It
	// returns when the stream has ended.
	ForwardStream(
		ctx context.Context, address string, f Forwarding, send func([]byte) error,
	) error
}

// forwarded lists the metadata that handlers know.
var forwarded = []string{
	call.TransactionKey, "mooring-session", payload.EncodingKey, call.IdempotencyKey,
}

// newForwarding returns what the owner is told of a call.
func newForwarding(ctx context.Context, c claim, in call.InTransaction) (Forwarding, error) {
	of := call.From(ctx)
	f := Forwarding{
		Owner: c.owner.Instance, Method: in.Method, Identity: of.Identity,
		RequestID: of.RequestID, Text: of.Text, Casual: of.Casual, Quiet: of.Quiet,
		Metadata: metadata.MD{}, Client: of.Client,
	}
	for _, key := range forwarded {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			f.Metadata[key] = values
		}
	}
	var err error
	f.Request, err = proto.Marshal(in.Request)
	return f, err
}

// outgoing returns what the owner of a transaction is told of a call, and the RPC. If there is no
// way to the owner, it returns paging.ErrOwnerGone.
func (s *Transactions) outgoing(
	ctx context.Context, c claim, in call.InTransaction,
) (f Forwarding, m method, err error) {
	if s.replicas == nil || c.owner.Address == "" || c.owner.Address == s.self().Address {
		return f, m, paging.ErrOwnerGone
	}
	if m, err = methodOf(in.Method); err != nil {
		return f, m, err
	}
	f, err = newForwarding(ctx, c, in)
	return f, m, err
}

// forward makes a unary call at the replica that keeps its transaction.
func (s *Transactions) forward(
	ctx context.Context, c claim, in call.InTransaction,
) (proto.Message, error) {
	f, m, err := s.outgoing(ctx, c, in)
	if err != nil {
		return nil, err
	}
	b, err := s.replicas.Forward(ctx, c.owner.Address, f)
	if err = s.cfg.Cursors.OwnerError(ctx, c.owner, err); err != nil {
		return nil, err
	}
	response := m.output.New().Interface()
	if err := proto.Unmarshal(b, response); err != nil {
		return nil, err
	}
	return response, nil
}

// relay runs a stream at the replica that keeps its transaction, and gives send its messages.
func (s *Transactions) relay(
	ctx context.Context, c claim, in call.InTransaction, send func(proto.Message) error,
) error {
	f, m, err := s.outgoing(ctx, c, in)
	if err != nil {
		return err
	}
	err = s.replicas.ForwardStream(ctx, c.owner.Address, f, func(b []byte) error {
		message := m.output.New().Interface()
		if err := proto.Unmarshal(b, message); err != nil {
			return err
		}
		return send(message)
	})
	return s.cfg.Cursors.OwnerError(ctx, c.owner, err)
}

// operationError returns the error of an operation whose owner has returned err.
func operationError(in call.InTransaction, err error) error {
	switch {
	case errors.Is(err, paging.ErrOwnerGone):
		return errOwnerGone
	case isStopping(err):
		return errOwnerStops
	}
	if lost, ok := errors.AsType[*paging.UnreachableError](err); ok {
		e := &rpcerr.Error{
			Reason: rpcerr.ReplicaUnreachable, Message: err.Error(), Err: err,
			Retry: rpcerr.SameRequest,
		}
		if lost.Sent && in.Statement == nil { // it may have been done
			e.Retry = rpcerr.Transaction
		}
		return e
	}
	return err
}

var errOwnerStops = &rpcerr.Error{
	Reason: rpcerr.TransactionAborted, Field: "transaction",
	Message: "the gateway replica that keeps the transaction is shutting down, and aborts it",
}

// isStopping reports whether a replica has refused a call because it is shutting down.
func isStopping(err error) bool {
	if errors.Is(err, handle.ErrClosing) {
		return true
	}
	e, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	return ok && status.Code(e) == codes.Unavailable &&
		rpcerr.HTTP(e).Body.GetError().GetReason() == string(rpcerr.ShuttingDown)
}

// Forwarder makes the calls that other replicas forward to this one.
type Forwarder struct {
	// Conn makes the calls. The services are registered on it.
	Conn *inproc.Conn
	// Self returns this replica.
	Self func() page.Replica
}

// Answer makes a unary call for another replica.
func (x *Forwarder) Answer(ctx context.Context, f Forwarding) ([]byte, error) {
	m, request, err := x.read(f)
	if err != nil {
		return nil, err
	}
	response := m.output.New().Interface()
	if err := x.Conn.Invoke(f.incoming(ctx), f.Method, request, response); err != nil {
		return nil, err
	}
	return proto.Marshal(response)
}

// AnswerStream makes a call for another replica that answers with a stream. It gives send each
// message.
func (x *Forwarder) AnswerStream(
	ctx context.Context, f Forwarding, send func([]byte) error,
) error {
	m, request, err := x.read(f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ss, err := x.Conn.NewStream(f.incoming(ctx), &grpc.StreamDesc{ServerStreams: true}, f.Method)
	if err != nil {
		cancel()
		return err
	}
	receive := func() (proto.Message, error) {
		message := m.output.New().Interface()
		return message, ss.RecvMsg(message)
	}
	defer func() { // the handler has ended when RecvMsg returns an error
		cancel()
		for err == nil {
			_, err = receive()
		}
	}()
	if err = ss.SendMsg(request); err != nil {
		return err
	}
	if err = ss.CloseSend(); err != nil {
		return err
	}
	for {
		var message proto.Message
		if message, err = receive(); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		b, problem := proto.Marshal(message)
		if problem == nil {
			problem = send(b)
		}
		if problem != nil {
			return problem
		}
	}
}

// read checks that a call is for this replica, and reads its request.
func (x *Forwarder) read(f Forwarding) (method, proto.Message, error) {
	if f.Owner != x.Self().Instance {
		return method{}, nil, paging.ErrNotHere
	}
	m, err := methodOf(f.Method)
	if err != nil {
		return method{}, nil, err
	}
	request := m.input.New().Interface()
	return m, request, proto.Unmarshal(f.Request, request)
}

// incoming returns the context of the call here.
func (f *Forwarding) incoming(ctx context.Context) context.Context {
	return inproc.WithIncoming(ctx, call.Local{
		RequestID: f.RequestID, Identity: f.Identity,
		Text: f.Text, Casual: f.Casual, Quiet: f.Quiet, Forwarded: true, Client: f.Client,
	}, f.Metadata)
}

// method holds the types of an RPC.
type method struct{ input, output protoreflect.MessageType }

// methodOf finds an RPC by its full name, /package.Service/Method.
func methodOf(name string) (m method, err error) {
	full := strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(full))
	if err != nil {
		return m, err
	}
	rpc, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return m, errors.New("no RPC has the name " + name)
	}
	types := protoregistry.GlobalTypes
	if m.input, err = types.FindMessageByName(rpc.Input().FullName()); err != nil {
		return m, err
	}
	m.output, err = types.FindMessageByName(rpc.Output().FullName())
	return m, err
}
