// Makes the calls of internal/contract, which are lines of JSON on standard input, by the client of
// the gateway at MOORING_REST. CLIENT is the client's module.

import process from 'node:process';
import { createInterface } from 'node:readline';

const { Client, MooringError } = await import(process.env.CLIENT);
const client = new Client(process.env.MOORING_REST);
const database = 'contract';
const plusOne = { $inc: { n: 1 } };
const batchSize = 4;

const idsOf = (documents) => documents.map((document) => document._id);

async function make({ verb, collection, id, key, transaction, statement, cursor, first = 0 }, answer) {
  const orders = client.collection(database, collection);
  const path = { database, collection };
  const options = { idempotencyKey: key, ...(transaction && { transaction, statement }) };
  switch (verb) {
    case 'updateOne':
      return orders.updateOne({ _id: id }, plusOne, options);
    case 'insertOne':
      return orders.insertOne({ _id: id }, options);
    case 'begin':
      answer.transaction = (await client.call('beginTransaction', { body: {} })).transaction;
      return undefined;
    case 'commit':
      return client.call('commitTransaction', { body: { transaction } });
    case 'abort':
      return client.call('abortTransaction', { body: { transaction } });
    case 'run': {
      const operations = [1, 2].map((_id) => ({ updateOne: { database, collection, filter: { _id }, update: plusOne } }));
      return client.call('runTransaction', { body: { operations } });
    }
    case 'find':
    case 'next': {
      const page = verb === 'find' ? await client.call('find', { path, body: { batchSize } }) : await client.call('nextPage', { body: { cursor, batchSize } });
      answer.ids = idsOf(page.documents);
      answer.cursor = page.cursor;
      return undefined;
    }
    case 'stream':
      answer.ids = [];
      for await (const document of orders.stream({}, { batchSize })) answer.ids.push(document._id);
      return undefined;
    case 'import': {
      const pad = 'x'.repeat(300 << 10);
      const lines = Array.from({ length: 9 - first }, (_, i) => JSON.stringify({ i: first + i, pad }));
      return client.call('importDocuments', { path, body: lines.join('\n'), headers: { 'Content-Type': 'application/x-ndjson' } });
    }
    default:
      throw new Error(`an unknown call: ${verb}`);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = {};
  try {
    await make(JSON.parse(line), answer);
  } catch (err) {
    if (!(err instanceof MooringError)) throw err;
    const { reason, retry, retryAfter = 0, message, result } = err;
    answer.failure = { reason, retry, retryAfter, message, inserted: result?.insertedCount ?? 0 };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
