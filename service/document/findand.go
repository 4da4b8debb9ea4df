package document

import (
	"context"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// FindOneAndUpdate updates a document and returns it as it was before or is after.
func (s *Server) FindOneAndUpdate(
	ctx context.Context, req *mooringv1.FindOneAndUpdateRequest,
) (*mooringv1.FindOneAndUpdateResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	filter, update := r.Required("filter", req.GetFilter()), r.Update("update", req.GetUpdate())
	opt := findOneAndOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.FindOneAndUpdate(ctx, namespace(req), filter, update, opt)
	if err != nil {
		return nil, err
	}
	doc, err := r.Answer(req, res, opt.Projection)
	if err != nil {
		return nil, err
	}
	return &mooringv1.FindOneAndUpdateResponse{
		Document: doc, Acknowledged: res.Acknowledged,
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// FindOneAndReplace replaces a document and returns it as it was before or is after.
func (s *Server) FindOneAndReplace(
	ctx context.Context, req *mooringv1.FindOneAndReplaceRequest,
) (*mooringv1.FindOneAndReplaceResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	filter := r.Required("filter", req.GetFilter())
	replacement := r.Required("replacement", req.GetReplacement())
	opt := findOneAndOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.FindOneAndReplace(ctx, namespace(req), filter, replacement, opt)
	if err != nil {
		return nil, err
	}
	doc, err := r.Answer(req, res, opt.Projection)
	if err != nil {
		return nil, err
	}
	return &mooringv1.FindOneAndReplaceResponse{
		Document: doc, Acknowledged: res.Acknowledged,
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// FindOneAndDelete deletes a document and returns it.
func (s *Server) FindOneAndDelete(
	ctx context.Context, req *mooringv1.FindOneAndDeleteRequest,
) (*mooringv1.FindOneAndDeleteResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	filter := r.Required("filter", req.GetFilter())
	opt := findOneAndOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.FindOneAndDelete(ctx, namespace(req), filter, opt)
	if err != nil {
		return nil, err
	}
	doc, err := r.Answer(req, res, opt.Projection)
	if err != nil {
		return nil, err
	}
	return &mooringv1.FindOneAndDeleteResponse{
		Document: doc, Acknowledged: res.Acknowledged,
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}
