package catalog

import (
	"context"
	"io"
	"slices"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/cursor"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/request"
)

type (
	databasesOpt = client.ListDatabasesOptions
	changeOpt    = client.ChangeOptions
)

var databasesOptions = request.NewTable(
	requests{&mooringv1.ListDatabasesRequest{}},
	fields{"batch_size"},
	request.Common(func(o *databasesOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("filter", func(o *databasesOpt) *bson.Raw { return &o.Filter }),
		request.Bool("name_only", func(o *databasesOpt) **bool { return &o.NameOnly }),
		request.Bool("authorized_databases",
			func(o *databasesOpt) **bool { return &o.AuthorizedDatabases }),
		request.NonNegative("max_time_ms", func(o *databasesOpt) **int64 { return &o.MaxTimeMS }),
	),
)

// changeOptions is the table of the requests that have no options of their own.
var changeOptions = request.NewTable(
	requests{
		&mooringv1.DropCollectionRequest{}, &mooringv1.DropDatabaseRequest{},
		&mooringv1.DropIndexesRequest{},
	},
	fields{"index"},
	request.CommonWrite(func(o *changeOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.NonNegative("max_time_ms", func(o *changeOpt) **int64 { return &o.MaxTimeMS }),
	),
)

// ListDatabases returns the first page of the databases. The server has no cursor of them, so the
// gateway keeps those of later pages.
func (s *Server) ListDatabases(
	ctx context.Context, req *mooringv1.ListDatabasesRequest,
) (*mooringv1.ListDatabasesResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt, size := databasesOptions.Read(r, req), r.BatchSize(req.BatchSize)
	opt.RunOn = true
	inside := call.From(ctx).Inside
	run := func(ctx context.Context, _ int32) (paging.Cursor, error) {
		docs, err := s.cfg.Client.ListDatabases(ctx, opt)
		if err != nil {
			return nil, err
		}
		if inside != nil {
			docs = slices.DeleteFunc(docs, func(doc bson.Raw) bool {
				name, _ := doc.Lookup("name")
				text, _ := name.Str()
				return inside.Decide(text, "") != nil
			})
		}
		return &whole{documents: docs}, nil
	}
	docs, token, err := s.list(ctx, r, client.Namespace{Database: "admin"}, size, run)
	if err != nil {
		return nil, err
	}
	return &mooringv1.ListDatabasesResponse{Documents: docs, Cursor: token}, nil
}

// whole implements a cursor whose only batch is the whole result. The pager keeps what does not fit
// into a page.
type whole struct {
	documents []bson.Raw
	done      bool
}

var _ paging.Cursor = (*whole)(nil)

// NextLent returns all documents once, then io.EOF.
func (w *whole) NextLent(context.Context) (cursor.Batch, error) {
	if w.done {
		return cursor.Batch{}, io.EOF
	}
	w.done = true
	b := cursor.Batch{Documents: w.documents}
	for _, doc := range w.documents {
		b.Bytes += len(doc)
	}
	b.Buffer = b.Bytes
	return b, nil
}

func (w *whole) Done() bool { return w.done }

// State returns the state of a cursor that the server has closed.
func (*whole) State() cursor.State { return cursor.State{} }

func (*whole) Server() address.Address     { return "" }
func (*whole) Kept() int                   { return 0 }
func (*whole) Pinned() bool                { return false }
func (*whole) SetBatchSize(int32)          {}
func (*whole) SetMaxAwaitTimeMS(*int64)    {}
func (*whole) SetRunOn(bool)               {}
func (*whole) Close(context.Context) error { return nil }

// DropDatabase drops a database, unless a rule of the policy is against dropping a collection that
// is there.
func (s *Server) DropDatabase(
	ctx context.Context, req *mooringv1.DropDatabaseRequest,
) (*mooringv1.DropDatabaseResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := changeOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	if inside := call.From(ctx).Inside; inside != nil {
		names, err := s.names(ctx, req.GetDatabase(), opt.Common)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if err := inside.Decide(req.GetDatabase(), name); err != nil {
				return nil, err
			}
		}
	}
	if err := s.cfg.Client.DropDatabase(ctx, req.GetDatabase(), opt); err != nil {
		return nil, err
	}
	return &mooringv1.DropDatabaseResponse{}, nil
}
