package wire_test

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
)

// writes are inserts, updates, deletions and bulk writes.
var writes = []operation{
	{
		"insertOne",
		func(ctx context.Context, m mooring) error {
			_, err := m.InsertOne(ctx, ns, d(`{"_id": 10, "a": 1}`), client.InsertOneOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.InsertOne(ctx, od(`{"_id": 10, "a": 1}`))
			return err
		},
		`c.insert_one({'_id': 10, 'a': 1})`,
	},
	{
		"insertOne without an _id",
		func(ctx context.Context, m mooring) error {
			_, err := m.InsertOne(ctx, ns, d(`{"a": 1}`), client.InsertOneOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.InsertOne(ctx, od(`{"a": 1}`))
			return err
		},
		`c.insert_one({'a': 1})`,
	},
	{
		"insertOne without validation",
		func(ctx context.Context, m mooring) error {
			_, err := m.InsertOne(ctx, ns, d(`{"_id": 10}`), client.InsertOneOptions{
				BypassDocumentValidation: new(true),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.InsertOne(ctx, od(`{"_id": 10}`),
				options.InsertOne().SetBypassDocumentValidation(true))
			return err
		},
		`c.insert_one({'_id': 10}, bypass_document_validation=True)`,
	},
	{
		"insertOne with a write concern",
		func(ctx context.Context, m mooring) error {
			_, err := m.InsertOne(ctx, ns, d(`{"_id": 10}`), client.InsertOneOptions{
				Common: client.Common{WriteConcern: &client.WriteConcern{
					Tag: "majority", Journal: new(true),
				}},
			})
			return err
		},
		func(ctx context.Context, o official) error {
			wc := writeconcern.Majority()
			wc.Journal = new(true)
			c := o.c.Clone(options.Collection().SetWriteConcern(wc))
			_, err := c.InsertOne(ctx, od(`{"_id": 10}`))
			return err
		},
		`c.with_options(write_concern=WriteConcern('majority', j=True)).insert_one({'_id': 10})`,
	},
	{
		"insertOne without acknowledgement",
		func(ctx context.Context, m mooring) error {
			_, err := m.InsertOne(ctx, ns, d(`{"_id": 10}`), client.InsertOneOptions{
				Common: client.Common{WriteConcern: &client.WriteConcern{Nodes: new(int32(0))}},
			})
			return err
		},
		func(ctx context.Context, o official) error {
			c := o.c.Clone(options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
			_, err := c.InsertOne(ctx, od(`{"_id": 10}`))
			return err
		},
		`c.with_options(write_concern=WriteConcern(0)).insert_one({'_id': 10})`,
	},
	{
		"insertMany",
		func(ctx context.Context, m mooring) error {
			_, err := m.InsertMany(ctx, ns, []bson.Raw{d(`{"_id": 10}`), d(`{"_id": 11}`)},
				client.InsertManyOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.InsertMany(ctx, []any{od(`{"_id": 10}`), od(`{"_id": 11}`)})
			return err
		},
		`c.insert_many([{'_id': 10}, {'_id': 11}])`,
	},
	{
		"insertMany, unordered, one a duplicate",
		func(ctx context.Context, m mooring) error {
			_, err := m.InsertMany(ctx, ns, []bson.Raw{d(`{"_id": 1}`), d(`{"_id": 11}`)},
				client.InsertManyOptions{Ordered: new(false)})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.InsertMany(ctx, []any{od(`{"_id": 1}`), od(`{"_id": 11}`)},
				options.InsertMany().SetOrdered(false))
			return err
		},
		`c.insert_many([{'_id': 1}, {'_id': 11}], ordered=False)`,
	},
	{
		"updateOne",
		func(ctx context.Context, m mooring) error {
			_, err := m.UpdateOne(ctx, ns, d(`{"_id": 1}`), value(set), client.UpdateOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.UpdateOne(ctx, od(`{"_id": 1}`), od(set))
			return err
		},
		`c.update_one({'_id': 1}, {'$set': {'a': 9}})`,
	},
	{
		"updateOne, an upsert with a collation and a hint",
		func(ctx context.Context, m mooring) error {
			_, err := m.UpdateOne(ctx, ns, d(`{"_id": 20}`), value(set), client.UpdateOptions{
				Upsert: new(true), Collation: d(`{"locale": "en"}`), Hint: text("_id_"),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.UpdateOne(ctx, od(`{"_id": 20}`), od(set), options.UpdateOne().
				SetUpsert(true).SetCollation(&options.Collation{Locale: "en"}).SetHint("_id_"))
			return err
		},
		`c.update_one({'_id': 20}, {'$set': {'a': 9}}, upsert=True, collation=Collation('en'),
			hint='_id_')`,
	},
	{
		"updateOne with array filters",
		func(ctx context.Context, m mooring) error {
			_, err := m.UpdateOne(ctx, ns, d(`{"_id": 1}`), value(`{"$set": {"l.$[x]": 1}}`),
				client.UpdateOptions{ArrayFilters: list(`[{"x": 2}]`)})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.UpdateOne(ctx, od(`{"_id": 1}`), od(`{"$set": {"l.$[x]": 1}}`),
				options.UpdateOne().SetArrayFilters([]any{od(`{"x": 2}`)}))
			return err
		},
		`c.update_one({'_id': 1}, {'$set': {'l.$[x]': 1}}, array_filters=[{'x': 2}])`,
	},
	{
		"updateOne with a pipeline",
		func(ctx context.Context, m mooring) error {
			_, err := m.UpdateOne(ctx, ns, d(`{"_id": 1}`),
				bson.ArrayValue(list(`[{"$set": {"a": 9}}]`)), client.UpdateOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.UpdateOne(ctx, od(`{"_id": 1}`), olist(`[{"$set": {"a": 9}}]`))
			return err
		},
		`c.update_one({'_id': 1}, [{'$set': {'a': 9}}])`,
	},
	{
		"updateOne with let, a sort and a comment",
		func(ctx context.Context, m mooring) error {
			_, err := m.UpdateOne(ctx, ns, d(`{}`), value(set), client.UpdateOptions{
				Let: d(`{"x": 1}`), Sort: d(`{"a": 1}`),
				Common: client.Common{Comment: text("why")},
			})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.UpdateOne(ctx, od(`{}`), od(set), options.UpdateOne().
				SetLet(od(`{"x": 1}`)).SetSort(od(`{"a": 1}`)).SetComment("why"))
			return err
		},
		"",
	},
	{
		"updateMany",
		func(ctx context.Context, m mooring) error {
			_, err := m.UpdateMany(ctx, ns, d(`{"a": {"$gt": 1}}`), value(set),
				client.UpdateOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.UpdateMany(ctx, od(`{"a": {"$gt": 1}}`), od(set))
			return err
		},
		`c.update_many({'a': {'$gt': 1}}, {'$set': {'a': 9}})`,
	},
	{
		"replaceOne",
		func(ctx context.Context, m mooring) error {
			_, err := m.ReplaceOne(ctx, ns, d(`{"_id": 30}`), d(`{"b": 1}`), client.UpdateOptions{
				Upsert: new(true), BypassDocumentValidation: new(true),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.ReplaceOne(ctx, od(`{"_id": 30}`), od(`{"b": 1}`), options.Replace().
				SetUpsert(true).SetBypassDocumentValidation(true))
			return err
		},
		`c.replace_one({'_id': 30}, {'b': 1}, upsert=True, bypass_document_validation=True)`,
	},
	{
		"deleteOne",
		func(ctx context.Context, m mooring) error {
			_, err := m.DeleteOne(ctx, ns, d(`{"_id": 1}`), client.DeleteOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.DeleteOne(ctx, od(`{"_id": 1}`))
			return err
		},
		`c.delete_one({'_id': 1})`,
	},
	{
		"deleteMany with a collation and a hint",
		func(ctx context.Context, m mooring) error {
			_, err := m.DeleteMany(ctx, ns, d(`{}`), client.DeleteOptions{
				Collation: d(`{"locale": "en"}`), Hint: value(`{"_id": 1}`),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.DeleteMany(ctx, od(`{}`), options.DeleteMany().
				SetCollation(&options.Collation{Locale: "en"}).SetHint(od(`{"_id": 1}`)))
			return err
		},
		`c.delete_many({}, collation=Collation('en'), hint=[('_id', 1)])`,
	},
	{
		"bulkWrite of every kind",
		func(ctx context.Context, m mooring) error {
			_, err := m.BulkWrite(ctx, ns, models, client.BulkWriteOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.BulkWrite(ctx, officialModels)
			return err
		},
		`c.bulk_write(models)`,
	},
	{
		"bulkWrite, unordered",
		func(ctx context.Context, m mooring) error {
			_, err := m.BulkWrite(ctx, ns, models, client.BulkWriteOptions{Ordered: new(false)})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.BulkWrite(ctx, officialModels, options.BulkWrite().SetOrdered(false))
			return err
		},
		`c.bulk_write(models, ordered=False)`,
	},
	{
		"bulkWrite without acknowledgement",
		func(ctx context.Context, m mooring) error {
			_, err := m.BulkWrite(ctx, ns, models[:1], client.BulkWriteOptions{
				Common: client.Common{WriteConcern: &client.WriteConcern{Nodes: new(int32(0))}},
			})
			return err
		},
		func(ctx context.Context, o official) error {
			c := o.c.Clone(options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
			_, err := c.BulkWrite(ctx, officialModels[:1])
			return err
		},
		`c.with_options(write_concern=WriteConcern(0)).bulk_write(models[:1])`,
	},
	{
		"findOneAndDelete",
		func(ctx context.Context, m mooring) error {
			_, err := m.FindOneAndDelete(ctx, ns, d(`{"a": 1}`), client.FindOneAndOptions{
				Sort: d(`{"_id": 1}`), Projection: d(`{"a": 1}`),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.c.FindOneAndDelete(ctx, od(`{"a": 1}`), options.FindOneAndDelete().
				SetSort(od(`{"_id": 1}`)).SetProjection(od(`{"a": 1}`))).Err()
		},
		`c.find_one_and_delete({'a': 1}, sort=[('_id', 1)], projection={'a': 1})`,
	},
	{
		"findOneAndReplace",
		func(ctx context.Context, m mooring) error {
			_, err := m.FindOneAndReplace(ctx, ns, d(`{"_id": 1}`), d(`{"b": 1}`),
				client.FindOneAndOptions{ReturnDocument: client.ReturnAfter})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.c.FindOneAndReplace(ctx, od(`{"_id": 1}`), od(`{"b": 1}`),
				options.FindOneAndReplace().SetReturnDocument(options.After)).Err()
		},
		`c.find_one_and_replace({'_id': 1}, {'b': 1}, return_document=ReturnDocument.AFTER)`,
	},
	{
		"findOneAndUpdate with options",
		func(ctx context.Context, m mooring) error {
			_, err := m.FindOneAndUpdate(ctx, ns, d(`{"_id": 40}`), value(set),
				client.FindOneAndOptions{
					ReturnDocument: client.ReturnAfter, Upsert: new(true), Hint: text("_id_"),
					Collation: d(`{"locale": "en"}`),
				})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.c.FindOneAndUpdate(ctx, od(`{"_id": 40}`), od(set),
				options.FindOneAndUpdate().SetReturnDocument(options.After).SetUpsert(true).
					SetHint("_id_").SetCollation(&options.Collation{Locale: "en"})).Err()
		},
		`c.find_one_and_update({'_id': 40}, {'$set': {'a': 9}}, upsert=True, hint='_id_',
			return_document=ReturnDocument.AFTER, collation=Collation('en'))`,
	},
}

const set = `{"$set": {"a": 9}}`

// models are those of the bulk writes; the script of pymongo has the same.
var models = []client.WriteModel{
	{Kind: client.InsertOne, Document: d(`{"_id": 50}`)},
	{Kind: client.InsertOne, Document: d(`{"_id": 51}`)},
	{Kind: client.UpdateOne, Filter: d(`{"_id": 50}`), Update: value(set)},
	{Kind: client.ReplaceOne, Filter: d(`{"_id": 51}`), Document: d(`{"b": 1}`)},
	{Kind: client.UpdateMany, Filter: d(`{"a": 1}`), Update: value(set)},
	{Kind: client.DeleteOne, Filter: d(`{"_id": 51}`)},
	{Kind: client.DeleteMany, Filter: d(`{"a": 9}`)},
}

var officialModels = []mongo.WriteModel{
	mongo.NewInsertOneModel().SetDocument(od(`{"_id": 50}`)),
	mongo.NewInsertOneModel().SetDocument(od(`{"_id": 51}`)),
	mongo.NewUpdateOneModel().SetFilter(od(`{"_id": 50}`)).SetUpdate(od(set)),
	mongo.NewReplaceOneModel().SetFilter(od(`{"_id": 51}`)).SetReplacement(od(`{"b": 1}`)),
	mongo.NewUpdateManyModel().SetFilter(od(`{"a": 1}`)).SetUpdate(od(set)),
	mongo.NewDeleteOneModel().SetFilter(od(`{"_id": 51}`)),
	mongo.NewDeleteManyModel().SetFilter(od(`{"a": 9}`)),
}
