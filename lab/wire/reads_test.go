package wire_test

import (
	"context"

	obson "go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/selection"
)

// finds are find with every option that more than one driver has.
var finds = []operation{
	{
		"find all",
		func(ctx context.Context, m mooring) error { return m.find(ctx, client.FindOptions{}) },
		func(ctx context.Context, o official) error { return o.find(ctx, `{}`, options.Find()) },
		`list(c.find())`,
	},
	{
		"find with a filter, a sort and a projection",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{
				Filter: d(`{"a": {"$gt": 1}}`), Sort: d(`{"a": -1, "_id": 1}`),
				Projection: d(`{"a": 1}`),
			})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{"a": {"$gt": 1}}`, options.Find().
				SetSort(od(`{"a": -1, "_id": 1}`)).SetProjection(od(`{"a": 1}`)))
		},
		`list(c.find({'a': {'$gt': 1}}, {'a': 1}, sort=[('a', -1), ('_id', 1)]))`,
	},
	{
		"find with skip and limit",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{Skip: new(int64(1)), Limit: new(int64(2))})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetSkip(1).SetLimit(2))
		},
		`list(c.find(skip=1, limit=2))`,
	},
	{
		"find in batches",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{BatchSize: new(int32(2))})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetBatchSize(2))
		},
		`list(c.find(batch_size=2))`,
	},
	{
		"find in batches up to a limit",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{
				BatchSize: new(int32(2)), Limit: new(int64(3)),
			})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetBatchSize(2).SetLimit(3))
		},
		`list(c.find(batch_size=2, limit=3))`,
	},
	{
		"find with a limit of one batch",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{
				BatchSize: new(int32(2)), Limit: new(int64(2)),
			})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetBatchSize(2).SetLimit(2))
		},
		`list(c.find(batch_size=2, limit=2))`,
	},
	{
		"find with a negative limit",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{Limit: new(int64(-2))})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetLimit(-2))
		},
		`list(c.find(limit=-2))`,
	},
	{
		"find with an index's name as the hint",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{Hint: text("_id_")})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetHint("_id_"))
		},
		`list(c.find(hint='_id_'))`,
	},
	{
		"find with keys as the hint, min and max",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{
				Hint: value(`{"_id": 1}`), Min: d(`{"_id": 1}`), Max: d(`{"_id": 3}`),
			})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetHint(od(`{"_id": 1}`)).
				SetMin(od(`{"_id": 1}`)).SetMax(od(`{"_id": 3}`)))
		},
		`list(c.find(hint=[('_id', 1)]).min([('_id', 1)]).max([('_id', 3)]))`,
	},
	{
		"find with returnKey and showRecordId",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{
				ReturnKey: new(true), ShowRecordID: new(true),
			})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetReturnKey(true).SetShowRecordID(true))
		},
		`list(c.find(return_key=True, show_record_id=True))`,
	},
	{
		"find with noCursorTimeout, allowPartialResults and allowDiskUse",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{
				NoCursorTimeout: new(true), AllowPartialResults: new(true),
				AllowDiskUse: new(true),
			})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetNoCursorTimeout(true).
				SetAllowPartialResults(true).SetAllowDiskUse(true))
		},
		`list(c.find(no_cursor_timeout=True, allow_partial_results=True, allow_disk_use=True))`,
	},
	{
		"find with a collation",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{Collation: d(`{"locale": "en", "strength": 2}`)})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetCollation(&options.Collation{
				Locale: "en", Strength: 2,
			}))
		},
		`list(c.find(collation=Collation('en', strength=2)))`,
	},
	{
		"find with let",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{Let: d(`{"x": 1}`)})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetLet(od(`{"x": 1}`)))
		},
		"",
	},
	{
		"find with a comment, in batches",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{
				Common: client.Common{Comment: text("why")}, BatchSize: new(int32(2)),
			})
		},
		func(ctx context.Context, o official) error {
			return o.find(ctx, `{}`, options.Find().SetComment("why").SetBatchSize(2))
		},
		`list(c.find(comment='why', batch_size=2))`,
	},
	{
		"find with maxTimeMS",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{MaxTimeMS: new(int64(5000))})
		},
		nil,
		`list(c.find(max_time_ms=5000))`,
	},
	{
		"find with a read concern and a read preference",
		func(ctx context.Context, m mooring) error {
			return m.find(ctx, client.FindOptions{Common: client.Common{
				ReadConcern:    &client.ReadConcern{Level: "majority"},
				ReadPreference: &selection.ReadPreference{Mode: selection.PrimaryPreferred},
			}})
		},
		func(ctx context.Context, o official) error {
			o.c = o.c.Clone(options.Collection().SetReadConcern(readconcern.Majority()).
				SetReadPreference(readpref.PrimaryPreferred()))
			return o.find(ctx, `{}`, options.Find())
		},
		`list(c.with_options(read_concern=ReadConcern('majority'),
			read_preference=ReadPreference.PRIMARY_PREFERRED).find())`,
	},
	{
		"find of a tailable cursor, one batch",
		func(ctx context.Context, m mooring) error {
			return m.first(ctx, capped, client.FindOptions{
				Tailable: new(true), AwaitData: new(true), BatchSize: new(int32(1)),
				MaxAwaitTimeMS: new(int64(50)),
			})
		},
		func(ctx context.Context, o official) error {
			return o.first(ctx, capped, options.Find().SetCursorType(options.TailableAwait).
				SetBatchSize(1).SetMaxAwaitTime(awaitTime))
		},
		`x = db.capped.find(cursor_type=CursorType.TAILABLE_AWAIT, batch_size=1)
x.max_await_time_ms(50)
next(x); next(x); x.close()`,
	},
	{
		"find, closed before its end",
		func(ctx context.Context, m mooring) error {
			return m.first(ctx, things, client.FindOptions{BatchSize: new(int32(1))})
		},
		func(ctx context.Context, o official) error {
			return o.first(ctx, things, options.Find().SetBatchSize(1))
		},
		`x = c.find(batch_size=1)
next(x); next(x); x.close()`,
	},
	{
		"findOne",
		func(ctx context.Context, m mooring) error {
			_, _, err := m.FindOne(ctx, ns, client.FindOptions{Filter: d(`{"_id": 1}`)})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.c.FindOne(ctx, od(`{"_id": 1}`)).Err()
		},
		`c.find_one({'_id': 1})`,
	},
	{
		"findOne with a sort, skip and projection",
		func(ctx context.Context, m mooring) error {
			_, _, err := m.FindOne(ctx, ns, client.FindOptions{
				Sort: d(`{"a": -1}`), Skip: new(int64(1)), Projection: d(`{"a": 1}`),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.c.FindOne(ctx, od(`{}`), options.FindOne().SetSort(od(`{"a": -1}`)).
				SetSkip(1).SetProjection(od(`{"a": 1}`))).Err()
		},
		`c.find_one({}, {'a': 1}, sort=[('a', -1)], skip=1)`,
	},
}

// reads are the other operations that read.
var reads = []operation{
	{
		"aggregate",
		func(ctx context.Context, m mooring) error {
			return m.aggregate(ctx, client.AggregateOptions{Pipeline: list(match)})
		},
		func(ctx context.Context, o official) error {
			return o.aggregate(ctx, match, options.Aggregate())
		},
		`list(c.aggregate([{'$match': {'a': {'$gt': 0}}}]))`,
	},
	{
		"aggregate in batches with options",
		func(ctx context.Context, m mooring) error {
			return m.aggregate(ctx, client.AggregateOptions{
				Pipeline: list(match), BatchSize: new(int32(2)), AllowDiskUse: new(true),
				Collation: d(`{"locale": "en"}`), Hint: value(`{"_id": 1}`),
				Let: d(`{"x": 1}`), Common: client.Common{Comment: text("why")},
				BypassDocumentValidation: new(true),
			})
		},
		func(ctx context.Context, o official) error {
			return o.aggregate(ctx, match, options.Aggregate().SetBatchSize(2).
				SetAllowDiskUse(true).SetCollation(&options.Collation{Locale: "en"}).
				SetHint(od(`{"_id": 1}`)).SetLet(od(`{"x": 1}`)).SetComment("why").
				SetBypassDocumentValidation(true))
		},
		`list(c.aggregate([{'$match': {'a': {'$gt': 0}}}], batchSize=2, allowDiskUse=True,
			collation=Collation('en'), hint={'_id': 1}, let={'x': 1}, comment='why',
			bypassDocumentValidation=True))`,
	},
	{
		"aggregate with $out",
		func(ctx context.Context, m mooring) error {
			return m.aggregate(ctx, client.AggregateOptions{Pipeline: list(out)})
		},
		func(ctx context.Context, o official) error {
			return o.aggregate(ctx, out, options.Aggregate())
		},
		`list(c.aggregate([{'$match': {}}, {'$out': 'copied'}]))`,
	},
	{
		"aggregate of a database",
		func(ctx context.Context, m mooring) error {
			cur, err := m.Aggregate(ctx, client.Namespace{Database: "admin"},
				client.AggregateOptions{Pipeline: list(`[{"$listLocalSessions": {}}]`)})
			if err != nil {
				return err
			}
			return drain(ctx, cur)
		},
		func(ctx context.Context, o official) error {
			cur, err := o.db.Client().Database("admin").Aggregate(ctx,
				olist(`[{"$listLocalSessions": {}}]`))
			if err != nil {
				return err
			}
			return cur.All(ctx, new([]obson.Raw))
		},
		`list(client.admin.aggregate([{'$listLocalSessions': {}}]))`,
	},
	{
		"countDocuments",
		func(ctx context.Context, m mooring) error {
			_, err := m.CountDocuments(ctx, ns, client.CountDocumentsOptions{
				Filter: d(`{"a": 1}`),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.CountDocuments(ctx, od(`{"a": 1}`))
			return err
		},
		`c.count_documents({'a': 1})`,
	},
	{
		"countDocuments with options",
		func(ctx context.Context, m mooring) error {
			_, err := m.CountDocuments(ctx, ns, client.CountDocumentsOptions{
				Skip: new(int64(1)), Limit: new(int64(2)), Hint: text("_id_"),
				Collation: d(`{"locale": "en"}`),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.CountDocuments(ctx, od(`{}`), options.Count().SetSkip(1).SetLimit(2).
				SetHint("_id_").SetCollation(&options.Collation{Locale: "en"}))
			return err
		},
		`c.count_documents({}, skip=1, limit=2, hint='_id_', collation=Collation('en'))`,
	},
	{
		"estimatedDocumentCount",
		func(ctx context.Context, m mooring) error {
			_, err := m.EstimatedDocumentCount(ctx, ns, client.EstimatedDocumentCountOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.EstimatedDocumentCount(ctx)
			return err
		},
		`c.estimated_document_count()`,
	},
	{
		"distinct",
		func(ctx context.Context, m mooring) error {
			_, err := m.Distinct(ctx, ns, "a", client.DistinctOptions{
				Filter: d(`{"_id": {"$gt": 0}}`), Collation: d(`{"locale": "en"}`),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.c.Distinct(ctx, "a", od(`{"_id": {"$gt": 0}}`), options.Distinct().
				SetCollation(&options.Collation{Locale: "en"})).Err()
		},
		`c.distinct('a', {'_id': {'$gt': 0}}, collation=Collation('en'))`,
	},
	{
		"distinct without a filter",
		func(ctx context.Context, m mooring) error {
			_, err := m.Distinct(ctx, ns, "a", client.DistinctOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.c.Distinct(ctx, "a", od(`{}`)).Err()
		},
		`c.distinct('a')`,
	},
}

const (
	match = `[{"$match": {"a": {"$gt": 0}}}]`
	out   = `[{"$match": {}}, {"$out": "copied"}]`
)
