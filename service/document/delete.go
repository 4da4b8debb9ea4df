package document

import (
	"context"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// DeleteOne deletes the first document that matches.
func (s *Server) DeleteOne(
	ctx context.Context, req *mooringv1.DeleteOneRequest,
) (*mooringv1.DeleteOneResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	filter, opt := r.Required("filter", req.GetFilter()), deleteOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.DeleteOne(ctx, namespace(req), filter, opt)
	if err != nil {
		return nil, err
	}
	return &mooringv1.DeleteOneResponse{
		Acknowledged:      res.Acknowledged,
		DeletedCount:      count(res.Acknowledged, res.DeletedCount),
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// DeleteMany deletes all documents that match.
func (s *Server) DeleteMany(
	ctx context.Context, req *mooringv1.DeleteManyRequest,
) (*mooringv1.DeleteManyResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	filter, opt := r.Required("filter", req.GetFilter()), deleteOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.DeleteMany(ctx, namespace(req), filter, opt)
	if err != nil {
		return nil, err
	}
	return &mooringv1.DeleteManyResponse{
		Acknowledged:      res.Acknowledged,
		DeletedCount:      count(res.Acknowledged, res.DeletedCount),
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}
