// Tests of the client before a gateway: node --test. MOORING_REST and MOORING_DATABASE say which.
// MOORING_CHANGES=1 says that its deployment has change streams.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { Client, followChanges, MooringError } from 'mooring-client';

const url = process.env.MOORING_REST ?? 'http://127.0.0.1:8080';
const database = process.env.MOORING_DATABASE ?? 'typescript';
const hasChanges = process.env.MOORING_CHANGES === '1';
const client = new Client(url);

async function all(iterator) {
  const items = [];
  for await (const item of iterator) items.push(item);
  return items;
}

/** A collection with ten orders. */
async function filled(name) {
  const orders = client.database(database).collection(name);
  await orders.deleteMany({});
  const documents = Array.from({ length: 10 }, (_, i) => ({ _id: i, customer: `c${i}`, total: i * 5 }));
  assert.equal((await orders.insertMany(documents)).insertedCount, 10);
  return orders;
}

test('reads and writes', async () => {
  const orders = await filled('words');
  assert.equal((await orders.findOne({ _id: 3 })).customer, 'c3');
  assert.equal(await orders.findOne({ _id: 99 }), null);
  assert.equal((await orders.updateOne({ _id: 3 }, { $set: { total: 1 } }, { timeout: 5000 })).modifiedCount, 1);
  assert.equal(await orders.countDocuments({ total: 1 }), 1);
  assert.equal((await orders.deleteOne({ _id: 3 })).deletedCount, 1);
  assert.equal((await orders.findOneAndUpdate({ _id: 4 }, { $set: { total: 2 } }, { returnDocument: 'after' })).total, 2);
  assert.equal((await client.database(database).runCommand({ ping: 1 })).ok, 1);
  assert.deepEqual((await orders.distinct('total', { _id: { $lt: 2 } })).sort(), [0, 5]);
});

test('names that a path cannot have', async () => {
  const odd = client.database(database).collection('a b:~ü');
  await odd.deleteMany({});
  await odd.insertOne({ _id: 1 });
  assert.deepEqual(await odd.findOne(), { _id: 1 });
});

test('a document by its id', async () => {
  await filled('ids');
  const path = { database, collection: 'ids', id: '3' };
  assert.equal((await client.call('getDocument', { path })).customer, 'c3');
  assert.equal((await client.call('patchDocument', { path, body: { $set: { total: 1 } } })).total, 1);
  assert.equal(await client.call('deleteDocument', { path }), undefined);
  await assert.rejects(client.call('getDocument', { path }), { httpStatus: 404 });
});

test('pages', async () => {
  const orders = await filled('pages');
  const pages = await all(orders.pages({}, { sort: { _id: 1 }, batchSize: 4 }));
  assert.deepEqual(pages.map((page) => page.length), [4, 4, 2]);
  assert.equal((await all(orders.find({ _id: { $gte: 5 } }, { batchSize: 2 }))).length, 5);
  assert.equal((await all(orders.aggregate([{ $match: { _id: { $lt: 3 } } }]))).length, 3);
});

test('a cursor that is left is closed', async () => {
  const orders = await filled('left');
  for await (const order of orders.find({}, { batchSize: 2 })) if (order) break;
  const { handles } = await client.call('listHandles', { query: { namespace: `${database}.left` } });
  assert.deepEqual(handles, []);
});

test('streams', async () => {
  const orders = await filled('streams');
  assert.equal((await all(orders.stream({}, { batchSize: 3 }))).length, 10);
  for await (const order of orders.stream()) if (order) break;
});

test('errors', async () => {
  const orders = await filled('errors');
  await assert.rejects(orders.insertOne({ _id: 1 }), (err) => {
    assert.ok(err instanceof MooringError);
    assert.equal(err.httpStatus, 409);
    assert.equal(err.status, 'ALREADY_EXISTS');
    assert.equal(err.retry, 'never');
    assert.equal(err.server.code, 11000);
    return true;
  });
  await assert.rejects(all(orders.stream({ $nonsense: 1 })), (err) => err instanceof MooringError);
  await assert.rejects(orders.insertMany([{ _id: 20 }, { _id: 1 }]), (err) => err.result.insertedCount === 1);
});

/** A server that gives the answers, one after the other, and counts the requests. */
async function answering(answers) {
  const requests = [];
  const server = createServer((request, response) => {
    requests.push(request.headers);
    const { status = 200, headers = {}, body = '{}', cut = false } = answers.shift();
    response.writeHead(status, headers);
    if (!cut) return response.end(body);
    response.write(body);
    return setImmediate(() => response.destroy());
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const stop = () => server.close();
  return { requests, stop, client: new Client(`http://127.0.0.1:${server.address().port}`, { token: 'secret' }) };
}

const failed = (reason, retry) => JSON.stringify({ error: { status: 'UNAVAILABLE', code: 14, reason, retry, message: 'x', requestId: 'r' } });

test('repeats what may be repeated', async () => {
  const again = { status: 503, body: failed('NoSuitableServer', 'same-request') };
  const s = await answering([again, again, { body: '{"insertedId":1,"acknowledged":true}' }]);
  assert.equal((await s.client.collection('a', 'b').insertOne({})).insertedId, 1);
  assert.equal(s.requests.length, 3);
  assert.equal(s.requests[2].authorization, 'Bearer secret');
  s.stop();
});

test('repeats nothing else', async () => {
  for (const retry of ['never', 'restart', 'transaction']) {
    const s = await answering([{ status: 500, body: failed('WriteOutcomeUnknown', retry) }]);
    await assert.rejects(s.client.collection('a', 'b').updateOne({}, { $set: { a: 1 } }), { reason: 'WriteOutcomeUnknown' });
    assert.equal(s.requests.length, 1);
    s.stop();
  }
});

test('what is no answer of a gateway', async () => {
  const s = await answering([{ status: 404, body: '<html>' }]);
  await assert.rejects(s.client.collection('a', 'b').findOne(), { reason: 'NoGateway', httpStatus: 404 });
  s.stop();
  const gone = new Client('http://127.0.0.1:1', { retries: 0 });
  await assert.rejects(gone.collection('a', 'b').findOne(), { reason: 'NoAnswer', retry: 'same-request' });
  await assert.rejects(all(gone.collection('a', 'b').stream()), { reason: 'NoAnswer', retry: 'same-request' });
  await assert.rejects(all(gone.collection('a', 'b').watch()), { reason: 'NoAnswer', retry: 'same-request' });
  await assert.rejects(gone.collection('a', 'b').updateMany({}, [{ $unset: 'a' }]), { reason: 'NoAnswer', retry: 'never' });
});

test('a stream that is cut is no end', async () => {
  const line = '{"document":{"_id":1}}\n';
  for (const answer of [{ body: line }, { body: line + '{"docu' }, { body: line, cut: true }]) {
    const s = await answering([answer]);
    await assert.rejects(all(s.client.collection('a', 'b').stream()), { reason: 'StreamCut', retry: 'restart' });
    s.stop();
  }
});

test('a stream of changes goes on after the last one', async () => {
  const change = (n) => `{"document":{"_id":{"_data":"${n}"},"operationType":"insert"}}\n`;
  const s = await answering([
    { body: '{"progress":{"resumeToken":{"_data":"0"}}}\n' + change(1), cut: true },
    { body: `${change(2)}{"error":${JSON.stringify(JSON.parse(failed('ShuttingDown', 'restart')).error)}}\n` },
    { body: `${change(3)}{"end":{}}\n` },
  ]);
  const changes = await all(s.client.collection('a', 'b').watch());
  assert.deepEqual(changes.map((c) => c._id._data), ['1', '2', '3']);
  s.stop();
});

test('another codec', async () => {
  const codec = {
    parse: (text) => JSON.parse(text, (_, v) => (v?.$numberLong !== undefined ? BigInt(v.$numberLong) : v)),
    stringify: (value) => JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? { $numberLong: String(v) } : v)),
  };
  const exact = new Client(url, { codec }).collection(database, 'codec');
  await exact.deleteMany({});
  await exact.insertOne({ _id: 'a', big: 9007199254740993n });
  assert.equal((await exact.findOne()).big, 9007199254740993n);
  assert.equal((await all(exact.stream()))[0].big, 9007199254740993n);
});

test('a codec that writes undefined as null', async () => {
  await filled('undefined');
  const codec = { parse: JSON.parse, stringify: (value) => JSON.stringify(value, (_, v) => (v === undefined ? null : v)) };
  const orders = new Client(url, { codec }).collection(database, 'undefined');
  assert.equal((await all(orders.find({}, { batchSize: 4, limit: undefined }))).length, 10);
  for await (const _ of orders.find({}, { batchSize: 4 })) break; // closes the cursor
});

test('changes', { skip: !hasChanges }, async () => {
  const orders = await filled('changes');
  const aborter = new AbortController();
  const changes = client.lines('watchCollection', { path: { database, collection: 'changes' }, body: {}, signal: aborter.signal });
  assert.ok((await changes.next()).value.progress); // from here on nothing is missed
  await orders.insertOne({ _id: 'new' });
  for await (const { document } of changes) {
    if (!document) continue;
    assert.equal(document.fullDocument._id, 'new');
    break;
  }
  aborter.abort();
});

/** Enough of EventSource: it reads one stream and does not reconnect. */
class FakeEventSource {
  constructor(source) {
    this.listeners = {};
    this.readyState = 1;
    FakeEventSource.opened(source, this);
  }

  addEventListener(type, listener) {
    this.listeners[type] = listener;
  }

  close() {
    this.readyState = 2;
  }
}

test('followChanges', async () => {
  const asked = [];
  const seen = [];
  await new Promise((resolve, reject) => {
    FakeEventSource.opened = (_, source) =>
      setImmediate(() => {
        if (asked.length === 1) {
          source.onmessage({ data: '{"_id":{"_data":"1"},"operationType":"insert"}' });
          source.listeners.failure({ data: failed('ShuttingDown', 'restart'), lastEventId: '' }); // it goes on
          source.close(); // as after 401
          source.onerror();
          return;
        }
        source.onmessage({ data: '{"_id":{"_data":"2"},"operationType":"insert"}' });
        source.listeners.end({ data: '{}' });
      });
    const ticket = async (after) => `/t${asked.push(after)}`;
    const handlers = { onChange: (change) => seen.push(change._id._data), onEnd: resolve, onError: reject };
    followChanges(ticket, handlers, { EventSource: FakeEventSource });
  });
  assert.deepEqual(seen, ['1', '2']);
  assert.deepEqual(asked, [undefined, { _data: '1' }]);
  await assert.rejects(
    new Promise((_, reject) => {
      FakeEventSource.opened = (__, source) =>
        setImmediate(() => source.listeners.failure({ data: failed('ChangeStreamHistoryLost', 'restart'), lastEventId: 'end' }));
      followChanges(() => '/t', { onError: reject }, { EventSource: FakeEventSource });
    }),
    { reason: 'ChangeStreamHistoryLost' },
  );
});
