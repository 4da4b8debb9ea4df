// Package deployment implements DeploymentService, for operators: what the gateway knows of the
// MongoDB deployment, its pools, what clients hold at all replicas of the gateway, which calls were
// slow or refused, and what the policy makes of a request. It asks no server. Only KillHandle
// changes anything.
package deployment

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/topology"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/recent"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// Client lists what the service needs of *client.Client.
type Client interface {
	Topology() description.Topology
	// WatchTopology returns the topology and a channel that is closed when it changes.
	WatchTopology() (description.Topology, <-chan struct{})
	// Pools returns the pools, sorted by address.
	Pools() []topology.PoolStats
}

// Handles lists what the service needs of *paging.Pager.
type Handles interface {
	Handles(q handle.Query) []handle.Info
	Kill(ctx context.Context, id string) error
}

// Replicas lists what the service needs of *replica.Transport.
type Replicas interface {
	Others(ctx context.Context, again bool) []string
	List(ctx context.Context, address string, q handle.Query) ([]handle.Info, error)
}

var (
	_ Client  = (*client.Client)(nil)
	_ Handles = (*paging.Pager)(nil)
)

// Config configures a Server.
type Config struct {
	Client  Client  // required
	Handles Handles // required by ListHandles and KillHandle
	// Replicas reaches the other replicas of the gateway. Nil: there are none.
	Replicas Replicas
	// Policy decides what ExplainPolicy explains. Nil: there is none, and Operators is who may make
	// the calls of operators; nil: everyone.
	Policy    Policy
	Operators []string
	// Callers knows the API keys. Nil: there are none.
	Callers Callers
	// Recent remembers slow and refused calls. Nil: nothing does.
	Recent *recent.List
	// Stopping is closed when the gateway begins to stop. Watches, which have no other end, end
	// then. Nil: the gateway never stops.
	Stopping <-chan struct{}
}

// Server serves DeploymentService.
type Server struct {
	mooringv1.UnsafeDeploymentServiceServer
	cfg Config
}

var _ mooringv1.DeploymentServiceServer = (*Server)(nil)

// New returns the service.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// GetTopology returns the deployment as it is known now.
func (s *Server) GetTopology(
	ctx context.Context, req *mooringv1.GetTopologyRequest,
) (*mooringv1.GetTopologyResponse, error) {
	if err := request.Plain(ctx, req); err != nil {
		return nil, err
	}
	return &mooringv1.GetTopologyResponse{Topology: describe(s.cfg.Client.Topology())}, nil
}

// WatchTopology sends the deployment now and after each change. While the transport blocks, nothing
// is queued: the next message is made from what is known when it is sent.
func (s *Server) WatchTopology(
	req *mooringv1.WatchTopologyRequest,
	ss grpc.ServerStreamingServer[mooringv1.WatchTopologyResponse],
) error {
	ctx := ss.Context()
	if err := request.Plain(ctx, req); err != nil {
		return err
	}
	var last *description.Topology
	for {
		t, changed := s.cfg.Client.WatchTopology()
		if last == nil || !last.Equal(t) {
			if err := ss.Send(&mooringv1.WatchTopologyResponse{Topology: describe(t)}); err != nil {
				return err
			}
			last = &t
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.cfg.Stopping:
			return &rpcerr.Error{
				Reason: rpcerr.ShuttingDown, Message: "the gateway is shutting down",
			}
		}
	}
}
