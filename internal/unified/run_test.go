package unified_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooringdb/mooring/internal/fakemongo/deployment"
	"github.com/mooringdb/mooring/internal/spectest"
	"github.com/mooringdb/mooring/internal/unified"
)

// parse makes a file of one test: {members} are the test's, besides its description.
func parse(t *testing.T, schemas *unified.Schemas, file, test string) *unified.File {
	t.Helper()
	f, err := schemas.Parse("own.json", []byte(`{"description": "own", "schemaVersion": "1.28", `+file+`
		"tests": [{"description": "one", `+test+`}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// entities are those of most tests here.
const entities = `"createEntities": [
	{"client": {"id": "c", "uriOptions": {"retryReads": false, "retryWrites": false, "heartbeatFrequencyMS": 500, "readPreferenceTags": ["a:b"],
		"readPreference": "secondaryPreferred"},
		"observeEvents": ["commandStartedEvent", "commandSucceededEvent", "commandFailedEvent", "poolReadyEvent",
			"connectionCheckOutStartedEvent", "connectionCheckedOutEvent", "serverDescriptionChangedEvent"],
		"ignoreCommandMonitoringEvents": ["delete"], "storeEventsAsEntities": [{"id": "stored", "events": ["CommandStartedEvent", "CommandFailedEvent"]}],
		"observeLogMessages": {"connection": "debug"}}},
	{"database": {"id": "d", "client": "c", "databaseName": "db"}},
	{"collection": {"id": "k", "database": "d", "collectionName": "k"}},
	{"session": {"id": "sess", "client": "c", "sessionOptions": {"causalConsistency": true}}},
	{"session": {"id": "snap", "client": "c", "sessionOptions": {"snapshot": true}}},
	{"client": {"id": "traced", "observeTracingMessages": {"enableCommandPayload": true}}},
	{"database": {"id": "td", "client": "traced", "databaseName": "db"}}, {"collection": {"id": "tk", "database": "td", "collectionName": "k"}},
	{"thread": {"id": "t"}}],
	"initialData": [{"databaseName": "db", "collectionName": "k", "documents": [{"_id": 1, "a": 1}, {"_id": 2, "a": 2}]}],`

// operations is a test of these operations.
func operations(ops string) string { return `"operations": [` + ops + `]` }

func TestRun(t *testing.T) {
	const fine = ""
	const insert = `{"object": "k", "name": "insertOne", "arguments": {"document": {"_id": 3}}}`
	const insert2 = `{"object": "k", "name": "insertOne", "arguments": {"document": {"_id": 4}}}`
	const insertX = `{"object": "k", "name": "insertOne", "arguments": {"document": {"x": 1}}}`
	const duplicate = `{"object": "k", "name": "insertOne", "arguments": {"document": {"_id": 1}}}`
	const another = `{"object": "k", "name": "countDocuments", "arguments": {"filter": {"_id": 1}}, "expectResult": 7}`
	looping := func(op, stores string) string {
		return `{"object": "testRunner", "name": "loop", "arguments": {"operations": [` + op +
			`], ` + stores + `}}`
	}
	none := func(list string) string {
		return `, {"object": "k", "name": "find", "arguments": {"filter": {"_id": 99}}, "expectResult": {"$$matchesEntity": "` + list + `"}}`
	}
	for name, test := range map[string]struct{ test, want string }{
		"nothing":                {operations(``), fine},
		"an unknown operation":   {operations(`{"object": "k", "name": "nope"}`), "nope on k cannot be run: the operation is not known"},
		"an unknown object":      {operations(`{"object": "x", "name": "find"}`), "find on x cannot be run: there is no entity"},
		"an unknown argument":    {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}, "nope": 1}}`), "find on k cannot be run: argument nope is not known"},
		"a missing argument":     {operations(`{"object": "k", "name": "find"}`), "argument filter is missing"},
		"a missing number":       {operations(`{"object": "testRunner", "name": "wait"}`), "argument ms is missing"},
		"an argument's type":     {operations(`{"object": "k", "name": "find", "arguments": {"filter": 1}}`), "argument filter is a"},
		"another command's name": {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"ping": 1}, "commandName": "find"}}`), `commandName is "find", the command's is "ping"`},
		"an unknown cursor type": {operations(`{"object": "d", "name": "runCursorCommand", "arguments": {"command": {"find": "k"}, "commandName": "find", "cursorType": "x"}}`), "there is no cursorType"},
		"an unknown read preference": {
			operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"ping": 1}, "commandName": "ping", "readPreference": {"nope": 1}}}`),
			`readPreference has an unknown field "nope"`,
		},
		"an unknown returnDocument": {operations(`{"object": "k", "name": "findOneAndUpdate", "arguments": {"filter": {}, "update": {"$set": {"a": 1}}, "returnDocument": "x"}}`), "there is no returnDocument"},

		"results": {operations(`
			{"object": "k", "name": "findOne", "arguments": {"filter": {"_id": 1}}, "expectResult": {"_id": 1, "a": 1}},
			{"object": "k", "name": "findOne", "arguments": {"filter": {"_id": 9}}, "expectResult": null},
			{"object": "k", "name": "countDocuments", "arguments": {"filter": {"_id": 2}}, "expectResult": 1},
			{"object": "k", "name": "estimatedDocumentCount", "expectResult": 2},
			{"object": "k", "name": "distinct", "arguments": {"fieldName": "a", "filter": {}}, "expectResult": [1, 2]},
			{"object": "k", "name": "updateOne", "arguments": {"filter": {"_id": 1}, "update": {"$set": {"a": 5}}}, "expectResult": {"matchedCount": 1, "modifiedCount": 1, "upsertedCount": 0}},
			{"object": "k", "name": "updateMany", "arguments": {"filter": {}, "update": {"$inc": {"a": 1}}}, "expectResult": {"matchedCount": 2, "modifiedCount": 2}},
			{"object": "k", "name": "replaceOne", "arguments": {"filter": {"_id": 7}, "replacement": {"b": 1}, "upsert": true}, "expectResult": {"upsertedId": 7}},
			{"object": "k", "name": "findOneAndUpdate", "arguments": {"filter": {"_id": 7}, "update": {"$set": {"b": 2}}, "returnDocument": "After"}, "expectResult": {"_id": 7, "b": 2}},
			{"object": "k", "name": "findOneAndReplace", "arguments": {"filter": {"_id": 7}, "replacement": {"b": 3}, "returnDocument": "Before"}, "expectResult": {"_id": 7, "b": 2}},
			{"object": "k", "name": "findOneAndDelete", "arguments": {"filter": {"_id": 7}}, "expectResult": {"_id": 7, "b": 3}},
			{"object": "k", "name": "deleteOne", "arguments": {"filter": {"_id": 1}}, "expectResult": {"deletedCount": 1}},
			{"object": "k", "name": "deleteMany", "arguments": {"filter": {}}, "expectResult": {"deletedCount": 1}},
			{"object": "k", "name": "insertMany", "arguments": {"documents": [{"_id": 1}]}, "expectResult": {"insertedIds": {"0": 1}}},
			{"object": "k", "name": "aggregate", "arguments": {"pipeline": []}, "expectResult": [{"_id": 1}]},
			{"object": "c", "name": "listDatabases", "arguments": {"filter": {}}, "expectResult": [{"name": "db"}]}`), fine},
		"another result": {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}}, "expectResult": [{"_id": 1}]}`), "result: has 2 elements, want 1"},
		"an error":       {operations(`{"object": "k", "name": "find", "arguments": {"filter": {"$nope": 1}}}`), "find on k: failed: command failed"},
		"ignored errors": {operations(`{"object": "k", "name": "find", "arguments": {"filter": {"$nope": 1}}, "ignoreResultAndError": true}`), fine},
		"no error":       {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}}, "expectError": {"isError": true}}`), "want the error"},
		"a server's error": {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"nope": 1}, "commandName": "nope"},
			"expectError": {"isClientError": false, "isTimeoutError": false, "errorContains": "NO SUCH command", "errorCode": 59, "errorCodeName": "CommandNotFound",
			"errorLabelsOmit": ["x"], "errorResponse": {"ok": 0}}}`), fine},
		"not a client's":    {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"nope": 1}, "commandName": "nope"}, "expectError": {"isClientError": true}}`), "isClientError: is false"},
		"another text":      {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"nope": 1}, "commandName": "nope"}, "expectError": {"errorContains": "xyz"}}`), "does not contain"},
		"another code":      {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"nope": 1}, "commandName": "nope"}, "expectError": {"errorCode": 1}}`), "errorCode: is 59, want 1"},
		"another code name": {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"nope": 1}, "commandName": "nope"}, "expectError": {"errorCodeName": "x"}}`), "errorCodeName: is"},
		"without the label": {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"nope": 1}, "commandName": "nope"}, "expectError": {"errorLabelsContain": ["x"]}}`), "errorLabelsContain: the labels are"},
		"no answer": {operations(`{"object": "testRunner", "name": "failPoint", "arguments": {"client": "c", "failPoint": {"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": {"failCommands": ["find"], "closeConnection": true}}}},
			{"object": "k", "name": "find", "arguments": {"filter": {}}, "expectError": {"isClientError": true, "errorResponse": {"ok": 0}}}`), "errorResponse: no server has answered"},
		"write errors": {operations(`{"object": "k", "name": "insertMany", "arguments": {"documents": [{"_id": 4}, {"_id": 1}]},
			"expectError": {"errorCode": 11000, "isClientError": false, "writeErrors": {"1": {"code": 11000}}, "expectResult": {"insertedCount": 1}}}`), fine},
		"other write errors": {operations(`{"object": "k", "name": "insertMany", "arguments": {"documents": [{"_id": 4}, {"_id": 1}]},
			"expectError": {"writeErrors": {"1": {"code": 1}}}}`), "writeErrors: write 1: code: is 11000"},
		"no write errors": {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"nope": 1}, "commandName": "nope"}, "expectError": {"writeErrors": {"0": {}}}}`), "the number of write errors differs"},
		"write concern errors": {operations(`{"object": "testRunner", "name": "failPoint", "arguments": {"client": "c", "failPoint": {"configureFailPoint": "failCommand", "mode": "alwaysOn",
				"data": {"failCommands": ["insert", "findAndModify"], "errorLabels": ["x"], "writeConcernError": {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "m"}}}}},
			{"object": "k", "name": "insertOne", "arguments": {"document": {}}, "expectError": {"errorCode": 64, "errorCodeName": "WriteConcernFailed", "errorLabelsContain": ["x"], "writeConcernErrors": [{"code": 64}]}},
			{"object": "k", "name": "insertMany", "arguments": {"documents": [{}]}, "expectError": {"errorCode": 64}},
			{"object": "k", "name": "findOneAndDelete", "arguments": {"filter": {}}, "expectError": {"errorCode": 64, "writeConcernErrors": [{"code": 1}]}}`), "writeConcernErrors: code: is 64, want 1"},
		"no write concern error": {operations(`{"object": "d", "name": "runCommand", "arguments": {"command": {"nope": 1}, "commandName": "nope"}, "expectError": {"writeConcernErrors": [{}]}}`), "there are 0 write concern errors"},

		"events": {operations(insert) + `, "expectEvents": [{"client": "c", "events": [
			{"commandStartedEvent": {"commandName": "insert", "databaseName": "db", "command": {"insert": "k"}, "hasServerConnectionId": true, "hasServiceId": false}},
			{"commandSucceededEvent": {"reply": {"ok": 1}}}]},
			{"client": "c", "eventType": "cmap", "ignoreExtraEvents": true, "events": [{"poolReadyEvent": {}}]}]`, fine},
		"an event is missing":   {operations(insert) + `, "expectEvents": [{"client": "c", "events": [{"commandStartedEvent": {}}, {"commandSucceededEvent": {}}, {"commandStartedEvent": {}}]}]`, "event 2 of 3 is missing"},
		"an event too many":     {operations(insert) + `, "expectEvents": [{"client": "c", "events": []}]`, "2 events of the type command that are not expected"},
		"another event":         {operations(insert) + `, "expectEvents": [{"client": "c", "events": [{"commandSucceededEvent": {}}]}]`, "want a commandSucceededEvent"},
		"an event that differs": {operations(insert) + `, "expectEvents": [{"client": "c", "events": [{"commandStartedEvent": {"commandName": "find"}}]}]`, "commandName of"},
		"events of nobody":      {operations(``) + `, "expectEvents": [{"client": "x", "events": []}]`, `there is no entity "x"`},
		"ignored commands": {operations(
			`{"object": "k", "name": "deleteOne", "arguments": {"filter": {}}}`) +
			`, "expectEvents": [{"client": "c", "events": []}]`, fine},
		"event in time": {operations(insert + `, {"object": "testRunner", "name": "waitForEvent", "arguments": {"client": "c", "event": {"commandStartedEvent": {"commandName": "insert"}}, "count": 1}},
			{"object": "testRunner", "name": "assertEventCount", "arguments": {"client": "c", "event": {"commandStartedEvent": {}}, "count": 1}}`), fine},
		"no event in time":  {operations(`{"object": "testRunner", "name": "waitForEvent", "arguments": {"client": "c", "event": {"commandStartedEvent": {}}, "count": 1}}`), "waited 10s for commandStartedEvent: there were 0, want 1"},
		"another count":     {operations(`{"object": "testRunner", "name": "assertEventCount", "arguments": {"client": "c", "event": {"commandStartedEvent": {}}, "count": 1}}`), "there were 0 events"},
		"wait for a client": {operations(`{"object": "testRunner", "name": "waitForEvent", "arguments": {"client": "x", "event": {"commandStartedEvent": {}}, "count": 1}}`), `there is no entity "x"`},

		"log messages": {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}}}`) + `, "expectLogMessages": [{"client": "c", "ignoreExtraMessages": true,
			"ignoreMessages": [{"level": "debug", "component": "connection", "data": {"message": "Connection pool created"}}],
			"messages": [{"level": "debug", "component": "connection", "data": {"message": "Connection pool ready", "serverPort": 27017}}]}]`, fine},
		"another log message": {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}}}`) + `, "expectLogMessages": [{"client": "c", "ignoreExtraMessages": true,
			"messages": [{"level": "debug", "component": "connection", "data": {"message": "Connection pool ready"}}]}]`, "log message 0: data of"},
		"a log message is missing": {operations(`{"object": "c", "name": "close"}`) + `, "expectLogMessages": [{"client": "c",
			"messages": [{"level": "debug", "component": "connection", "data": {}}]}]`, "log message 0 of 1 is missing"},
		"log messages too many": {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}}}`) + `, "expectLogMessages": [{"client": "c", "messages": []}]`, "log messages that are not expected"},
		"log messages of a level": {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [
				{"client": {"id": "l", "observeLogMessages": {"serverSelection": "info"}}}, {"database": {"id": "ld", "client": "l", "databaseName": "d"}}]}},
			{"object": "ld", "name": "runCommand", "arguments": {"command": {"ping": 1}, "commandName": "ping"}}`) + `, "expectLogMessages": [{"client": "l",
			"messages": [{"level": "info", "component": "serverSelection", "data": {"message": "Waiting for suitable server to become available"}}]}]`, fine},
		"log messages of nobody": {operations(``) + `, "expectLogMessages": [{"client": "x", "messages": []}]`, `there is no entity "x"`},
		"redacted failures": {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}}}`) + `, "expectLogMessages": [{"client": "c", "ignoreExtraMessages": true,
			"messages": [{"level": "debug", "component": "connection", "failureIsRedacted": true, "data": {}}]}]`, "failureIsRedacted: the failure is"},

		"an outcome":         {operations(insert) + `, "outcome": [{"databaseName": "db", "collectionName": "k", "documents": [{"_id": 1, "a": 1}, {"_id": 2, "a": 2}, {"_id": 3}]}]`, fine},
		"another outcome":    {operations(``) + `, "outcome": [{"databaseName": "db", "collectionName": "k", "documents": [{"_id": 1}, {"_id": 2, "a": 2}]}]`, "document 0 of db.k: a: is not expected"},
		"documents too many": {operations(insert) + `, "outcome": [{"databaseName": "db", "collectionName": "k", "documents": []}]`, "db.k has 3 documents, want 0"},
		"cursors":            {operations(`{"object": "k", "name": "createFindCursor", "arguments": {"filter": {}, "batchSize": 1}, "saveResultAsEntity": "cur"}, {"object": "cur", "name": "iterateUntilDocumentOrError", "expectResult": {"_id": 1}}, {"object": "cur", "name": "iterateOnce", "expectResult": {"_id": 2}}, {"object": "cur", "name": "iterateOnce"}, {"object": "cur", "name": "iterateUntilDocumentOrError", "expectError": {"isError": true}}, {"object": "cur", "name": "close"}`), fine},
		"a loop": {operations(looping(insertX, `"storeSuccessesAsEntity": "n", "storeIterationsAsEntity": "i"`) + `,
			{"object": "k", "name": "countDocuments", "arguments": {"filter": {"x": 1}}, "expectResult": {"$$matchesEntity": "n"}},
			{"object": "k", "name": "countDocuments", "arguments": {"filter": {"x": 1}}, "expectResult": {"$$matchesEntity": "i"}},
			{"object": "k", "name": "countDocuments", "arguments": {"filter": {"x": 1}}, "expectResult": 10}`), fine},
		"errors of a loop":              {operations(looping(duplicate, `"storeErrorsAsEntity": "e", "storeFailuresAsEntity": "f"`) + none("f") + none("e")), "has 0 elements, want 10"},
		"failures of a loop":            {operations(looping(another, `"storeErrorsAsEntity": "e", "storeFailuresAsEntity": "f"`) + none("e") + none("f")), "has 0 elements, want 10"},
		"failures as errors":            {operations(looping(another, `"storeErrorsAsEntity": "e"`) + none("e")), "has 0 elements, want 10"},
		"errors as failures":            {operations(looping(duplicate, `"storeFailuresAsEntity": "f"`) + none("f")), "has 0 elements, want 10"},
		"errors of two loops":           {operations(looping(duplicate, `"storeErrorsAsEntity": "e"`) + "," + looping(another, `"storeErrorsAsEntity": "e"`) + none("e")), "has 0 elements, want 20"},
		"a loop that fails":             {operations(looping(duplicate, `"storeSuccessesAsEntity": "n"`)), "loop on testRunner: failed: "},
		"a loop of nothing":             {operations(looping(`{"object": "k", "name": "nope"}`, `"storeErrorsAsEntity": "e"`)), "nope on k cannot be run"},
		"a loop's entity that there is": {operations(looping(insertX, `"storeSuccessesAsEntity": "c"`)), `there is an entity "c" already`},
		"stored events":                 {operations(insert + none("stored")), "has 0 elements, want 2"},
		"saved values":                  {operations(`{"object": "k", "name": "findOne", "arguments": {"filter": {"_id": 1}}, "saveResultAsEntity": "v"}, {"object": "k", "name": "findOne", "arguments": {"filter": {"_id": 1}}, "expectResult": {"$$matchesEntity": "v"}}`), fine},
		"a name twice":                  {operations(`{"object": "k", "name": "findOne", "arguments": {"filter": {}}, "saveResultAsEntity": "k"}`), `there is an entity "k" already`},
		"no operations on it":           {operations(`{"object": "t", "name": "find"}`), `there is no entity "t" that has operations`},

		"threads": {operations(`{"object": "testRunner", "name": "runOnThread", "arguments": {"thread": "t", "operation": `+insert+`}}, {"object": "testRunner", "name": "waitForThread", "arguments": {"thread": "t"}}`) +
			`, "outcome": [{"databaseName": "db", "collectionName": "k", "documents": [{"_id": 1, "a": 1}, {"_id": 2, "a": 2}, {"_id": 3}]}]`, fine},
		"a thread's error": {operations(`{"object": "testRunner", "name": "runOnThread", "arguments": {"thread": "t", "operation": {"object": "k", "name": "nope"}}}, {"object": "testRunner", "name": "waitForThread", "arguments": {"thread": "t"}}`), "waitForThread on testRunner: failed: nope on k cannot be run"},
		"a slow thread": {operations(`{"object": "testRunner", "name": "runOnThread", "arguments": {"thread": "t", "operation": {"object": "k", "name": "find", "arguments": {"filter": {"$where": "sleep(11000) || true"}}}}},
			{"object": "testRunner", "name": "waitForThread", "arguments": {"thread": "t"}}`), "waited 10s for the thread"},

		"a failed fail point":                 {operations(`{"object": "testRunner", "name": "failPoint", "arguments": {"client": "c", "failPoint": {"configureFailPoint": "nope", "mode": "off"}}}`), "there is no fail point"},
		"checked out":                         {operations(`{"object": "testRunner", "name": "assertNumberConnectionsCheckedOut", "arguments": {"client": "c", "connections": 0}}`), fine},
		"not checked out":                     {operations(`{"object": "testRunner", "name": "assertNumberConnectionsCheckedOut", "arguments": {"client": "c", "connections": 1}}`), "0 connections are checked out, want 1"},
		"collections":                         {operations(`{"object": "testRunner", "name": "assertCollectionExists", "arguments": {"databaseName": "db", "collectionName": "k"}}, {"object": "testRunner", "name": "assertCollectionNotExists", "arguments": {"databaseName": "db", "collectionName": "x"}}`), fine},
		"no such collection":                  {operations(`{"object": "testRunner", "name": "assertCollectionExists", "arguments": {"databaseName": "db", "collectionName": "x"}}`), "db.x exists: false"},
		"such a collection":                   {operations(`{"object": "testRunner", "name": "assertCollectionNotExists", "arguments": {"databaseName": "db", "collectionName": "k"}}`), "db.k exists: true"},
		"created and dropped":                 {operations(`{"object": "d", "name": "createCollection", "arguments": {"collection": "n"}, "saveResultAsEntity": "n"}, {"object": "n", "name": "insertOne", "arguments": {"document": {}}}, {"object": "d", "name": "dropCollection", "arguments": {"collection": "n"}}, {"object": "testRunner", "name": "assertCollectionNotExists", "arguments": {"databaseName": "db", "collectionName": "n"}}`), fine},
		"entities that cannot be made":        {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"bucket": {"id": "s", "database": "d"}}]}}`), fine},
		"one that could be made, but not now": {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"bucket": {"id": "s", "database": "d"}}]}}, {"object": "s", "name": "x"}`), `there is no entity "s"`},
		"unknown entities":                    {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"stream": {"id": "s", "hexBytes": ""}}]}}`), `there are no entities of the kind "stream"`},
		"a database of nobody":                {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"database": {"id": "s", "client": "x", "databaseName": "d"}}]}}`), `make the database "s": there is no entity "x"`},
		"collection of nobody":                {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"collection": {"id": "s", "database": "x", "collectionName": "d"}}]}}`), `make the collection "s": there is no entity "x"`},
		"unknown concerns":                    {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"database": {"id": "s", "client": "c", "databaseName": "d", "databaseOptions": {"readConcern": {"nope": 1}}}}]}}`), `readConcern has an unknown field`},
		"unknown write concern":               {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"collection": {"id": "s", "database": "d", "collectionName": "d", "collectionOptions": {"writeConcern": {"nope": 1}}}}]}}`), `writeConcern has an unknown field`},
		"an unknown option":                   {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"client": {"id": "s", "uriOptions": {"nope": 1}}}]}}`), "uriOptions:"},
		"an option's type":                    {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"client": {"id": "s", "uriOptions": {"appName": {}}}}]}}`), "is not an option's value"},
		"options that fight":                  {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"client": {"id": "s", "uriOptions": {"tls": true, "ssl": false}}}]}}`), "make the client"},
		"inherited options": {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"collection": {"id": "s", "database": "d", "collectionName": "d",
			"collectionOptions": {"writeConcern": {"w": 1, "journal": true, "wtimeoutMS": 5}, "readConcern": {"level": "local"}, "readPreference": {"mode": "secondary", "tagSets": [{"a": "b"}, {}], "maxStalenessSeconds": 120}}}},
			{"collection": {"id": "m", "database": "d", "collectionName": "d", "collectionOptions": {"writeConcern": {"w": "majority"}}}}]}},
			{"object": "s", "name": "insertOne", "arguments": {"document": {}}}, {"object": "m", "name": "insertOne", "arguments": {"document": {}}}, {"object": "s", "name": "find", "arguments": {"filter": {}}}`) + `,
			"expectEvents": [{"client": "c", "events": [{"commandStartedEvent": {"command": {"writeConcern": {"w": 1, "j": true, "wtimeout": 5}}}}, {"commandSucceededEvent": {}},
			{"commandStartedEvent": {"command": {"writeConcern": {"w": "majority"}}}}, {"commandSucceededEvent": {}},
			{"commandStartedEvent": {"command": {"readConcern": {"level": "local"}, "$readPreference": {"mode": "secondary", "tags": [{"a": "b"}, {}], "maxStalenessSeconds": 120}}}}, {"commandSucceededEvent": {}}]}]`, fine},
		"topologies": {operations(insert + `, {"object": "testRunner", "name": "recordTopologyDescription", "arguments": {"client": "c", "id": "top"}},
			{"object": "testRunner", "name": "assertTopologyType", "arguments": {"topologyDescription": "top", "topologyType": "ReplicaSetWithPrimary"}}`), fine},
		"another topology": {operations(insert + `, {"object": "testRunner", "name": "recordTopologyDescription", "arguments": {"client": "c", "id": "top"}},
			{"object": "testRunner", "name": "assertTopologyType", "arguments": {"topologyDescription": "top", "topologyType": "Single"}}`), "the topology is ReplicaSetWithPrimary, want Single"},
		"the first primary": {operations(`{"object": "testRunner", "name": "recordTopologyDescription", "arguments": {"client": "c", "id": "top"}},
			{"object": "testRunner", "name": "waitForPrimaryChange", "arguments": {"client": "c", "priorTopologyDescription": "top"}}`), fine},
		"no other primary": {operations(insert + `, {"object": "testRunner", "name": "recordTopologyDescription", "arguments": {"client": "c", "id": "top"}},
			{"object": "testRunner", "name": "waitForPrimaryChange", "arguments": {"client": "c", "priorTopologyDescription": "top", "timeoutMS": 1000}}`), "waited 1s for another primary"},
		"filled pools": {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"client": {"id": "s", "uriOptions": {"minPoolSize": 3, "heartbeatFrequencyMS": 500}, "observeEvents": ["connectionReadyEvent", "poolReadyEvent"], "awaitMinPoolSizeMS": 5000}}]}}`) + `, "expectEvents": [{"client": "s", "eventType": "cmap", "events": []}]`, fine},
		"pools that stay empty": {operations(`{"object": "testRunner", "name": "failPoint", "arguments": {"client": "c", "failPoint": {"configureFailPoint": "failCommand", "mode": "alwaysOn",
			"data": {"failCommands": ["hello", "isMaster"], "closeConnection": true}}}}, {"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"client": {"id": "s", "uriOptions": {"minPoolSize": 1}, "observeEvents": ["connectionReadyEvent", "poolReadyEvent"], "awaitMinPoolSizeMS": 50}}]}}`), "waited 50ms for pools with 1 connections"},
		"no pools to fill": {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"client": {"id": "s", "uriOptions": {"appName": "x"}, "observeEvents": ["connectionReadyEvent", "poolReadyEvent"], "awaitMinPoolSizeMS": 1}}]}}`), fine},
		"a hedged read": {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"collection": {"id": "s", "database": "d", "collectionName": "k",
			"collectionOptions": {"readPreference": {"mode": "nearest", "hedge": {"enabled": true}}}}}]}}, {"object": "s", "name": "find", "arguments": {"filter": {}}}`) + `,
			"expectEvents": [{"client": "c", "events": [{"commandStartedEvent": {"command": {"$readPreference": {"mode": "nearest", "hedge": {"enabled": true}}}}}, {"commandSucceededEvent": {}}]}]`, fine},
		"no span":            {operations(insert) + `, "expectTracingMessages": [{"client": "c", "spans": [{"name": "insert db.k", "attributes": {}}]}]`, "span 0 of 1 is missing"},
		"spans of no client": {operations(``) + `, "expectTracingMessages": [{"client": "x", "spans": [{"name": "ping", "attributes": {}}]}]`, `there is no entity "x"`},
		"spans": {operations(`{"object": "tk", "name": "insertOne", "arguments": {"document": {"_id": 3}}}, {"object": "testRunner", "name": "failPoint", "arguments": {"client": "traced", "failPoint": {"configureFailPoint": "failCommand", "mode": "off"}}},
			{"object": "tk", "name": "find", "arguments": {"filter": {"$nope": 1}}, "expectError": {"isError": true}}`) + `, "expectTracingMessages": [{"client": "traced", "spans": [
			{"name": "insert db.k", "attributes": {"db.operation.name": "insert"}, "nested": [{"name": "insert", "attributes": {"db.mongodb.lsid": {"id": {"$$type": "binData"}}, "db.query.text": {"$$matchAsDocument": {"$$matchAsRoot": {"insert": "k"}}}}}]},
			{"name": "find db.k", "attributes": {"exception.message": {"$$type": "string"}}, "nested": [{"name": "find", "attributes": {"db.response.status_code": "2"}}]}]}]`, fine},
		"other spans":           {operations(`{"object": "tk", "name": "findOne", "arguments": {"filter": {}}}`) + `, "expectTracingMessages": [{"client": "traced", "spans": [{"name": "insert db.k", "attributes": {}}]}]`, `span 0 is "find db.k", want "insert db.k"`},
		"other attributes":      {operations(`{"object": "tk", "name": "findOne", "arguments": {"filter": {}}}`) + `, "expectTracingMessages": [{"client": "traced", "spans": [{"name": "find db.k", "attributes": {"db.namespace": "x"}}]}]`, `span 0, find db.k: db.namespace: is "db"`},
		"nested spans":          {operations(`{"object": "tk", "name": "findOne", "arguments": {"filter": {}}}`) + `, "expectTracingMessages": [{"client": "traced", "spans": [{"name": "find db.k", "attributes": {}}]}]`, "below the span 0, find db.k: spans that are not expected"},
		"spans that may follow": {operations(`{"object": "tk", "name": "findOne", "arguments": {"filter": {}}}, {"object": "tk", "name": "findOne", "arguments": {"filter": {}}}`) + `, "expectTracingMessages": [{"client": "traced", "ignoreExtraSpans": true, "spans": [{"name": "find db.k", "attributes": {}}]}]`, fine},
		"a tracing option":      {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"client": {"id": "s", "observeTracingMessages": {"nope": true}}}]}}`), "argument nope is not known"},
		"transactions": {operations(`{"object": "sess", "name": "startTransaction"}, {"object": "k", "name": "insertOne", "arguments": {"document": {"x": 1}, "session": "sess"}},
			{"object": "testRunner", "name": "assertSessionTransactionState", "arguments": {"session": "sess", "state": "in_progress"}},
			{"object": "testRunner", "name": "assertSessionUnpinned", "arguments": {"session": "sess"}},
			{"object": "sess", "name": "abortTransaction"}, {"object": "sess", "name": "withTransaction", "arguments": {"callback": [
				{"object": "k", "name": "insertOne", "arguments": {"document": {"x": 1}, "session": "sess"}}], "writeConcern": {"w": "majority"}, "readConcern": {"level": "local"}}},
			{"object": "testRunner", "name": "assertSessionTransactionState", "arguments": {"session": "sess", "state": "committed"}}`), fine},
		"another state":                      {operations(`{"object": "testRunner", "name": "assertSessionTransactionState", "arguments": {"session": "sess", "state": "starting"}}`), "the transaction is none, want starting"},
		"not pinned":                         {operations(`{"object": "testRunner", "name": "assertSessionPinned", "arguments": {"session": "sess"}}`), "the session is pinned: false"},
		"a fail point of what is not pinned": {operations(`{"object": "testRunner", "name": "targetedFailPoint", "arguments": {"session": "sess", "failPoint": {}}}`), "the session is not pinned"},
		"a callback that is not as expected": {operations(`{"object": "sess", "name": "withTransaction", "expectError": {"isError": true}, "arguments": {"readPreference": {"mode": "primary"}, "callback": [
			{"object": "k", "name": "find", "arguments": {"filter": {}, "session": "sess"}, "expectResult": [{"x": 2}]}]}}`), "withTransaction on sess: find on k: result"},
		"a callback that cannot be run": {operations(`{"object": "sess", "name": "withTransaction", "expectError": {"isError": true}, "arguments": {"callback": [{"object": "k", "name": "x"}]}}`), "cannot be run"},
		"an error in a callback": {operations(`{"object": "sess", "name": "withTransaction", "expectError": {"errorCode": 11000}, "arguments": {"callback": [
			{"object": "k", "name": "insertOne", "arguments": {"document": {"_id": 1}, "session": "sess"}},
			{"object": "k", "name": "insertOne", "arguments": {"document": {"_id": 1}, "session": "sess"}, "expectError": {"errorCode": 11000}}]}}`), fine},
		"change streams": {operations(`{"object": "k", "name": "createChangeStream", "arguments": {"pipeline": [], "fullDocument": "updateLookup"}, "saveResultAsEntity": "w"},
			{"object": "d", "name": "createChangeStream", "arguments": {"pipeline": []}, "saveResultAsEntity": "wd"}, {"object": "c", "name": "createChangeStream", "arguments": {"pipeline": []}, "saveResultAsEntity": "wc"},
			` + insert + `, {"object": "w", "name": "iterateOnce", "expectResult": {"operationType": "insert", "fullDocument": {"_id": 3}}}, {"object": "w", "name": "iterateOnce"},
			{"object": "wd", "name": "iterateUntilDocumentOrError", "expectResult": {"operationType": "insert"}}, {"object": "wc", "name": "iterateUntilDocumentOrError", "expectResult": {"operationType": "insert"}},
			{"object": "w", "name": "close"}, {"object": "wd", "name": "close"}, {"object": "wc", "name": "close"}`), fine},
		"an error of a change stream": {operations(`{"object": "k", "name": "createChangeStream", "arguments": {"pipeline": [{"$project": {"_id": 0}}]}, "saveResultAsEntity": "w"},
			` + insert + `, {"object": "w", "name": "iterateOnce", "expectError": {"errorCode": 280}}`), fine},
		"sessions": {operations(`{"object": "k", "name": "find", "arguments": {"filter": {"_id": 1}, "session": "sess"}, "expectResult": [{"_id": 1, "a": 1}]},
			{"object": "testRunner", "name": "assertSessionNotDirty", "arguments": {"session": "sess"}},
			{"object": "k", "name": "countDocuments", "arguments": {"filter": {}, "session": "sess"}}, {"object": "testRunner", "name": "assertSameLsidOnLastTwoCommands", "arguments": {"client": "c"}},
			{"object": "d", "name": "runCommand", "arguments": {"command": {"ping": 1}, "commandName": "ping"}},
			{"object": "testRunner", "name": "assertDifferentLsidOnLastTwoCommands", "arguments": {"client": "c"}},
			{"object": "sess", "name": "endSession"}, {"object": "k", "name": "find", "arguments": {"filter": {}, "session": "sess"}, "expectError": {"isClientError": true}}`) + `,
			"expectEvents": [{"client": "c", "ignoreExtraEvents": true, "events": [{"commandStartedEvent": {"command": {"lsid": {"$$sessionLsid": "sess"}}}}]}]`, fine},
		"snapshot times": {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}, "session": "snap"}}, {"object": "snap", "name": "getSnapshotTime", "saveResultAsEntity": "time"},
			{"object": "k", "name": "deleteMany", "arguments": {"filter": {}}},
			{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"session": {"id": "again", "client": "c", "sessionOptions": {"snapshot": true, "snapshotTime": "time", "defaultTimeoutMS": 50}}}]}},
			{"object": "k", "name": "countDocuments", "arguments": {"filter": {}, "session": "again"}, "expectResult": 2}`), fine},
		"no snapshot time": {operations(`{"object": "sess", "name": "getSnapshotTime"}`), "does not read from a snapshot"},
		"a time that is none": {operations(`{"object": "k", "name": "findOne", "arguments": {"filter": {}}, "saveResultAsEntity": "time"},
			{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"session": {"id": "x", "client": "c", "sessionOptions": {"snapshot": true, "snapshotTime": "time"}}}]}}`), `the entity "time" is not a timestamp`},
		"an unknown session":          {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}, "session": "x"}}`), `there is no entity "x"`},
		"a session of no client":      {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"session": {"id": "x", "client": "k"}}]}}`), `there is no entity "k"`},
		"a session's unknown option":  {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"session": {"id": "x", "client": "c", "sessionOptions": {"nope": 1}}}]}}`), "argument nope is not known"},
		"a session that is not dirty": {operations(`{"object": "testRunner", "name": "assertSessionDirty", "arguments": {"session": "sess"}}`), "the session is dirty: false"},
		"other sessions":              {operations(insert + `, ` + insert2 + `, {"object": "testRunner", "name": "assertDifferentLsidOnLastTwoCommands", "arguments": {"client": "c"}}`), "the last lsids are"},
		"no two commands":             {operations(insert + `, {"object": "testRunner", "name": "assertSameLsidOnLastTwoCommands", "arguments": {"client": "c"}}`), "there are not two commands with an lsid"},
		"the lsid of a client":        {operations(insert) + `, "expectEvents": [{"client": "c", "ignoreExtraEvents": true, "events": [{"commandStartedEvent": {"command": {"lsid": {"$$sessionLsid": "c"}}}}]}]`, `there is no session "c"`},
		"default options of transactions": {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"session": {"id": "x", "client": "c", "sessionOptions": {"defaultTransactionOptions": {"writeConcern": {"w": "majority"}}}}}]}},
			{"object": "x", "name": "startTransaction"}, {"object": "k", "name": "insertOne", "arguments": {"document": {"_id": 3}, "session": "x"}}, {"object": "x", "name": "commitTransaction"}`) + `,
			"expectEvents": [{"client": "c", "events": [{"commandStartedEvent": {"commandName": "insert"}}, {"commandSucceededEvent": {}}, {"commandStartedEvent": {"commandName": "commitTransaction", "command": {"writeConcern": {"w": "majority"}}}}, {"commandSucceededEvent": {}}]}]`, fine},
		"unknown default options":       {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"session": {"id": "x", "client": "c", "sessionOptions": {"defaultTransactionOptions": {"nope": 1}}}}]}}`), "argument nope is not known"},
		"a transaction's read concern":  {operations(`{"object": "sess", "name": "startTransaction", "arguments": {"readConcern": {"nope": 1}}}`), "readConcern has an unknown field"},
		"a transaction's write concern": {operations(`{"object": "sess", "name": "startTransaction", "arguments": {"writeConcern": {"nope": 1}}}`), "writeConcern has an unknown field"},
		"an error of a callback": {operations(`{"object": "sess", "name": "withTransaction", "arguments": {"callback": [{"object": "k", "name": "insertOne", "arguments": {"document": {"_id": 3}, "session": "sess"}},
			{"object": "k", "name": "insertOne", "arguments": {"document": {"_id": 3}, "session": "sess"}, "expectError": {"errorCode": 11000}}]}, "expectError": {"errorCode": 11000}},
			{"object": "k", "name": "countDocuments", "arguments": {"filter": {}}, "expectResult": 2}`), fine},
		"search indexes": {operations(`{"object": "k", "name": "createSearchIndex", "arguments": {"model": {"definition": {}, "name": "x", "type": "search"}}, "expectError": {"errorContains": "Atlas", "isClientError": false}},
			{"object": "k", "name": "createSearchIndexes", "arguments": {"models": [{"definition": {}}]}, "expectError": {"errorContains": "Atlas"}},
			{"object": "k", "name": "updateSearchIndex", "arguments": {"name": "x", "definition": {}}, "expectError": {"errorContains": "Atlas"}},
			{"object": "k", "name": "dropSearchIndex", "arguments": {"name": "x"}, "expectError": {"errorContains": "Atlas"}},
			{"object": "k", "name": "listSearchIndexes", "arguments": {"name": "x", "aggregationOptions": {"batchSize": 10}}, "expectError": {"errorContains": "Atlas"}}`), fine},
		"a search index's unknown field": {operations(`{"object": "k", "name": "createSearchIndex", "arguments": {"model": {"definition": {}, "nope": 1}}}`), "argument nope is not known"},
		"another name":                   {operations(`{"object": "k", "name": "rename", "arguments": {"to": "other"}}, {"object": "testRunner", "name": "assertCollectionExists", "arguments": {"databaseName": "db", "collectionName": "other"}}`), fine},
		"a bulk write of a client":       {operations(`{"object": "c", "name": "clientBulkWrite", "arguments": {"models": [{"insertOne": {"namespace": "db.k", "document": {}}}], "verboseResults": true, "writeConcern": {"w": 1}}, "expectError": {"isError": true}}`), fine},
		"a bulk write without namespace": {operations(`{"object": "c", "name": "clientBulkWrite", "arguments": {"models": [{"insertOne": {"namespace": "db", "document": {}}}]}}`), "the model insertOne has no namespace"},
		"a bulk write's concern":         {operations(`{"object": "c", "name": "clientBulkWrite", "arguments": {"models": [], "writeConcern": {"nope": 1}}}`), "writeConcern has an unknown field"},
		"metadata": {operations(`{"object": "c", "name": "appendMetadata", "arguments": {"driverInfoOptions": {"name": "framework", "version": "2.0", "platform": "p"}}},
			{"object": "c", "name": "appendMetadata", "arguments": {"driverInfoOptions": {"name": "a|b"}}, "expectError": {"isClientError": true}}`), fine},
		"metadata that is not known": {operations(`{"object": "c", "name": "appendMetadata", "arguments": {"driverInfoOptions": {"name": "a", "nope": 1}}}`), "argument nope is not known"},
		"malformed expectation":      {operations(`{"object": "k", "name": "find", "arguments": {"filter": {}}, "expectResult": {"$$nope": 1}}`), "malformed expectation"},
	} {
		t.Run(name, func(t *testing.T) {
			f := parse(t, unified.NewSchemas(spectest.Dir(t, suite)), entities, test.test)
			err := unified.RunTest(t, f, f.Tests[0], deployment.ReplicaSet)
			switch {
			case err == nil && test.want != fine:
				t.Errorf("passes, want an error with %q", test.want)
			case err != nil && (test.want == fine || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %q, want %q", err, test.want)
			}
		})
	}
}

// TestLaterMembers has a later version of the format bring a member that the runner does not know.
func TestLaterMembers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "schema-1.28.json"), []byte("{}"),
		0o600); err != nil {
		t.Fatal(err)
	}
	f := parse(t, unified.NewSchemas(dir), "", operations(``)+`, "expectMore": []`)
	err := unified.RunTest(t, f, f.Tests[0], deployment.ReplicaSet)
	if err == nil || !strings.Contains(err.Error(), "the runner does not evaluate expectMore") {
		t.Errorf("error %v", err)
	}
}

// TestPinned has sessions be pinned to one mongos, and a fail point set there.
func TestPinned(t *testing.T) {
	f := parse(t, unified.NewSchemas(spectest.Dir(t, suite)),
		strings.Replace(entities, `"id": "c",`, `"id": "c", "useMultipleMongoses": true,`, 1),
		operations(`{"object": "sess", "name": "startTransaction", "arguments": {"readPreference": {"mode": "primary"}}}, {"object": "k", "name": "insertOne", "arguments": {"document": {}, "session": "sess"}},
			{"object": "testRunner", "name": "assertSessionPinned", "arguments": {"session": "sess"}},
			{"object": "testRunner", "name": "targetedFailPoint", "arguments": {"session": "sess", "failPoint": {"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": {"failCommands": ["find"], "errorCode": 8}}}},
			{"object": "k", "name": "find", "arguments": {"filter": {}, "session": "sess"}, "expectError": {"errorCode": 8}}`))
	for _, topology := range []deployment.Topology{deployment.Sharded, deployment.LoadBalanced} {
		if err := unified.RunTest(t, f, f.Tests[0], topology); err != nil {
			t.Errorf("%s: %v", topology, err)
		}
	}
}

func TestParse(t *testing.T) {
	schemas := unified.NewSchemas(spectest.Dir(t, suite))
	for name, text := range map[string]string{
		"no JSON":       `{`,
		"no version":    `{"description": "x", "tests": [{"description": "y", "operations": []}]}`,
		"no such one":   `{"description": "x", "schemaVersion": "1.99", "tests": [{"description": "y", "operations": []}]}`,
		"a word":        `{"description": "x", "schemaVersion": "new", "tests": [{"description": "y", "operations": []}]}`,
		"its old words": `{"description": "x", "schemaVersion": "1.0", "tests": [{"description": "y", "operations": [], "expectLogMessages": []}]}`,
		"no extjson":    `{"description": "x", "schemaVersion": "1.0", "tests": [{"description": "y", "operations": []}], "_yamlAnchors": {"a": {"$oid": 1}}}`,
	} {
		if _, err := schemas.Parse("x.json", []byte(text)); err == nil {
			t.Errorf("%s: Parse(%s) = nil", name, text)
		}
	}
	if _, err := schemas.Load("nowhere.json"); err == nil {
		t.Error("Load(nowhere.json) = nil")
	}
}

func TestEnvironments(t *testing.T) {
	all := []string{"single-7.0.0", "replicaset-7.0.0", "sharded-7.0.0", "load-balanced-7.0.0"}
	for name, test := range map[string]struct {
		file, test string // runOnRequirements
		want       []string
		unmet      string
	}{
		"none":                    {"", "", all, ""},
		"topologies":              {`[{"topologies": ["single", "sharded-replicaset"]}]`, "", []string{"single-7.0.0", "sharded-7.0.0"}, ""},
		"both count":              {`[{"topologies": ["single", "sharded"]}]`, `[{"topologies": ["sharded", "replicaset"]}]`, []string{"sharded-7.0.0"}, ""},
		"one of several":          {`[{"serverParameters": {"x": 1}}, {"topologies": ["single"]}]`, "", []string{"single-7.0.0"}, ""},
		"versions":                {`[{"minServerVersion": "7.0", "maxServerVersion": "7.0.99"}]`, "", all, ""},
		"an old version":          {`[{"maxServerVersion": "4.2.99", "topologies": ["single"]}]`, "", []string{"single-4.2.0"}, ""},
		"a version for each":      {`[{"maxServerVersion": "4.2.99", "topologies": ["single"]}, {"minServerVersion": "5.0", "topologies": ["sharded"]}]`, "", []string{"sharded-7.0.0", "single-4.2.0"}, ""},
		"too new":                 {`[{"minServerVersion": "9.0"}]`, "", nil, "needs a server of version 9.0 or later"},
		"too old":                 {`[{"maxServerVersion": "3.6"}]`, "", nil, "needs a server of version 3.6 or before"},
		"authentication":          {`[{"auth": true, "topologies": ["single"]}]`, "", []string{"single-7.0.0-SCRAM-SHA-256"}, ""},
		"without":                 {`[{"auth": false, "serverless": "forbid", "csfle": false}]`, "", all, ""},
		"a mechanism":             {`[{"auth": true, "authMechanism": "MONGODB-OIDC", "topologies": ["single"]}]`, "", []string{"single-7.0.0-MONGODB-OIDC"}, ""},
		"another mechanism":       {`[{"auth": true, "authMechanism": "MONGODB-AWS"}]`, "", nil, "needs authentication by MONGODB-AWS"},
		"a contradiction":         {`[{"auth": false}]`, `[{"auth": true}]`, nil, ""},
		"encryption":              {`[{"csfle": true}]`, "", nil, "needs client-side encryption"},
		"serverless":              {`[{"serverless": "require"}]`, "", nil, "needs a serverless deployment"},
		"parameters":              {`[{"serverParameters": {"x": 1}}]`, "", nil, "needs the server parameter x"},
		"another topology":        {`[{"topologies": ["single"]}]`, `[{"topologies": ["sharded"]}]`, nil, "needs another topology"},
		"the reason that matters": {`[{"topologies": ["sharded"]}]`, `[{"auth": true, "serverParameters": {"x": 1}}]`, nil, "needs the server parameter x"},
	} {
		t.Run(name, func(t *testing.T) {
			file, one := "", operations("")
			if test.file != "" {
				file = `"runOnRequirements": ` + test.file + `,`
			}
			if test.test != "" {
				one += `, "runOnRequirements": ` + test.test
			}
			f := parse(t, unified.NewSchemas(spectest.Dir(t, suite)), file, one)
			got, unmet := f.Environments(f.Tests[0])
			if !slices.Equal(got, test.want) || test.unmet != "" && unmet != test.unmet {
				t.Errorf("environments are %v, %q, want %v, %q", got, unmet, test.want, test.unmet)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	const file = `"createEntities": [{"client": {"id": "c"}}, {"session": {"id": "s", "client": "c"}},
		{"client": {"id": "api", "serverApi": {"version": "1"}}}, {"database": {"id": "apiDB", "client": "api", "databaseName": "d"}},
		{"collection": {"id": "apiColl", "database": "apiDB", "collectionName": "k"}},
		{"client": {"id": "again", "uriOptions": {"retryReads": true}}}, {"client": {"id": "queue", "uriOptions": {"waitQueueSize": 1}}},
		{"client": {"id": "log", "observeLogMessages": {"command": "debug"}}}, {"database": {"id": "late", "client": "c", "databaseName": "d", "databaseOptions": {"timeoutMS": 1}}},
		{"bucket": {"id": "b", "database": "late"}}],`
	for name, test := range map[string]struct{ test, want string }{
		"nothing":                {operations(``), ""},
		"an operation":           {operations(`{"object": "c", "name": "upload"}`), "GridFS"},
		"an argument":            {operations(`{"object": "c", "name": "find", "arguments": {"autoEncryptOpts": "x"}}`), "client-side encryption"},
		"a time to run":          {operations(`{"object": "c", "name": "find", "arguments": {"timeoutMS": 1}}`), ""},
		"a time to wait":         {operations(`{"object": "testRunner", "name": "waitForPrimaryChange", "arguments": {"timeoutMS": 1}}`), ""},
		"an object":              {operations(`{"object": "apiDB", "name": "runCommand"}`), ""},
		"an object of an object": {operations(`{"object": "apiColl", "name": "find"}`), ""},
		"a name in an argument":  {operations(`{"object": "testRunner", "name": "waitForEvent", "arguments": {"client": "queue"}}`), "an option that CMAP has deprecated"},
		"an option":              {operations(`{"object": "queue", "name": "close"}`), "an option that CMAP has deprecated"},
		"a component":            {operations(`{"object": "log", "name": "close"}`), ""},
		"options of a database":  {operations(`{"object": "late", "name": "close"}`), ""},
		"a bucket":               {operations(`{"object": "b", "name": "close"}`), "GridFS"},
		"on a thread":            {operations(`{"object": "testRunner", "name": "runOnThread", "arguments": {"thread": "t", "operation": {"object": "c", "name": "upload"}}}`), "GridFS"},
		"entities of its own":    {operations(`{"object": "testRunner", "name": "createEntities", "arguments": {"entities": [{"bucket": {"id": "own", "database": "late"}}]}}, {"object": "own", "name": "x"}`), "GridFS"},
		"in a callback":          {operations(`{"object": "s", "name": "withTransaction", "arguments": {"callback": [{"object": "c", "name": "upload"}]}}`), "GridFS"},
		"events of a client":     {operations(``) + `, "expectEvents": [{"client": "api", "events": []}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := parse(t, unified.NewSchemas(spectest.Dir(t, suite)), file, test.test)
			if got := f.Missing(f.Tests[0]); got != test.want {
				t.Errorf("missing is %q, want %q", got, test.want)
			}
		})
	}
}
