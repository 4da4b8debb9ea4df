package docdb

import (
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

type command = func(*request) (bson.Raw, error)

// commandTable returns the commands that the front knows. Most are a function of the engine each.
func commandTable() map[string]command {
	return map[string]command{
		"hello": (*request).hello, "isMaster": (*request).hello, "ismaster": (*request).hello,
		"ping": okay, "refreshSessions": okay,
		"endSessions": (*request).endSessions, "killSessions": (*request).endSessions,
		"killAllSessions":   (*request).endAllSessions,
		"commitTransaction": (*request).commit, "abortTransaction": (*request).abort,
		"insert": (*request).write, "update": (*request).write, "delete": (*request).write,
		"findAndModify": (*request).findAndModify, "findandmodify": (*request).findAndModify,
		"find": (*request).open, "aggregate": (*request).aggregate,
		"listCollections": (*request).open, "listIndexes": (*request).open,
		"getMore": (*request).getMore, "killCursors": (*request).killCursors,
		"count":    function("documentdb_api.count_query($1, $2::bytea)", database, body),
		"distinct": function("documentdb_api.distinct_query($1, $2::bytea)", database, body),
		"explain":  (*request).explain,
		"validate": function("documentdb_api.validate($1, $2::bytea)", database, body),
		"create": inOne((*request).setImages, function(
			"documentdb_api.create_collection_view($1, $2::bytea)", database, bodyForEngine)),
		"collMod": inOne((*request).setImages, function(
			"documentdb_api.coll_mod($1, $2, $3::bytea)", database, collection, bodyForEngine)),
		"drop": inOne((*request).hasName,
			statement("SELECT documentdb_api.drop_collection($1, $2)", database, collection),
			statement(noImages, database, collection), dropped),
		"dropDatabase": inOne(statement("SELECT documentdb_api.drop_database($1)", database),
			statement("DELETE FROM mooring.images WHERE db = $1", database), droppedDatabase),
		"renameCollection": pass("documentdb_api.rename_collection($1::bytea)", body),
		"createIndexes":    pass(createIndexes, database, body),
		"dropIndexes":      pass(dropIndexes, database, body),
		"listDatabases":    pass("documentdb_api.list_databases($1::bytea)", body),
		"dbStats":          pass("documentdb_api.db_stats($1, $2)", database, scale),
		"collStats": pass(
			"documentdb_api.coll_stats($1, $2, $3)", database, collection, scale),
		"buildInfo": buildInfo, "buildinfo": buildInfo, "connectionStatus": connectionStatus,
		"serverStatus": serverStatus, "hostInfo": okay,
	}
}

func okay(*request) (bson.Raw, error) { return bson.NewBuilder(nil).Double("ok", 1).Finish(), nil }

// database returns what functions of the engine are called with, as those below do.
func database(r *request) any   { return r.Database }
func collection(r *request) any { return text(r.body, r.Name) }
func body(r *request) any       { return []byte(r.body) }

func scale(r *request) any {
	if scale, ok := field(r.body, "scale").AsDouble(); ok {
		return scale
	}
	return 1.0
}

// bodyForEngine returns the body without the option that the engine does not know.
func bodyForEngine(r *request) any { return []byte(bson.Without(r.body, imagesOption)) }

// arguments returns what these functions make of a command.
func (r *request) arguments(of []func(*request) any) (all []any) {
	for _, argument := range of {
		all = append(all, argument(r))
	}
	return all
}

// function returns a command that is one function of the engine.
func function(sql string, arguments ...func(*request) any) command {
	return func(r *request) (bson.Raw, error) { return r.call(sql, r.arguments(arguments)...) }
}

// statement returns a command that is one SQL statement, and has no reply.
func statement(sql string, arguments ...func(*request) any) command {
	return func(r *request) (bson.Raw, error) {
		_, err := r.on.Exec(r.front.ctx, sql, r.arguments(arguments)...)
		return nil, err
	}
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

// pass returns a command that is one function of the engine, in an SQL transaction.
func pass(sql string, arguments ...func(*request) any) command {
	return inOne(function(sql, arguments...))
}

// These build and drop indexes within an SQL transaction.
const (
	createIndexes = "documentdb_api_internal.create_indexes_non_concurrently($1, $2::bytea, true)"
	dropIndexes   = "documentdb_api_internal.drop_indexes_non_concurrently($1, $2::bytea)"
)

// imagesOption is the option for images, which the engine does not know.
const imagesOption = "changeStreamPreAndPostImages"

const noImages = `DELETE FROM mooring.images WHERE db = $1 AND coll = $2`

// setImages notes whether a collection keeps images, if the command says it.
func (r *request) setImages() (bson.Raw, error) {
	option := document(r.body, imagesOption)
	if option == nil {
		return nil, nil
	}
	sql := noImages
	if on, _ := field(option, "enabled").Bool(); on {
		sql = `INSERT INTO mooring.images VALUES ($1, $2) ON CONFLICT DO NOTHING`
	}
	return statement(sql, database, collection)(r)
}

// hasName refuses a command that names no collection.
func (r *request) hasName() (bson.Raw, error) {
	if text(r.body, r.Name) == "" {
		return nil, failure.BadValue.Errorf("collection name must be a string")
	}
	return nil, nil
}

func dropped(r *request) (bson.Raw, error) {
	return bson.NewBuilder(nil).Int32("nIndexesWas", 1).
		String("ns", r.Database+"."+text(r.body, "drop")).Double("ok", 1).Finish(), nil
}

func droppedDatabase(r *request) (bson.Raw, error) {
	err := r.emit("dropDatabase", bson.NewBuilder(nil).String("db", r.Database).Finish())
	return bson.NewBuilder(nil).String("dropped", r.Database).Double("ok", 1).Finish(), err
}

// plans are the functions whose plans the engine tells.
var plans = map[string]string{
	"find": "find", "aggregate": "pipeline", "count": "count", "distinct": "distinct",
}

// explain answers with PostgreSQL's own plan of a query, as its text.
func (r *request) explain() (bson.Raw, error) {
	spec := document(r.body, "explain")
	function, known := plans[spec.FirstKey()]
	if !known {
		return nil, failure.CommandNotFound.Errorf(
			"explain knows no command: '%s'", spec.FirstKey())
	}
	var plan string
	err := r.on.QueryRow(r.front.ctx, "EXPLAIN (FORMAT JSON) SELECT document FROM "+
		"documentdb_api_catalog.bson_aggregation_"+function+"($1, $2::bytea)", r.Database,
		[]byte(spec)).Scan(&plan)
	if err != nil {
		return nil, err
	}
	b := bson.NewBuilder(nil).OpenDocument("queryPlanner").String("winningPlan", plan).Close()
	return b.Document("command", spec).Double("ok", 1).Finish(), nil
}

// version is the version of MongoDB whose protocol the front speaks.
const version = "7.0.0"

func buildInfo(*request) (bson.Raw, error) {
	b := bson.NewBuilder(nil).String("version", version)
	b.OpenArray("versionArray").Int32("", 7).Int32("", 0).Int32("", 0).Int32("", 0).Close()
	b.OpenArray("modules").Close()
	return b.Int32("maxBsonObjectSize", 16<<20).Double("ok", 1).Finish(), nil
}

func connectionStatus(*request) (bson.Raw, error) {
	b := bson.NewBuilder(nil).OpenDocument("authInfo").OpenArray("authenticatedUsers").Close()
	b.OpenArray("authenticatedUserRoles").Close().Close()
	return b.Double("ok", 1).Finish(), nil
}

func serverStatus(r *request) (bson.Raw, error) {
	b := bson.NewBuilder(nil).String("host", r.front.Address()).String("version", version)
	return b.String("process", "docdb").DateTime("localTime", time.Now().UnixMilli()).
		Double("ok", 1).Finish(), nil
}
