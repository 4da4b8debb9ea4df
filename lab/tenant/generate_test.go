// Package tenant tests that a policy keeps tenants apart. A tenant sends generated requests in two
// worlds, one without and one with the documents of another tenant. If it can tell the worlds
// apart, by a result, a count or an error, then the policy leaks.
package tenant

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
)

// request holds one call of REST: the path and the body, in which databaseName stands for the name
// of the world's database.
type request struct {
	path string
	// get says that the call has no body, and its method is GET.
	get  bool
	body map[string]any
	// lines is the body of an import, in place of body.
	lines []doc
	// write says that it may change documents.
	write bool
}

type doc = map[string]any

// generator makes requests. The same seed makes the same ones.
type generator struct {
	*rand.Rand
	next int // the _id of the next document that is inserted
	// simple makes only what a scripted server knows.
	simple bool
	// wide makes calls on databases, too, and on a collection that a rule forbids.
	wide bool
}

// databaseName stands for the name of a database.
const databaseName = "@database"

// inDatabase returns the path of a call on a collection.
func inDatabase(collection, verb string) string {
	return "/v1/databases/" + databaseName + "/collections/" + collection + "/documents:" + verb
}

// own and foreign begin the _ids of the two tenants. Those of documents that the tenant inserts
// begin at inserted.
const (
	own, foreign, inserted = 0, 1_000, 10_000
	population             = 12
)

func pick[T any](g *generator, items ...T) T { return items[g.IntN(len(items))] }

func (g *generator) id() int { return pick(g, own, foreign) + g.IntN(population) }

func (g *generator) collection() string {
	if g.wide && g.IntN(12) == 0 {
		return vault
	}
	return pick(g, "orders", "parts")
}

func (g *generator) field() string {
	return pick(g, "n", "s", "arr", "sub.x", "sub", "tenant", "ref", "_id", "secret", "missing")
}

func (g *generator) value() any {
	return pick[any](g, g.IntN(6), g.IntN(6), pick(g, "p", "q", "r"), nil, true, "a", "b", g.id())
}

// condition returns a condition of a field.
func (g *generator) condition() any {
	switch g.IntN(12) {
	case 0:
		return doc{"$gt": g.value()}
	case 1:
		return doc{"$lte": g.value()}
	case 2:
		return doc{"$ne": g.value()}
	case 3:
		return doc{"$in": []any{g.value(), g.value(), "a", "b"}}
	case 4:
		return doc{"$nin": []any{g.value()}}
	case 5:
		return doc{"$exists": g.IntN(2) == 0}
	case 6:
		return doc{"$not": doc{"$gt": g.value()}}
	case 7:
		return doc{
			"$regularExpression": doc{"pattern": pick(g, "^", "a", "b", "secret"), "options": "i"},
		}
	case 8:
		return doc{"$elemMatch": doc{"$gte": g.IntN(5)}}
	case 9:
		return doc{"$type": pick(g, "string", "int", "null")}
	default:
		return g.value()
	}
}

// expression returns an aggregation expression.
func (g *generator) expression(depth int) any {
	path := "$" + g.field()
	if depth > 2 {
		return pick[any](g, path, g.IntN(4), "$$ROOT")
	}
	sub := func() any { return g.expression(depth + 1) }
	switch g.IntN(10) {
	case 0:
		return doc{"$eq": []any{sub(), sub()}}
	case 1:
		return doc{"$cond": []any{doc{"$gt": []any{sub(), sub()}}, sub(), sub()}}
	case 2:
		return doc{"$divide": []any{1, sub()}}
	case 3:
		return doc{"$toInt": sub()}
	case 4:
		return doc{"$ifNull": []any{sub(), sub()}}
	case 5:
		return doc{"$add": []any{sub(), 1}}
	case 6:
		return doc{"$and": []any{sub(), sub()}}
	default:
		return path
	}
}

// filter returns a filter. Many try to reach the other tenant's documents.
func (g *generator) filter(depth int) doc {
	if g.simple {
		return pick(g, doc{}, g.one(), doc{"tenant": pick(g, "a", "b")}, doc{"n": g.IntN(6)},
			doc{"$or": []any{doc{"tenant": "b"}, g.one()}})
	}
	if depth > 2 {
		return doc{g.field(): g.condition()}
	}
	sub := func() any { return g.filter(depth + 1) }
	switch g.IntN(14) {
	case 0:
		return doc{}
	case 1:
		return doc{"$or": []any{sub(), sub()}}
	case 2:
		return doc{"$and": []any{sub(), sub()}}
	case 3:
		return doc{"$nor": []any{sub()}}
	case 4:
		return doc{"tenant": "b"}
	case 5:
		return doc{"$or": []any{doc{"tenant": "a"}, doc{"tenant": "b"}, doc{}}}
	case 6:
		return doc{"$expr": g.expression(0)}
	case 7:
		return doc{
			"$or": []any{
				doc{"$expr": doc{"$divide": []any{1, doc{"$cond": []any{doc{"$eq": []any{"$tenant", "b"}}, 0, 1}}}}}, doc{"n": -1},
			},
		}
	case 8:
		return doc{pick(g, "$where", "$comment"): "this.tenant == 'b'"}
	case 9:
		return doc{"_id": g.id()}
	default:
		return doc{g.field(): g.condition(), g.field(): g.condition()}
	}
}

func (g *generator) stage(depth int) doc {
	path := "$" + g.field()
	switch g.IntN(22) {
	case 0, 1:
		return doc{"$match": g.filter(0)}
	case 2:
		return doc{"$group": doc{"_id": path, "n": doc{"$sum": 1}, "all": doc{"$push": "$_id"}}}
	case 3:
		return doc{"$project": doc{"x": g.expression(0), "tenant": 1}}
	case 4:
		return doc{"$addFields": doc{pick(g, "n", "tenant", "z"): g.expression(0)}}
	case 5:
		return doc{
			"$lookup": doc{
				"from": g.collection(), "localField": g.field(), "foreignField": g.field(),
				"as": "joined",
			},
		}
	case 6:
		return doc{
			"$lookup": doc{
				"from": g.collection(), "let": doc{"x": "$ref"}, "pipeline": g.pipeline(depth + 1),
				"as": "joined",
			},
		}
	case 7:
		return doc{"$unionWith": doc{"coll": g.collection(), "pipeline": g.pipeline(depth + 1)}}
	case 8:
		return doc{
			"$graphLookup": doc{
				"from": g.collection(), "startWith": path, "connectFromField": "ref",
				"connectToField": g.field(), "as": "graph",
			},
		}
	case 9:
		return doc{"$facet": doc{"one": g.pipeline(depth + 1), "two": g.pipeline(depth + 1)}}
	case 10:
		return doc{"$count": "n"}
	case 11:
		return doc{"$sortByCount": path}
	case 12:
		return doc{"$unwind": "$arr"}
	case 13:
		return doc{"$unset": pick(g, "tenant", "n")}
	case 14:
		return doc{
			"$replaceRoot": doc{"newRoot": doc{"$ifNull": []any{"$sub", doc{"tenant": "b"}}}},
		}
	case 15:
		return doc{"$sample": doc{"size": 1000}}
	case 16:
		return doc{"$collStats": doc{"count": doc{}}}
	case 17:
		return pick(g, doc{"$out": g.collection()}, doc{"$merge": doc{"into": g.collection()}})
	case 18:
		return doc{"$indexStats": doc{}}
	case 19:
		return doc{"$unionWith": g.collection()}
	default:
		return doc{"$sort": doc{"_id": 1}}
	}
}

// sortedPipeline returns a pipeline that gets the documents in their order: which one fails first,
// and so the error, must not depend on where the server keeps them.
func (g *generator) sortedPipeline() []any {
	return append([]any{doc{"$sort": doc{"_id": 1}}}, g.pipeline(0)...)
}

func (g *generator) pipeline(depth int) []any {
	stages := []any{}
	if depth > 2 {
		return stages
	}
	for range g.IntN(4) {
		stages = append(stages, g.stage(depth))
	}
	return stages
}

// aggregation returns an aggregation of any collection, also of that without a filter.
func (g *generator) aggregation(verb string) request {
	body := doc{"pipeline": g.sortedPipeline()}
	if g.IntN(8) == 0 {
		body["collation"] = doc{"locale": "en", "strength": 1}
	}
	return request{
		path: inDatabase(pick(g, g.collection(), catalogue), verb), body: body, write: true,
	}
}

func (g *generator) operators() doc {
	if g.simple {
		return pick(g, doc{"$inc": doc{"n": 1}}, doc{"$set": doc{"s": pick(g, "p", "z")}},
			doc{"$set": doc{"tenant": pick(g, "a", "b")}}, doc{"$unset": doc{"s": 1}})
	}
	switch g.IntN(10) {
	case 0:
		return doc{"$set": doc{"tenant": pick(g, "a", "b")}}
	case 1:
		return doc{"$rename": doc{pick(g, "s", "tenant"): pick(g, "tenant", "z")}}
	case 2:
		return doc{"$unset": doc{pick(g, "tenant", "n", "s"): 1}}
	case 3:
		return doc{"$push": doc{"arr": g.IntN(5)}}
	default:
		return pick(g, doc{"$inc": doc{"n": 1}}, doc{"$set": doc{"s": g.value()}},
			doc{"$max": doc{"n": g.IntN(9)}})
	}
}

func (g *generator) update() any {
	if g.simple || g.IntN(4) > 0 {
		return g.operators()
	}
	return []any{pick(g,
		doc{"$set": doc{"z": g.expression(0)}}, doc{"$set": doc{"tenant": g.expression(1)}},
		doc{"$unset": "tenant"}, doc{"$replaceWith": doc{"tenant": "b"}})}
}

// document returns a document with an _id that no other has.
func (g *generator) document() doc {
	g.next++
	d := doc{"_id": inserted + g.next, "n": g.IntN(6), "s": pick(g, "p", "q")}
	if g.IntN(2) == 0 {
		d["tenant"] = pick(g, "a", "b")
	}
	return d
}

// one returns a filter that at most one document matches.
func (g *generator) one() doc {
	d := doc{"_id": g.id()}
	if g.IntN(3) == 0 {
		d["tenant"] = pick(g, "a", "b")
	}
	return d
}

// upsert returns a filter that no document matches.
func (g *generator) upsert() doc {
	g.next++
	return doc{"_id": inserted + g.next}
}

func (g *generator) model() doc {
	switch g.IntN(6) {
	case 0:
		return doc{"insertOne": doc{"document": g.document()}}
	case 1:
		return doc{"updateOne": doc{"filter": g.one(), "update": g.update()}}
	case 2:
		return doc{"updateMany": doc{"filter": g.filter(0), "update": g.operators()}}
	case 3:
		return doc{
			"replaceOne": doc{
				"filter": g.one(), "replacement": doc{"n": 7, "tenant": pick(g, "a", "b")},
			},
		}
	case 4:
		return doc{"deleteOne": doc{"filter": g.one()}}
	default:
		return doc{"updateOne": doc{"filter": g.upsert(), "update": g.operators(), "upsert": true}}
	}
}

// request returns a request of any kind.
func (g *generator) request() request {
	at := inDatabase(g.collection(), "")
	sorted := doc{"_id": 1}
	switch g.IntN(22) {
	case 0, 1:
		return request{path: at + "find", body: doc{"filter": g.filter(0), "sort": sorted}}
	case 2:
		return request{
			path: at + "find", body: doc{
				"filter": g.filter(0), "sort": sorted, "projection": doc{"x": g.expression(0)},
			},
		}
	case 3:
		return request{
			path: at + "findOne", body: doc{
				"filter": g.filter(0), "sort": sorted,
				"collation": doc{"locale": pick(g, "en", "simple"), "strength": 1},
			},
		}
	case 4:
		return request{path: at + "countDocuments", body: doc{"filter": g.filter(0)}}
	case 5:
		return request{
			path: at + "distinct", body: doc{"fieldName": g.field(), "filter": g.filter(0)},
		}
	case 6:
		return request{path: at + "estimatedDocumentCount", body: doc{}}
	case 7:
		return pick(g, request{path: at + "explainFind", body: doc{}},
			request{path: at + "explainAggregate", body: doc{}},
			request{
				path: inDatabase(catalogue, "explainAggregate"),
				body: doc{"pipeline": []any{doc{"$unionWith": "orders"}}},
			})
	case 8, 9, 10, 11:
		return g.aggregation("aggregate")
	case 12:
		return request{
			path: at + "updateOne", body: doc{"filter": g.one(), "update": g.update()}, write: true,
		}
	case 13:
		return request{
			path: at + "updateMany", body: doc{"filter": g.filter(0), "update": g.update()},
			write: true,
		}
	case 14:
		return request{
			path: at + "insertMany", body: doc{"documents": []any{g.document(), g.document()}},
			write: true,
		}
	case 15:
		return request{
			path: at + pick(g, "deleteOne", "findOneAndDelete"), body: doc{"filter": g.one()},
			write: true,
		}
	case 16:
		return request{
			path: at + "findOneAndUpdate", body: doc{
				"filter": g.one(), "update": g.update(), "returnDocument": "after",
			}, write: true,
		}
	case 17:
		return request{path: at + "streamFind", body: doc{"filter": g.filter(0), "sort": sorted}}
	case 18:
		return g.aggregation("streamAggregate")
	case 19:
		return request{
			path:  at + "import?ordered=" + pick(g, "true", "false"),
			lines: []doc{g.document(), g.document(), g.document()}, write: true,
		}
	default:
		return request{
			path:  at + "bulkWrite",
			body:  doc{"models": g.models(g.model), "ordered": g.IntN(2) == 0},
			write: true,
		}
	}
}

func (g *generator) models(model func() doc) []any {
	models := []any{}
	for range 1 + g.IntN(3) {
		models = append(models, model())
	}
	return models
}

// several returns a request of writes on several collections: a bulk write of the client, or a
// transaction.
func (g *generator) several() request {
	if g.IntN(2) == 0 {
		model := func() doc {
			m := g.model()
			m["namespace"] = databaseName + "." + g.collection()
			return m
		}
		return request{
			path: "/v1:bulkWrite", write: true,
			body: doc{"models": g.models(model), "ordered": g.IntN(2) == 0},
		}
	}
	return request{
		path: "/v1/transactions:run", write: true, body: doc{"operations": g.models(g.operation)},
	}
}

// operation returns an operation of a transaction.
func (g *generator) operation() doc {
	in := doc{"database": databaseName, "collection": g.collection()}
	name := ""
	switch g.IntN(8) {
	case 0:
		name, in["filter"], in["sort"] = "findOne", g.filter(0), doc{"_id": 1}
	case 1:
		name, in["filter"] = "deleteOne", g.one()
	case 2:
		name, in["filter"], in["fieldName"] = "distinct", g.filter(0), pick(g, "s", "tenant")
	case 3:
		name, in["document"] = "insertOne", g.document()
	case 4:
		name, in["filter"], in["update"] = "updateOne", g.one(), g.update()
	case 5:
		name, in["filter"], in["update"] = "updateMany", g.filter(0), g.operators()
	case 6:
		name, in["filter"], in["update"] = "findOneAndUpdate", g.one(), g.update()
	default:
		name, in["models"] = "bulkWrite", g.models(g.model)
	}
	return doc{name: in}
}

// text returns the request's body.
func (r request) text() string {
	var out []byte
	for _, line := range append(r.lines, r.body) {
		if line == nil {
			continue
		}
		text, err := json.Marshal(line)
		if err != nil {
			panic(err)
		}
		out = append(append(out, text...), '\n')
	}
	return string(out)
}

// method returns the method of the call.
func (r request) method() string {
	if r.get {
		return http.MethodGet
	}
	return http.MethodPost
}

// contentType returns the type of the body.
func (r request) contentType() string {
	if r.lines != nil {
		return "application/x-ndjson"
	}
	return "application/json"
}
