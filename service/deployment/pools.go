package deployment

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/topology"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

// ListPools returns the pools of this gateway as they are now.
func (s *Server) ListPools(
	ctx context.Context, req *mooringv1.ListPoolsRequest,
) (*mooringv1.ListPoolsResponse, error) {
	if err := request.Plain(ctx, req); err != nil {
		return nil, err
	}
	pools := s.cfg.Client.Pools()
	resp := &mooringv1.ListPoolsResponse{Pools: make([]*mooringv1.PoolDescription, len(pools))}
	for i := range pools {
		resp.Pools[i] = describePool(&pools[i])
	}
	return resp, nil
}

func describePool(p *topology.PoolStats) *mooringv1.PoolDescription {
	services := make([]*mooringv1.PoolServiceDescription, len(p.Services))
	for i, s := range p.Services {
		services[i] = &mooringv1.PoolServiceDescription{
			ServiceId:  bson.ObjectID(s.Service).Hex(),
			Generation: int64(s.Generation), Connections: int64(s.Connections),
		}
	}
	return &mooringv1.PoolDescription{
		Address: valid(string(p.Address)), State: p.State.String(), Generation: int64(p.Generation),
		Total: int64(p.Total), Available: int64(p.Available), InUse: int64(p.InUse),
		Pending: int64(p.Pending), Waiting: int64(p.Waiting),
		Cursors: int64(p.Cursors), Transactions: int64(p.Transactions),
		MinSize: int64(p.MinSize), MaxSize: known(int64(p.MaxSize)),
		MaxPinned: known(int64(p.MaxPinned)),
		Services:  services,
	}
}
