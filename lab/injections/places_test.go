package injections

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// place is a part of a request of REST or of the Data API. @v stands for what is put there.
type place struct {
	method, path, body string
	// header is the name of the header whose value is put there; empty: it is none.
	header string
	// strings says that @v is a text, within quotes, and not any JSON.
	strings bool
}

const collectionPath = "/v1/databases/@own/collections/orders"

// bodies has the calls of REST, by their paths, with the places in their bodies.
var bodies = map[string][]string{
	collectionPath + "/documents:find": {
		`@v`, `{"filter": @v}`, `{"filter": {"n": @v}}`, `{"filter": {"$or": [@v, {"tenant": "b"}]}}`,
		`{"filter": {"$expr": @v}}`, `{"filter": {"n": {"$in": [@v]}}}`, `{"projection": @v}`,
		`{"filter": {"n": {"$not": @v}}}`, `{"filter": {"arr": {"$elemMatch": @v}}}`,
		`{"projection": {"x": @v}}`, `{"sort": @v}`, `{"sort": {"n": @v}}`, `{"hint": @v}`,
		`{"collation": @v}`, `{"filter": {"$expr": {"$eq": ["$s", "$$x"]}}, "let": {"x": @v}}`,
		`{"let": @v}`, `{"comment": @v}`, `{"min": @v}`, `{"max": {"n": @v}}`, `{"limit": @v}`,
		`{"skip": @v}`, `{"batchSize": @v}`, `{"maxTimeMS": @v}`, `{"readConcern": @v}`,
		`{"options": @v}`, `{"session": @v}`, `{"transaction": @v}`, `{"statement": @v}`,
	},
	collectionPath + "/documents:aggregate": {
		`{"pipeline": @v}`, `{"pipeline": [@v]}`, `{"pipeline": [{"$match": @v}]}`,
		`{"pipeline": [{"$addFields": {"x": @v}}]}`, `{"pipeline": [{"$group": {"_id": @v}}]}`,
		`{"pipeline": [{"$facet": {"x": [@v]}}]}`, `{"pipeline": [{"$sort": {"n": 1}}, @v]}`,
		`{"pipeline": [{"$lookup": {"from": "parts", "let": {"y": @v}, "pipeline": [], "as": "x"}}]}`,
		`{"pipeline": [{"$lookup": {"from": "parts", "pipeline": [@v], "as": "x"}}]}`,
		`{"pipeline": [{"$lookup": @v}]}`, `{"pipeline": [{"$unionWith": @v}]}`,
		`{"pipeline": [{"$out": @v}]}`, `{"pipeline": [{"$merge": @v}]}`, `{"pipeline": [], "let": @v}`,
		`{"pipeline": [], "writeConcern": @v}`,
	},
	"/v1/databases/@own:aggregate":                 {`{"pipeline": [@v]}`},
	collectionPath + "/documents:explainAggregate": {`{"pipeline": [@v]}`},
	collectionPath + "/documents:explainFind":      {`{"filter": @v}`, `{"verbosity": @v}`},
	collectionPath + "/documents:countDocuments":   {`{"filter": @v}`, `{"hint": @v}`},
	collectionPath + "/documents:distinct": {
		`{"fieldName": @v}`, `{"fieldName": "s", "filter": @v}`,
	},
	collectionPath + "/documents:updateOne": {
		`{"filter": @v, "update": {"$set": {"z": 1}}}`, `{"filter": {}, "update": @v}`,
		`{"filter": {}, "update": [@v]}`, `{"filter": {}, "update": {"$set": @v}}`,
		`{"filter": {}, "update": {"$set": {"z": @v}}}`, `{"filter": {}, "update": {"$push": {"arr": @v}}}`,
		`{"filter": {}, "update": {"$set": {"arr.$[x]": 1}}, "arrayFilters": [@v]}`,
		`{"filter": @v, "update": {"$set": {"z": 1}}, "upsert": true}`,
		`{"filter": {}, "sort": @v, "update": {"$set": {"z": 1}}}`,
	},
	collectionPath + "/documents:updateMany": {`{"filter": @v, "update": {"$set": {"z": 2}}}`},
	collectionPath + "/documents:replaceOne": {
		`{"filter": {"n": 1}, "replacement": @v}`, `{"filter": @v, "replacement": {"z": 1}}`,
	},
	collectionPath + "/documents:insertOne": {`{"document": @v}`, `{"document": {"x": @v}}`},
	collectionPath + "/documents:insertMany": {
		`{"documents": [@v, {}]}`, `{"documents": [{"_id": @v}], "ordered": false}`,
	},
	collectionPath + "/documents:deleteOne":        {`{"filter": @v}`},
	collectionPath + "/documents:deleteMany":       {`{"filter": @v}`, `{"filter": {"n": @v}}`},
	collectionPath + "/documents:findOneAndDelete": {`{"filter": @v}`, `{"filter": {}, "sort": @v}`},
	collectionPath + "/documents:findOneAndUpdate": {
		`{"filter": {}, "update": @v}`, `{"filter": {}, "update": {"$set": {"z": 1}}, "projection": @v}`,
	},
	collectionPath + "/documents:bulkWrite": {
		`{"models": [@v]}`, `{"models": [{"insertOne": {"document": @v}}]}`,
		`{"models": [{"updateOne": {"filter": @v, "update": {"$set": {"z": 3}}}}]}`,
		`{"models": [{"deleteMany": {"filter": @v}}]}`,
	},
	"/v1:bulkWrite": {
		`{"models": [@v]}`, `{"models": [{"namespace": @v, "deleteMany": {"filter": {}}}]}`,
		`{"models": [{"namespace": "@own.orders", "deleteMany": {"filter": @v}}]}`,
	},
	"/v1/transactions:run": {
		`{"operations": [@v]}`,
		`{"operations": [{"findOne": {"database": "@own", "collection": "orders", "filter": @v}}]}`,
		`{"operations": [{"deleteOne": {"database": @v, "collection": "orders", "filter": {}}}]}`,
	},
	"/v1/databases/@own:runCommand": {
		`{"command": @v}`, `{"command": {"find": @v}}`, `{"command": {"find": "orders", "filter": @v}}`,
		`{"command": {"count": "orders", "query": @v}}`,
	},
	"/v1/databases/@own:runCursorCommand": {
		`{"command": @v}`, `{"command": {"aggregate": "orders", "pipeline": [@v], "cursor": {}}}`,
	},
	"/v1/databases/@own/collections/loot:create": {
		`@v`, `{"viewOn": "orders", "pipeline": [@v]}`, `{"validator": @v}`, `{"viewOn": @v}`,
	},
	"/v1/databases/@own/collections/loot/documents:find": {`{"filter": @v}`},
	collectionPath + ":collMod":                          {`{"validator": @v}`, `{"viewOn": @v}`},
	collectionPath + ":rename": {
		`{"to": @v}`, `{"to": "loot", "toDatabase": @v}`, `{"to": "orders", "toDatabase": @v, "dropTarget": true}`,
	},
	collectionPath + "/indexes:create": {`{"indexes": [@v]}`, `{"indexes": [{"keys": @v}]}`},
	collectionPath + "/indexes:drop":   {`{"index": @v}`},
	collectionPath + ":watch":          {`{"pipeline": [@v]}`, `{"resumeAfter": @v}`, `{"fullDocument": @v}`},
	collectionPath + "/documents:live": {`{"filter": @v}`, `{"filter": {"n": @v}}`, `{"projection": @v}`},
	"/v1/changeStreams:ticket": {
		`@v`, `{"live": {"database": "@own", "collection": "orders", "filter": @v}}`, `{"live": @v}`, `{"watch": {"database": "@own", "pipeline": [@v]}}`, `{"watch": {"database": @v}}`,
	},
	"/v1/cursors:next": {`{"cursor": @v}`}, "/v1/cursors:close": {`{"cursor": @v}`},
	"/v1/sessions:start": {`@v`}, "/v1/sessions:end": {`{"session": @v}`},
	"/v1/transactions:commit":          {`{"transaction": @v}`},
	"/v1/deployment/handles:kill":      {`@v`},
	collectionPath + "/documents/1001": {},
}

// actions has the places of the Data API's bodies.
var actions = map[string][]string{
	"findOne":    {`"filter": @v`, `"projection": @v`, `"sort": @v`},
	"find":       {`"filter": @v`, `"filter": {"n": @v}`, `"limit": @v`, `"skip": @v`, `@v: 1`},
	"aggregate":  {`"pipeline": @v`, `"pipeline": [@v]`},
	"insertOne":  {`"document": @v`},
	"insertMany": {`"documents": [@v]`},
	"updateOne":  {`"filter": @v, "update": {"$set": {"z": 1}}`, `"filter": {}, "update": @v`},
	"updateMany": {`"filter": {}, "update": {"$set": @v}`, `"filter": {}, "update": {"z": 1}, "upsert": @v`},
	"replaceOne": {`"filter": {"n": 1}, "replacement": @v`},
	"deleteOne":  {`"filter": @v`},
	"deleteMany": {`"filter": @v`},
}

// queries has the parameters of a GET of a list that are JSON or text.
var queries = []string{
	"filter", "projection", "sort", "hint", "collation", "limit", "batchSize", "comment",
	"readConcern", "maxTimeMS", "timeout", "unknown",
}

// headers has the headers that carry a value of the client's.
var headers = []string{
	"Mooring-Session", "Mooring-Transaction", "Idempotency-Key", "If-Match", "If-None-Match",
	"Last-Event-ID", "Prefer", "Mooring-Request-Id", "Request-Timeout", "Accept", "Content-Type",
	"Content-Encoding", "Traceparent", "X-Http-Method-Override",
}

// places returns all places, in an order that does not change.
func places() (all []place) {
	for path, texts := range bodies {
		for _, body := range texts {
			all = append(all, place{method: "POST", path: path, body: body})
		}
	}
	const dataAPI = "/app/lab/endpoint/data/v1/action/"
	for action, texts := range actions {
		for _, body := range texts {
			body = `{"dataSource": "lab", "database": "@own", "collection": "orders", ` + body + `}`
			all = append(all, place{method: "POST", path: dataAPI + action, body: body})
		}
	}
	for _, field := range []string{"dataSource", "database", "collection"} {
		fields := map[string]string{
			"dataSource": `"lab"`, "database": `"@own"`, "collection": `"orders"`,
		}
		fields[field] = "@v"
		for _, action := range []string{"find", "deleteMany", "aggregate"} {
			all = append(all, place{
				method: "POST", path: dataAPI + action, strings: true, body: fmt.Sprintf(
					`{"dataSource": %s, "database": %s, "collection": %s, "filter": {}}`,
					fields["dataSource"], fields["database"], fields["collection"]),
			})
		}
	}
	documents := collectionPath + "/documents"
	for _, name := range queries {
		all = append(all, place{method: "GET", path: documents + "?" + name + "=@v"})
	}
	all = append(
		all, place{method: "GET", path: documents + "/@v"},
		place{method: "DELETE", path: documents + "/@v"},
		place{method: "PUT", path: documents + "/@v", body: `{"x": 1}`},
		place{method: "PUT", path: documents + "/1001", body: "@v"},
		place{method: "PATCH", path: documents + "/1001", body: "@v"},
		place{method: "GET", path: "/v1/databases?filter=@v"},
		place{method: "GET", path: "/v1/databases/@own/collections?filter=@v"},
		place{method: "POST", path: documents + ":import", body: "@v\n{}\n"},
	)
	for _, name := range headers {
		all = append(
			all, place{method: "GET", path: documents + "/1001", header: name, strings: true},
			place{
				method: "PUT", path: documents + "/1001", header: name, body: `{"x": 1}`,
				strings: true,
			},
			place{
				method: "POST", path: documents + ":updateOne", header: name,
				body: `{"filter": {}, "update": {"$set": {"z": 4}}}`, strings: true,
			},
		)
	}
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// String returns the place as a failure names it.
func (p place) String() string {
	return strings.TrimSpace(p.method + " " + p.path + " " + p.header + " " + p.body)
}

// values returns what is put into the place.
func (p place) values() []string {
	if p.header != "" {
		return tokens
	}
	if p.strings || strings.Contains(p.body, `"cursor": @v`) ||
		strings.Contains(p.body, `"session": @v`) {
		quoted := make([]string, 0, len(names)+len(tokens))
		for _, text := range slices.Concat(names, tokens) {
			quoted = append(quoted, fmt.Sprintf("%q", text))
		}
		return quoted
	}
	return slices.Concat(operators, scripts, stages, commands, wrappers, texts)
}

// fill returns the place's path, body and header with a value.
func (p place) fill(value string) (path, body, header string) {
	path = strings.ReplaceAll(p.path, "@v", url.QueryEscape(value))
	if !strings.Contains(p.path, "?") {
		path = strings.ReplaceAll(p.path, "@v", url.PathEscape(value))
	}
	if p.header != "" {
		return path, p.body, value
	}
	return path, strings.ReplaceAll(p.body, "@v", value), ""
}

// contentType returns the type of the place's body.
func (p place) contentType() string {
	if strings.HasSuffix(p.path, ":import") {
		return "application/x-ndjson"
	}
	return "application/json"
}

// paths has what a raw request asks for, with @v for a segment of the path or a part of the query.
var paths = []string{
	"GET /v1/databases/@v/collections/orders/documents", "GET /v1/databases/@own/collections/@v/documents",
	"POST /v1/databases/@v/collections/orders/documents:find",
	"POST /v1/databases/@own/collections/@v/documents:aggregate",
	"POST /v1/databases/@own/collections/@v/documents:deleteMany", "POST /v1/databases/@v:runCommand",
	"POST /v1/databases/@v/collections/orders/documents:insertOne", "GET /v1/databases/@v/collections",
	"POST /v1/databases/@own/collections/@v/documents:insertOne", "POST /v1/databases/@own/@v/orders:drop",
	"POST /v1/databases/@v:drop", "POST /v1/databases/@own/collections/@v:drop",
	"POST /v1/databases/@v/collections/orders:drop", "POST /v1/databases/@own/collections/@v:create",
	"GET /v1/databases/@own/collections/orders/documents/@v", "DELETE " + collectionPath + "/documents/@v",
	"GET /v1/databases/@own/collections/orders/documents/@v?idType=string",
	"PUT /v1/databases/@own/collections/orders/documents/@v", "GET /v1/changeStreams/@v", "GET /@v",
	"POST /app/@v/endpoint/data/v1/action/find", "POST /action/@v", "GET " + collectionPath + "/documents?@v",
	"GET /v1/databases/@own/collections/orders/documents?filter=@v", "POST " + collectionPath + "/documents:@v",
}
