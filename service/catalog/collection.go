package catalog

import (
	"context"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/call"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/request"
)

type (
	collectionsOpt = client.ListCollectionsOptions
	createOpt      = client.CreateCollectionOptions
	modifyOpt      = client.ModifyCollectionOptions
	renameOpt      = client.RenameCollectionOptions
)

var collectionsOptions = request.NewTable(
	requests{&mooringv1.ListCollectionsRequest{}},
	nil,
	request.Common(func(o *collectionsOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("filter", func(o *collectionsOpt) *bson.Raw { return &o.Filter }),
		request.BatchSize(func(o *collectionsOpt) **int32 { return &o.BatchSize }),
		request.Bool("name_only", func(o *collectionsOpt) **bool { return &o.NameOnly }),
		request.Bool("authorized_collections",
			func(o *collectionsOpt) **bool { return &o.AuthorizedCollections }),
		request.NonNegative("max_time_ms", func(o *collectionsOpt) **int64 { return &o.MaxTimeMS }),
	),
)

var createOptions = request.NewTable(
	requests{&mooringv1.CreateCollectionRequest{}},
	nil,
	request.CommonWrite(func(o *createOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Bool("capped", func(o *createOpt) **bool { return &o.Capped }),
		request.NonNegative("size", func(o *createOpt) **int64 { return &o.Size }),
		request.NonNegative("max", func(o *createOpt) **int64 { return &o.Max }),
		request.String("view_on", func(o *createOpt) *string { return &o.ViewOn }),
		request.Array("pipeline", func(o *createOpt) *bson.Array { return &o.Pipeline }),
		request.Document("clustered_index",
			func(o *createOpt) *bson.Raw { return &o.ClusteredIndex }),
		request.Document("timeseries", func(o *createOpt) *bson.Raw { return &o.TimeSeries }),
		request.Int64("expire_after_seconds",
			func(o *createOpt) **int64 { return &o.ExpireAfterSeconds }),
		request.Document("change_stream_pre_and_post_images",
			func(o *createOpt) *bson.Raw { return &o.ChangeStreamPreAndPostImages }),
		request.Document("collation", func(o *createOpt) *bson.Raw { return &o.Collation }),
		request.Document("validator", func(o *createOpt) *bson.Raw { return &o.Validator }),
		request.String("validation_level",
			func(o *createOpt) *string { return &o.ValidationLevel }),
		request.String("validation_action",
			func(o *createOpt) *string { return &o.ValidationAction }),
		request.Document("storage_engine",
			func(o *createOpt) *bson.Raw { return &o.StorageEngine }),
		request.Document("index_option_defaults",
			func(o *createOpt) *bson.Raw { return &o.IndexOptionDefaults }),
		request.NonNegative("max_time_ms", func(o *createOpt) **int64 { return &o.MaxTimeMS }),
	),
)

var modifyOptions = request.NewTable(
	requests{&mooringv1.CollModRequest{}},
	nil,
	request.CommonWrite(func(o *modifyOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Document("index", func(o *modifyOpt) *bson.Raw { return &o.Index }),
		request.String("view_on", func(o *modifyOpt) *string { return &o.ViewOn }),
		request.Array("pipeline", func(o *modifyOpt) *bson.Array { return &o.Pipeline }),
		request.Document("timeseries", func(o *modifyOpt) *bson.Raw { return &o.TimeSeries }),
		request.Int64("expire_after_seconds",
			func(o *modifyOpt) **int64 { return &o.ExpireAfterSeconds }),
		request.Document("change_stream_pre_and_post_images",
			func(o *modifyOpt) *bson.Raw { return &o.ChangeStreamPreAndPostImages }),
		request.Document("validator", func(o *modifyOpt) *bson.Raw { return &o.Validator }),
		request.String("validation_level",
			func(o *modifyOpt) *string { return &o.ValidationLevel }),
		request.String("validation_action",
			func(o *modifyOpt) *string { return &o.ValidationAction }),
		request.NonNegative("capped_size", func(o *modifyOpt) **int64 { return &o.CappedSize }),
		request.NonNegative("capped_max", func(o *modifyOpt) **int64 { return &o.CappedMax }),
		request.NonNegative("max_time_ms", func(o *modifyOpt) **int64 { return &o.MaxTimeMS }),
	),
)

var renameOptions = request.NewTable(
	requests{&mooringv1.RenameCollectionRequest{}},
	fields{"to", "to_database"},
	request.CommonWrite(func(o *renameOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Bool("drop_target", func(o *renameOpt) **bool { return &o.DropTarget }),
		request.NonNegative("max_time_ms", func(o *renameOpt) **int64 { return &o.MaxTimeMS }),
	),
)

// ListCollections returns the first page of a database's collections.
func (s *Server) ListCollections(
	ctx context.Context, req *mooringv1.ListCollectionsRequest,
) (*mooringv1.ListCollectionsResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := collectionsOptions.Read(r, req)
	opt.TimeoutMode, opt.RunOn = client.Iteration, true
	db := req.GetDatabase()
	inside := call.From(ctx).Inside
	run := func(ctx context.Context, _ int32) (paging.Cursor, error) {
		if inside != nil {
			names, err := s.names(ctx, db, opt.Common)
			if err != nil {
				return nil, err
			}
			opt.Filter = only(names, opt.Filter, func(name string) bool {
				return inside.Decide(db, name) == nil
			})
		}
		return s.cfg.Client.ListCollections(ctx, db, opt)
	}
	docs, token, err := s.list(ctx, r, client.Namespace{Database: db}, opt.BatchSize, run)
	if err != nil {
		return nil, err
	}
	return &mooringv1.ListCollectionsResponse{Documents: docs, Cursor: token}, nil
}

// names returns the names of the collections that a database has.
func (s *Server) names(ctx context.Context, db string, with client.Common) ([]string, error) {
	common := client.Common{
		Session: with.Session, RunOn: with.RunOn, Timeout: with.Timeout, Comment: with.Comment,
		Caller: with.Caller,
	}
	return s.cfg.Client.ListCollectionNames(ctx, db, client.ListCollectionsOptions{
		ListOptions: client.ListOptions{Common: common},
	})
}

// only returns a filter of a list of collections that has those of the names that are visible. The
// list has no collection that was created since the names were read.
func only(names []string, filter bson.Raw, visible func(string) bool) bson.Raw {
	b := bson.NewBuilder(nil).OpenArray("$and")
	if filter != nil {
		b.Document("", filter)
	}
	b.OpenDocument("").OpenDocument("name").OpenArray("$in")
	for _, name := range names {
		if visible(name) {
			b.String("", name)
		}
	}
	return b.Close().Close().Close().Close().Finish()
}

// CreateCollection creates a collection or a view.
func (s *Server) CreateCollection(
	ctx context.Context, req *mooringv1.CreateCollectionRequest,
) (*mooringv1.CreateCollectionResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := createOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	if err := s.cfg.Client.CreateCollection(ctx, namespace(req), opt); err != nil {
		return nil, err
	}
	return &mooringv1.CreateCollectionResponse{}, nil
}

// DropCollection drops a collection or a view.
func (s *Server) DropCollection(
	ctx context.Context, req *mooringv1.DropCollectionRequest,
) (*mooringv1.DropCollectionResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := changeOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	if err := s.cfg.Client.DropCollection(ctx, namespace(req), opt); err != nil {
		return nil, err
	}
	return &mooringv1.DropCollectionResponse{}, nil
}

// RenameCollection gives a collection another name.
func (s *Server) RenameCollection(
	ctx context.Context, req *mooringv1.RenameCollectionRequest,
) (*mooringv1.RenameCollectionResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	if req.GetTo() == "" {
		r.Refuse("to", "is required")
	}
	to := client.Namespace{Database: req.GetDatabase(), Collection: req.GetTo()}
	if req.ToDatabase != nil {
		if to.Database = req.GetToDatabase(); to.Database == "" {
			r.Refuse("toDatabase", "is empty")
		}
	}
	opt := renameOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	if err := s.cfg.Client.RenameCollection(ctx, namespace(req), to, opt); err != nil {
		return nil, err
	}
	return &mooringv1.RenameCollectionResponse{}, nil
}

// emptyArray is an array without elements.
var emptyArray = bson.Array{5, 0, 0, 0, 0}

// CollMod changes the options of a collection, a view or an index.
func (s *Server) CollMod(
	ctx context.Context, req *mooringv1.CollModRequest,
) (*mooringv1.CollModResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := modifyOptions.Read(r, req)
	opt.RunOn = true
	if opt.ViewOn != "" && opt.Pipeline == nil {
		opt.Pipeline = emptyArray // which the server asks for
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	if err := s.cfg.Client.ModifyCollection(ctx, namespace(req), opt); err != nil {
		return nil, err
	}
	return &mooringv1.CollModResponse{}, nil
}
