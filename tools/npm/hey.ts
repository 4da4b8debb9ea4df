// A client that @hey-api/openapi-ts makes of openapi.json: it compiles under strict rules, and
// finds, inserts and reads an error. lab's TestHeyAPI runs it.
//
//   node hey.js http://127.0.0.1:8080 database

import { client } from './hey/client.gen.js';
import { find, insertOne, type ErrorResponse, type FindResponse } from './hey/index.js';

const [baseUrl, database] = process.argv.slice(2);
if (baseUrl === undefined || database === undefined) throw new Error('usage: hey.js URL DATABASE');
client.setConfig({ baseUrl });
const path = { database, collection: 'hey' };

const inserted = await insertOne({ path, body: { document: { _id: 1, customer: 'Ada' } }, throwOnError: true });
console.log(`inserted ${String(inserted.data.insertedId)}`);

const found = await find({ path, body: { filter: { customer: 'Ada' }, sort: { _id: 1 } }, throwOnError: true });
const page = found.data as FindResponse; // a page can also be BSON, which is not asked for
console.log(`read ${page.documents.map((document) => String(document['customer'])).join(' ')}`);

const again = await insertOne({ path, body: { document: { _id: 1 } } });
if (again.error === undefined) throw new Error('a duplicate _id is not an error');
const failure: ErrorResponse = again.error;
console.log(`refused ${again.response?.status} ${failure.error.reason} ${failure.error.retry}`);

// @ts-expect-error A field that the API does not have does not compile.
await find({ path, body: { filters: {} } });
