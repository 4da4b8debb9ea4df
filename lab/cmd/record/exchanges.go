package main

import (
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// exchange describes one command; its name is the title in the recorded file.
type exchange struct {
	name      string
	command   func(cursor int64) bson.D
	query     bool     // as OP_QUERY
	documents []bson.D // a document sequence beside the command
}

const database = "mooring_recorded"

// plain makes an exchange of a command in the database.
func plain(name string, command bson.D) exchange {
	return exchange{name: name, command: func(int64) bson.D { return in(database, command) }}
}

func in(database string, command bson.D) bson.D {
	return append(command, bson.E{Key: "$db", Value: database})
}

// exchanges returns what is recorded, in this order: later commands build on earlier ones.
func exchanges() []exchange {
	object := func(pairs ...any) bson.D {
		d := bson.D{}
		for i := 0; i < len(pairs); i += 2 {
			d = append(d, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
		}
		return d
	}
	things := []bson.D{
		object("_id", 1, "n", "one"), object("_id", 2, "n", "two"),
		object("_id", 3, "n", "three"),
	}
	double := []bson.D{object("_id", 3), object("_id", 4), object("_id", 1)}
	hello := func(name string) exchange {
		return exchange{name: name, command: func(int64) bson.D {
			return in("admin", object(name, 1))
		}}
	}
	all := []exchange{
		{name: "isMaster over OP_QUERY", query: true, command: func(int64) bson.D {
			return object("isMaster", 1, "helloOk", true)
		}},
		hello("hello"),
		hello("isMaster"),
		plain("ping", object("ping", 1)),
		plain("drop what may be there", object("drop", "things")),
		plain("a collection that is not there", object("drop", "nothing")),
		{name: "insert a sequence", documents: things, command: func(int64) bson.D {
			return in(database, object("insert", "things", "ordered", true))
		}},
		plain("insert a duplicate", object("insert", "things", "documents", bson.A{things[0]})),
		{name: "insert duplicates, unordered", documents: double, command: func(int64) bson.D {
			return in(database, object("insert", "things", "ordered", false))
		}},
		plain("find, first batch",
			object("find", "things", "sort", object("_id", 1), "batchSize", int32(2))),
		{name: "getMore", command: func(cursor int64) bson.D {
			return in(database,
				object("getMore", cursor, "collection", "things", "batchSize", int32(1)))
		}},
		{name: "killCursors", command: func(cursor int64) bson.D {
			return in(database, object("killCursors", "things", "cursors", bson.A{cursor}))
		}},
		{name: "getMore of a killed cursor", command: func(cursor int64) bson.D {
			return in(database, object("getMore", cursor, "collection", "things"))
		}},
		plain("find nothing", object("find", "things", "filter", object("_id", 99))),
		plain("find, single batch",
			object("find", "things", "limit", int32(1), "singleBatch", true)),
		plain("count", object("count", "things")),
		plain("distinct", object("distinct", "things", "key", "n", "query", object())),
		plain("aggregate", object("aggregate", "things", "cursor", object(),
			"pipeline", bson.A{
				object("$match", object("_id", object("$gt", 1))),
				object("$sort", object("_id", -1)),
			})),
		plain("update", object("update", "things",
			"updates", bson.A{
				object("q", object("_id", 1), "u", object("$set", object("n", "ONE"))),
			})),
		plain("upsert", object("update", "things",
			"updates", bson.A{
				object("q", object("_id", 9), "u", object("$set", object("n", "nine")), "upsert",
					true),
			})),
		plain("findAndModify",
			object("findAndModify", "things", "query", object("_id", 9), "remove", true)),
		plain("findAndModify of nothing",
			object("findAndModify", "things", "query", object("_id", 9), "remove", true)),
		plain("delete", object("delete", "things", "deletes", bson.A{
			object("q", object("_id", 4), "limit", int32(1)),
		})),
		plain("createIndexes", object("createIndexes", "things",
			"indexes", bson.A{object("key", object("n", 1), "name", "n_1", "unique", true)})),
		plain("update to a duplicate", object("update", "things",
			"updates", bson.A{
				object("q", object("_id", 2), "u", object("$set", object("n", "ONE"))),
			})),
		plain("listIndexes", object("listIndexes", "things")),
		plain("listIndexes of nothing", object("listIndexes", "nothing")),
		plain("listCollections", object("listCollections", 1, "nameOnly", true)),
		plain("an unknown command", object("mooring", 1)),
		plain("an unknown operator",
			object("find", "things", "filter", object("n", object("$mooring", 1)))),
		plain("an unknown update operator", object("update", "things",
			"updates", bson.A{object("q", object(), "u", object("$mooring", object("n", 1)))})),
		plain("a field of a wrong type", object("find", "things", "filter", "everything")),
		plain("a negative batchSize", object("find", "things", "batchSize", int32(-1))),
		plain("an invalid namespace", object("find", "")),
		plain("insert no document", object("insert", "things", "documents", bson.A{})),
		plain("w: 3", object("insert", "things", "documents", bson.A{object("_id", 50)},
			"writeConcern", object("w", int32(3)))),
		plain("saslStart of no mechanism",
			object("saslStart", 1, "mechanism", "NONE", "payload", bson.Binary{})),
		plain("commit without a transaction", object("commitTransaction", 1)),
	}
	for _, v := range values() {
		all = append(all,
			plain("insert "+v.name, object("insert", "values", "documents", bson.A{
				object("_id", v.name, "v", v.value),
			})),
			plain("find "+v.name,
				object("find", "values", "filter", object("_id", v.name), "limit", int32(1))))
	}
	return append(all, plain("dropDatabase", object("dropDatabase", 1)))
}

type named struct {
	name  string
	value any
}

// values has a value of each BSON type that a collection may hold.
func values() []named {
	decimal, _ := bson.ParseDecimal128("12.50") // cannot fail
	return []named{
		{"a double", 1.5},
		{"infinity", math.Inf(-1)},
		{"NaN", math.NaN()},
		{"a string", "déjà vu €😀"},
		{"a document", bson.D{{Key: "a", Value: bson.D{{Key: "b", Value: int32(1)}}}}},
		{"an array", bson.A{int32(1), "two", bson.D{{Key: "three", Value: 3.0}}}},
		{"nested arrays", bson.A{bson.A{int32(1)}, bson.A{}}},
		{"a binary", bson.Binary{Subtype: 0x80, Data: []byte{1, 2, 3}}},
		{"a UUID", bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}},
		{"an ObjectId", bson.ObjectID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
		{"a boolean", true},
		{"a date", bson.NewDateTimeFromTime(time.Date(2026, 11, 22, 4, 5, 6, 789e6, time.UTC))},
		{"a date before 1970", bson.DateTime(-1)},
		{"null", nil},
		{"a regular expression", bson.Regex{Pattern: "^a", Options: "i"}},
		{"code", bson.JavaScript("f()")},
		{"an int32", int32(math.MinInt32)},
		{"a timestamp", bson.Timestamp{T: 1763784000, I: 7}},
		{"an int64", int64(math.MaxInt64)},
		{"a Decimal128", decimal},
		{"MinKey", bson.MinKey{}},
		{"MaxKey", bson.MaxKey{}},
	}
}
