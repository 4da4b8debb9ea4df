package document

import (
	"context"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/handle"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/stream"
)

// FindOne returns the first document that matches.
func (s *Server) FindOne(ctx context.Context, req *mooringv1.FindOneRequest) (*mooringv1.FindOneResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := client.FindOptions{
		Common: client.Common{
			Comment:        r.Value("comment", req.GetComment()),
			ReadConcern:    r.ReadConcern(req.GetReadConcern()),
			ReadPreference: r.ReadPreference(req.GetReadPreference()),
			Extra:          r.Document("options", req.GetOptions()),
		},
		Filter:              r.Document("filter", req.GetFilter()),
		Sort:                r.Keys("sort", req.GetSort()),
		Projection:          r.Document("projection", req.GetProjection()),
		Hint:                r.Hint(req.GetHint()),
		Skip:                r.NonNegative("skip", req.Skip),
		MaxTimeMS:           r.MaxTimeMS(req.MaxTimeMs),
		Min:                 r.Keys("min", req.GetMin()),
		Max:                 r.Keys("max", req.GetMax()),
		ReturnKey:           req.ReturnKey,
		ShowRecordID:        req.ShowRecordId,
		AllowPartialResults: req.AllowPartialResults,
		Collation:           r.Document("collation", req.GetCollation()),
		Let:                 r.Document("let", req.GetLet()),
	}
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
	message, err := r.Encoding.Document(doc)
	if err != nil {
		return nil, err
	}
	return &mooringv1.FindOneResponse{Document: message}, nil
}

// Find returns the first page of the documents that match.
func (s *Server) Find(ctx context.Context, req *mooringv1.FindRequest) (*mooringv1.FindResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := findOptions(r, req)
	opt.TimeoutMode, opt.RunOn = client.Iteration, true
	if err := r.Err(); err != nil {
		return nil, err
	}
	ns := namespace(req)
	page, err := s.cfg.Handles.Open(ctx, handle.Opening{
		Namespace: handle.Namespace(ns),
		BatchSize: opt.BatchSize,
		Inflation: r.Inflation(),
		Whole:     isWhole(opt),
		Run:       func(ctx context.Context) (handle.Cursor, error) { return s.cfg.Client.Find(ctx, ns, opt) },
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

// defaultFirstBatch is how many documents a server returns at first to a find without a batch size.
const defaultFirstBatch = 101

// isWhole reports whether the first batch of a find has its whole result: a negative limit asks for one batch, and a small
// one is reached in it.
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

// StreamFind sends all documents that match.
func (s *Server) StreamFind(req *mooringv1.StreamFindRequest, ss grpc.ServerStreamingServer[mooringv1.StreamFindResponse]) error {
	ctx := ss.Context()
	r := request.Read(ctx, req, req.Statement)
	opt := findOptions(r, likeFind(req))
	opt.BatchSize, opt.RunOn = stream.First(opt.BatchSize), true
	if err := r.Err(); err != nil {
		return err
	}
	cur, err := s.cfg.Client.Find(ctx, namespace(req), opt)
	if err != nil {
		return err
	}
	cur.SetRunOn(false)
	src := stream.Source{Cursor: cur, MaxBatch: req.GetBatchSize()}
	return s.cfg.Streams.Run(ctx, src, r.Batches(s.cfg.Streams.MessageBytes(), func(docs []*mooringv1.Document) error {
		return ss.Send(&mooringv1.StreamFindResponse{Documents: docs})
	}))
}

func findOptions(r *request.Reader, req *mooringv1.FindRequest) client.FindOptions {
	return client.FindOptions{
		Common: client.Common{
			Comment:        r.Value("comment", req.GetComment()),
			ReadConcern:    r.ReadConcern(req.GetReadConcern()),
			ReadPreference: r.ReadPreference(req.GetReadPreference()),
			Extra:          r.Document("options", req.GetOptions()),
		},
		Filter:              r.Document("filter", req.GetFilter()),
		Sort:                r.Keys("sort", req.GetSort()),
		Projection:          r.Document("projection", req.GetProjection()),
		Hint:                r.Hint(req.GetHint()),
		Skip:                r.NonNegative("skip", req.Skip),
		Limit:               req.Limit,
		BatchSize:           r.BatchSize(req.BatchSize),
		MaxTimeMS:           r.MaxTimeMS(req.MaxTimeMs),
		MaxAwaitTimeMS:      r.MaxAwaitTimeMS(req.MaxAwaitTimeMs),
		Min:                 r.Keys("min", req.GetMin()),
		Max:                 r.Keys("max", req.GetMax()),
		ReturnKey:           req.ReturnKey,
		ShowRecordID:        req.ShowRecordId,
		Tailable:            req.Tailable,
		AwaitData:           req.AwaitData,
		NoCursorTimeout:     req.NoCursorTimeout,
		AllowPartialResults: req.AllowPartialResults,
		AllowDiskUse:        req.AllowDiskUse,
		Collation:           r.Document("collation", req.GetCollation()),
		Let:                 r.Document("let", req.GetLet()),
	}
}

// likeFind has the options of a stream in the request of pages, which has the same.
func likeFind(q *mooringv1.StreamFindRequest) *mooringv1.FindRequest {
	return &mooringv1.FindRequest{
		Options: q.Options, Comment: q.Comment, ReadPreference: q.ReadPreference, ReadConcern: q.ReadConcern, MaxTimeMs: q.MaxTimeMs,
		Collation: q.Collation, Let: q.Let, Hint: q.Hint, Filter: q.Filter, Projection: q.Projection, Sort: q.Sort, Skip: q.Skip, Limit: q.Limit,
		BatchSize: q.BatchSize, MaxAwaitTimeMs: q.MaxAwaitTimeMs, AllowDiskUse: q.AllowDiskUse, AllowPartialResults: q.AllowPartialResults,
		Tailable: q.Tailable, AwaitData: q.AwaitData, NoCursorTimeout: q.NoCursorTimeout, Min: q.Min, Max: q.Max,
		ReturnKey: q.ReturnKey, ShowRecordId: q.ShowRecordId,
	}
}
