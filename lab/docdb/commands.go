package docdb

import (
	"time"

	"github.com/mooringdb/mooring/core/bson"
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
		"count":    pass("documentdb_api.count_query($1, $2::bytea)"),
		"distinct": pass("documentdb_api.distinct_query($1, $2::bytea)"),
		"explain":  (*request).explain,
		"validate": pass("documentdb_api.validate($1, $2::bytea)"),
		"create":   (*request).create, "collMod": (*request).collMod,
		"drop": (*request).drop, "dropDatabase": (*request).dropDatabase,
		"renameCollection": (*request).rename,
		"createIndexes":    pass(createIndexes),
		"dropIndexes":      pass(dropIndexes),
		"listDatabases":    (*request).listDatabases,
		"dbStats":          (*request).dbStats, "collStats": (*request).collStats,
		"buildInfo": buildInfo, "buildinfo": buildInfo, "connectionStatus": connectionStatus,
		"serverStatus": serverStatus, "hostInfo": okay,
	}
}

func okay(*request) (bson.Raw, error) { return bson.NewBuilder(nil).Double("ok", 1).Finish(), nil }

// pass returns a command that is one function of the engine.
func pass(function string) command {
	return func(r *request) (reply bson.Raw, err error) {
		err = r.inTx(func() error {
			reply, err = r.call(function, r.Database, []byte(r.body))
			return err
		})
		return reply, err
	}
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
func (r *request) setImages(name string) error {
	option := document(r.body, imagesOption)
	if option == nil {
		return nil
	}
	sql := noImages
	if on, _ := field(option, "enabled").Bool(); on {
		sql = `INSERT INTO mooring.images VALUES ($1, $2) ON CONFLICT DO NOTHING`
	}
	_, err := r.on.Exec(r.front.ctx, sql, r.Database, name)
	return err
}

func (r *request) create() (reply bson.Raw, err error) {
	err = r.inTx(func() error {
		if err := r.setImages(text(r.body, "create")); err != nil {
			return err
		}
		reply, err = r.call("documentdb_api.create_collection_view($1, $2::bytea)", r.Database,
			[]byte(bson.Without(r.body, imagesOption)))
		return err
	})
	return reply, err
}

func (r *request) collMod() (reply bson.Raw, err error) {
	name := text(r.body, "collMod")
	err = r.inTx(func() error {
		if err := r.setImages(name); err != nil {
			return err
		}
		reply, err = r.call("documentdb_api.coll_mod($1, $2, $3::bytea)", r.Database, name,
			[]byte(bson.Without(r.body, imagesOption)))
		return err
	})
	return reply, err
}

func (r *request) drop() (bson.Raw, error) {
	name := text(r.body, "drop")
	if name == "" {
		return nil, fail(badValue, "collection name must be a string")
	}
	err := r.inTx(func() error {
		_, err := r.on.Exec(r.front.ctx, `SELECT documentdb_api.drop_collection($1, $2)`,
			r.Database, name)
		if err == nil {
			_, err = r.on.Exec(r.front.ctx, noImages, r.Database, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return bson.NewBuilder(nil).Int32("nIndexesWas", 1).String("ns", r.Database+"."+name).
		Double("ok", 1).Finish(), nil
}

func (r *request) dropDatabase() (bson.Raw, error) {
	err := r.inTx(func() error {
		_, err := r.on.Exec(r.front.ctx, `SELECT documentdb_api.drop_database($1)`, r.Database)
		if err == nil {
			_, err = r.on.Exec(r.front.ctx, `DELETE FROM mooring.images WHERE db = $1`, r.Database)
		}
		if err == nil {
			err = r.emit("dropDatabase", bson.NewBuilder(nil).String("db", r.Database).Finish())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return bson.NewBuilder(nil).String("dropped", r.Database).Double("ok", 1).Finish(), nil
}

func (r *request) rename() (reply bson.Raw, err error) {
	err = r.inTx(func() error {
		reply, err = r.call("documentdb_api.rename_collection($1::bytea)", []byte(r.body))
		return err
	})
	return reply, err
}

func (r *request) listDatabases() (bson.Raw, error) {
	return r.call("documentdb_api.list_databases($1::bytea)", []byte(r.body))
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
		return nil, fail(commandNotFound, "explain knows no command: '%s'", spec.FirstKey())
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

func (r *request) scale() float64 {
	if scale, ok := field(r.body, "scale").AsDouble(); ok {
		return scale
	}
	return 1
}

func (r *request) dbStats() (bson.Raw, error) {
	return r.call("documentdb_api.db_stats($1, $2)", r.Database, r.scale())
}

func (r *request) collStats() (bson.Raw, error) {
	return r.call("documentdb_api.coll_stats($1, $2, $3)", r.Database, text(r.body, "collStats"),
		r.scale())
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
