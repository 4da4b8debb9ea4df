// Inserts documents through Mooring's gRPC API, reads them page by page, then as one stream.
//
//   npm ci && node main.js                     (the gateway of `make run`)
//   MOORING_GRPC=host:port node main.js
//
// Documents travel as BSON: what the server stores is what arrives here, type for type.

import { fileURLToPath } from 'node:url';
import { credentials, loadPackageDefinition, status } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { deserialize, Long, ObjectId, serialize } from 'bson';

const address = process.env.MOORING_GRPC ?? '127.0.0.1:27080';
const database = process.env.MOORING_DATABASE ?? 'example';
const collection = 'node';
const count = 2500;

const root = fileURLToPath(new URL('../../', import.meta.url));
const files = [
  'mooring/v1/document_service.proto',
  'mooring/v1/cursor_service.proto',
  'google/rpc/status.proto',
  'google/rpc/error_details.proto',
];
const definition = loadSync(files, {
  includeDirs: [`${root}proto`, `${root}third_party/googleapis`],
  arrays: true,
  longs: String,
});
const { mooring } = loadPackageDefinition(definition);
const channel = credentials.createInsecure();
const documents = new mooring.v1.DocumentService(address, channel);
const cursors = new mooring.v1.CursorService(address, channel);

const toDocument = (object) => ({ bson: serialize(object) });
const toObject = (document) => deserialize(document.bson, { promoteLongs: false });
const where = { database, collection };

// call makes a promise of a unary call.
function call(client, method, request) {
  return new Promise((resolve, reject) => {
    client[method](request, (err, response) => (err ? reject(err) : resolve(response)));
  });
}

// errorInfo reads the gateway's reason, and whether to repeat the call, from an error. An error that this program's
// own side of gRPC has made, such as that of a lost connection, has none.
function errorInfo(err) {
  const [bytes] = err.metadata.get('grpc-status-details-bin');
  if (!bytes) return {};
  const { details } = definition['google.rpc.Status'].deserialize(bytes);
  const info = details.find(({ type_url: type }) => type.endsWith('/google.rpc.ErrorInfo'));
  if (!info) return {};
  const { reason, metadata } = definition['google.rpc.ErrorInfo'].deserialize(info.value);
  return { reason, retry: metadata.retry };
}

async function insert() {
  await call(documents, 'deleteMany', { ...where, filter: toDocument({}) });
  const orders = Array.from({ length: count }, (_, i) => ({
    _id: i,
    customer: new ObjectId(),
    placed: new Date(),
    cents: Long.fromString('9007199254740993'), // more than a JavaScript number can hold
    items: [{ sku: 'rope-20m', quantity: 2 }],
  }));
  const { insertedIds } = await call(documents, 'insertMany', { ...where, documents: orders.map(toDocument) });
  console.log(`inserted ${insertedIds.length} documents`);
  return orders;
}

// page reads with one call a page. A page without a cursor is the last; any number of gateways can serve the next one.
async function* page() {
  let response = await call(documents, 'find', { ...where, filter: toDocument({}), batchSize: 500 });
  for (;;) {
    yield response.documents.map(toObject);
    if (!response.cursor) return;
    response = await call(cursors, 'nextPage', { cursor: response.cursor, batchSize: 500 });
  }
}

// stream reads with one call. When this program leaves the loop early the call is cancelled and the gateway closes
// the cursor on the server.
async function* stream() {
  const messages = documents.streamFind({ ...where, filter: toDocument({}) });
  try {
    for await (const message of messages) yield* message.documents.map(toObject);
  } finally {
    messages.cancel();
  }
}

async function main() {
  const orders = await insert();

  let pages = 0;
  let paged = 0;
  for await (const batch of page()) {
    pages += 1;
    paged += batch.length;
  }
  console.log(`read ${paged} documents in ${pages} pages`);

  let streamed = 0;
  for await (const order of stream()) {
    const sent = orders[order._id];
    if (!order.cents.equals(sent.cents) || !order.customer.equals(sent.customer)) throw new Error(`document ${order._id} has changed`);
    streamed += 1;
  }
  console.log(`streamed ${streamed} documents`);

  try {
    await call(documents, 'insertOne', { ...where, document: toDocument({ _id: 1 }) });
  } catch (err) {
    if (err.code !== status.ALREADY_EXISTS) throw err;
    const { reason, retry } = errorInfo(err);
    console.log(`a duplicate _id is ALREADY_EXISTS: ${reason}, retry ${retry}`);
  }
  if (paged !== count || streamed !== count) throw new Error(`want ${count} documents each time`);
}

main()
  .catch((err) => {
    console.error(err);
    process.exitCode = 1;
  })
  .finally(() => {
    for (const client of [documents, cursors]) client.close();
  });
