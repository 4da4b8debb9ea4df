package replica

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/seal"
)

const (
	// maxListed bounds one list, and listedAtOnce one message of it.
	maxListed    = 100_000
	listedAtOnce = 500
	// maxPushedBytes bounds what all pushes together hold until they are complete. The memory of
	// one replica is smaller by default. recordBytes is what a record costs beside its content.
	maxPushedBytes = 256 << 20
	recordBytes    = 256
)

// Pager lists what a transport needs of *paging.Pager to answer other replicas.
type Pager interface {
	Self() page.Replica
	Accept(rec paging.Record) error
	Succeeded(from page.Instance, to page.Replica)
	Successors() map[page.Instance]page.Replica
	Handles(q handle.Query) []handle.Info
}

var _ Pager = (*paging.Pager)(nil)

// server answers other replicas from the pager only.
type server struct {
	replicav1.UnsafeReplicaServiceServer
	pager     Pager
	directory *directory
	pushes    *pushes
}

// pushes counts what all incomplete pushes hold.
type pushes struct {
	bytes atomic.Int64
	max   int64
}

var _ replicav1.ReplicaServiceServer = (*server)(nil)

// Push accepts records when all of them have arrived. If a push breaks off, Push accepts none of
// them, so that the records can go to another replica.
func (s *server) Push(
	ss grpc.ClientStreamingServer[replicav1.PushRequest, replicav1.PushResponse],
) error {
	var r reader
	var records []paging.Record
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
			return refusal(&rpcerr.Error{
				Reason: rpcerr.TooLarge, Message: "too much is being pushed at the same time",
			})
		}
		records = append(records, r.record(req.GetRecord()))
	}
	if r.err != nil {
		return refusal(r.err)
	}
	for i, rec := range records {
		switch err := s.pager.Accept(rec); {
		case err == nil:
		// not a refusal: some records are accepted, so they must not go to a third replica
		case i > 0:
			return err
		default:
			return refusal(err)
		}
	}
	return ss.SendAndClose(&replicav1.PushResponse{Replica: newReplica(s.pager.Self())})
}

// Meet records what another replica reports of itself, and returns what a new replica has to know.
func (s *server) Meet(
	ctx context.Context, req *replicav1.MeetRequest,
) (*replicav1.MeetResponse, error) {
	var r reader
	from := r.replica(req.GetReplica())
	if to := req.GetSuccessor(); to != nil {
		successor := r.replica(to)
		if r.err == nil {
			s.pager.Succeeded(from.Instance, successor)
		}
	}
	if r.err != nil {
		return nil, refusal(r.err)
	}
	if said(ctx, leavingKey) != "" {
		s.directory.goodbye(said(ctx, addressKey), from.Instance)
	}
	resp := &replicav1.MeetResponse{Addresses: s.directory.known()}
	for instance, to := range s.pager.Successors() {
		resp.Successions = append(resp.Successions,
			&replicav1.Succession{Instance: newID(instance), Successor: newReplica(to)})
	}
	return resp, nil
}

// List sends the open handles, oldest first.
func (s *server) List(
	req *replicav1.ListRequest, ss grpc.ServerStreamingServer[replicav1.ListResponse],
) error {
	all := s.pager.Handles(query(req))
	for len(all) > 0 {
		resp := &replicav1.ListResponse{}
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

// ownPrefix begins the methods of replicas. The others are the API's, which other replicas forward.
const ownPrefix = "/mooring.replica.v1."

// unary returns the interceptor of the replicas' own unary calls, with what is around them.
func (t *Transport) unary(around grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler,
	) (any, error) {
		return around(ctx, req, info, func(ctx context.Context, req any) (resp any, err error) {
			ctx, end, err := t.enter(ctx, info.FullMethod)
			if err != nil {
				return nil, err
			}
			defer func() { end(err) }()
			return h(ctx, req)
		})
	}
}

// stream returns the interceptor of streams, with what is around the calls of replicas.
func (t *Transport) stream(around grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return func(
		srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler,
	) error {
		if strings.HasPrefix(info.FullMethod, ownPrefix) {
			return around(srv, ss, info, func(srv any, ss grpc.ServerStream) (err error) {
				ctx, end, err := t.enter(ss.Context(), info.FullMethod)
				if err != nil {
					return err
				}
				defer func() { end(err) }()
				return h(srv, within{ss, ctx})
			})
		}
		return t.forwardedCall(srv, ss, info, h)
	}
}

// registrar registers the API, whose unary methods are streams that grpc does not intercept.
type registrar struct{ t *Transport }

// RegisterService registers a service. It changes desc.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, srv any) {
	for i, s := range desc.Streams {
		if s.ClientStreams || s.ServerStreams {
			continue
		}
		info := &grpc.StreamServerInfo{FullMethod: "/" + desc.ServiceName + "/" + s.StreamName}
		desc.Streams[i].Handler = func(srv any, ss grpc.ServerStream) error {
			return r.t.forwardedCall(srv, ss, info, s.Handler)
		}
	}
	r.t.server.RegisterService(desc, srv)
}

// forwardedCall runs a call of the API. The handler of a unary one runs its interceptor itself.
func (t *Transport) forwardedCall(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler,
) (err error) {
	ctx, end, err := t.enter(ss.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	defer func() { end(err) }()
	if ctx, err = forwarded(ctx); err != nil {
		return refusal(err)
	}
	if said(ctx, sizesKey) != "" {
		ss = sizing{ss}
	}
	if info.IsClientStream || info.IsServerStream {
		err = t.read(srv, within{ss, ctx}, info, h)
	} else {
		err = h(srv, within{ss, ctx})
	}
	if err != nil {
		return refusal(err)
	}
	return nil
}

// enter refuses a call that is not for this replica, and begins to observe the others. The caller
// must call end with the error of the call.
func (t *Transport) enter(
	ctx context.Context, method string,
) (_ context.Context, end func(error), err error) {
	if err := t.admit(ctx); err != nil {
		return nil, nil, refusal(err)
	}
	if t.cfg.Trace == nil {
		return ctx, func(error) {}, nil
	}
	ctx, end = t.cfg.Trace(ctx, method)
	return ctx, end, nil
}

// within holds a stream with another context.
type within struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as grpc has it
}

func (s within) Context() context.Context { return s.ctx }

// sizing sends the size of a large message before it, so that the caller has memory for it.
type sizing struct{ grpc.ServerStream }

// SendMsg sends a message of a call of the API.
func (s sizing) SendMsg(m any) error {
	if sized, ok := m.(interface{ Size() int }); ok && sized.Size() >= largeMessage {
		size := &replicav1.Size{Bytes: int64(sized.Size())}
		if err := s.ServerStream.SendMsg(size); err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// admit refuses the calls that this process makes to itself, and those of replicas of another
// deployment. A token names its deployment, but a list, a kill and a push carry no token. From
// admitted calls it learns the callers' addresses, and whether their clocks differ.
func (t *Transport) admit(ctx context.Context) error {
	if said(ctx, idKey) == t.id {
		return errSelf
	}
	from, ok := peer.FromContext(ctx)
	if said(ctx, deploymentKey) != t.serves {
		if ok && t.foreign.may(hostOf(from.Addr)) {
			t.cfg.Log.Warn("a replica of another deployment was refused",
				"replica", from.Addr.String(), "err", errForeign)
		}
		return errForeign
	}
	if address := said(ctx, addressKey); said(ctx, leavingKey) == "" {
		t.learn(address, false)
	} else if t.directory.leave(address) {
		t.cfg.Log.Info("replica left", "replica", address)
	}
	if ok {
		t.compareClocks(from.Addr, said(ctx, timeKey))
	}
	return nil
}

// compareClocks warns if the clock of another replica differs by more than tokens allow for:
// tokens then expire early.
func (t *Transport) compareClocks(from net.Addr, text string) {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return // an earlier release, which does not send its time
	}
	difference := t.now().Sub(time.UnixMilli(ms))
	if difference.Abs() <= seal.MaxSkew || !t.skewed.may(hostOf(from)) {
		return
	}
	t.cfg.Log.Warn("the clock of a replica differs: tokens of cursors may expire early",
		"replica", from.String(),
		"difference", difference.Round(time.Second), "allowed", seal.MaxSkew)
}

// said returns the value of the caller's metadata under a key. If there is no value, or more than
// one, it returns the empty string.
func said(ctx context.Context, key string) string {
	values := metadata.ValueFromIncomingContext(ctx, key)
	if len(values) != 1 {
		return ""
	}
	return values[0]
}
