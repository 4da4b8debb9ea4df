package document

import (
	"context"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

// Distinct returns the distinct values of a field.
func (s *Server) Distinct(
	ctx context.Context, req *mooringv1.DistinctRequest,
) (*mooringv1.DistinctResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	if req.GetFieldName() == "" {
		r.Refuse("fieldName", "is required")
	}
	opt := distinctOptions.Read(r, req)
	if err := r.Err(); err != nil {
		return nil, err
	}
	array, err := s.cfg.Client.Distinct(ctx, namespace(req), req.GetFieldName(), opt)
	if err != nil {
		return nil, err
	}
	values, err := r.Values(array) //nolint:contextcheck // a turn comes soon
	if err != nil {
		return nil, err
	}
	return &mooringv1.DistinctResponse{Values: values}, nil
}

// CountDocuments counts the documents that match.
func (s *Server) CountDocuments(
	ctx context.Context, req *mooringv1.CountDocumentsRequest,
) (*mooringv1.CountDocumentsResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	if req.Limit != nil && req.GetLimit() <= 0 {
		r.Refuse("limit", "is not positive: leave it out to count all")
	}
	opt := countOptions.Read(r, req)
	if err := r.Err(); err != nil {
		return nil, err
	}
	n, err := s.cfg.Client.CountDocuments(ctx, namespace(req), opt)
	if err != nil {
		return nil, err
	}
	return &mooringv1.CountDocumentsResponse{Count: n}, nil
}

// EstimatedDocumentCount returns the collection's count from its metadata.
func (s *Server) EstimatedDocumentCount(
	ctx context.Context, req *mooringv1.EstimatedDocumentCountRequest,
) (*mooringv1.EstimatedDocumentCountResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := estimateOptions.Read(r, req)
	if err := r.Err(); err != nil {
		return nil, err
	}
	n, err := s.cfg.Client.EstimatedDocumentCount(ctx, namespace(req), opt)
	if err != nil {
		return nil, err
	}
	return &mooringv1.EstimatedDocumentCountResponse{Count: n}, nil
}
