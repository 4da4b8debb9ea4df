package document

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
)

// InsertOne inserts a document.
func (s *Server) InsertOne(
	ctx context.Context, req *mooringv1.InsertOneRequest,
) (*mooringv1.InsertOneResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	doc := r.WithID(0, r.Required("document", req.GetDocument()))
	opt := insertOneOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	res, err := s.cfg.Client.InsertOne(ctx, namespace(req), doc, opt)
	if err != nil {
		return nil, err
	}
	id, err := r.Encoding.Value(res.InsertedID)
	if err != nil {
		return nil, err
	}
	return &mooringv1.InsertOneResponse{
		Acknowledged: res.Acknowledged, InsertedId: id,
		WriteConcernError: rpcerr.WriteConcernError(res.WriteConcernError, r.Encoding),
	}, nil
}

// InsertMany inserts documents. If a part fails, it returns an error that says what was done, or,
// if the request asks for it, a response that says what was not.
func (s *Server) InsertMany(
	ctx context.Context, req *mooringv1.InsertManyRequest,
) (*mooringv1.InsertManyResponse, error) {
	r := request.ReadWrite(ctx, req, req.Statement)
	docs := r.Documents("documents", req.GetDocuments())
	opt := insertManyOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	for i := range docs {
		docs[i] = r.WithID(i, docs[i])
	}
	res, err := s.cfg.Client.InsertMany(ctx, namespace(req), docs, opt)
	_, writesFailed := errors.AsType[*mongoerr.WriteException](err)
	if err != nil && !(writesFailed && req.GetReturnPartialSuccess()) {
		inserted := int64(len(res.InsertedIDs))
		done := rpcerr.Result{
			InsertedCount: &inserted, InsertedIDs: res.InsertedIDs, WriteErrors: res.WriteErrors,
			WriteConcernError: firstOf(res.WriteConcernErrors),
		}
		return nil, done.Before(err)
	}
	return insertManyResponse(r.Encoding, res)
}

func insertManyResponse(
	enc payload.Encoding, res client.InsertManyResult,
) (*mooringv1.InsertManyResponse, error) {
	response := &mooringv1.InsertManyResponse{
		Acknowledged:      res.Acknowledged,
		InsertedCount:     count(res.Acknowledged, int64(len(res.InsertedIDs))),
		WriteConcernError: rpcerr.WriteConcernError(firstOf(res.WriteConcernErrors), enc),
	}
	var err error
	if response.InsertedIds, err = indexedIDs(enc, res.InsertedIDs); err != nil {
		return nil, err
	}
	for _, w := range res.WriteErrors {
		response.WriteErrors = append(response.WriteErrors, rpcerr.WriteError(w, enc))
	}
	return response, nil
}
