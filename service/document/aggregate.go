package document

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/stream"
)

// Aggregate returns the first page of a pipeline's results.
func (s *Server) Aggregate(ctx context.Context, req *mooringv1.AggregateRequest) (*mooringv1.AggregateResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := aggregateOptions(r, req)
	opt.TimeoutMode, opt.RunOn = client.Iteration, true
	if err := r.Err(); err != nil {
		return nil, err
	}
	ns := namespace(req)
	var unconfirmed *mongoerr.WriteConcernError
	page, err := s.cfg.Handles.Open(ctx, handle.Opening{
		Namespace: handle.Namespace(ns),
		BatchSize: opt.BatchSize,
		Inflation: r.Inflation(),
		Run: func(ctx context.Context) (handle.Cursor, error) {
			cur, err := s.cfg.Client.Aggregate(ctx, ns, opt)
			if err != nil {
				return nil, err
			}
			unconfirmed = cur.WriteConcernError()
			return cur, nil
		},
	})
	if err != nil {
		return nil, err
	}
	docs, err := r.Page(ctx, s.cfg.Handles, page)
	if err != nil {
		return nil, err
	}
	return &mooringv1.AggregateResponse{
		Documents: docs, Cursor: page.Cursor(), WriteConcernError: rpcerr.WriteConcernError(unconfirmed, r.Encoding),
	}, nil
}

// StreamAggregate sends all of a pipeline's results. If the pipeline wrote, and its write concern was
// not satisfied, the stream ends with that error.
func (s *Server) StreamAggregate(req *mooringv1.StreamAggregateRequest, ss grpc.ServerStreamingServer[mooringv1.StreamAggregateResponse]) error {
	ctx := ss.Context()
	r := request.Read(ctx, req, req.Statement)
	opt := aggregateOptions(r, likeAggregate(req))
	opt.BatchSize, opt.RunOn = stream.First(opt.BatchSize), true
	if err := r.Err(); err != nil {
		return err
	}
	cur, err := s.cfg.Client.Aggregate(ctx, namespace(req), opt)
	if err != nil {
		return err
	}
	cur.SetRunOn(false)
	src := stream.Source{Cursor: cur, MaxBatch: req.GetBatchSize()}
	err = s.cfg.Streams.Run(ctx, src, r.Batches(s.cfg.Streams.MessageBytes(), func(docs []*mooringv1.Document) error {
		return ss.Send(&mooringv1.StreamAggregateResponse{Documents: docs})
	}))
	if unconfirmed := cur.WriteConcernError(); err == nil && unconfirmed != nil {
		return unconfirmed
	}
	return err
}

func aggregateOptions(r *request.Reader, req *mooringv1.AggregateRequest) client.AggregateOptions {
	if req.Collection != nil && req.GetCollection() == "" {
		r.Refuse("collection", "is empty")
	}
	opt := client.AggregateOptions{
		Common: client.Common{
			Comment:        r.Value("comment", req.GetComment()),
			ReadConcern:    r.ReadConcern(req.GetReadConcern()),
			ReadPreference: r.ReadPreference(req.GetReadPreference()),
			WriteConcern:   r.WriteConcern(req.GetWriteConcern()),
			Extra:          r.Document("options", req.GetOptions()),
		},
		Pipeline:                 r.Array("pipeline", req.GetPipeline()),
		AllowDiskUse:             req.AllowDiskUse,
		BatchSize:                r.BatchSize(req.BatchSize),
		BypassDocumentValidation: req.BypassDocumentValidation,
		Collation:                r.Document("collation", req.GetCollation()),
		Hint:                     r.Hint(req.GetHint()),
		Let:                      r.Document("let", req.GetLet()),
		MaxTimeMS:                r.MaxTimeMS(req.MaxTimeMs),
		MaxAwaitTimeMS:           r.MaxAwaitTimeMS(req.MaxAwaitTimeMs),
	}
	if opt.Extra.Has("explain") {
		r.Refuse("options.explain",
			"is not for Aggregate, which returns documents: that is ExplainAggregate, and until it is there, RunCommand with explain")
	}
	return opt
}

// likeAggregate has the options of a stream in the request of pages, which has the same.
func likeAggregate(q *mooringv1.StreamAggregateRequest) *mooringv1.AggregateRequest {
	return &mooringv1.AggregateRequest{
		Collection: q.Collection, Options: q.Options, Comment: q.Comment, ReadPreference: q.ReadPreference, ReadConcern: q.ReadConcern,
		WriteConcern: q.WriteConcern, MaxTimeMs: q.MaxTimeMs, Collation: q.Collation, Let: q.Let, Hint: q.Hint, BatchSize: q.BatchSize,
		MaxAwaitTimeMs: q.MaxAwaitTimeMs, Pipeline: q.Pipeline, AllowDiskUse: q.AllowDiskUse,
		BypassDocumentValidation: q.BypassDocumentValidation,
	}
}
