package wire_test

import (
	"context"
	"errors"

	obson "go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/changestream"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/session"
)

// disturbed are the operations of TestSameAttempts beside those of plainly.
var disturbed = []operation{
	{
		"bulkWrite of single documents",
		func(ctx context.Context, m mooring) error {
			_, err := m.BulkWrite(ctx, ns, []client.WriteModel{
				{Kind: client.InsertOne, Document: d(`{"_id": 50}`)},
				{Kind: client.UpdateOne, Filter: d(`{"_id": 1}`), Update: value(set)},
				{Kind: client.DeleteOne, Filter: d(`{"_id": 2}`)},
			}, client.BulkWriteOptions{})
			return err
		},
		func(ctx context.Context, o official) error {
			_, err := o.c.BulkWrite(ctx, []mongo.WriteModel{
				mongo.NewInsertOneModel().SetDocument(od(`{"_id": 50}`)),
				mongo.NewUpdateOneModel().SetFilter(od(`{"_id": 1}`)).SetUpdate(od(set)),
				mongo.NewDeleteOneModel().SetFilter(od(`{"_id": 2}`)),
			})
			return err
		},
		`c.bulk_write([InsertOne({'_id': 50}), UpdateOne({'_id': 1}, {'$set': {'a': 9}}),
			DeleteOne({'_id': 2})])`,
	},
	{
		"a transaction that is committed",
		func(ctx context.Context, m mooring) error {
			return m.transaction(ctx, (*client.Session).CommitTransaction)
		},
		func(ctx context.Context, o official) error {
			return o.transaction(ctx, (*mongo.Session).CommitTransaction)
		},
		transaction + "    s.commit_transaction()\n",
	},
	{
		"a transaction that is aborted",
		func(ctx context.Context, m mooring) error {
			return m.transaction(ctx, (*client.Session).AbortTransaction)
		},
		func(ctx context.Context, o official) error {
			return o.transaction(ctx, (*mongo.Session).AbortTransaction)
		},
		transaction + "    s.abort_transaction()\n",
	},
	{
		"withTransaction",
		func(ctx context.Context, m mooring) error {
			s, err := m.StartSession(session.Options{})
			if err != nil {
				return err
			}
			defer s.End(ctx)
			return s.WithTransaction(ctx, client.WithTransactionOptions{},
				func(ctx context.Context) error { return m.transfer(ctx, s) })
		},
		func(ctx context.Context, o official) error {
			s, err := o.db.Client().StartSession()
			if err != nil {
				return err
			}
			defer s.EndSession(ctx)
			_, err = s.WithTransaction(ctx, func(ctx context.Context) (any, error) {
				return nil, o.transfer(ctx)
			})
			return err
		},
		`
def both(s):
    c.insert_one({'_id': 60}, session=s)
    c.update_one({'_id': 1}, {'$set': {'a': 9}}, session=s)
with client.start_session() as s:
    s.with_transaction(both)
`,
	},
	{
		"watch",
		func(ctx context.Context, m mooring) error {
			s, err := m.Watch(ctx, ns, client.WatchOptions{})
			if err != nil {
				return err
			}
			return errors.Join(m.follow(ctx, s, 70, 71), s.Close(ctx))
		},
		func(ctx context.Context, o official) error {
			s, err := o.c.Watch(ctx, mongo.Pipeline{})
			if err != nil {
				return err
			}
			return errors.Join(o.follow(ctx, s, 70, 71), s.Close(ctx))
		},
		`
with c.watch() as s:
    for i in (70, 71):
        c.insert_one({'_id': i})
        s.next()
`,
	},
	{
		"watch, started after an event",
		func(ctx context.Context, m mooring) error {
			s, err := m.Watch(ctx, ns, client.WatchOptions{})
			if err != nil {
				return err
			}
			if err := errors.Join(m.follow(ctx, s, 80), s.Close(ctx)); err != nil {
				return err
			}
			s, err = m.Watch(ctx, ns, client.WatchOptions{StartAfter: s.ResumeToken().Clone()})
			if err != nil {
				return err
			}
			return errors.Join(m.follow(ctx, s, 81, 82), s.Close(ctx))
		},
		func(ctx context.Context, o official) error {
			s, err := o.c.Watch(ctx, mongo.Pipeline{})
			if err != nil {
				return err
			}
			if err := errors.Join(o.follow(ctx, s, 80), s.Close(ctx)); err != nil {
				return err
			}
			s, err = o.c.Watch(ctx, mongo.Pipeline{},
				options.ChangeStream().SetStartAfter(s.ResumeToken()))
			if err != nil {
				return err
			}
			return errors.Join(o.follow(ctx, s, 81, 82), s.Close(ctx))
		},
		`
with c.watch() as s:
    c.insert_one({'_id': 80})
    s.next()
    token = s.resume_token
with c.watch(start_after=token) as s:
    for i in (81, 82):
        c.insert_one({'_id': i})
        s.next()
`,
	},
}

// transaction begins the script of a transaction for pymongo.
const transaction = `
with client.start_session() as s:
    s.start_transaction()
    c.insert_one({'_id': 60}, session=s)
    c.update_one({'_id': 1}, {'$set': {'a': 9}}, session=s)
`

// transfer makes the writes of a transaction.
func (m mooring) transfer(ctx context.Context, s *client.Session) error {
	in := client.Common{Session: s}
	_, err := m.InsertOne(ctx, ns, d(`{"_id": 60}`), client.InsertOneOptions{Common: in})
	if err == nil {
		_, err = m.UpdateOne(ctx, ns, d(`{"_id": 1}`), value(set), client.UpdateOptions{Common: in})
	}
	return err
}

func (m mooring) transaction(
	ctx context.Context,
	end func(*client.Session, context.Context, client.EndTransactionOptions) error,
) error {
	s, err := m.StartSession(session.Options{})
	if err != nil {
		return err
	}
	defer s.End(ctx)
	if err := s.StartTransaction(client.TransactionOptions{}); err != nil {
		return err
	}
	if err := m.transfer(ctx, s); err != nil {
		return err
	}
	return end(s, ctx, client.EndTransactionOptions{})
}

// follow inserts documents, and reads the event of each.
func (m mooring) follow(ctx context.Context, s *changestream.Stream, ids ...int32) error {
	for _, id := range ids {
		doc := bson.NewBuilder(nil).Int32("_id", id).Finish()
		if _, err := m.InsertOne(ctx, ns, doc, client.InsertOneOptions{}); err != nil {
			return err
		}
		if _, err := s.Next(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (o official) transfer(ctx context.Context) error {
	_, err := o.c.InsertOne(ctx, od(`{"_id": 60}`))
	if err == nil {
		_, err = o.c.UpdateOne(ctx, od(`{"_id": 1}`), od(set))
	}
	return err
}

func (o official) transaction(
	ctx context.Context, end func(*mongo.Session, context.Context) error,
) error {
	s, err := o.db.Client().StartSession()
	if err != nil {
		return err
	}
	defer s.EndSession(ctx)
	if err := s.StartTransaction(); err != nil {
		return err
	}
	in := mongo.NewSessionContext(ctx, s)
	if err := o.transfer(in); err != nil {
		return err
	}
	return end(s, in)
}

func (o official) follow(ctx context.Context, s *mongo.ChangeStream, ids ...int32) error {
	for _, id := range ids {
		if _, err := o.c.InsertOne(ctx, obson.D{{Key: "_id", Value: id}}); err != nil {
			return err
		}
		if !s.Next(ctx) {
			return s.Err()
		}
	}
	return nil
}
