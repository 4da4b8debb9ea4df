package replica

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	replicav1 "github.com/mooringdb/mooring/gen/mooring/replica/v1"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/page"
	"github.com/mooringdb/mooring/service/paging"
)

// The metadata of each call.
const (
	// idKey names the calling process, so that a replica notices a call to itself.
	idKey = "mooring-replica"
	// deploymentKey names the deployment whose cursors the call is about.
	deploymentKey = "mooring-deployment"
	// addressKey carries the address at which the caller is reached.
	addressKey = "mooring-address"
	// timeKey carries the caller's time, in milliseconds since 1970.
	timeKey = "mooring-time"
	// leavingKey is there once the caller ends.
	leavingKey = "mooring-leaving"
)

var _ paging.Replicas = (*Transport)(nil)

// exchange makes one call on a connection.
type exchange func(context.Context, *grpc.ClientConn, ...grpc.CallOption) error

// client makes a replica's own calls.
type client = replicav1.ReplicaServiceClient

// own returns an exchange of the service of replicas.
func own(run func(context.Context, client, ...grpc.CallOption) error) exchange {
	return func(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) error {
		return run(ctx, replicav1.NewReplicaServiceClient(conn), opts...)
	}
}

// call runs one call to a replica and explains its error.
func (t *Transport) call(ctx context.Context, address string, run exchange) error {
	t.called.Add(1)
	p, err := t.connections.get(address)
	if err != nil {
		t.lost(address)
		return &paging.UnreachableError{Address: address, Err: err}
	}
	defer t.connections.put(p)
	var via peer.Peer
	err = run(t.signed(ctx), p.conn, grpc.Peer(&via))
	if err == nil {
		return nil
	}
	return t.explain(ctx, page.Replica{Address: address}, p, &via, err)
}

// lost counts a call to a replica that gave no answer, unless the replica has left.
func (t *Transport) lost(address string) {
	if !t.directory.hasLeft(address) {
		t.unreachable.Add(1)
	}
}

// signed returns ctx with the metadata that identify the caller, and no other metadata.
func (t *Transport) signed(ctx context.Context) context.Context {
	md := metadata.Pairs(
		idKey, t.id, deploymentKey, t.serves, addressKey, t.Advertised(),
		timeKey, strconv.FormatInt(t.now().UnixMilli(), 10),
	)
	if t.leaving.Load() {
		md.Set(leavingKey, "true")
	}
	if t.cfg.Inject != nil {
		t.cfg.Inject(ctx, md)
	}
	return metadata.NewOutgoingContext(ctx, md)
}

func (t *Transport) explain(
	ctx context.Context, to page.Replica, p *connection, via *peer.Peer, err error,
) error {
	address := to.Address
	err = explain(ctx, address, via, err)
	lost, ok := errors.AsType[*paging.UnreachableError](err)
	if ok {
		t.lost(address)
	}
	if ok && !lost.Sent {
		// the address of a replica that has left may be silent: that of a Pod is gone with it
		lost.Refused = t.directory.saidGoodbye(to)
		if p.refused.Load() {
			lost.Refused = true
			if t.directory.forget(address) {
				t.cfg.Log.Info("replica left", "replica", address)
			}
			// the next call dials at once: a new replica may listen there
			t.connections.forget(address)
		}
	}
	switch {
	case errors.Is(err, errSelf):
		t.directory.metSelf(address)
		// behind a service's address, the next connection leads elsewhere
		t.connections.forget(address)
	case errors.Is(err, errForeign) && t.foreign.may(address):
		t.cfg.Log.Warn("a replica of another deployment was asked",
			"replica", address, "err", err)
	}
	return err
}

// Push pushes records to a replica and returns the replica that has accepted them.
func (t *Transport) Push(
	ctx context.Context, address string, records iter.Seq[paging.Record],
) (page.Replica, error) {
	var who page.Replica
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := t.call(ctx, address, own(func(
		ctx context.Context, c client, opts ...grpc.CallOption,
	) error {
		s, err := c.Push(ctx, opts...)
		if err != nil {
			return err
		}
		for rec := range records {
			if err := s.Send(&replicav1.PushRequest{Record: newRecord(rec)}); err != nil {
				break // CloseAndRecv returns the reason
			}
		}
		resp, err := s.CloseAndRecv()
		if err != nil {
			return err
		}
		var r reader
		who = r.replica(resp.GetReplica())
		return r.err
	}))
	return who, err
}

// List returns the open handles of a replica, q.Limit at most, however many the replica sends.
func (t *Transport) List(
	ctx context.Context, address string, q handle.Query,
) ([]handle.Info, error) {
	var all []handle.Info
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := t.call(ctx, address, own(func(
		ctx context.Context, c client, opts ...grpc.CallOption,
	) error {
		s, err := c.List(ctx, newQuery(q), opts...)
		if err != nil {
			return err
		}
		for {
			resp, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, m := range resp.GetHandles() {
				if len(all) >= q.Limit {
					return nil
				}
				all = append(all, readInfo(m))
			}
		}
	}))
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Kill ends a cursor of another replica on behalf of this replica: of no client.
func (t *Transport) Kill(ctx context.Context, address string, id string) error {
	_, err := t.Forward(ctx, &call.Forwarding{
		To: page.Replica{Address: address}, Request: &mooringv1.KillHandleRequest{Id: id},
		Method: mooringv1.DeploymentService_KillHandle_FullMethodName,
		Answer: (&mooringv1.KillHandleResponse{}).ProtoReflect().Type(),
		Local:  call.Local{Forwarded: true},
	})
	return err
}

// Others returns the addresses of the other replicas: those that the configured names stand for,
// and those that this replica has learned. If again is set, names are looked up anew.
func (t *Transport) Others(ctx context.Context, again bool) []string {
	return t.directory.others(ctx, again)
}

// Announce tells a replica where the cursors of this replica went.
func (t *Transport) Announce(ctx context.Context, address string, to page.Replica) error {
	_, err := t.meet(ctx, address, &to)
	return err
}

// meet tells a replica that this replica exists, or where its cursors went.
func (t *Transport) meet(
	ctx context.Context, address string, successor *page.Replica,
) (*replicav1.MeetResponse, error) {
	req := &replicav1.MeetRequest{Replica: newReplica(t.pager.Self())}
	if successor != nil {
		req.Successor = newReplica(*successor)
	}
	var resp *replicav1.MeetResponse
	err := t.call(ctx, address, own(func(
		ctx context.Context, c client, opts ...grpc.CallOption,
	) error {
		var err error
		resp, err = c.Meet(ctx, req, opts...)
		return err
	}))
	return resp, err
}
