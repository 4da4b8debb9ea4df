package wire_test

import (
	"context"

	obson "go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/selection"
)

// commands are commands as they are, lists, and changes of collections and indexes.
var commands = []operation{
	{
		"runCommand",
		func(ctx context.Context, m mooring) error {
			_, err := m.RunCommand(ctx, database, d(`{"ping": 1}`), client.RunCommandOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.db.RunCommand(ctx, od(`{"ping": 1}`)).Err()
		},
		`db.command({'ping': 1})`,
	},
	{
		"runCommand with a read preference",
		func(ctx context.Context, m mooring) error {
			_, err := m.RunCommand(ctx, database, d(`{"count": "things"}`),
				client.RunCommandOptions{Common: client.Common{
					ReadPreference: &selection.ReadPreference{Mode: selection.PrimaryPreferred},
				}})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.db.RunCommand(ctx, od(`{"count": "things"}`), options.RunCmd().
				SetReadPreference(readpref.PrimaryPreferred())).Err()
		},
		`db.command({'count': 'things'}, read_preference=ReadPreference.PRIMARY_PREFERRED)`,
	},
	{
		"runCommand of a write",
		func(ctx context.Context, m mooring) error {
			_, err := m.RunCommand(ctx, database,
				d(`{"insert": "things", "documents": [{"_id": 60}]}`), client.RunCommandOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			return o.db.RunCommand(ctx, od(`{"insert": "things", "documents": [{"_id": 60}]}`)).
				Err()
		},
		`db.command({'insert': 'things', 'documents': [{'_id': 60}]})`,
	},
	{
		"runCursorCommand",
		func(ctx context.Context, m mooring) error {
			cur, err := m.RunCursorCommand(ctx, database, d(`{"find": "things", "batchSize": 2}`),
				client.RunCursorCommandOptions{BatchSize: new(int32(2))})
			if err != nil {
				return err
			}
			return drain(ctx, cur)
		},
		func(ctx context.Context, o official) error {
			cur, err := o.db.RunCommandCursor(ctx, od(`{"find": "things", "batchSize": 2}`))
			if err != nil {
				return err
			}
			cur.SetBatchSize(2)
			return cur.All(ctx, new([]obson.Raw))
		},
		"",
	},
	{
		"listDatabases",
		func(ctx context.Context, m mooring) error {
			_, err := m.ListDatabases(ctx, client.ListDatabasesOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.db.Client().ListDatabases(ctx, od(`{}`))
			return err
		},
		`list(client.list_databases())`,
	},
	{
		"listDatabases with a filter",
		func(ctx context.Context, m mooring) error {
			_, err := m.ListDatabases(ctx, client.ListDatabasesOptions{
				Filter: d(`{"name": "wire"}`), AuthorizedDatabases: new(true),
			})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.db.Client().ListDatabases(ctx, od(`{"name": "wire"}`),
				options.ListDatabases().SetAuthorizedDatabases(true))
			return err
		},
		`list(client.list_databases(filter={'name': 'wire'}, authorizedDatabases=True))`,
	},
	{
		"listDatabaseNames",
		func(ctx context.Context, m mooring) error {
			_, err := m.ListDatabaseNames(ctx, client.ListDatabasesOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.db.Client().ListDatabaseNames(ctx, od(`{}`))
			return err
		},
		`client.list_database_names()`,
	},
	{
		"listCollections",
		func(ctx context.Context, m mooring) error {
			cur, err := m.ListCollections(ctx, database, client.ListCollectionsOptions{
				Filter: d(`{"name": "things"}`),
			})
			if err != nil {
				return err
			}
			return drain(ctx, cur)
		},
		func(ctx context.Context, o official) error {
			cur, err := o.db.ListCollections(ctx, od(`{"name": "things"}`))
			if err != nil {
				return err
			}
			return cur.All(ctx, new([]obson.Raw))
		},
		`list(db.list_collections(filter={'name': 'things'}))`,
	},
	{
		"listCollectionNames",
		func(ctx context.Context, m mooring) error {
			_, err := m.ListCollectionNames(ctx, database, client.ListCollectionsOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.db.ListCollectionNames(ctx, od(`{}`))
			return err
		},
		`db.list_collection_names()`,
	},
	{
		"listIndexes",
		func(ctx context.Context, m mooring) error {
			_, err := m.ListIndexNames(ctx, ns, client.ListOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			cur, err := o.c.Indexes().List(ctx)
			if err != nil {
				return err
			}
			return cur.All(ctx, new([]obson.Raw))
		},
		`list(c.list_indexes())`,
	},
	{
		"createIndexes, two with options",
		func(ctx context.Context, m mooring) error {
			_, err := m.CreateIndexes(ctx, ns, []client.IndexModel{
				{Keys: d(`{"a": 1, "b": -1}`), Unique: new(true)},
				{Keys: d(`{"t": 1}`), Name: "t", ExpireAfterSeconds: new(int32(60))},
			}, client.CreateIndexesOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.Indexes().CreateMany(ctx, []mongo.IndexModel{
				{Keys: od(`{"a": 1, "b": -1}`), Options: options.Index().SetUnique(true)},
				{Keys: od(`{"t": 1}`), Options: options.Index().SetName("t").
					SetExpireAfterSeconds(60)},
			})
			return err
		},
		`c.create_indexes([IndexModel([('a', 1), ('b', -1)], unique=True),
			IndexModel([('t', 1)], name='t', expireAfterSeconds=60)])`,
	},
	{
		"dropIndex",
		func(ctx context.Context, m mooring) error {
			return m.DropIndex(ctx, ns, "nothing", client.ChangeOptions{})
		},
		func(ctx context.Context, o official) error {
			return o.c.Indexes().DropOne(ctx, "nothing")
		},
		`c.drop_index('nothing')`,
	},
	{
		"dropIndexes",
		func(ctx context.Context, m mooring) error {
			return m.DropIndexes(ctx, ns, client.ChangeOptions{})
		},
		func(ctx context.Context, o official) error { return o.c.Indexes().DropAll(ctx) },
		`c.drop_indexes()`,
	},
	{
		"createCollection",
		func(ctx context.Context, m mooring) error {
			return m.CreateCollection(ctx,
				client.Namespace{Database: database, Collection: "made"},
				client.CreateCollectionOptions{
					Capped: new(true), Size: new(int64(4096)), Max: new(int64(10)),
				})
		},
		func(ctx context.Context, o official) error {
			return o.db.CreateCollection(ctx, "made", options.CreateCollection().SetCapped(true).
				SetSizeInBytes(4096).SetMaxDocuments(10))
		},
		`db.create_collection('made', capped=True, size=4096, max=10)`,
	},
	{
		"collMod",
		func(ctx context.Context, m mooring) error {
			return m.ModifyCollection(ctx, ns, client.ModifyCollectionOptions{
				Validator: d(`{"a": {"$gt": 0}}`),
			})
		},
		func(ctx context.Context, o official) error {
			return o.db.RunCommand(ctx,
				od(`{"collMod": "things", "validator": {"a": {"$gt": 0}}}`)).Err()
		},
		`db.command({'collMod': 'things', 'validator': {'a': {'$gt': 0}}})`,
	},
	{
		"renameCollection",
		func(ctx context.Context, m mooring) error {
			return m.RenameCollection(ctx, ns,
				client.Namespace{Database: database, Collection: "renamed"},
				client.RenameCollectionOptions{DropTarget: new(true)})
		},
		func(ctx context.Context, o official) error {
			return o.db.Client().Database("admin").RunCommand(ctx, od(`{"renameCollection":
				"wire.things", "to": "wire.renamed", "dropTarget": true}`)).Err()
		},
		`c.rename('renamed', dropTarget=True)`,
	},
	{
		"drop",
		func(ctx context.Context, m mooring) error {
			return m.DropCollection(ctx, ns, client.ChangeOptions{})
		},
		func(ctx context.Context, o official) error { return o.c.Drop(ctx) },
		`c.drop()`,
	},
	{
		"dropDatabase",
		func(ctx context.Context, m mooring) error {
			return m.DropDatabase(ctx, "wire_other", client.ChangeOptions{})
		},
		func(ctx context.Context, o official) error {
			return o.db.Client().Database("wire_other").Drop(ctx)
		},
		`client.drop_database('wire_other')`,
	},
}
