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

type (
	indexesOpt = client.CreateIndexesOptions
	listOpt    = client.ListOptions
)

var indexesOptions = request.NewTable(
	requests{&mooringv1.CreateIndexesRequest{}},
	fields{"indexes"},
	request.CommonWrite(func(o *indexesOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.Value("commit_quorum", func(o *indexesOpt) *bson.Value { return &o.CommitQuorum }),
		request.NonNegative("max_time_ms", func(o *indexesOpt) **int64 { return &o.MaxTimeMS }),
	),
)

var listOptions = request.NewTable(
	requests{&mooringv1.ListIndexesRequest{}, &mooringv1.ListSearchIndexesRequest{}},
	fields{"name"},
	request.Common(func(o *listOpt) *client.Common { return &o.Common }),
	request.Rows(
		request.BatchSize(func(o *listOpt) **int32 { return &o.BatchSize }),
		request.NonNegative("max_time_ms", func(o *listOpt) **int64 { return &o.MaxTimeMS }),
	),
)

// CreateIndexes creates indexes.
func (s *Server) CreateIndexes(
	ctx context.Context, req *mooringv1.CreateIndexesRequest,
) (*mooringv1.CreateIndexesResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	var models []client.IndexModel
	for i, doc := range r.Documents("indexes", req.GetIndexes()) {
		models = append(models, indexModel(r, "indexes."+strconv.Itoa(i), doc))
	}
	opt := indexesOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	names, err := s.cfg.Client.CreateIndexes(ctx, namespace(req), models, opt)
	if err != nil {
		return nil, err
	}
	return &mooringv1.CreateIndexesResponse{Names: names}, nil
}

// indexModel reads the specification of an index. All but its key and its name go to the server as
// they are.
func indexModel(r *request.Reader, field string, doc bson.Raw) client.IndexModel {
	key, ok := doc.Lookup("key")
	if !ok {
		r.Refuse(field+".key", "is required")
		return client.IndexModel{}
	}
	keys, ok := indexKeys(key)
	if !ok {
		r.Refuse(field+".key", "must be a document of keys or an array of pairs")
	}
	return client.IndexModel{
		Keys: keys, Name: text(r, field, "name", doc), Extra: bson.Without(doc, "key", "name"),
	}
}

// indexKeys returns the keys of an index: a document, or an array of pairs, because JavaScript
// changes the order of keys that look like numbers.
func indexKeys(v bson.Value) (bson.Raw, bool) {
	pairs, ok := v.Array()
	if !ok {
		return v.Document()
	}
	b := bson.NewBuilder(nil)
	for _, v := range pairs.All() {
		pair, _ := v.Array()
		var key, direction bson.Value
		n := 0
		for _, v := range pair.All() {
			key, direction = direction, v
			n++
		}
		name, isText := key.Str()
		if n != 2 || !isText {
			return nil, false
		}
		b.Value(name, direction)
	}
	return b.Finish(), true
}

// text returns a text of a specification, "" if it is missing.
func text(r *request.Reader, field, name string, doc bson.Raw) string {
	v, found := doc.Lookup(name)
	s, ok := v.Str()
	if found && (!ok || s == "") {
		r.Refuse(field+"."+name, "must be a string that is not empty")
	}
	return s
}

// ListIndexes returns the first page of a collection's indexes.
func (s *Server) ListIndexes(
	ctx context.Context, req *mooringv1.ListIndexesRequest,
) (*mooringv1.ListIndexesResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	opt := listOptions.Read(r, req)
	opt.TimeoutMode, opt.RunOn = client.Iteration, true
	ns := namespace(req)
	run := func(ctx context.Context, _ int32) (paging.Cursor, error) {
		return s.cfg.Client.ListIndexes(ctx, ns, opt)
	}
	docs, token, err := s.list(ctx, r, ns, opt.BatchSize, run)
	if err != nil {
		return nil, err
	}
	return &mooringv1.ListIndexesResponse{Documents: docs, Cursor: token}, nil
}

// DropIndexes drops an index, or all but that of _id.
func (s *Server) DropIndexes(
	ctx context.Context, req *mooringv1.DropIndexesRequest,
) (*mooringv1.DropIndexesResponse, error) {
	r := request.Read(ctx, req, req.Statement)
	if req.Index == nil {
		r.Refuse("index", "is required")
	}
	index := r.Hint("index", req.GetIndex())
	opt := changeOptions.Read(r, req)
	opt.RunOn = true
	if err := r.Err(); err != nil {
		return nil, err
	}
	if err := s.dropIndexes(ctx, namespace(req), index, opt); err != nil {
		return nil, err
	}
	return &mooringv1.DropIndexesResponse{}, nil
}

func (s *Server) dropIndexes(
	ctx context.Context, ns client.Namespace, index bson.Value, opt client.ChangeOptions,
) error {
	if keys, ok := index.Document(); ok {
		return s.cfg.Client.DropIndexByKeys(ctx, ns, keys, opt)
	}
	name, _ := index.Str()
	if name == "*" {
		return s.cfg.Client.DropIndexes(ctx, ns, opt)
	}
	return s.cfg.Client.DropIndex(ctx, ns, name, opt)
}
