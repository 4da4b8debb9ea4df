// Package cursor implements CursorService: the calls on a cursor after its first page.
package cursor

import (
	"context"

	"google.golang.org/grpc"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/stream"
)

// Config configures a Server. All fields are required.
type Config struct {
	Handles *paging.Pager
	Streams *stream.Streams
}

// Server serves CursorService.
type Server struct {
	mooringv1.UnsafeCursorServiceServer
	cfg Config
}

var _ mooringv1.CursorServiceServer = (*Server)(nil)

// New returns the service.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// NextPage returns the next page of the cursor that a token names.
func (s *Server) NextPage(
	ctx context.Context, req *mooringv1.NextPageRequest,
) (*mooringv1.NextPageResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	ask := paging.Asking{
		Principal: r.Principal, Transaction: r.TransactionID(),
		Token:          r.Cursor(req.GetCursor()),
		BatchSize:      r.BatchSize(req.BatchSize),
		MaxAwaitTimeMS: r.MaxAwaitTimeMS(req.MaxAwaitTimeMs), Inflation: r.Inflation(),
		Forwarded: r.Forwarded, Holder: r.Owner,
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	page, err := s.cfg.Handles.Next(ctx, ask)
	if err != nil {
		return nil, err
	}
	docs, err := r.Page(ctx, s.cfg.Handles, page)
	if err != nil {
		return nil, err
	}
	return &mooringv1.NextPageResponse{Documents: docs, Cursor: page.Cursor()}, nil
}

// Stream sends the rest of a cursor.
func (s *Server) Stream(
	req *mooringv1.CursorServiceStreamRequest,
	ss grpc.ServerStreamingServer[mooringv1.CursorServiceStreamResponse],
) error {
	r := request.Read(ss.Context(), req, req.Statement)
	ask := paging.Asking{
		Principal: r.Principal, Transaction: r.TransactionID(),
		Token:          r.Cursor(req.GetCursor()),
		BatchSize:      r.BatchSize(req.BatchSize),
		MaxAwaitTimeMS: r.MaxAwaitTimeMS(req.MaxAwaitTimeMs), Inflation: r.Inflation(),
		Forwarded: r.Forwarded, Holder: r.Owner,
	}
	if err := r.Err(); err != nil {
		return err
	}
	ctx, taken, err := s.cfg.Handles.Take(ss.Context(), ask)
	if err != nil {
		return err
	}
	defer taken.Release()
	if r.Forwarded { // the replica that asks learns that no other one has to be asked
		if err := ss.SendHeader(nil); err != nil {
			_ = taken.Cursor.Close(ctx) // never fails
			taken.Drop()
			return err
		}
	}
	src := stream.Source{
		Cursor: taken.Cursor, Documents: taken.Documents, Lent: taken.Lent, Charge: taken.Charge,
		MaxBatch: req.GetBatchSize(), Sizer: taken.Sizer, ReadAhead: !taken.Waits,
	}
	taken.Documents, taken.Lent = nil, nil
	send := func(docs []*mooringv1.Document) error {
		return ss.Send(&mooringv1.CursorServiceStreamResponse{Documents: docs})
	}
	return s.cfg.Streams.Run(ctx, src, r.Batches(s.cfg.Streams.MessageBytes(), send))
}

// CloseCursor ends a cursor.
func (s *Server) CloseCursor(
	ctx context.Context, req *mooringv1.CloseCursorRequest,
) (*mooringv1.CloseCursorResponse, error) {
	r := request.Read(ctx, req, nil)
	ask := paging.Asking{
		Principal: r.Principal, Token: r.Cursor(req.GetCursor()),
		Forwarded: r.Forwarded, Holder: r.Owner,
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if err := s.cfg.Handles.CloseCursor(ctx, ask); err != nil {
		return nil, err
	}
	return &mooringv1.CloseCursorResponse{}, nil
}
