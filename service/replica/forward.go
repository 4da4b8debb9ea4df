package replica

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/transaction"
)

// Calls makes the calls of clients that other replicas forward.
type Calls interface {
	Answer(ctx context.Context, f transaction.Forwarding) ([]byte, error)
	AnswerStream(
		ctx context.Context, f transaction.Forwarding, send func([]byte) error,
	) error
}

var (
	_ transaction.Replicas = (*Transport)(nil)
	_ Calls                = (*transaction.Forwarder)(nil)
)

// SetCalls sets what makes the calls that other replicas forward. It is called before Serve;
// without it they are refused.
func (t *Transport) SetCalls(c Calls) { t.calls = c }

func newForwarding(f transaction.Forwarding) (*replicav1.Forwarding, error) {
	m := &replicav1.Forwarding{
		Owner: newID(f.Owner), Method: f.Method, Request: f.Request,
		RequestId: f.RequestID, Text: f.Text, Casual: f.Casual, Quiet: f.Quiet,
		Client: f.Client.AsSlice(),
	}
	if id := f.Identity; id != nil {
		claims, err := json.Marshal(id.Claims)
		if err != nil {
			return nil, err
		}
		m.Principal, m.Groups, m.Claims = id.Principal, id.Groups, claims
	}
	for key, values := range f.Metadata {
		for _, v := range values {
			m.Metadata = append(m.Metadata, &replicav1.Metadata{Key: key, Value: v})
		}
	}
	return m, nil
}

func (r *reader) forwarding(m *replicav1.Forwarding) transaction.Forwarding {
	f := transaction.Forwarding{
		Owner: r.id(m.GetOwner()), Method: m.GetMethod(), Request: m.GetRequest(),
		RequestID: m.GetRequestId(), Text: m.GetText(), Casual: m.GetCasual(),
		Quiet: m.GetQuiet(), Metadata: metadata.MD{},
		Client: r.client(m.GetClient()),
	}
	if m.Claims != nil {
		f.Identity = &caller.Identity{Principal: m.GetPrincipal(), Groups: m.GetGroups()}
		if err := json.Unmarshal(m.GetClaims(), &f.Identity.Claims); err != nil {
			r.fail()
		}
	}
	for _, pair := range m.GetMetadata() {
		f.Metadata.Append(pair.GetKey(), pair.GetValue())
	}
	return f
}

// Forward makes a unary call of a client at the replica that keeps the call's transaction.
func (t *Transport) Forward(
	ctx context.Context, address string, f transaction.Forwarding,
) (response []byte, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c client, opts ...grpc.CallOption) error {
		m, err := newForwarding(f)
		if err != nil {
			return err
		}
		resp, err := c.Forward(ctx, &replicav1.ForwardRequest{Call: m}, opts...)
		response = resp.GetResponse()
		return err
	})
	return response, err
}

// ForwardStream makes a call of a client at the replica that keeps the call's transaction, and
// gives send the messages of its stream. If send fails, ForwardStream returns that error.
func (t *Transport) ForwardStream(
	ctx context.Context, address string, f transaction.Forwarding, send func([]byte) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var unsent error
	err := t.call(ctx, address, func(ctx context.Context, c client, opts ...grpc.CallOption) error {
		m, err := newForwarding(f)
		if err != nil {
			return err
		}
		ss, err := c.ForwardStream(ctx, &replicav1.ForwardStreamRequest{Call: m}, opts...)
		if err != nil {
			return err
		}
		for agreed := false; ; agreed = true {
			resp, err := ss.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case !agreed:
				continue
			}
			if unsent = send(resp.GetMessage()); unsent != nil {
				return nil
			}
		}
	})
	if unsent != nil {
		return unsent
	}
	return err
}

// Forward makes a call of a client for another replica.
func (s *server) Forward(
	ctx context.Context, req *replicav1.ForwardRequest,
) (*replicav1.ForwardResponse, error) {
	f, err := s.forwarding(req.GetCall())
	if err != nil {
		return nil, refusal(err)
	}
	response, err := s.calls.Answer(ctx, f)
	if err != nil {
		return nil, refusal(err)
	}
	return &replicav1.ForwardResponse{Response: response}, nil
}

// ForwardStream makes a call of a client that answers with a stream for another replica.
func (s *server) ForwardStream(
	req *replicav1.ForwardStreamRequest,
	ss grpc.ServerStreamingServer[replicav1.ForwardStreamResponse],
) error {
	f, err := s.forwarding(req.GetCall())
	if err == nil {
		if err := ss.Send(&replicav1.ForwardStreamResponse{}); err != nil {
			return err
		}
		err = s.calls.AnswerStream(ss.Context(), f, func(message []byte) error {
			return ss.Send(&replicav1.ForwardStreamResponse{Message: message})
		})
	}
	if err != nil {
		return refusal(err)
	}
	return nil
}

// forwarding reads a call, which is refused if this replica makes none for others.
func (s *server) forwarding(m *replicav1.Forwarding) (transaction.Forwarding, error) {
	var r reader
	f := r.forwarding(m)
	if r.err == nil && s.calls == nil {
		return f, &rpcerr.Error{
			Reason: rpcerr.Unimplemented, Message: "this replica makes no calls for others",
		}
	}
	return f, r.err
}
