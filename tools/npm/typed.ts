// A client that openapi-fetch makes of openapi.json: it compiles under strict rules, and reads and
// writes typed documents. lab's TestGeneratedClient runs it.
//
//   node typed.js http://127.0.0.1:8080 database

import createClient from 'openapi-fetch';
import type { components, paths } from './openapi.js';

interface Order {
  _id: number;
  customer: string;
  total: number;
}

type ErrorBody = components['schemas']['Error'];

const [baseUrl, database] = process.argv.slice(2);
if (baseUrl === undefined || database === undefined) throw new Error('usage: typed.js URL DATABASE');
// The second parameter chooses the forms of responses: pages and lines, not BSON.
const client = createClient<paths, 'application/json' | 'application/x-ndjson'>({ baseUrl });
const path = { database, collection: 'typed' };

/** orNot fails with the error of a call, whose reason and retry are typed. */
function orNot<T>(data: T | undefined, error: { error: ErrorBody } | undefined): T {
  if (error !== undefined) throw new Error(`${error.error.reason} ${error.error.retry satisfies string}`);
  if (data === undefined) throw new Error('no data');
  return data;
}

const orders: Order[] = [
  { _id: 1, customer: 'Ada', total: 39.95 },
  { _id: 2, customer: 'Ben', total: 49.95 },
  { _id: 3, customer: 'Cid', total: 5 },
];

const inserted = await client.POST('/v1/databases/{database}/collections/{collection}/documents:insertMany', {
  params: { path, header: { 'Request-Timeout': '10s' } },
  body: { documents: orders.map((order) => ({ ...order })) },
});
const count: number | undefined = orNot(inserted.data, inserted.error).insertedCount;
console.log(`inserted ${count}`);

const first = await client.POST('/v1/databases/{database}/collections/{collection}/documents:find', {
  params: { path },
  body: { sort: [['_id', 1]], batchSize: 2 },
});
let page: components['schemas']['FindResponse'] = orNot(first.data, first.error);
const read: Order[] = [];
for (;;) {
  read.push(...page.documents.map((document) => document as unknown as Order));
  if (page.cursor === undefined) break;
  const next = await client.POST('/v1/cursors:next', { body: { cursor: page.cursor } });
  page = orNot(next.data, next.error);
}
console.log(`read ${read.map((order) => order.customer).join(' ')}`);

const some = await client.GET('/v1/databases/{database}/collections/{collection}/documents', {
  params: { path, query: { filter: JSON.stringify({ total: { $gt: 40 } }), limit: 1 } },
});
console.log(`queried ${orNot(some.data, some.error).documents.length}`);

const stream = await client.POST('/v1/databases/{database}/collections/{collection}/documents:streamFind', {
  params: { path },
  body: {},
  headers: { Accept: 'application/x-ndjson' },
  parseAs: 'text',
});
const lines = orNot(stream.data, stream.error).trim().split('\n');
const documents = lines.map((line) => JSON.parse(line) as components['schemas']['DocumentLine']);
console.log(`streamed ${documents.filter((line) => line.document !== undefined).length}`);

const again = await client.POST('/v1/databases/{database}/collections/{collection}/documents:insertOne', {
  params: { path },
  body: { document: { _id: 1 } },
});
if (again.error === undefined) throw new Error('a duplicate _id is not an error');
const retry: 'never' | 'same-request' | 'transaction' | 'restart' = again.error.error.retry;
console.log(`refused ${again.response.status} ${again.error.error.reason} ${retry}`);

// @ts-expect-error A field that the API does not have does not compile.
export const wrong: components['schemas']['FindRequest'] = { filters: {} };
