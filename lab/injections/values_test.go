package injections

import "strings"

// In these lists @own stands for the attacker's database, @other for the other tenant's, and
// @shared for that of both.

// operators has operators of filters, and of updates, where a value or a document is expected.
var operators = []string{
	`{"$ne": null}`, `{"$ne": 1}`, `{"$gt": ""}`, `{"$gte": {"$minKey": 1}}`,
	`{"$lt": {"$maxKey": 1}}`, `{"$nin": []}`, `{"$in": [null, "", {"$gt": ""}]}`,
	`{"$in": "text"}`, `{"$exists": true}`, `{"$exists": {"$ne": 1}}`, `{"$not": {"$eq": 1}}`,
	`{"$not": null}`, `{"$regex": ".*"}`, `{"$regex": "^(a+)+$", "$options": "i"}`,
	`{"$regex": "a", "$options": "\u0000"}`, `{"$regex": "(?{exit})", "$options": "xyz"}`,
	`{"$regex": 1}`, `{"$options": "i"}`, `{"$mod": [0, 0]}`, `{"$mod": ["a"]}`,
	`{"$size": -1}`, `{"$type": -128}`, `{"$type": "none"}`, `{"$all": [{"$elemMatch": {}}]}`,
	`{"$elemMatch": {"$or": [{}]}}`, `{"$bitsAllSet": -1}`, `{"$jsonSchema": {"type": "x"}}`,
	`{"$near": [0, 0]}`, `{"$geoWithin": {"$box": [1]}}`, `{"$text": {"$search": "\"a\" -b"}}`,
	`{"$or": []}`, `{"$or": [{}, {"tenant": "b"}]}`, `{"$or": {"tenant": "b"}}`,
	`{"$and": [{"$nor": [{"tenant": "a"}]}]}`, `{"$nor": [{}]}`, `{"$and": null}`,
	`{"tenant": "b"}`, `{"tenant": {"$ne": "a"}}`, `{"tenant": ["a", "b"]}`,
	`{"tenant": "a", "tenant": "b"}`, `{"tenant": {"$eq": "a", "$eq": "b"}}`,
	`{"$comment": "*/ tenant == 'b' /*"}`, `{"$comment": {"$gt": ""}}`, `{"$unknown": 1}`,
	`{"$": 1}`, `{"": ""}`, `{"": {"$gt": ""}}`, `{"$_internalExprEq": "b"}`,
	`{"$alwaysTrue": 1}`, `{"$alwaysFalse": 0}`, `{"$sampleRate": 1.5}`,
	`{"$set": {"tenant": "a"}}`, `{"$set": {"tenant": "b"}}`, `{"$set": {"$where": "1"}}`,
	`{"$unset": {"tenant": 1}}`, `{"$rename": {"tenant": "x"}}`, `{"$rename": {"s": "tenant"}}`,
	`{"$setOnInsert": {"tenant": "b"}}`, `{"$currentDate": {"_id": true}}`,
	`{"$inc": {"_id": 1}}`, `{"$push": {"arr": {"$each": [1], "$slice": "x"}}}`,
	`{"$pull": {"arr": {"$where": "1"}}}`, `{"$bit": {"n": {"xor": "1"}}}`,
	`{"$set": {"arr.$[].x": 1}}`, `{"$set": {"arr.$": 1}}`, `{"$set": {"n.999999999": 1}}`,
}

// scripts has JavaScript and expressions, in the forms that servers run.
var scripts = []string{
	`{"$where": "this.tenant == 'b'"}`, `{"$where": "1; sleep(1000)"}`,
	`{"$where": "'; return true; var x='"}`, `{"$where": "function() { while (true) {} }"}`,
	`{"$where": {"$code": "return true", "$scope": {}}}`, `{"$where": null}`,
	`{"$or": [{"$where": "true"}]}`, `{"$and": [{"$nor": [{"$where": "false"}]}]}`,
	`{"$expr": {"$function": {"body": "function() { return true }", "args": [], "lang": "js"}}}`,
	`{"$function": {"body": "return 1", "args": ["$$ROOT"], "lang": "js"}}`,
	`{"$accumulator": {"init": "function() {}", "accumulate": "x", "accumulateArgs": [],
		"merge": "x", "lang": "js"}}`,
	`{"$expr": true}`, `{"$expr": {"$eq": ["$tenant", "b"]}}`, `{"$expr": "$$ROOT"}`,
	`{"$expr": {"$divide": [1, 0]}}`, `{"$expr": {"$getField": "tenant"}}`,
	`{"$expr": {"$let": {"vars": {"x": "$$ROOT"}, "in": "$$x"}}}`,
	`{"$expr": {"$toInt": "$s"}}`, `{"$expr": {"$eq": ["$$USER_ROLES", []]}}`,
	`"$$ROOT"`, `"$$CURRENT.tenant"`, `"$$REMOVE"`, `"$$unknown"`, `"$"`, `"$$"`, `"$.a"`,
	`"$tenant"`, `{"$literal": "$tenant"}`, `{"x": "$$ROOT"}`, `{"x": {"$meta": "textScore"}}`,
	`{"$setField": {"field": "tenant", "input": "$$ROOT", "value": "b"}}`,
	`{"mapReduce": "orders", "map": "function() {}", "reduce": "x", "out": "@other.loot"}`,
}

// stages has stages of aggregations that reach elsewhere.
var stages = []string{
	`{"$lookup": {"from": "orders", "localField": "x", "foreignField": "y", "as": "z"}}`,
	`{"$lookup": {"from": {"db": "@other", "coll": "orders"}, "pipeline": [], "as": "z"}}`,
	`{"$lookup": {"from": "@other.orders", "pipeline": [{"$match": {}}], "as": "z"}}`,
	`{"$lookup": {"from": {"db": "@shared", "coll": "orders"}, "localField": "a",
		"foreignField": "a", "as": "z"}}`,
	`{"$lookup": {"from": "parts", "let": {"t": "b"}, "pipeline": [{"$match":
		{"$expr": {"$eq": ["$tenant", "$$t"]}}}], "as": "z"}}`,
	`{"$lookup": {"from": "vault", "pipeline": [], "as": "z"}}`,
	`{"$lookup": {"from": "system.users", "pipeline": [], "as": "z"}}`,
	`{"$lookup": {"as": "z", "pipeline": [{"$documents": [{"x": 1}]}]}}`,
	`{"$unionWith": "orders"}`, `{"$unionWith": {"db": "@other", "coll": "orders"}}`,
	`{"$unionWith": {"coll": "@other.orders"}}`, `{"$unionWith": "vault"}`,
	`{"$unionWith": {"coll": "parts", "pipeline": [{"$unionWith": "vault"}]}}`,
	`{"$unionWith": {"pipeline": [{"$documents": [{"x": 1}]}]}}`,
	`{"$graphLookup": {"from": "orders", "startWith": 1, "connectFromField": "a",
		"connectToField": "a", "as": "z"}}`,
	`{"$graphLookup": {"from": {"db": "@other", "coll": "orders"}, "startWith": "$s",
		"connectFromField": "s", "connectToField": "s", "as": "z"}}`,
	`{"$out": "loot"}`, `{"$out": {"db": "@other", "coll": "orders"}}`,
	`{"$out": {"db": "@shared", "coll": "loot"}}`, `{"$out": "system.users"}`,
	`{"$out": {"db": "admin", "coll": "loot"}}`, `{"$out": {"s3": {"bucket": "loot"}}}`,
	`{"$merge": "loot"}`, `{"$merge": {"into": {"db": "@other", "coll": "orders"}}}`,
	`{"$merge": {"into": {"db": "@shared", "coll": "orders"}, "on": "_id",
		"whenMatched": [{"$set": {"tenant": "a"}}]}}`,
	`{"$merge": {"into": "@other.orders", "whenNotMatched": "insert"}}`,
	`{"$documents": [{"tenant": "b"}]}`, `{"$documents": "$$ROOT"}`, `{"$currentOp": {}}`,
	`{"$currentOp": {"allUsers": true, "idleSessions": true}}`, `{"$listSessions": {}}`,
	`{"$listLocalSessions": {"allUsers": true}}`, `{"$collStats": {"storageStats": {}}}`,
	`{"$indexStats": {}}`, `{"$planCacheStats": {}}`, `{"$listSampledQueries": {}}`,
	`{"$changeStream": {"allChangesForCluster": true}}`, `{"$_internalInhibitOptimization": {}}`,
	`{"$_internalReadAggregateResume": {}}`, `{"$listCatalog": {}}`, `{"$queryStats": {}}`,
	`{"$search": {"index": "default", "text": {"query": "*", "path": {"wildcard": "*"}}}}`,
	`{"$facet": {"x": [{"$unionWith": {"db": "@other", "coll": "orders"}}]}}`,
	`{"$facet": {"x": [{"$out": "loot"}]}}`, `{"$match": {"$where": "true"}}`,
	`{"$group": {"_id": "$tenant", "all": {"$push": "$$ROOT"}}}`,
	`{"$replaceRoot": {"newRoot": "$sub"}}`, `{"$replaceWith": {"tenant": "b"}}`,
	`{"$redact": "$$KEEP"}`, `{"$unset": "tenant"}`, `{"$project": {"tenant": 0}}`,
	`{"$match": {}, "$out": "loot"}`, `{"$limit": -1}`, `{"$skip": "1"}`, `{"$sample": {}}`,
	`{"$setWindowFields": {"output": {"x": {"$push": "$$ROOT"}}}}`, `{"$bucket": {}}`,
}

// commands has commands, which are documents of any call as well.
var commands = []string{
	`{"listCollections": 1}`, `{"listDatabases": 1, "nameOnly": true}`, `{"dbStats": 1}`,
	`{"find": "orders", "$db": "@other"}`, `{"find": "orders", "filter": {}, "$db": "admin"}`,
	`{"find": "@other.orders"}`, `{"find": "$cmd"}`, `{"find": "$cmd.listCollections"}`,
	`{"find": "system.users"}`, `{"find": {"$gt": ""}}`, `{"FIND": "orders"}`,
	`{"count": "orders", "find": "vault"}`, `{"ping": 1, "dropDatabase": 1}`,
	`{"aggregate": 1, "pipeline": [{"$listLocalSessions": {}}], "cursor": {}}`,
	`{"aggregate": "orders", "pipeline": [{"$out": {"db": "@other", "coll": "orders"}}],
		"cursor": {}}`,
	`{"renameCollection": "@other.orders", "to": "@own.loot"}`,
	`{"renameCollection": "@own.orders", "to": "@other.orders", "dropTarget": true}`,
	`{"eval": "db.dropDatabase()"}`, `{"$eval": "1"}`, `{"shutdown": 1, "force": true}`,
	`{"createUser": "x", "pwd": "y", "roles": ["root"]}`, `{"getLog": "global"}`,
	`{"killAllSessions": []}`, `{"setParameter": 1, "logLevel": 5}`,
	`{"getMore": {"$numberLong": "1"}, "collection": "orders"}`, `{"getParameter": "*"}`,
	`{"applyOps": [{"op": "d", "ns": "@other.orders", "o": {"_id": 1}}]}`, `{"hello": 1}`,
	`{"insert": "orders", "documents": [{}], "$db": "@other", "lsid": {"id": 1}}`,
	`{"bulkWrite": 1, "ops": [{"delete": 0, "filter": {}, "multi": true}],
		"nsInfo": [{"ns": "@other.orders"}], "$db": "admin"}`,
	`{"explain": {"find": "orders", "$db": "@other"}}`, `{"validate": "orders"}`,
	`{"locale": "en", "strength": 1}`, `{"locale": "\u0000"}`, `{"level": "majority"}`,
	`{"w": 0}`, `{"w": {"$gt": ""}}`, `{"mode": "nearest", "tags": [{}]}`,
	`{"key": {"$**": "text"}, "name": "*"}`, `{"key": {"": 1}}`, `{"key": {"_id": 1}, "name": ""}`,
	`{"insertOne": {"document": {"tenant": "b"}}}`, `{"deleteMany": {"filter": {}}}`,
	`{"namespace": "@other.orders", "deleteMany": {"filter": {}}}`,
	`{"namespace": "@other.orders", "insertOne": {"document": {"x": 1}}}`,
	`{"findOne": {"database": "@other", "collection": "orders"}}`,
	`{"database": "@other", "collection": "orders"}`, `{"resumeAfter": {"_data": "82"}}`,
}

// wrappers has Extended JSON, most of it malformed.
var wrappers = []string{
	`{"$oid": "0123456789abcdef01234567"}`, `{"$oid": "x"}`, `{"$oid": {"$ne": 1}}`,
	`{"$oid": "0123456789abcdef01234567", "x": 1}`, `{"$date": "now"}`, `{"$date": null}`,
	`{"$date": {"$numberLong": "9223372036854775808"}}`, `{"$date": "9999999-01-01T00:00:00Z"}`,
	`{"$numberInt": "2147483648"}`, `{"$numberInt": 1}`, `{"$numberLong": "1e3"}`,
	`{"$numberDouble": "NaN"}`, `{"$numberDouble": "0x10"}`, `{"$numberDecimal": "1E+7000"}`,
	`{"$numberDecimal": "-0E-6176"}`, `{"$numberDecimal": ""}`, `{"$binary": ""}`,
	`{"$binary": {"base64": "!", "subType": "00"}}`,
	`{"$binary": {"base64": "AAAA", "subType": "100"}}`, `{"$binary": "AAAA", "$type": "03"}`,
	`{"$uuid": "g"}`, `{"$uuid": "73ffd264-44b3-4c69-90e8-e7d1dfc035d4", "$gt": 1}`,
	`{"$regularExpression": {"pattern": "a\u0000b", "options": "zi"}}`,
	`{"$regularExpression": {"pattern": "(", "options": ""}}`,
	`{"$timestamp": {"t": -1, "i": 4294967296}}`, `{"$timestamp": {"t": 1}}`,
	`{"$code": "this"}`, `{"$code": "x", "$scope": {"$code": "y"}}`, `{"$scope": {}}`,
	`{"$symbol": "x"}`, `{"$symbol": 1}`, `{"$undefined": false}`, `{"$undefined": true}`,
	`{"$minKey": 2}`, `{"$maxKey": "1"}`, `{"$dbPointer": {"$ref": "x", "$id": 1}}`,
	`{"$dbPointer": {"$ref": "@other.orders", "$id": {"$oid": "0123456789abcdef01234567"}}}`,
	`{"$ref": "orders", "$id": 1, "$db": "@other"}`, `{"$ref": {"$gt": ""}, "$id": null}`,
}

// texts has other JSON: confused types, keys that programs treat as their own, numbers out of
// range, Unicode, and text that is not JSON.
var texts = append([]string{
	`null`, `true`, `0`, `-0.0`, `""`, `[]`, `[[]]`, `{}`, `[{}]`, `[null]`, `"1"`, `[1, "x", {}]`,
	`1e400`, `-1e400`, `9223372036854775808`, `18446744073709551616`, `2147483648`, `1e-400`,
	`0.1e1`, `00`, `1.`, `NaN`, `Infinity`, `0x10`, `-9223372036854775809`,
	`{"__proto__": {"tenant": "b"}}`, `{"constructor": {"prototype": {"admin": true}}}`,
	`{"prototype": 1, "toString": 1, "hasOwnProperty": 1}`, `{"__proto__": null, "$ne": 1}`,
	`{"a.b": 1}`, `{"a..b": 1}`, `{".": 1}`, `{"a.": 1}`, `{"a.$": 1}`, `{"$a.b": 1}`,
	`{"a": {"$b": 1}}`, `{"_id": {"$gt": ""}}`, `{"_id": [1]}`, `{"_id": null}`,
	`{"_id": {"$oid": "0123456789abcdef01234567"}, "_id": 2}`, `{"a": 1, "a": {"$gt": ""}}`,
	`{"tenant": "a", "tenant.x": "b"}`, `{"sub.x": {"$ne": null}}`, `{"\u0000": 1}`,
	`{"a\u0000b": 1}`, `"a\u0000b"`, `{"tenant\u0000": "b"}`, `"\ud800"`, `"\udc00\ud800"`,
	`{"\ud800": 1}`, "\"\xc0\xaf\"", "\"\xff\"", "{\"\xc0\x80\": 1}", "\"\xed\xa0\x80\"",
	"\"\u202e\u2066\"", `"\u202etxt.exe"`, `{"ten\u0430nt": "b"}`, `{"\u0024ne": 1}`,
	`{"\uff04ne": 1}`, `{"\u0024where": "true"}`, `{"tenant\u200b": "b"}`, `"\ufeff"`,
	"\ufeff{}", `"a\u0308"`, `"\r\nInjected: 1"`, `"'; DROP TABLE orders; --"`,
	`"' || '1'=='1"`, `"'; return true; //"`, `"<script>alert(1)</script>"`, `"${jndi:ldap://x}"`,
	`"{{7*7}}"`, `"../../etc/passwd"`, `"%00"`, `"%24ne"`, `"$(id)"`, `"|id"`, `"%n%s%d"`,
	`{`, `}`, `{"a"}`, `{"a": }`, `{'$ne': 1}`, `{$ne: 1}`, `{"a": 1} {"b": 2}`, `[}`, `"`,
	`{"a": 1,}`, `/* */ {}`, `{} // {}`, `{"a": undefined}`, `new Date()`, `ObjectId("x")`,
	`"$cmd"`, `"$cmd.listCollections"`, `"system.users"`, `"@other.orders"`, `"@other"`,
	`"@other.$cmd"`, `"admin"`, `"_id_"`, `"*"`, `"vault"`, `"tenant"`, `"sub.x"`, `"$natural"`,
	`{"$natural": -1}`, `{"$hint": "x"}`, `{"$query": {}, "$orderby": {"tenant": 1}}`,
	`{"n": 1, "tenant": -1}`, `{"n": 2}`, `{"n": {"$slice": -1}}`, `{"tenant": 1, "n": 0}`,
}, large()...)

// large returns values that are deep or long.
func large() []string {
	return []string{
		nested(`{"a":`, "1", `}`, 101), nested(`{"a":`, "1", `}`, 10_000), nested(`[`, "1", `]`, 300),
		nested(`{"$and":[`, `{"tenant":"b"}`, `]}`, 90), nested(`{"$not":`, `{"$ne":1}`, `}`, 60),
		nested(`[{"$facet":{"x":`, `[]`, `}}]`, 25), nested(`{"$expr":`, "1", `}`, 99),
		`{"` + strings.Repeat("k", 20_000) + `": 1}`, `"` + strings.Repeat("é", 20_000) + `"`,
		strings.Repeat("[", 50_000), `{"$in": [` + strings.Repeat("1,", 5_000) + `1]}`,
		`{"` + strings.Repeat("a.", 300) + `a": 1}`,
	}
}

func nested(open, inner, end string, depth int) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
}
