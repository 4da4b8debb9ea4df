package replica

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	peerv1 "github.com/mooringdb/mooring/gen/mooring/peer/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/stream"
)

const (
	// maxListed bounds one list, and listedAtOnce one message of it.
	maxListed    = 100_000
	listedAtOnce = 500
	// maxPushedBytes bounds what all pushes together hold until they are complete. What one replica may remember is less, unless it is set up to
	// more. recordBytes is what a record costs beside what it says.
	maxPushedBytes = 256 << 20
	recordBytes    = 256
)

// Registry is what a node needs of *handle.Registry: what a replica answers to others.
type Registry interface {
	Self() handle.Replica
	Answer(ctx context.Context, q handle.Question) (handle.Answer, error)
	AnswerStream(ctx context.Context, q handle.Question) (context.Context, *handle.Taken, error)
	Accept(rec handle.Record) error
	Handles(q handle.Query) []handle.Info
	Kill(ctx context.Context, id string) error
}

var _ Registry = (*handle.Registry)(nil)

// server answers other replicas from the registry, and from nothing else.
type server struct {
	peerv1.UnsafePeerServiceServer
	registry Registry
	streams  *stream.Streams
	pushes   *pushes
}

// pushes are what all pushes that are not complete hold.
type pushes struct {
	bytes atomic.Int64
	max   int64
}

var _ peerv1.PeerServiceServer = (*server)(nil)

// Ask answers a question.
func (s *server) Ask(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
	var r reader
	q := r.question(req.GetQuestion())
	if r.err != nil {
		return nil, refusal(r.err)
	}
	a, err := s.registry.Answer(ctx, q)
	if err != nil {
		return nil, refusal(err)
	}
	return newAnswer(a), nil
}

// Stream sends the pages of a pinned cursor.
func (s *server) Stream(req *peerv1.StreamRequest, ss grpc.ServerStreamingServer[peerv1.StreamResponse]) error {
	var r reader
	q := r.question(req.GetQuestion())
	if r.err != nil {
		return refusal(r.err)
	}
	ctx, taken, err := s.registry.AnswerStream(ss.Context(), q)
	if err != nil {
		return refusal(err)
	}
	defer taken.Release()
	src := stream.Source{Cursor: taken.Cursor, Documents: taken.Documents}
	if q.BatchSize != nil {
		src.MaxBatch = *q.BatchSize
	}
	taken.Documents = nil
	if err := ss.Send(&peerv1.StreamResponse{}); err != nil {
		_ = taken.Cursor.Close(ctx) // never fails
		return err
	}
	err = s.streams.Run(ctx, src, func(docs []bson.Raw) error { return ss.Send(&peerv1.StreamResponse{Documents: join(docs)}) })
	if err != nil {
		return refusal(err)
	}
	return nil
}

// Push takes records over when all of them have come: of a push that breaks off nothing is done, so that it can go elsewhere.
func (s *server) Push(ss grpc.ClientStreamingServer[peerv1.PushRequest, peerv1.PushResponse]) error {
	var r reader
	var records []handle.Record
	held := 0
	defer func() { s.pushes.bytes.Add(-int64(held)) }()
	for {
		req, err := ss.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		cost := proto.Size(req) + recordBytes
		held += cost
		if s.pushes.bytes.Add(int64(cost)) > s.pushes.max {
			return refusal(&rpcerr.Error{Reason: rpcerr.TooLarge, Message: "too much is pushed at a time"})
		}
		records = append(records, r.record(req.GetRecord()))
	}
	if r.err != nil {
		return refusal(r.err)
	}
	for i, rec := range records {
		switch err := s.registry.Accept(rec); {
		case err == nil:
		case i > 0: // no refusal: some of it counts, so it must not go to yet another replica
			return err
		default:
			return refusal(err)
		}
	}
	return ss.SendAndClose(&peerv1.PushResponse{Replica: newReplica(s.registry.Self())})
}

// List lists the open handles, oldest first.
func (s *server) List(req *peerv1.ListRequest, ss grpc.ServerStreamingServer[peerv1.ListResponse]) error {
	all := s.registry.Handles(query(req))
	for len(all) > 0 {
		resp := &peerv1.ListResponse{}
		n := min(len(all), listedAtOnce)
		for _, info := range all[:n] {
			resp.Handles = append(resp.Handles, newInfo(info))
		}
		if err := ss.Send(resp); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// Kill ends a cursor.
func (s *server) Kill(ctx context.Context, req *peerv1.KillRequest) (*peerv1.KillResponse, error) {
	if err := s.registry.Kill(ctx, req.GetId()); err != nil {
		return nil, refusal(err)
	}
	return &peerv1.KillResponse{}, nil
}

// unary refuses calls that are not for this replica.
func (n *Node) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	if err := n.admit(ctx); err != nil {
		return nil, refusal(err)
	}
	return h(ctx, req)
}

func (n *Node) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	if err := n.admit(ss.Context()); err != nil {
		return refusal(err)
	}
	return h(srv, ss)
}

// admit refuses the calls that this process makes to itself, and those of replicas of another deployment: a token tells one from the other, but
// what is listed, killed and pushed has none.
func (n *Node) admit(ctx context.Context) error {
	if said(ctx, idKey) == n.id {
		return errSelf
	}
	if said(ctx, deploymentKey) == n.serves {
		return nil
	}
	if from, ok := peer.FromContext(ctx); ok && n.foreign.may(hostOf(from.Addr)) {
		n.cfg.Log.Warn("a replica of another deployment was refused", "peer", from.Addr.String(), "err", errForeign)
	}
	return errForeign
}

// said is what the caller's metadata say under a key; empty: nothing, or no single thing.
func said(ctx context.Context, key string) string {
	values := metadata.ValueFromIncomingContext(ctx, key)
	if len(values) != 1 {
		return ""
	}
	return values[0]
}
