package docdb

import (
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

type command = func(*request) (bson.Raw, error)

// commands are those that the front knows. Most are a function of the engine each.
var commands = map[string]command{
	"hello": (*request).hello, "isMaster": (*request).hello, "ismaster": (*request).hello,
	"ping":        okay,
	"endSessions": (*request).endSessions, "killAllSessions": (*request).endSessions,
	"commitTransaction": noTransaction, "abortTransaction": noTransaction,
	"insert": (*request).write, "update": (*request).write, "delete": (*request).write,
	"findAndModify": (*request).findAndModify,
	"find":          (*request).open, "aggregate": (*request).aggregate,
	"listCollections": (*request).open, "listIndexes": (*request).open,
	"getMore": (*request).getMore, "killCursors": (*request).killCursors,
	"explain":  (*request).explain,
	"count":    function("documentdb_api.count_query(@db, @body::bytea)"),
	"distinct": function("documentdb_api.distinct_query(@db, @body::bytea)"),
	"validate": function("documentdb_api.validate(@db, @body::bytea)"),
	"create": inOne((*request).setImages,
		function("documentdb_api.create_collection_view(@db, @body::bytea)")),
	"collMod": inOne((*request).setImages,
		function("documentdb_api.coll_mod(@db, @coll, @body::bytea)")),
	"drop":             inOne((*request).drop),
	"dropDatabase":     inOne((*request).dropDatabase),
	"renameCollection": inOne(function("documentdb_api.rename_collection(@body::bytea)")),
	"createIndexes": inOne(function(
		"documentdb_api_internal.create_indexes_non_concurrently(@db, @body::bytea, true)")),
	"dropIndexes": inOne(function(
		"documentdb_api_internal.drop_indexes_non_concurrently(@db, @body::bytea)")),
	"listDatabases": inOne(function("documentdb_api.list_databases(@body::bytea)")),
	"dbStats":       inOne(function("documentdb_api.db_stats(@db, @scale)")),
	"collStats":     inOne(function("documentdb_api.coll_stats(@db, @coll, @scale)")),
}

func okay(*request) (bson.Raw, error) { return bson.NewBuilder(nil).Double("ok", 1).Finish(), nil }

// function returns a command that is one function of the engine.
func function(sql string) command {
	return func(r *request) (bson.Raw, error) { return r.call(sql, r.args(r.Body)) }
}

// inOne returns a command that runs some in one SQL transaction, and has the reply of the last.
func inOne(commands ...command) command {
	return func(r *request) (reply bson.Raw, err error) {
		err = r.inTx(func() error {
			for _, run := range commands {
				if reply, err = run(r); err != nil {
					return err
				}
			}
			return nil
		})
		return reply, err
	}
}

// setImages says in the log whether a collection keeps images, if the command says it.
func (r *request) setImages() (bson.Raw, error) {
	const option = "changeStreamPreAndPostImages" // which the engine does not know
	enabled, ok := field(r.Body, option, "enabled").Bool()
	if !ok {
		return nil, nil
	}
	ns := namespace{r.Database, text(r.Body, r.Name)}
	r.Body = bson.Without(r.Body, option)
	b := bson.NewBuilder(nil).Bool("enabled", enabled)
	_, err := r.emit("images", ns.append(b, "ns").Finish())
	return nil, err
}

func (r *request) drop() (bson.Raw, error) {
	name := text(r.Body, r.Name)
	if name == "" {
		return nil, failure.BadValue.Errorf("collection name must be a string")
	}
	_, err := r.on.Exec(r.front.ctx, "SELECT documentdb_api.drop_collection($1, $2)", r.Database,
		name)
	return bson.NewBuilder(nil).Int32("nIndexesWas", 1).String("ns", r.Database+"."+name).
		Double("ok", 1).Finish(), err
}

func (r *request) dropDatabase() (bson.Raw, error) {
	_, err := r.on.Exec(r.front.ctx, "SELECT documentdb_api.drop_database($1)", r.Database)
	if err == nil {
		_, err = r.emit("dropDatabase", bson.NewBuilder(nil).String("db", r.Database).Finish())
	}
	return bson.NewBuilder(nil).String("dropped", r.Database).Double("ok", 1).Finish(), err
}

// plans are the functions whose plans the engine tells.
var plans = map[string]string{
	"find": "find", "aggregate": "pipeline", "count": "count", "distinct": "distinct",
}

// explain answers with PostgreSQL's own plan of a query, as its text.
func (r *request) explain() (bson.Raw, error) {
	spec := document(r.Body, "explain")
	function, known := plans[spec.FirstKey()]
	if !known {
		return nil, failure.CommandNotFound.Errorf(
			"explain knows no command: '%s'", spec.FirstKey())
	}
	var plan string
	err := r.on.QueryRow(r.front.ctx, "EXPLAIN (FORMAT JSON) SELECT document FROM "+
		"documentdb_api_catalog.bson_aggregation_"+function+"(@db, @body::bytea)",
		r.args(spec)).Scan(&plan)
	if err != nil {
		return nil, err
	}
	b := bson.NewBuilder(nil).OpenDocument("queryPlanner").String("winningPlan", plan).Close()
	return b.Document("command", spec).Double("ok", 1).Finish(), nil
}
