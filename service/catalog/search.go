package catalog

import (
	"context"
	"strconv"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/paging"
	"github.com/mooringdb/mooring/service/request"
)

type searchOpt = client.SearchIndexOptions

var searchOptions = request.NewTable(
	requests{
		&mooringv1.CreateSearchIndexesRequest{}, &mooringv1.UpdateSearchIndexRequest{},
		&mooringv1.DropSearchIndexRequest{},
	},
	fields{"indexes", "name", "definition"},
	request.Common(func(o *searchOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.NonNegative("max_time_ms", func(o *searchOpt) **int64 { return &o.MaxTimeMS }),
	),
)

// ListSearchIndexes returns the first page of a collection's search indexes.
func (s *Server) ListSearchIndexes(
	ctx context.Context, req *mooringv1.ListSearchIndexesRequest,
) (*mooringv1.ListSearchIndexesResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	if req.Name != nil && req.GetName() == "" {
		r.Refuse("name", "is empty")
	}
	opt := listOptions.Read(r, req)
	opt.TimeoutMode, opt.RunOn = client.Iteration, true
	ns, name := namespace(req), req.GetName()
	run := func(ctx context.Context, _ int32) (paging.Cursor, error) {
		return s.cfg.Client.ListSearchIndexes(ctx, ns, name, opt)
	}
	docs, token, err := s.list(ctx, r, ns, opt.BatchSize, run)
	if err != nil {
		return nil, err
	}
	return &mooringv1.ListSearchIndexesResponse{Documents: docs, Cursor: token}, nil
}

// CreateSearchIndexes begins to create search indexes.
func (s *Server) CreateSearchIndexes(
	ctx context.Context, req *mooringv1.CreateSearchIndexesRequest,
) (*mooringv1.CreateSearchIndexesResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	if len(req.GetIndexes()) == 0 {
		r.Refuse("indexes", "is empty")
	}
	var models []client.SearchIndexModel
	for i, doc := range r.Documents("indexes", req.GetIndexes()) {
		models = append(models, searchIndexModel(r, "indexes."+strconv.Itoa(i), doc))
	}
	opt := searchOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	names, err := s.cfg.Client.CreateSearchIndexes(ctx, namespace(req), models, opt)
	if err != nil {
		return nil, err
	}
	return &mooringv1.CreateSearchIndexesResponse{Names: names}, nil
}

func searchIndexModel(r *request.Reader, field string, doc bson.Raw) client.SearchIndexModel {
	v, _ := doc.Lookup("definition")
	definition, ok := v.Document()
	if !ok {
		r.Refuse(field+".definition", "is missing, or not a document")
	}
	return client.SearchIndexModel{
		Definition: definition,
		Name:       text(r, field, "name", doc), Type: text(r, field, "type", doc),
		Extra: bson.Without(doc, "definition", "name", "type"),
	}
}

// UpdateSearchIndex begins to change the definition of a search index.
func (s *Server) UpdateSearchIndex(
	ctx context.Context, req *mooringv1.UpdateSearchIndexRequest,
) (*mooringv1.UpdateSearchIndexResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	definition, opt := r.Required("definition", req.GetDefinition()), searchOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	err := s.cfg.Client.UpdateSearchIndex(ctx, namespace(req), req.GetName(), definition, opt)
	if err != nil {
		return nil, err
	}
	return &mooringv1.UpdateSearchIndexResponse{}, nil
}

// DropSearchIndex drops a search index.
func (s *Server) DropSearchIndex(
	ctx context.Context, req *mooringv1.DropSearchIndexRequest,
) (*mooringv1.DropSearchIndexResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := searchOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	if err := s.cfg.Client.DropSearchIndex(ctx, namespace(req), req.GetName(), opt); err != nil {
		return nil, err
	}
	return &mooringv1.DropSearchIndexResponse{}, nil
}
