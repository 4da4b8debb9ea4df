// Package transaction implements TransactionService, and keeps the transactions of this replica: a
// transaction is a handle in the table of cursors, with a session of its own. It runs one call at a
// time.
//
// The interceptors run every call that has a transaction's token by Transactions, at the replica
// that keeps the transaction. Handlers find the transaction's session in their call, and know
// nothing else of transactions.
package transaction

import (
	"cmp"
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/request"
)

// ServerConfig configures a Server. All fields are required.
type ServerConfig struct {
	Transactions *Transactions
	// Documents runs the operations of Run.
	Documents mooringv1.DocumentServiceServer
}

// Server serves TransactionService.
type Server struct {
	mooringv1.UnsafeTransactionServiceServer
	cfg ServerConfig
}

var _ mooringv1.TransactionServiceServer = (*Server)(nil)

// NewServer returns the service.
func NewServer(cfg ServerConfig) *Server { return &Server{cfg: cfg} }

// options maps the fields of a transaction's beginning to its options.
var options = request.NewTable(
	[]proto.Message{
		&mooringv1.TransactionServiceBeginRequest{}, &mooringv1.TransactionServiceRunRequest{},
	},
	[]protoreflect.Name{"operations"},
	request.Rows(
		request.ReadPreference(common),
		request.ReadConcern(common),
		request.WriteConcern(common),
		request.NonNegative("max_commit_time_ms",
			func(o *beginning) **int64 { return &o.maxCommitTimeMS }),
	),
)

// beginning holds the options of a transaction, as requests have them.
type beginning struct {
	client.Common
	maxCommitTimeMS *int64
}

func common(o *beginning) *client.Common { return &o.Common }

// transaction returns the options for core.
func (o *beginning) transaction() client.TransactionOptions {
	opt := client.TransactionOptions{
		WriteConcern: o.WriteConcern, ReadPreference: o.ReadPreference,
		MaxCommitTimeMS: o.maxCommitTimeMS,
	}
	if o.ReadConcern != nil {
		opt.ReadConcernLevel = &o.ReadConcern.Level
	}
	return opt
}

// inSession describes the requests of this service.
type inSession interface {
	proto.Message
	GetSession() string
}

// readBeginning reads a request that begins a transaction.
func readBeginning(ctx context.Context, req inSession) (*request.Reader, beginning) {
	r := request.ReadSession(ctx, req)
	r.RefuseTransaction(ctx)
	opt := options.Read(r, req)
	if r.Err() == nil && r.Session != nil && r.Session.Options().Snapshot {
		r.Refuse("session", "reads from a snapshot, and has no transactions")
	}
	return r, opt
}

// maxBeginning is the size of the largest request that begins a transaction: its options are kept
// until the transaction ends.
const maxBeginning = 16 << 10

// Begin begins a transaction.
func (s *Server) Begin(
	ctx context.Context, req *mooringv1.TransactionServiceBeginRequest,
) (*mooringv1.TransactionServiceBeginResponse, error) {
	r, opt := readBeginning(ctx, req)
	if proto.Size(req) > maxBeginning {
		r.Refuse("request", "has more than 16 KiB, which the transaction would keep")
	}
	if err := cmp.Or(r.Err(), s.cfg.Transactions.missing()); err != nil {
		return nil, err
	}
	token, expires, err := s.cfg.Transactions.Start(
		ctx, r.Principal, opt.transaction(), r.Session,
	)
	if err != nil {
		return nil, err
	}
	return &mooringv1.TransactionServiceBeginResponse{
		Transaction: token, ExpireTime: timestamppb.New(expires),
	}, nil
}

// Commit commits a transaction.
func (s *Server) Commit(
	ctx context.Context, req *mooringv1.TransactionServiceCommitRequest,
) (*mooringv1.TransactionServiceCommitResponse, error) {
	c, err := s.ending(ctx, req)
	if err != nil {
		return nil, err
	}
	t := s.cfg.Transactions
	response := &mooringv1.TransactionServiceCommitResponse{}
	if t.isHere(c) {
		response.WriteConcernError, err = committed(ctx, t.commit(ctx, c))
	} else {
		err = t.elsewhere(ctx, c, func(ctx context.Context, err error) (proto.Message, error) {
			response.WriteConcernError, err = committed(ctx, t.commitFailed(ctx, c, err))
			return response, err
		})
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// Abort aborts a transaction.
func (s *Server) Abort(
	ctx context.Context, req *mooringv1.TransactionServiceAbortRequest,
) (*mooringv1.TransactionServiceAbortResponse, error) {
	c, err := s.ending(ctx, req)
	if err != nil {
		return nil, err
	}
	t := s.cfg.Transactions
	response := &mooringv1.TransactionServiceAbortResponse{}
	if t.isHere(c) {
		err = t.abort(ctx, c)
	} else {
		err = t.elsewhere(ctx, c, func(ctx context.Context, err error) (proto.Message, error) {
			return response, t.abortFailed(ctx, c, err)
		})
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// ending reads a request that ends a transaction.
func (s *Server) ending(ctx context.Context, req interface {
	inSession
	GetTransaction() string
},
) (c claim, err error) {
	r := request.ReadSession(ctx, req)
	token := req.GetTransaction()
	for _, other := range metadata.ValueFromIncomingContext(ctx, call.TransactionKey) {
		if token != "" && other != token {
			r.Refuse(call.TransactionKey, "the request has another transaction")
		}
		token = other
	}
	if token == "" {
		r.Refuse("transaction", "is required")
	}
	if err := r.Err(); err != nil {
		return c, err
	}
	return s.cfg.Transactions.claim(r.Principal, token)
}
