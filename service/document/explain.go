package document

import (
	"context"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
)

// ExplainFind returns how the server would run a find.
func (s *Server) ExplainFind(
	ctx context.Context, req *mooringv1.ExplainFindRequest,
) (*mooringv1.ExplainFindResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt, verbosity := findOptions.Read(r, req), readVerbosity(r, req.Verbosity)
	if err := r.Err(); err != nil {
		return nil, err
	}
	reply, err := s.cfg.Client.ExplainFind(ctx, namespace(req), opt, verbosity)
	if err != nil {
		return nil, err
	}
	message, err := r.Encoding.Document(reply)
	if err != nil {
		return nil, err
	}
	return &mooringv1.ExplainFindResponse{Reply: message}, nil
}

// ExplainAggregate returns how the server would run a pipeline.
func (s *Server) ExplainAggregate(
	ctx context.Context, req *mooringv1.ExplainAggregateRequest,
) (*mooringv1.ExplainAggregateResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := readAggregate(r, req, req.Collection)
	verbosity := readVerbosity(r, req.Verbosity)
	if err := r.Err(); err != nil {
		return nil, err
	}
	reply, err := s.cfg.Client.ExplainAggregate(ctx, namespace(req), opt, verbosity)
	if err != nil {
		return nil, err
	}
	message, err := r.Encoding.Document(reply)
	if err != nil {
		return nil, err
	}
	return &mooringv1.ExplainAggregateResponse{Reply: message}, nil
}

// readVerbosity reads a word whose meaning the server decides; "" is none.
func readVerbosity(r *request.Reader, word *string) string {
	if word == nil {
		return ""
	}
	if *word == "" {
		r.Refuse("verbosity", "is empty")
	}
	return *word
}
