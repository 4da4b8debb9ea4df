package document

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/stream"
)

// Aggregate returns the first page of a pipeline's results.
func (s *Server) Aggregate(
	ctx context.Context, req *mooringv1.AggregateRequest,
) (*mooringv1.AggregateResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := readAggregate(r, req, req.Collection)
	opt.TimeoutMode, opt.RunOn = client.Iteration, true
	if err := r.Err(); err != nil {
		return nil, err
	}
	ns := namespace(req)
	var unconfirmed *mongoerr.WriteConcernError
	page, err := s.cfg.Handles.Open(ctx, paging.Opening{
		Principal:   r.Principal,
		Transaction: r.TransactionID(),
		Namespace:   paging.Namespace(ns),
		BatchSize:   opt.BatchSize,
		Inflation:   r.Inflation(),
		Texts:       r.Texts,
		Pipeline:    true,
		Sized:       opt.BatchSize == nil || *opt.BatchSize > 0,
		Waits:       waits(opt.Pipeline),
		Run: func(ctx context.Context, first int32) (paging.Cursor, error) {
			opt := opt
			if first > 0 {
				opt.BatchSize = &first
			}
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
		Documents: docs, Cursor: page.Cursor(),
		WriteConcernError: rpcerr.WriteConcernError(unconfirmed, r.Encoding),
	}, nil
}

// waits reports whether the server waits for results of a pipeline that are not there yet.
func waits(pipeline bson.Array) bool {
	for stage := range pipeline.Documents() {
		return stage.FirstKey() == "$changeStream"
	}
	return false
}

// StreamAggregate sends all of a pipeline's results. If the pipeline writes, and its write concern
// is not satisfied, the stream ends with that error.
func (s *Server) StreamAggregate(
	req *mooringv1.StreamAggregateRequest,
	ss grpc.ServerStreamingServer[mooringv1.StreamAggregateResponse],
) error {
	ctx := ss.Context()
	r := request.Read(ctx, req, req.Statement)
	opt := readAggregate(r, req, req.Collection)
	ns := namespace(req)
	of := source(ns, true)
	opt.BatchSize, opt.RunOn = s.cfg.Streams.First(of, opt.BatchSize), true
	if r.Whole {
		opt.TimeoutMode, opt.Timeout = client.Iteration, batchTimeout(ctx, r.Timeout)
	}
	if err := r.Err(); err != nil {
		return err
	}
	cur, err := stream.Open(ctx, func() (*cursor.Cursor, error) {
		return s.cfg.Client.Aggregate(ctx, ns, opt)
	})
	if err != nil {
		return err
	}
	cur.SetRunOn(false)
	src := stream.Source{
		Cursor: cur, Of: of, MaxBatch: req.GetBatchSize(),
		ReadAhead: r.Transaction == nil && !cur.Pinned() && !waits(opt.Pipeline),
	}
	send := func(docs []*mooringv1.Document) error {
		return ss.Send(&mooringv1.StreamAggregateResponse{Documents: docs})
	}
	err = s.cfg.Streams.Run(ctx, src, r.Batches(s.cfg.Streams.MessageBytes(), send))
	if unconfirmed := cur.WriteConcernError(); err == nil && unconfirmed != nil {
		return unconfirmed
	}
	return err
}

// readAggregate reads the options of an aggregation. If collection is nil, the aggregation is on
// the database.
func readAggregate(
	r *request.Reader, req proto.Message, collection *string,
) client.AggregateOptions {
	if collection != nil && *collection == "" {
		r.Refuse("collection", "is empty")
	}
	opt := aggregateOptions.Read(r, req)
	if opt.Extra.Has("explain") {
		r.Refuse("options.explain",
			"is not for this call: ExplainAggregate explains")
	}
	return opt
}
