package document

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/payload"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/stream"
)

// FindOne returns the first document that matches.
func (s *Server) FindOne(
	ctx context.Context, req *mooringv1.FindOneRequest,
) (*mooringv1.FindOneResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := findOptions.Read(r, req)
	if err := r.Err(); err != nil {
		return nil, err
	}
	doc, found, err := s.cfg.Client.FindOne(ctx, namespace(req), opt)
	if err != nil {
		return nil, err
	}
	if !found {
		return &mooringv1.FindOneResponse{}, nil
	}
	if r.Encoding == payload.BSON {
		whole := &struct { // one allocation for both messages
			response mooringv1.FindOneResponse
			document payload.Native
		}{}
		whole.response.Document = whole.document.Set(doc)
		return &whole.response, nil
	}
	message, err := r.Encoding.Document(doc)
	if err != nil {
		return nil, err
	}
	return &mooringv1.FindOneResponse{Document: message}, nil
}

// Find returns the first page of the documents that match.
func (s *Server) Find(
	ctx context.Context, req *mooringv1.FindRequest,
) (*mooringv1.FindResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := findOptions.Read(r, req)
	opt.TimeoutMode, opt.RunOn = client.Iteration, true
	if err := r.Err(); err != nil {
		return nil, err
	}
	ns := namespace(req)
	page, err := s.cfg.Handles.Open(ctx, paging.Opening{
		Principal:   r.Principal,
		Transaction: r.TransactionID(),
		Namespace:   paging.Namespace(ns),
		BatchSize:   opt.BatchSize,
		Inflation:   r.Inflation(),
		Texts:       r.Texts,
		Sized:       isSized(opt),
		Waits:       isTailable(opt),
		Whole:       isWhole(opt),
		Casual:      r.Casual,
		Run: func(ctx context.Context, first int32) (paging.Cursor, error) {
			opt := opt
			if first > 0 {
				opt.BatchSize = &first
			}
			return s.cfg.Client.Find(ctx, ns, opt)
		},
	})
	if err != nil {
		return nil, err
	}
	docs, err := r.Page(ctx, s.cfg.Handles, page)
	if err != nil {
		return nil, err
	}
	return &mooringv1.FindResponse{Documents: docs, Cursor: page.Cursor()}, nil
}

// defaultFirstBatch is the number of documents in the first batch of a find without a batch size.
const defaultFirstBatch = 101

// isWhole reports whether the first batch of a find has its whole result. A negative limit asks
// for one batch, and the first batch reaches a small limit.
func isWhole(opt client.FindOptions) bool {
	if opt.Limit == nil || *opt.Limit == 0 {
		return false
	}
	batch := int64(defaultFirstBatch)
	if opt.BatchSize != nil && *opt.BatchSize > 0 {
		batch = int64(*opt.BatchSize)
	}
	return *opt.Limit <= batch
}

// isSized reports whether the first batch of a find may be smaller than the client's batch size,
// because a cursor continues it.
func isSized(opt client.FindOptions) bool {
	single := opt.SingleBatch != nil && *opt.SingleBatch || opt.Limit != nil && *opt.Limit < 0
	return !single && (opt.BatchSize == nil || *opt.BatchSize > 0)
}

// isTailable reports whether the server may wait for documents.
func isTailable(opt client.FindOptions) bool { return opt.Tailable != nil && *opt.Tailable }

// StreamFind sends all documents that match.
func (s *Server) StreamFind(
	req *mooringv1.StreamFindRequest, ss grpc.ServerStreamingServer[mooringv1.StreamFindResponse],
) error {
	ctx := ss.Context()
	r := request.Read(ctx, req, req.Statement)
	opt := findOptions.Read(r, req)
	ns := namespace(req)
	of := source(ns, false)
	opt.RunOn = true
	if isSized(opt) {
		opt.BatchSize = s.cfg.Streams.First(of, opt.BatchSize)
	}
	if r.Whole {
		opt.TimeoutMode, opt.Timeout = client.Iteration, batchTimeout(ctx, r.Timeout)
	}
	if err := r.Err(); err != nil {
		return err
	}
	cur, err := stream.Open(ctx, func() (*cursor.Cursor, error) {
		return s.cfg.Client.Find(ctx, ns, opt)
	})
	if err != nil {
		return err
	}
	cur.SetRunOn(false)
	src := stream.Source{
		Cursor: cur, Of: of, MaxBatch: req.GetBatchSize(),
		ReadAhead: r.Transaction == nil && !cur.Pinned() && !isTailable(opt),
	}
	send := func(docs []*mooringv1.Document) error {
		return ss.Send(&mooringv1.StreamFindResponse{Documents: docs})
	}
	return s.cfg.Streams.Run(ctx, src, r.Batches(s.cfg.Streams.MessageBytes(), send))
}
