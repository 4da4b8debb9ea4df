package wire_test

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mooringdb/mooring/core/client"
)

var others = client.Namespace{Database: database, Collection: "others"}

// bulks are bulk writes of a client, which write to several collections.
var bulks = []operation{
	{
		"clientBulkWrite of every kind",
		func(ctx context.Context, m mooring) error {
			return m.bulk(ctx, everyKind, client.NamespacedBulkWriteOptions{})
		},
		func(ctx context.Context, o official) error {
			return o.bulk(ctx, officialEveryKind, options.ClientBulkWrite())
		},
		"",
	},
	{
		"clientBulkWrite that can be repeated",
		func(ctx context.Context, m mooring) error {
			return m.bulk(ctx, everyKind[:3], client.NamespacedBulkWriteOptions{})
		},
		func(ctx context.Context, o official) error {
			return o.bulk(ctx, officialEveryKind[:3], options.ClientBulkWrite())
		},
		"",
	},
	{
		"clientBulkWrite, unordered, with all options",
		func(ctx context.Context, m mooring) error {
			return m.bulk(ctx, everyKind, client.NamespacedBulkWriteOptions{
				Common: client.Common{
					Comment: text("why"), WriteConcern: &client.WriteConcern{Tag: "majority"},
				},
				Ordered: new(false), BypassDocumentValidation: new(true),
				Let: d(`{"x": 1}`), VerboseResults: new(true),
			})
		},
		func(ctx context.Context, o official) error {
			return o.bulk(ctx, officialEveryKind, options.ClientBulkWrite().SetComment("why").
				SetWriteConcern(writeconcern.Majority()).SetOrdered(false).
				SetBypassDocumentValidation(true).SetLet(od(`{"x": 1}`)).SetVerboseResults(true))
		},
		"",
	},
	{
		"clientBulkWrite with the options of its writes",
		func(ctx context.Context, m mooring) error {
			return m.bulk(ctx, []client.NamespacedWriteModel{
				{Namespace: ns, WriteModel: client.WriteModel{
					Kind: client.UpdateOne, Filter: d(`{"_id": 21}`), Update: value(set),
					Upsert: new(true), Collation: d(`{"locale": "en"}`), Hint: text("_id_"),
					Sort: d(`{"a": 1}`),
				}},
				{Namespace: ns, WriteModel: client.WriteModel{
					Kind: client.UpdateMany, Filter: d(`{"_id": 1}`),
					Update: value(`{"$set": {"l.$[x]": 1}}`), ArrayFilters: list(`[{"x": 2}]`),
				}},
				{Namespace: ns, WriteModel: client.WriteModel{
					Kind: client.DeleteOne, Filter: d(`{"_id": 1}`), Hint: value(`{"_id": 1}`),
					Collation: d(`{"locale": "en"}`),
				}},
			}, client.NamespacedBulkWriteOptions{})
		},
		func(ctx context.Context, o official) error {
			en := &options.Collation{Locale: "en"}
			return o.bulk(ctx, []mongo.ClientBulkWrite{
				officialTo(things, mongo.NewClientUpdateOneModel().SetFilter(od(`{"_id": 21}`)).
					SetUpdate(od(set)).SetUpsert(true).SetCollation(en).SetHint("_id_").
					SetSort(od(`{"a": 1}`))),
				officialTo(things, mongo.NewClientUpdateManyModel().SetFilter(od(`{"_id": 1}`)).
					SetUpdate(od(`{"$set": {"l.$[x]": 1}}`)).
					SetArrayFilters([]any{od(`{"x": 2}`)})),
				officialTo(things, mongo.NewClientDeleteOneModel().SetFilter(od(`{"_id": 1}`)).
					SetHint(od(`{"_id": 1}`)).SetCollation(en)),
			}, options.ClientBulkWrite())
		},
		"",
	},
	{
		"clientBulkWrite of a document without an _id",
		func(ctx context.Context, m mooring) error {
			return m.bulk(ctx, []client.NamespacedWriteModel{inserted(ns, `{"a": 1}`)},
				client.NamespacedBulkWriteOptions{})
		},
		func(ctx context.Context, o official) error {
			model := mongo.NewClientInsertOneModel().SetDocument(od(`{"a": 1}`))
			return o.bulk(ctx, []mongo.ClientBulkWrite{officialTo(things, model)},
				options.ClientBulkWrite())
		},
		"",
	},
	{
		"clientBulkWrite without acknowledgement",
		func(ctx context.Context, m mooring) error {
			return m.bulk(ctx, everyKind, client.NamespacedBulkWriteOptions{
				Common:  client.Common{WriteConcern: &client.WriteConcern{Nodes: new(int32(0))}},
				Ordered: new(false),
			})
		},
		func(ctx context.Context, o official) error {
			return o.bulk(ctx, officialEveryKind, options.ClientBulkWrite().SetOrdered(false).
				SetWriteConcern(writeconcern.Unacknowledged()))
		},
		"",
	},
}

// everyKind has a write of each kind, on two collections. The first three can be repeated.
var everyKind = []client.NamespacedWriteModel{
	inserted(ns, `{"_id": 30}`),
	{Namespace: others, WriteModel: client.WriteModel{
		Kind: client.ReplaceOne, Filter: d(`{"_id": 2}`), Document: d(`{"a": 7}`),
	}},
	{Namespace: ns, WriteModel: client.WriteModel{
		Kind: client.UpdateOne, Filter: d(`{"_id": 1}`), Update: value(set),
	}},
	{Namespace: ns, WriteModel: client.WriteModel{
		Kind: client.UpdateMany, Filter: d(`{"a": 1}`), Update: value(set),
	}},
	{Namespace: others, WriteModel: client.WriteModel{
		Kind: client.DeleteOne, Filter: d(`{"_id": 3}`),
	}},
	{Namespace: ns, WriteModel: client.WriteModel{
		Kind: client.DeleteMany, Filter: d(`{"a": 2}`),
	}},
}

var officialEveryKind = []mongo.ClientBulkWrite{
	officialTo(things, mongo.NewClientInsertOneModel().SetDocument(od(`{"_id": 30}`))),
	officialTo("others", mongo.NewClientReplaceOneModel().SetFilter(od(`{"_id": 2}`)).
		SetReplacement(od(`{"a": 7}`))),
	officialTo(things, mongo.NewClientUpdateOneModel().SetFilter(od(`{"_id": 1}`)).
		SetUpdate(od(set))),
	officialTo(things, mongo.NewClientUpdateManyModel().SetFilter(od(`{"a": 1}`)).
		SetUpdate(od(set))),
	officialTo("others", mongo.NewClientDeleteOneModel().SetFilter(od(`{"_id": 3}`))),
	officialTo(things, mongo.NewClientDeleteManyModel().SetFilter(od(`{"a": 2}`))),
}

func inserted(ns client.Namespace, document string) client.NamespacedWriteModel {
	return client.NamespacedWriteModel{
		Namespace: ns, WriteModel: client.WriteModel{Kind: client.InsertOne, Document: d(document)},
	}
}

func officialTo(collection string, model mongo.ClientWriteModel) mongo.ClientBulkWrite {
	return mongo.ClientBulkWrite{Database: database, Collection: collection, Model: model}
}

func (m mooring) bulk(
	ctx context.Context, models []client.NamespacedWriteModel,
	opt client.NamespacedBulkWriteOptions,
) error {
	_, err := m.ClientBulkWrite(ctx, models, opt)
	return err
}

func (o official) bulk(
	ctx context.Context, models []mongo.ClientBulkWrite,
	opt options.Lister[options.ClientBulkWriteOptions],
) error {
	_, err := o.db.Client().BulkWrite(ctx, slices.Clone(models), opt)
	return err
}
