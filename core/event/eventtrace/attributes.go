package eventtrace

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	"github.com/mooringdb/mooring/core/event"
)

// system returns the only attribute that all spans have.
func system() []Attribute { return []Attribute{{"db.system.name", "mongodb"}} }

// namespace returns database.collection, or the database alone.
func namespace(database, collection string) string {
	if collection == "" {
		return database
	}
	return database + "." + collection
}

func operationAttributes(e event.Operation, summary string) []Attribute {
	all := append(system(), Attribute{"db.namespace", e.Database})
	if e.Collection != "" {
		all = append(all, Attribute{"db.collection.name", e.Collection})
	}
	return append(all, Attribute{"db.operation.name", e.Name},
		Attribute{"db.operation.summary", summary})
}

func commandAttributes(e event.CommandStarted, maxQueryText int) []Attribute {
	collection := Collection(e.Body)
	all := append(system(), Attribute{"db.namespace", e.Database})
	if collection != "" {
		all = append(all, Attribute{"db.collection.name", collection})
	}
	all = append(all, Attribute{"db.command.name", e.Name},
		Attribute{"db.query.summary", e.Name + " " + namespace(e.Database, collection)})
	all = append(all, server(e.Address)...)
	if e.ServerConnectionID != 0 {
		all = append(all, Attribute{"db.mongodb.server_connection_id", e.ServerConnectionID})
	}
	all = append(all, Attribute{"db.mongodb.driver_connection_id", int64(e.ConnectionID)})
	all = append(all, session(e.Body)...)
	if v, ok := e.Body.Lookup("getMore"); ok {
		if id, ok := v.AsInt64(); ok {
			all = append(all, Attribute{"db.mongodb.cursor_id", id})
		}
	}
	if maxQueryText > 0 {
		all = append(all, Attribute{"db.query.text", queryText(e.Body, maxQueryText)})
	}
	return all
}

// onCollection are the commands whose first element has the name of a collection.
var onCollection = map[string]bool{
	"aggregate": true, "collMod": true, "compact": true, "count": true, "create": true,
	"createIndexes": true, "createSearchIndexes": true, "delete": true, "distinct": true,
	"drop": true, "dropIndexes": true, "dropSearchIndex": true, "find": true,
	"findAndModify": true, "insert": true, "killCursors": true, "listIndexes": true,
	"mapReduce": true, "update": true, "updateSearchIndex": true, "validate": true,
}

// Collection returns the name of the collection that a command is about, empty if it is about none.
// It is a copy: spans keep it when the buffer of the body is used again.
func Collection(body bson.Raw) string {
	key := body.FirstKey()
	switch {
	case key == "getMore":
		key = "collection"
	case !onCollection[key]:
		return ""
	}
	v, _ := body.Lookup(key)
	name, _ := v.Str()
	return strings.Clone(name)
}

func server(addr address.Address) []Attribute {
	all := []Attribute{{"server.address", addr.Host()}}
	if port, err := strconv.ParseInt(addr.Port(), 10, 64); err == nil {
		all = append(all, Attribute{"server.port", port})
	}
	return append(all, Attribute{"network.transport", addr.Network()})
}

// session returns the attributes of the session and of the transaction or retryable write.
func session(body bson.Raw) (all []Attribute) {
	if v, ok := body.Lookup("lsid", "id"); ok {
		if id, err := v.UUID(bson.UUIDStandard); err == nil {
			all = append(all, Attribute{"db.mongodb.lsid", id.String()})
		}
	}
	if v, ok := body.Lookup("txnNumber"); ok {
		if n, ok := v.AsInt64(); ok {
			all = append(all, Attribute{"db.mongodb.txn_number", n})
		}
	}
	return all
}

// queryText returns the command as relaxed Extended JSON without what the driver adds for itself,
// cut off if it is too long.
func queryText(body bson.Raw, limit int) string {
	body = bson.Without(body, "lsid", "$db", "$clusterTime", "signature")
	json, err := extjson.Append(nil, body, extjson.Relaxed)
	if err != nil {
		return "malformed: " + err.Error()
	}
	if len(json) > limit {
		for limit > 0 && !utf8.RuneStart(json[limit]) {
			limit--
		}
		json = json[:limit]
	}
	return string(json)
}

// cursorID returns the number of the cursor in a reply that stays open, 0 for none.
func cursorID(reply bson.Raw) int64 {
	v, _ := reply.Lookup("cursor", "id")
	id, _ := v.AsInt64()
	return id
}
