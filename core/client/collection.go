package client

import (
	"context"
	"errors"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/cursor"
	"github.com/mooringdb/mooring/core/mongoerr"
	"github.com/mooringdb/mooring/core/operation"
)

// CreateCollectionOptions holds the options of CreateCollection. Of Common it takes Comment,
// WriteConcern, RawData and Extra.
type CreateCollectionOptions struct {
	Common
	Capped *bool
	// Size is the size of a capped collection in bytes, and Max its number of documents.
	Size, Max *int64
	// ViewOn makes a view of that collection with Pipeline.
	ViewOn                       string
	Pipeline                     bson.Array
	ClusteredIndex               bson.Raw
	TimeSeries                   bson.Raw
	ExpireAfterSeconds           *int64
	ChangeStreamPreAndPostImages bson.Raw
	Collation                    bson.Raw
	Validator                    bson.Raw
	ValidationLevel              string
	ValidationAction             string
	StorageEngine                bson.Raw
	IndexOptionDefaults          bson.Raw
	MaxTimeMS                    *int64
}

var createFields = []string{
	"create", "capped", "size", "max", "viewOn", "pipeline", "clusteredIndex", "timeseries",
	"expireAfterSeconds", "changeStreamPreAndPostImages", "collation", "validator",
	"validationLevel", "validationAction", "storageEngine", "indexOptionDefaults", "comment",
}

// CreateCollection creates a collection or a view. If it already exists, the error is the server's.
func (c *Client) CreateCollection(
	ctx context.Context, ns Namespace, opt CreateCollectionOptions,
) error {
	ck := check{client: c}
	ck.namespace(ns)
	ck.unused("pipeline", opt.Pipeline != nil && opt.ViewOn == "", "a view")
	return c.change(ctx, ns.Database, helper{
		name: "create", operation: "createCollection", target: bson.StringValue(ns.Collection),
		common: &opt.Common,
		add:    opt.appendTo,
	}, opt.MaxTimeMS, &ck, createFields)
}

func (o *CreateCollectionOptions) appendTo(b *bson.Builder) {
	appendBool(b, "capped", o.Capped)
	appendInt64(b, "size", o.Size)
	appendInt64(b, "max", o.Max)
	appendString(b, "viewOn", o.ViewOn)
	appendArray(b, "pipeline", o.Pipeline)
	appendDocument(b, "clusteredIndex", o.ClusteredIndex)
	appendDocument(b, "timeseries", o.TimeSeries)
	appendInt64(b, "expireAfterSeconds", o.ExpireAfterSeconds)
	appendDocument(b, "changeStreamPreAndPostImages", o.ChangeStreamPreAndPostImages)
	appendDocument(b, "collation", o.Collation)
	appendDocument(b, "validator", o.Validator)
	appendString(b, "validationLevel", o.ValidationLevel)
	appendString(b, "validationAction", o.ValidationAction)
	appendDocument(b, "storageEngine", o.StorageEngine)
	appendDocument(b, "indexOptionDefaults", o.IndexOptionDefaults)
}

// ModifyCollectionOptions holds the options of ModifyCollection. Of Common it takes Comment,
// WriteConcern, RawData and Extra.
type ModifyCollectionOptions struct {
	Common
	// Index is what changes about an index, with its keyPattern or name.
	Index                        bson.Raw
	Validator                    bson.Raw
	ValidationLevel              string
	ValidationAction             string
	ViewOn                       string
	Pipeline                     bson.Array
	TimeSeries                   bson.Raw
	ExpireAfterSeconds           *int64
	ChangeStreamPreAndPostImages bson.Raw
	// CappedSize is the size of a capped collection in bytes, and CappedMax its number of
	// documents.
	CappedSize, CappedMax *int64
	MaxTimeMS             *int64
}

var collModFields = []string{
	"collMod", "index", "validator", "validationLevel", "validationAction", "viewOn", "pipeline",
	"timeseries", "expireAfterSeconds", "changeStreamPreAndPostImages", "cappedSize", "cappedMax",
	"comment",
}

// ModifyCollection changes the options of a collection or of one of its indexes (collMod).
func (c *Client) ModifyCollection(
	ctx context.Context, ns Namespace, opt ModifyCollectionOptions,
) error {
	ck := check{client: c}
	ck.namespace(ns)
	return c.change(ctx, ns.Database, helper{
		name: "collMod", target: bson.StringValue(ns.Collection), common: &opt.Common,
		add: opt.appendTo,
	}, opt.MaxTimeMS, &ck, collModFields)
}

func (o *ModifyCollectionOptions) appendTo(b *bson.Builder) {
	appendDocument(b, "index", o.Index)
	appendDocument(b, "validator", o.Validator)
	appendString(b, "validationLevel", o.ValidationLevel)
	appendString(b, "validationAction", o.ValidationAction)
	appendString(b, "viewOn", o.ViewOn)
	appendArray(b, "pipeline", o.Pipeline)
	appendDocument(b, "timeseries", o.TimeSeries)
	appendInt64(b, "expireAfterSeconds", o.ExpireAfterSeconds)
	appendDocument(b, "changeStreamPreAndPostImages", o.ChangeStreamPreAndPostImages)
	appendInt64(b, "cappedSize", o.CappedSize)
	appendInt64(b, "cappedMax", o.CappedMax)
}

// ChangeOptions holds the options of helpers that have none of their own. Of Common they take
// Comment, WriteConcern, RawData and Extra.
type ChangeOptions struct {
	Common
	MaxTimeMS *int64
}

// DropCollection drops a collection or a view. If there is none, the error is nil, whatever the
// version of the server.
func (c *Client) DropCollection(ctx context.Context, ns Namespace, opt ChangeOptions) error {
	ck := check{client: c}
	ck.namespace(ns)
	err := c.change(ctx, ns.Database, helper{
		name: "drop", operation: "dropCollection", target: bson.StringValue(ns.Collection),
		common: &opt.Common,
	}, opt.MaxTimeMS, &ck, []string{"drop", "comment"})
	return orNoNamespace(err)
}

// namespaceNotFound is the code of servers before 7.0 for a drop of a collection that is not there.
const namespaceNotFound = 26

// orNoNamespace returns nil for the error of a server that has no such collection.
func orNoNamespace(err error) error {
	if failed, ok := errors.AsType[*mongoerr.CommandError](err); ok &&
		failed.Code == namespaceNotFound {
		return nil
	}
	return err
}

// DropDatabase drops a database.
func (c *Client) DropDatabase(ctx context.Context, db string, opt ChangeOptions) error {
	ck := check{client: c}
	return c.change(ctx, db, helper{name: "dropDatabase", target: one, common: &opt.Common},
		opt.MaxTimeMS, &ck, []string{"dropDatabase", "comment"})
}

// RenameCollectionOptions holds the options of RenameCollection. Of Common it takes Comment,
// WriteConcern, RawData and Extra.
type RenameCollectionOptions struct {
	Common
	// DropTarget drops a collection that has the new name.
	DropTarget *bool
	MaxTimeMS  *int64
}

// RenameCollection renames a collection. The new name may be in another database.
func (c *Client) RenameCollection(
	ctx context.Context, from, to Namespace, opt RenameCollectionOptions,
) error {
	ck := check{client: c}
	ck.namespace(from)
	ck.namespace(to)
	return c.change(ctx, "admin", helper{
		name: "renameCollection", target: bson.StringValue(from.String()), common: &opt.Common,
		add: func(b *bson.Builder) {
			b.String("to", to.String())
			appendBool(b, "dropTarget", opt.DropTarget)
		},
	}, opt.MaxTimeMS, &ck, []string{"renameCollection", "to", "dropTarget", "comment"})
}

// ListCollectionsOptions holds the options of ListCollections and ListCollectionNames. Of Common
// they take Comment, RawData and Extra. ListCollectionNames sets NameOnly itself.
type ListCollectionsOptions struct {
	ListOptions
	Filter                bson.Raw
	NameOnly              *bool
	AuthorizedCollections *bool
}

var listCollectionsFields = []string{
	"listCollections", "filter", "nameOnly", "authorizedCollections", "cursor", "comment",
}

// ListCollections opens a cursor over the collections of a database.
func (c *Client) ListCollections(
	ctx context.Context, db string, opt ListCollectionsOptions,
) (*cursor.Cursor, error) {
	ck := check{client: c}
	return c.list(ctx, db, helper{name: "listCollections", target: one, add: func(b *bson.Builder) {
		appendDocument(b, "filter", opt.Filter)
		appendBool(b, "nameOnly", opt.NameOnly)
		appendBool(b, "authorizedCollections", opt.AuthorizedCollections)
	}}, &opt.ListOptions, &ck, listCollectionsFields)
}

// ListCollectionNames returns the names of the collections of a database. The server sends nothing
// but the names, unless the filter needs more of a collection than its name.
func (c *Client) ListCollectionNames(
	ctx context.Context, db string, opt ListCollectionsOptions,
) ([]string, error) {
	opt.NameOnly = nil
	if onlyNames(opt.Filter) {
		opt.NameOnly = new(true)
	}
	cur, err := c.ListCollections(ctx, db, opt)
	if err != nil {
		return nil, err
	}
	return names(ctx, cur)
}

// onlyNames reports whether a filter is about the name alone.
func onlyNames(filter bson.Raw) bool {
	for key := range filter.All() {
		if key != "name" {
			return false
		}
	}
	return true
}

// ListDatabasesOptions holds the options of ListDatabases and ListDatabaseNames. Of Common they
// take Comment, RawData and Extra. ListDatabaseNames sets NameOnly itself.
type ListDatabasesOptions struct {
	Common
	Filter              bson.Raw
	NameOnly            *bool
	AuthorizedDatabases *bool
	MaxTimeMS           *int64
}

var listDatabasesFields = []string{
	"listDatabases", "filter", "nameOnly", "authorizedDatabases", "comment",
}

// ListDatabases returns a document for each database, with its name and, unless NameOnly is set,
// its size.
func (c *Client) ListDatabases(
	ctx context.Context, opt ListDatabasesOptions,
) ([]bson.Raw, error) {
	ck := check{client: c}
	ck.common(&opt.Common, listOptions, listDatabasesFields)
	if ck.err != nil {
		return nil, ck.err
	}
	h := helper{
		name: "listDatabases", target: one, common: &opt.Common,
		add: func(b *bson.Builder) {
			appendDocument(b, "filter", opt.Filter)
			appendBool(b, "nameOnly", opt.NameOnly)
			appendBool(b, "authorizedDatabases", opt.AuthorizedDatabases)
		},
	}
	op := operation.Operation{
		Database: "admin", Command: &h, Session: opt.session(), Retry: true,
		MaxTimeMS: opt.MaxTimeMS, DeadlineAsMaxTime: true, RunOn: opt.RunOn, Caller: opt.Caller,
	}
	res, err := c.run(ctx, &op, &opt.Common)
	if err != nil {
		return nil, err
	}
	r := replyReader{from: res.Server}
	v, _ := res.Reply.Lookup("databases")
	list, ok := v.Array()
	if !ok {
		r.fail("databases", "is missing or no array")
		return nil, r.err
	}
	all := []bson.Raw{}
	for _, v := range list.All() {
		doc, ok := v.Document()
		if !ok {
			r.wrongType("databases", v)
			return nil, r.err
		}
		all = append(all, doc)
	}
	return all, nil
}

// ListDatabaseNames returns the names of the databases.
func (c *Client) ListDatabaseNames(
	ctx context.Context, opt ListDatabasesOptions,
) ([]string, error) {
	opt.NameOnly = new(true)
	docs, err := c.ListDatabases(ctx, opt)
	if err != nil {
		return nil, err
	}
	all := []string{}
	for _, doc := range docs {
		name, err := nameIn(doc, "")
		if err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	return all, nil
}

// ExplainOptions holds the options of Explain. Of Common it takes Comment and ReadPreference.
type ExplainOptions struct {
	Common
	// Verbosity is "queryPlanner", "executionStats" or "allPlansExecution"; empty is the server's
	// default.
	Verbosity string
	// MaxTimeMS limits the explain command. A maxTimeMS of the explained one is sent as it is.
	MaxTimeMS *int64
}

// Explain returns how the server would run a command.
func (c *Client) Explain(
	ctx context.Context, db string, command bson.Raw, opt ExplainOptions,
) (bson.Raw, error) {
	ck := check{client: c}
	ck.database(db)
	ck.common(&opt.Common, takesComment|takesReadPreference, nil)
	if command.IsEmpty() {
		ck.refuse("command", "is empty")
	}
	if ck.err != nil {
		return nil, ck.err
	}
	h := helper{
		name: "explain", target: bson.DocumentValue(command), common: &opt.Common,
		add: func(b *bson.Builder) { appendString(b, "verbosity", opt.Verbosity) },
	}
	op := c.read(Namespace{Database: db}, &h, &opt.Common)
	op.ReadConcern = operation.ReadConcern{} // the explained command has its own
	op.Retry = false
	op.MaxTimeMS = opt.MaxTimeMS
	res, err := c.run(ctx, &op, &opt.Common)
	return res.Reply, err
}
