// What dredd is told of the operations of openapi.json: what must be there before each of them, and
// how to make it fail as it says that it can. dredd makes the requests, and judges the responses.
"use strict";
const hooks = require("hooks");
const fs = require("fs");

const description = require("./openapi.json");
// gateways are addresses: demo is that of make run, guarded wants an API key and permits nothing, and
// lost has no server.
const { gateways, key, results } = JSON.parse(process.env.DREDD);

const operations = {};
for (const [path, methods] of Object.entries(description.paths))
  for (const [method, operation] of Object.entries(methods))
    operations[`${method.toUpperCase()} ${path}`] = operation;

async function post(path, body) {
  const response = await fetch(gateways.demo + path, {
    method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}

// shop makes the collection that the examples name anew.
const orders = "/v1/databases/shop/collections/orders";
const document = { _id: "6b00520000000000000000aa", customer: "Ada", total: 39.95 };
const documents = [
  { _id: 1 }, { _id: 2, status: "open" }, { _id: 7, total: 5 }, { _id: 8, status: "open", total: 6 },
  { _id: 9 }, { _id: 50, status: "canceled" }, document,
];
async function shop() {
  await post("/v1/databases/shop:drop", {});
  await post(`${orders}/documents:insertMany`, { documents });
}

const fill = (r, more) => { r.body = JSON.stringify({ ...JSON.parse(r.body || "{}"), ...more }); };
const query = (r, more) => { r.uri += (r.uri.includes("?") ? "&" : "?") + more; };

// needs makes what an operation finds, and puts what that is called into its request.
const page = async (r) => fill(r, { cursor: (await post(`${orders}/documents:find`, { batchSize: 2 })).cursor });
const transaction = async (r) => fill(r, { transaction: (await post("/v1/transactions:begin", {})).transaction });
const bson = (id) => Buffer.from([14, 0, 0, 0, 16, 95, 105, 100, 0, id, 0, 0, 0, 0]).toString("base64"); // {_id: id}
const lines = async (r) => {
  if (r.body) return;
  // dredd makes no body of a type without an example, and gives it the other's name.
  r.headers["Content-Type"] = "application/bson";
  [r.body, r.bodyEncoding] = [bson(60), "base64"];
};
const needs = {
  closeCursor: page,
  nextPage: page,
  streamCursor: page,
  commitTransaction: transaction,
  abortTransaction: transaction,
  importDocuments: lines,
  endSession: async (r) => fill(r, { session: (await post("/v1/sessions:start", {})).session }),
  killHandle: async (r) => {
    await page(r);
    const response = await fetch(`${gateways.demo}/v1/deployment/handles`);
    r.body = JSON.stringify({ id: (await response.json()).handles[0].id });
  },
  createCollection: () => post(`${orders}:drop`, {}),
  dropIndexes: () => post(`${orders}/indexes:create`, { indexes: [{ key: { customer: 1, placed: -1 } }] }),
  watchTicket: async (r) => {
    const { url } = await post("/v1/changeStreams:ticket", { watch: { database: "shop", collection: "orders" } });
    r.uri = url;
  },
};

// successes makes a response of another status than the usual one of its operation.
const successes = {
  "204 patchDocument": (r) => { r.headers.Prefer = "return=minimal"; },
  "204 putDocument": (r) => { r.headers.Prefer = "return=minimal"; },
  "201 putDocument": () => post(`${orders}/documents:deleteOne`, { filter: { _id: document._id } }),
  "304 getDocument": async (r) => {
    const response = await fetch(gateways.demo + r.uri);
    r.headers["If-None-Match"] = response.headers.get("etag");
  },
  "207 importDocuments": (r) => {
    query(r, "returnPartialSuccess=true");
    const kind = r.headers["Content-Type"];
    if (r.bodyEncoding) r.body = bson(1);
    else if (kind === "application/json") r.body = '[{"_id": 1}, {"_id": 3}]';
    else if (kind === "text/csv") r.body = "_id\n1\n3\n";
    else r.body = '{"_id": 1}\n{"_id": 3}\n';
  },
  "207 insertMany": (r) => fill(r, { documents: [{ _id: 1 }, { _id: 3 }], returnPartialSuccess: true }),
  "207 bulkWrite": (r) => fill(r, { models: [{ insertOne: { document: { _id: 1 } } }], returnPartialSuccess: true }),
  "207 bulkWriteNamespaces": (r) => fill(r, {
    models: [{ namespace: "shop.orders", insertOne: { document: { _id: 1 } } }], returnPartialSuccess: true,
  }),
};

// failures makes each status of a request that would succeed.
const failures = {
  400: (r) => query(r, "$nonsense=1"),
  401: (r) => { r.at = "guarded"; r.headers.Authorization = "Bearer nonsense"; },
  403: (r) => { r.at = "guarded"; r.headers["Api-Key"] = key; },
  406: (r) => { r.headers.Accept = "image/png"; },
  413: (r) => { r.at = "lost"; r.body = "{" + " ".repeat(1 << 17); },
  414: (r) => query(r, "nonsense=" + "1".repeat(40 << 10)),
  415: (r) => { r.headers["Content-Type"] = "text/plain"; },
  421: (r) => { r.headers.Host = "elsewhere.example"; },
  431: (r) => { r.headers.Nonsense = "1".repeat(1 << 17); },
  503: (r) => { r.at = "lost"; },
  504: (r) => { r.at = "lost"; r.headers["Request-Timeout"] = "5ms"; },
};

hooks.beforeEach((t, done) => prepare(t).catch((err) => { t.fail = String(err.stack); }).then(done));

async function prepare(t) {
  const operation = operations[`${t.request.method} ${t.name.split(" > ")[0]}`];
  const status = String(t.expected.statusCode);
  const described = resolve(operation.responses[status]);
  const type = t.expected.headers["Content-Type"] ?? "";
  t.described = { operation: operation.operationId, status, type };
  const request = t.request;
  correct(t, described, type);
  const streams = "application/x-ndjson" in (operation.responses["200"]?.content ?? {});
  // The types of a stream are other ones than those of what went wrong before it began.
  if (status >= "400" && streams) request.headers.Accept = "application/x-ndjson";
  // A stream of changes has no end.
  if (/^(watch|live)/.test(operation.operationId)) request.headers["Request-Timeout"] = "500ms";
  if (status < "400") await shop();
  await needs[operation.operationId]?.(request);
  if (type === "text/csv") { // which has parameters, and needs columns
    if (!/[?&](columns|projection|select)=/.test(request.uri)) query(request, "columns=_id,total");
    t.expected.headers["Content-Type"] = "text/csv; charset=utf-8; header=present";
  }
  if (status === "204" && streams) {
    request.headers["Last-Event-ID"] = "end"; // the id of the event that ends a stream
    request.headers.Accept = "text/event-stream";
  }
  await (successes[`${status} ${operation.operationId}`] ?? failures[status])?.(request);
  const url = new URL(gateways[request.at ?? "demo"]);
  [t.host, t.port, t.fullPath] = [url.hostname, url.port, request.uri];
}

// correct mends what dredd's parser, which is of OpenAPI 3.0, makes of a transaction: it gives
// optional headers of a request without an example the empty text, takes all headers of a response
// for required, and judges by the example where it does not understand the schema.
function correct(t, described, type) {
  for (const [name, text] of Object.entries(t.request.headers)) if (text === "") delete t.request.headers[name];
  for (const name of Object.keys(t.expected.headers))
    if (name !== "Content-Type" && !described.headers?.[name]?.required) delete t.expected.headers[name];
  delete t.expected.bodySchema;
  delete t.expected.body;
  const { schema } = described.content?.[type] ?? {};
  if (["application/json", "application/ejson"].includes(type)) {
    const { components } = description;
    const whole = { $schema: "http://json-schema.org/draft-07/schema#", components, ...schema };
    // Formats such as int64 are of OpenAPI, and the judge refuses a schema with one that it does not know.
    t.expected.bodySchema = JSON.stringify(whole, (k, v) => (k === "format" && typeof v === "string" ? undefined : v));
  }
}

function resolve(node) {
  if (!node?.$ref) return node;
  return resolve(node.$ref.slice(2).split("/").reduce((at, part) => at[part], description));
}

const judged = [];
hooks.afterEach((t) => {
  judged.push({
    ...t.described, judgement: t.test?.status ?? "error", message: t.test?.message ?? "no answer",
    body: String(t.real?.body).slice(0, 300),
  });
});
hooks.afterAll((_) => fs.writeFileSync(results, JSON.stringify(judged)));
