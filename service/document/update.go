package document

import (
	"context"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// UpdateOne updates the first document that matches.
func (s *Server) UpdateOne(
	ctx context.Context, req *mooringv1.UpdateOneRequest,
) (*mooringv1.UpdateOneResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	filter, update := r.Required("filter", req.GetFilter()), r.Update("update", req.GetUpdate())
	opt := updateOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.UpdateOne(ctx, namespace(req), filter, update, opt)
	if err != nil {
		return nil, err
	}
	id, err := r.Encoding.Value(res.UpsertedID)
	if err != nil {
		return nil, err
	}
	return &mooringv1.UpdateOneResponse{
		Acknowledged:      res.Acknowledged,
		MatchedCount:      count(res.Acknowledged, res.MatchedCount),
		ModifiedCount:     count(res.Acknowledged, res.ModifiedCount),
		UpsertedCount:     count(res.Acknowledged, res.UpsertedCount),
		UpsertedId:        id,
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// UpdateMany updates all documents that match.
func (s *Server) UpdateMany(
	ctx context.Context, req *mooringv1.UpdateManyRequest,
) (*mooringv1.UpdateManyResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	filter, update := r.Required("filter", req.GetFilter()), r.Update("update", req.GetUpdate())
	opt := updateOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.UpdateMany(ctx, namespace(req), filter, update, opt)
	if err != nil {
		return nil, err
	}
	id, err := r.Encoding.Value(res.UpsertedID)
	if err != nil {
		return nil, err
	}
	return &mooringv1.UpdateManyResponse{
		Acknowledged:      res.Acknowledged,
		MatchedCount:      count(res.Acknowledged, res.MatchedCount),
		ModifiedCount:     count(res.Acknowledged, res.ModifiedCount),
		UpsertedCount:     count(res.Acknowledged, res.UpsertedCount),
		UpsertedId:        id,
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// ReplaceOne replaces the first document that matches.
func (s *Server) ReplaceOne(
	ctx context.Context, req *mooringv1.ReplaceOneRequest,
) (*mooringv1.ReplaceOneResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	filter := r.Required("filter", req.GetFilter())
	replacement := r.Required("replacement", req.GetReplacement())
	opt := updateOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.ReplaceOne(ctx, namespace(req), filter, replacement, opt)
	if err != nil {
		return nil, err
	}
	id, err := r.Encoding.Value(res.UpsertedID)
	if err != nil {
		return nil, err
	}
	return &mooringv1.ReplaceOneResponse{
		Acknowledged:      res.Acknowledged,
		MatchedCount:      count(res.Acknowledged, res.MatchedCount),
		ModifiedCount:     count(res.Acknowledged, res.ModifiedCount),
		UpsertedCount:     count(res.Acknowledged, res.UpsertedCount),
		UpsertedId:        id,
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}
