// Package command implements CommandService, which runs any command as the client wrote it.
//
// All clients share one backend user. So the service refuses, by the command's top-level keys, what
// belongs to the driver or to servers, and what reaches the handles and connections of other
// clients. The server checks everything else.
package command

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	corecursor "github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/pool"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/request"
	"github.com/mooringdb/mooring/service/rpcerr"
	"github.com/mooringdb/mooring/service/stream"
)

// Config configures a Server. All fields are required.
type Config struct {
	Client  *client.Client
	Handles *paging.Pager
	Streams *stream.Streams
}

// Server serves CommandService.
type Server struct {
	mooringv1.UnsafeCommandServiceServer
	cfg Config
}

var _ mooringv1.CommandServiceServer = (*Server)(nil)

// New returns the service.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// RunCommand runs a command and returns the server's reply as it is.
func (s *Server) RunCommand(
	ctx context.Context, req *mooringv1.RunCommandRequest,
) (*mooringv1.RunCommandResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	cmd := readCommand(r, req.GetCommand())
	opt := runOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	reply, server, err := s.cfg.Client.RunCommandOn(ctx, req.GetDatabase(), cmd, opt)
	if err != nil {
		return nil, err
	}
	if left, ok := corecursor.Left(server, reply); ok {
		s.cfg.Handles.Adopt(ctx, r.Principal, r.TransactionID(), left)
	}
	doc, err := r.Encoding.Document(reply)
	if err != nil {
		return nil, err
	}
	return &mooringv1.RunCommandResponse{Reply: doc}, nil
}

// RunCursorCommand runs a command that opens a cursor and returns the first page.
func (s *Server) RunCursorCommand(
	ctx context.Context, req *mooringv1.RunCursorCommandRequest,
) (*mooringv1.RunCursorCommandResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	cmd, opt := readCommand(r, req.GetCommand()), cursorOptions.Read(r, req)
	opt.TimeoutMode, opt.RunOn = client.Iteration, true
	if err := r.Err(); err != nil {
		return nil, err
	}
	page, err := s.cfg.Handles.Open(ctx, paging.Opening{
		Principal:   r.Principal,
		Transaction: r.TransactionID(),
		Namespace:   paging.Namespace{Database: req.GetDatabase()},
		BatchSize:   opt.BatchSize,
		Inflation:   r.Inflation(),
		Texts:       r.Texts,
		Run: func(ctx context.Context, _ int32) (paging.Cursor, error) {
			return s.run(ctx, req.GetDatabase(), cmd, opt)
		},
	})
	if err != nil {
		return nil, err
	}
	docs, err := r.Page(ctx, s.cfg.Handles, page)
	if err != nil {
		return nil, err
	}
	return &mooringv1.RunCursorCommandResponse{Documents: docs, Cursor: page.Cursor()}, nil
}

// StreamRunCursorCommand runs a command that opens a cursor and sends all its documents.
func (s *Server) StreamRunCursorCommand(
	req *mooringv1.StreamRunCursorCommandRequest,
	ss grpc.ServerStreamingServer[mooringv1.StreamRunCursorCommandResponse],
) error {
	ctx := ss.Context()
	r := request.Read(ctx, req, req.Statement)
	cmd, opt := readCommand(r, req.GetCommand()), cursorOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return err
	}
	cur, err := stream.Open(ctx, func() (*corecursor.Cursor, error) {
		return s.run(ctx, req.GetDatabase(), cmd, opt)
	})
	if err != nil {
		return err
	}
	cur.SetRunOn(false)
	src := stream.Source{Cursor: cur, MaxBatch: req.GetBatchSize()}
	send := func(docs []*mooringv1.Document) error {
		return ss.Send(&mooringv1.StreamRunCursorCommandResponse{Documents: docs})
	}
	return s.cfg.Streams.Run(ctx, src, r.Batches(s.cfg.Streams.MessageBytes(), send))
}

// run runs a command that must open a cursor. If the command opens none, run returns
// InvalidArgument: other commands are for RunCommand.
func (s *Server) run(
	ctx context.Context, database string, cmd bson.Raw, opt client.RunCursorCommandOptions,
) (*corecursor.Cursor, error) {
	cur, err := s.cfg.Client.RunCursorCommand(ctx, database, cmd, opt)
	if e, ok := errors.AsType[*mongoerr.MalformedReplyError](err); ok && e.Field == "cursor" {
		return nil, &rpcerr.Error{
			Reason: rpcerr.InvalidArgument, Field: "command",
			Message: "was run, but its reply has no cursor: use RunCommand", Err: err,
		}
	}
	if _, ok := errors.AsType[*pool.PinLimitError](err); ok {
		// The command was run, and may have written.
		return nil, &rpcerr.Error{
			Reason: rpcerr.PinLimitExceeded, Message: err.Error(), Retry: rpcerr.Never, Err: err,
		}
	}
	return cur, err
}

type (
	runOpt    = client.RunCommandOptions
	cursorOpt = client.RunCursorCommandOptions
)

// The tables that map the fields of requests to the options of core/client.
var (
	runOptions = request.NewTable(
		[]proto.Message{&mooringv1.RunCommandRequest{}},
		[]protoreflect.Name{"command"},
		request.Rows(
			request.Caller(func(o *runOpt) *client.Common { return &o.Common }),
			request.ReadPreference(func(o *runOpt) *client.Common { return &o.Common }),
		),
	)
	cursorOptions = request.NewTable(
		[]proto.Message{
			&mooringv1.RunCursorCommandRequest{}, &mooringv1.StreamRunCursorCommandRequest{},
		},
		[]protoreflect.Name{"command"},
		request.Rows(
			request.Caller(func(o *cursorOpt) *client.Common { return &o.Common }),
			request.ReadPreference(func(o *cursorOpt) *client.Common { return &o.Common }),
			request.Value("comment", func(o *cursorOpt) *bson.Value { return &o.Comment }),
			request.Word("cursor_type",
				func(o *cursorOpt) *client.CursorType { return &o.CursorType },
				(*request.Reader).CursorType),
			request.BatchSize(func(o *cursorOpt) **int32 { return &o.BatchSize }),
			request.NonNegative("max_time_ms", func(o *cursorOpt) **int64 { return &o.MaxTimeMS }),
		),
	)
)
