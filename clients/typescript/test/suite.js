// The tests of the client, for every runtime: client.test.js runs them in Node and Deno, page.js in
// a browser. They need only what is in env:
//
//   url, database   the gateway, and a database for the tests
//   replicaSet      whether the gateway is before one, which has change streams and $expr
//   answering       makes a client of a server that gives answers, one after the other

import { Client, followChanges, MooringError } from 'mooring-client';

/** The tests: their names, whether they need a replica set, or EventSource, and what they do. */
export const tests = [];

function test(name, ...rest) {
  const run = rest.pop();
  tests.push({ name, needs: rest, run });
}

// The assertions are those of node:assert, which browsers lack.
function fail(message) {
  throw new Error(message);
}

const text = (value) => JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? `${v}n` : v));

const assert = {
  ok: (value) => value || fail(`${text(value)} is not true`),
  equal: (got, want) => Object.is(got, want) || fail(`got ${text(got)}, want ${text(want)}`),
  deepEqual: (got, want) => text(got) === text(want) || fail(`got ${text(got)}, want ${text(want)}`),
  /** Checks that a promise fails, with these fields or as a function says. */
  async rejects(promise, want) {
    const err = await promise.then(() => fail('it succeeds'), (e) => e);
    if (err.message === 'it succeeds') throw err;
    if (typeof want === 'function') return assert.ok(want(err));
    for (const [name, value] of Object.entries(want)) {
      if (err[name] !== value) fail(`${name} is ${text(err[name])}, want ${text(value)}: ${err.message}`);
    }
    return true;
  },
};

const failed = (reason, retry) => JSON.stringify({ error: { status: 'UNAVAILABLE', code: 14, reason, retry, message: 'x', requestId: 'r' } });

async function all(iterator) {
  const items = [];
  for await (const item of iterator) items.push(item);
  return items;
}

/** A collection with ten orders. */
async function filled({ url, database }, name) {
  const orders = new Client(url).database(database).collection(name);
  await orders.deleteMany({});
  const documents = Array.from({ length: 10 }, (_, i) => ({ _id: i, customer: `c${i}`, total: i * 5 }));
  assert.equal((await orders.insertMany(documents)).insertedCount, 10);
  return orders;
}

test('reads and writes', async (env) => {
  const orders = await filled(env, 'words');
  assert.equal((await orders.findOne({ _id: 3 })).customer, 'c3');
  assert.equal(await orders.findOne({ _id: 99 }), null);
  assert.equal((await orders.updateOne({ _id: 3 }, { $set: { total: 1 } }, { timeout: 5000 })).modifiedCount, 1);
  assert.equal(await orders.countDocuments({ total: 1 }), 1);
  assert.equal((await orders.deleteOne({ _id: 3 })).deletedCount, 1);
  assert.equal((await orders.findOneAndUpdate({ _id: 4 }, { $set: { total: 2 } }, { returnDocument: 'after' })).total, 2);
  const database = new Client(env.url).database(env.database);
  assert.equal((await database.runCommand({ ping: 1 })).ok, 1);
  assert.deepEqual((await orders.distinct('total', { _id: { $lt: 2 } })).sort(), [0, 5]);
});

test('names that a path cannot have', async (env) => {
  const odd = new Client(env.url).database(env.database).collection('a b:~ü');
  await odd.deleteMany({});
  await odd.insertOne({ _id: 1 });
  assert.deepEqual(await odd.findOne(), { _id: 1 });
});

test('a document by its id', async (env) => {
  await filled(env, 'ids');
  const client = new Client(env.url);
  const path = { database: env.database, collection: 'ids', id: '3' };
  assert.equal((await client.call('getDocument', { path })).customer, 'c3');
  assert.equal((await client.call('patchDocument', { path, body: { $set: { total: 1 } } })).total, 1);
  assert.equal(await client.call('deleteDocument', { path }), undefined);
  await assert.rejects(client.call('getDocument', { path }), { httpStatus: 404 });
});

test('one document, with its ETag', async (env) => {
  const orders = await filled(env, 'one');
  assert.deepEqual((await orders.put(3, { total: 1 })).document, { _id: 3, total: 1 });
  const first = await orders.patch(3, { $set: { total: 2 } });
  assert.deepEqual(first.document, { _id: 3, total: 2 });
  assert.deepEqual(await orders.get(3), first);
  assert.ok(first.etag.startsWith('"'));
  assert.equal(await orders.get(3, { ifNoneMatch: first.etag }), null);
  assert.equal((await orders.get(3, { projection: { total: 1 } })).etag, null);
  await orders.delete(3);
  await assert.rejects(orders.get(3), { reason: 'DocumentNotFound' });
  for (const id of ['a/b', { $oid: '651f3c0a0102030405060708' }, { $numberLong: '1152921504606846976' }]) {
    await orders.put(id, { total: 4 }, { ifNoneMatch: '*', timeout: 5000 });
    assert.deepEqual((await orders.get(id)).document._id, id);
    await assert.rejects(orders.put(id, { total: 5 }, { ifNoneMatch: '*' }), { httpStatus: 412 });
  }
  // A call with a name takes no precondition.
  const refused = orders.updateOne({}, { $set: { total: 5 } }, { headers: { 'If-Match': first.etag } });
  await assert.rejects(refused, { httpStatus: 400, field: 'If-Match' });
});

test('no update is lost', 'replicaSet', async (env) => {
  const orders = await filled(env, 'preconditions');
  const first = await orders.get(3);
  const second = await orders.patch(3, [{ $set: { total: 2 } }], { ifMatch: first.etag });
  const old = { ifMatch: first.etag };
  const changes = [
    () => orders.put(3, { total: 3 }, old),
    () => orders.patch(3, { $set: { total: 3 } }, old),
    () => orders.delete(3, old),
  ];
  for (const change of changes) {
    await assert.rejects(change(), { httpStatus: 412, reason: 'PreconditionFailed' });
  }
  assert.deepEqual(await orders.get(3), second);
  const third = await orders.put(3, { total: 3 }, { ifMatch: second.etag });
  await orders.delete(3, { ifMatch: third.etag });
});

test('dates', async (env) => {
  const orders = await filled(env, 'dates');
  const at = new Date('2026-11-22T10:00:00.123Z');
  await orders.insertOne({ _id: 'a', at, all: [at], text: at.toISOString() });
  const found = await orders.findOne({ at });
  const date = { $date: '2026-11-22T10:00:00.123Z' };
  assert.deepEqual(found, { _id: 'a', at: date, all: [date], text: date.$date });
  const same = await orders.get('a', { filter: { at } });
  assert.deepEqual(same.document, found);
  // The first and the last year of four digits, and what is beyond them.
  for (const ms of [-62198755200001, -62167219200001, -62167219200000, 253402300799999, 253402300800000, 8.64e15, -8.64e15]) {
    await orders.insertOne({ _id: ms, at: new Date(ms) });
    const { at: got } = await orders.findOne({ at: new Date(ms) });
    assert.equal(new Date(got.$date.$numberLong ? Number(got.$date.$numberLong) : got.$date).getTime(), ms);
  }
});

/** A collection whose calls do nothing but keep the texts of their bodies. */
function keeping(bodies, options) {
  const fetch = async (_, { body }) => {
    bodies.push(body);
    return new Response('{}');
  };
  return new Client('http://scripted.example', { ...options, fetch }).collection('a', 'b');
}

test('values that JSON lacks', async (env) => {
  const orders = await filled(env, 'values');
  const long = new Uint8Array(70_000).map((_, i) => i);
  await orders.put('a', { bytes: new Uint8Array([0, 255]).subarray(1), long });
  const { document } = await orders.get('a');
  assert.deepEqual(document.bytes, { $binary: { base64: '/w==', subType: '00' } });
  assert.ok(atob(document.long.$binary.base64) === Array.from(long, (byte) => String.fromCharCode(byte)).join(''));
  assert.equal((await orders.get('a', { filter: { bytes: new Uint8Array([255]) } })).document._id, 'a');
  const bodies = [];
  const kept = keeping(bodies);
  await kept.insertOne({ a: [NaN, Infinity, -Infinity, -0, 0, -1.5] });
  const doubles = ['NaN', 'Infinity', '-Infinity', '-0.0'].map(($numberDouble) => ({ $numberDouble }));
  assert.deepEqual(JSON.parse(bodies[0]), { document: { a: [...doubles, 0, -1.5] } });
  if (globalThis.Buffer) await kept.insertOne({ a: Buffer.from([255]) });
  if (globalThis.Buffer) assert.equal(bodies[1], '{"document":{"a":{"$binary":{"base64":"/w==","subType":"00"}}}}');
});

test('values that no document has', async (env) => {
  const orders = await filled(env, 'refused');
  await assert.rejects(orders.deleteMany({ customer: undefined }), { name: 'TypeError', message: 'filter.customer is undefined: leave it out, or write null' });
  assert.equal(await orders.countDocuments(), 10);
  const bodies = [];
  const kept = keeping(bodies);
  const shared = { at: new Date(0) };
  const calls = {
    'filter.a.b': () => kept.deleteMany({ a: { b: undefined } }),
    'filter.$or[1].a': () => kept.deleteMany({ $or: [{ a: 1 }, { a: undefined }] }),
    'documents[0].a[1]': () => kept.insertMany([{ a: [1, undefined] }]),
    'documents[0].b[0]': () => kept.insertMany([{ a: shared, b: [new Map([['a', 1]])] }]),
    'update[0].$set.a': () => kept.updateMany({}, [{ $set: { a: undefined } }]),
    'models[0].deleteMany.filter.a': () => kept.bulkWrite([{ deleteMany: { filter: { a: undefined } } }]),
    'document.set': () => kept.insertOne({ set: new Set() }),
    'document.regex': () => kept.insertOne({ regex: /a/ }),
    'document.floats': () => kept.insertOne({ floats: new Float32Array(1) }),
    'document.call': () => kept.insertOne({ call() {} }),
    'document.symbol': () => kept.insertOne({ symbol: Symbol('a') }),
    'body.a': () => kept.put(1, { a: undefined }),
    body: () => kept.put(1, undefined),
    'body[0].$set.a': () => kept.patch(1, [{ $set: { a: undefined } }]),
    'id.a': () => kept.get({ a: undefined }),
    'filter.b': () => kept.get(1, { filter: { b: undefined } }),
  };
  for (const [place, call] of Object.entries(calls)) {
    await assert.rejects(call(), (err) => err instanceof TypeError && err.message.startsWith(`${place} is `));
  }
  assert.deepEqual(bodies, []);
});

test('a body that is a text is sent as it is', async () => {
  const sent = [];
  const fetch = async (_, { headers, body }) => {
    const { 'content-type': type, accept, ...rest } = Object.fromEntries(new Headers(headers));
    sent.push([type, accept, body, rest]);
    return new Response('{}');
  };
  const client = new Client('http://scripted.example', { fetch, token: 'secret', headers: { 'x-of': 'client' } });
  const path = { database: 'a', collection: 'b' };
  const lines = '{"_id":1}\n{"_id":2}\n';
  const rest = { authorization: 'Bearer secret', 'x-of': 'client' };
  for (const [body, headers, want] of [
    ['[{"_id":1}]', undefined, ['application/json', 'application/json', '[{"_id":1}]', rest]],
    [[{ _id: 1 }], undefined, ['application/json', 'application/json', '[{"_id":1}]', rest]],
    [lines, { 'content-type': 'application/x-ndjson' }, ['application/x-ndjson', 'application/json', lines, rest]],
    [lines, { 'Content-Type': 'application/x-ndjson' }, ['application/x-ndjson', 'application/json', lines, rest]],
    ['[]', { ACCEPT: 'application/ejson', Authorization: 'own', 'X-Of': 'call' }, ['application/json', 'application/ejson', '[]', { authorization: 'own', 'x-of': 'call' }]],
  ]) {
    await client.call('importDocuments', { path, body, headers });
    assert.deepEqual(sent.pop(), want);
  }
});

test('options that are undefined are left out', async () => {
  const bodies = [];
  const parsed = { parse: JSON.parse, stringify: (value) => JSON.stringify(value, (_, v) => (v === undefined ? null : v)) };
  for (const options of [{}, { codec: parsed }]) {
    const kept = keeping(bodies, options);
    await kept.countDocuments({}, { limit: undefined });
    await kept.bulkWrite([{ updateOne: { filter: {}, update: {}, upsert: undefined } }], { ordered: undefined });
    const client = new Client('http://scripted.example', { ...options, fetch: async (_, { body }) => new Response(bodies.push(body) && '{}') });
    await client.call('createTicket', { body: { watch: { database: 'a', startAfter: undefined } } });
    assert.deepEqual(bodies.splice(0), [
      '{"filter":{}}',
      '{"models":[{"updateOne":{"filter":{},"update":{}}}]}',
      '{"watch":{"database":"a"}}',
    ]);
  }
});

test('URLs', async (env) => {
  const database = 'mongodb://ada:secret@db.example';
  for (const url of ['127.0.0.1:8080', 'gateway.example', 'localhost:8080/', 'ftp://gateway.example', database]) {
    let message = 'it succeeds';
    try {
      new Client(url);
    } catch (err) {
      message = err.message;
    }
    assert.ok(message.includes('begins with http:// or https://'));
    assert.ok(!message.includes(url));
  }
  for (const url of ['', '/', '/api', 'HTTPS://gateway.example']) new Client(url);
});

test('an unknown operation', async (env) => {
  await assert.rejects(new Client(env.url).call('findOnes'), { name: 'TypeError', message: 'openapi.json has no operation findOnes' });
});

test('pages', async (env) => {
  const orders = await filled(env, 'pages');
  const pages = await all(orders.pages({}, { sort: { _id: 1 }, batchSize: 4 }));
  assert.deepEqual(pages.map((page) => page.length), [4, 4, 2]);
  assert.equal((await all(orders.find({ _id: { $gte: 5 } }, { batchSize: 2 }))).length, 5);
  assert.equal((await all(orders.aggregate([{ $match: { _id: { $lt: 3 } } }]))).length, 3);
});

test('pages of a database', async (env) => {
  const s = await env.answering([{ body: '{"documents":[{"a":1}],"cursor":"c"}' }, { body: '{"documents":[{"a":2}]}' }]);
  assert.deepEqual(await all(s.client.database('a').aggregate([{ $documents: [] }], { batchSize: 1 })), [{ a: 1 }, { a: 2 }]);
  s.stop();
});

test('a cursor that is left is closed', async (env) => {
  const orders = await filled(env, 'left');
  for await (const order of orders.find({}, { batchSize: 2 })) if (order) break;
  const { handles } = await new Client(env.url).call('listHandles', { query: { namespace: `${env.database}.left` } });
  assert.deepEqual(handles, []);
});

test('streams', async (env) => {
  const orders = await filled(env, 'streams');
  assert.equal((await all(orders.stream({}, { batchSize: 3 }))).length, 10);
  for await (const order of orders.stream()) if (order) break;
});

test('errors', async (env) => {
  const orders = await filled(env, 'errors');
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

test('a write concern that is not met', async (env) => {
  const concern = { code: 64, codeName: 'WriteConcernFailed', message: 'waiting timed out', labels: ['l'] };
  const found = { body: JSON.stringify({ document: { _id: 1 }, writeConcernError: concern }) };
  const none = { body: JSON.stringify({ document: null, writeConcernError: { code: 100 } }) };
  const first = { body: JSON.stringify({ documents: [1], cursor: 'c', writeConcernError: concern }) };
  const one = { headers: { 'Mooring-Write-Concern-Error': '64 WriteConcernFailed', ETag: '"a"' }, body: '{"_id":1}' };
  const unmet = { status: 'UNAVAILABLE', reason: 'WriteConcernFailed', retry: 'never', httpStatus: 503 };
  const answers = [found, found, found, none, first, { body: '{"documents":[2]}' }, first, { body: '{"documents":[2]}' }, one, one, one];
  const s = await env.answering(answers);
  const orders = s.client.collection('a', 'b');
  for (const call of [() => orders.findOneAndUpdate({}, {}), () => orders.findOneAndReplace({}, {}), () => orders.findOneAndDelete({})]) {
    const message = 'done, but not acknowledged as the write concern asks: waiting timed out';
    await assert.rejects(call(), { ...unmet, message });
  }
  await assert.rejects(orders.findOneAndDelete({}), (err) => err.result.document === null && err.message.endsWith(': 100'));
  for (const of of [orders, s.client.database('a')]) {
    const seen = [];
    const reading = (async () => {
      for await (const document of of.aggregate([{ $out: 'c' }])) seen.push(document);
    })();
    await assert.rejects(reading, (err) => {
      assert.deepEqual(err.server, { code: 64, codeName: 'WriteConcernFailed', labels: ['l'] });
      assert.deepEqual(err.writeConcernError, concern);
      return err instanceof MooringError;
    });
    assert.deepEqual(seen, [1, 2]); // the pages have come
  }
  const written = { document: { _id: 1 }, etag: '"a"', writeConcernError: { code: 64, codeName: 'WriteConcernFailed' } };
  assert.deepEqual(await orders.put(1, {}), written);
  assert.deepEqual(await orders.patch(1, {}), written);
  const message = 'done, but not acknowledged as the write concern asks: WriteConcernFailed';
  await assert.rejects(orders.delete(1), { ...unmet, message });
  s.stop();
});

test('repeats what may be repeated', async (env) => {
  const again = { status: 503, body: failed('NoSuitableServer', 'same-request') };
  const s = await env.answering([again, again, { body: '{"insertedId":1,"acknowledged":true}' }]);
  assert.equal((await s.client.collection('a', 'b').insertOne({})).insertedId, 1);
  assert.equal(s.requests.length, 3);
  assert.equal(s.requests[2].authorization, 'Bearer secret');
  s.stop();
});

test('headers and deadlines', async (env) => {
  const page = { body: '{"documents":[],"cursor":"c"}' };
  const s = await env.answering([{ body: '{"count":1}' }, page, { body: '{"documents":[]}' }, { body: '{"end":{}}\n' }, {}], { timeout: 7000 });
  const orders = s.client.collection('a', 'b');
  const ofCall = { timeout: 2000, headers: { 'If-None-Match': 'x' } };
  await orders.countDocuments({}, ofCall);
  await all(orders.find({}, { ...ofCall, batchSize: 1 }));
  await all(orders.stream({}, ofCall));
  await orders.insertOne({});
  const seen = s.requests.map((headers) => `${headers['request-timeout']} ${headers['if-none-match'] ?? ''}`);
  assert.deepEqual(seen, ['2000ms x', '2000ms x', '2000ms x', '2000ms x', '7000ms ']);
  s.stop();
});

test('streams of changes have only a deadline of their own', async (env) => {
  const ended = { body: `{"error":${JSON.stringify(JSON.parse(failed('PermissionDenied', 'never')).error)}}\n` };
  const s = await env.answering(Array(8).fill(ended), { timeout: 7000 });
  const orders = s.client.collection('a', 'b');
  for (const options of [{}, { timeout: 2000 }]) {
    for (const stream of [orders.watch(options), s.client.database('a').watch(options), orders.live({}, options), orders.stream({}, options)]) {
      await assert.rejects(all(stream), { reason: 'PermissionDenied' });
    }
  }
  const seen = s.requests.map((headers) => headers['request-timeout'] ?? '');
  assert.deepEqual(seen, ['', '', '', '7000ms', ...Array(4).fill('2000ms')]);
  s.stop();
});

test('a silent gateway', async (env) => {
  const silent = { silent: true };
  const s = await env.answering([silent, silent, { body: '{"document":{}}\n', silent }], { socketTimeout: 2000 });
  const orders = s.client.collection('a', 'b');
  await assert.rejects(orders.findOne(), { reason: 'SocketTimeout', retry: 'never' });
  await assert.rejects(all(orders.stream()), { reason: 'SocketTimeout', retry: 'never' });
  await assert.rejects(all(orders.stream()), (err) => err.reason === 'StreamCut' && err.cause.reason === 'SocketTimeout');
  assert.equal(s.requests.length, 3);
  s.stop();
});

test('a wait of more than a timer can', async (env) => {
  const slow = { pieces: ['{', '"count":1}'], every: 50 };
  for (const [options, ofCall] of [[{ socketTimeout: 2 ** 31 }, {}], [{}, { timeout: 2 ** 31 }], [{ timeout: 2 ** 31 - 1 }, {}]]) {
    const s = await env.answering([slow], options);
    assert.equal(await s.client.collection('a', 'b').countDocuments({}, ofCall), 1);
    s.stop();
  }
});

test('a caller that is slow, before a gateway that is not silent', async (env) => {
  const line = '{"document":{}}\n';
  const s = await env.answering([{ pieces: [line, line, line, line, line, line, line, '{"end":{}}\n'], every: 400 }], { socketTimeout: 2000 });
  let lines = 0;
  for await (const _ of s.client.collection('a', 'b').stream()) {
    if (lines === 0) await new Promise((resolve) => setTimeout(resolve, 900));
    lines += 1;
  }
  assert.equal(lines, 7);
  s.stop();
});

test('an answer that takes longer than the gateway may be silent', async (env) => {
  const pieces = ['{', '"document"', ':', '{', '"a"', ':', '1', '}}'];
  const failure = [...failed('WriteOutcomeUnknown', 'never')];
  const slow = { status: 500, pieces: [...failure.splice(0, 7), failure.join('')], every: 400 };
  const s = await env.answering([{ pieces, every: 400 }, slow, { body: '{', silent: true }], { socketTimeout: 2000 });
  const orders = s.client.collection('a', 'b');
  assert.deepEqual(await orders.findOne(), { a: 1 });
  await assert.rejects(orders.findOne(), { reason: 'WriteOutcomeUnknown', httpStatus: 500 });
  await assert.rejects(orders.findOne({ silent: 1 }), { reason: 'SocketTimeout', retry: 'never' });
  s.stop();
});

test('a call that its caller ends', async (env) => {
  const s = await env.answering([{ silent: true }]);
  const aborter = new AbortController();
  const call = s.client.collection('a', 'b').findOne({}, { signal: aborter.signal });
  aborter.abort(new Error('enough'));
  await assert.rejects(call, (err) => !(err instanceof MooringError));
  s.stop();
});

test('an answer that is cut', async (env) => {
  const s = await env.answering([{ body: '{"count":', cut: true }, { body: '{"count":1}' }, { body: '{', cut: true }, { body: '<html>' }]);
  const orders = s.client.collection('a', 'b');
  assert.equal(await orders.countDocuments(), 1);
  await assert.rejects(orders.insertOne({}), { reason: 'NoAnswer', retry: 'never' });
  await assert.rejects(orders.insertOne({}), { reason: 'NoGateway', retry: 'never' });
  s.stop();
});

test('repeats nothing else', async (env) => {
  for (const retry of ['never', 'restart', 'transaction']) {
    const s = await env.answering([{ status: 500, body: failed('WriteOutcomeUnknown', retry) }]);
    await assert.rejects(s.client.collection('a', 'b').updateOne({}, { $set: { a: 1 } }), { reason: 'WriteOutcomeUnknown' });
    assert.equal(s.requests.length, 1);
    s.stop();
  }
});

test('what is not an answer of a gateway', async (env) => {
  const s = await env.answering([{ status: 404, body: '<html>' }]);
  await assert.rejects(s.client.collection('a', 'b').findOne(), { reason: 'NoGateway', httpStatus: 404 });
  s.stop();
  const gone = new Client('http://127.0.0.1:1', { retries: 0 });
  await assert.rejects(gone.collection('a', 'b').findOne(), { reason: 'NoAnswer', retry: 'same-request' });
  // Node's own words are "fetch failed"; the cause is beside them. Chromium gives no cause.
  const why = /^no answer from http:\/\/127\.0\.0\.1:1: (?!fetch failed$)./;
  await assert.rejects(gone.collection('a', 'b').findOne(), (err) => why.test(err.message));
  await assert.rejects(all(gone.collection('a', 'b').stream()), { reason: 'NoAnswer', retry: 'same-request' });
  await assert.rejects(all(gone.collection('a', 'b').watch()), { reason: 'NoAnswer', retry: 'same-request' });
  await assert.rejects(gone.collection('a', 'b').updateMany({}, [{ $unset: 'a' }]), { reason: 'NoAnswer', retry: 'never' });
});

// The calls of a test, by name, and whether each may be repeated if no answer comes.
const calls = {
  'a read': [true, (orders) => orders.findOne()],
  'a read in a transaction': [false, (orders) => orders.findOne({}, { transaction: 't' })],
  'a read with the header of a transaction': [false, (orders) => orders.findOne({}, { headers: { 'mooring-transaction': 't' } })],
  'a read as a statement': [true, (orders) => orders.findOne({}, { transaction: 't', statement: 1 })],
  'a document by its id': [true, (orders) => orders.get(1)],
  'a write': [false, (orders) => orders.insertOne({})],
  'a write with a key': [true, (orders) => orders.insertOne({}, { idempotencyKey: 'k' })],
  'a write with the header of a key': [true, (orders) => orders.insertOne({}, { headers: { 'idempotency-key': 'k' } })],
  'an exactly-once write': [true, (orders) => orders.insertOne({}, { exactlyOnce: true })],
  'a write in a transaction': [false, (orders) => orders.insertOne({}, { transaction: 't', exactlyOnce: true })],
  'a write as a statement': [true, (orders) => orders.insertOne({}, { transaction: 't', statement: 1 })],
  'a document with fields like options': [false, (orders) => orders.put(1, { transaction: 't', statement: 1 })],
  'writes of many': [false, (orders) => orders.updateMany({}, { $set: { a: 1 } })],
  'an aggregation, which may write': [false, (orders) => all(orders.aggregate([]))],
  Commit: [true, (_, client) => client.call('commitTransaction', { body: { transaction: 't' } })],
  Abort: [true, (_, client) => client.call('abortTransaction', { body: { transaction: 't' } })],
  Run: [false, (_, client) => client.call('runTransaction', { body: { operations: [] } })],
  Begin: [false, (_, client) => client.call('beginTransaction', {})],
  Import: [false, (_, client) => client.call('importDocuments', { path: { database: 'a', collection: 'b' }, body: '{}' })],
};

test('repeats nothing that may be done twice', async (env) => {
  const cut = { body: '{', cut: true };
  const proxy = { status: 502, body: '<html>' };
  for (const [name, [repeatable, call]] of Object.entries(calls)) {
    for (const unanswered of [cut, proxy]) {
      const s = await env.answering([unanswered, { body: '{"documents":[]}' }]);
      const err = await call(s.client.collection('a', 'b'), s.client).then(() => undefined, (e) => e);
      if (s.requests.length !== (repeatable ? 2 : 1)) fail(`${name}: ${s.requests.length} requests`);
      if (!repeatable && err?.retry !== 'never') fail(`${name}: ${err?.retry} ${err?.message}`);
      s.stop();
    }
  }
});

test('after a silence, what the gateway knows is to be repeated by the caller', async (env) => {
  const reads = ['a read', 'a document by its id'];
  const all = Object.entries(calls);
  const s = await env.answering(all.map(() => ({ silent: true })), { socketTimeout: 1000 });
  await Promise.all(all.map(async ([name, [repeatable, call]]) => {
    const err = await call(s.client.collection('a', 'b'), s.client).then(() => fail('it succeeds'), (e) => e);
    const retry = repeatable && !reads.includes(name) ? 'same-request' : 'never';
    if (err.reason !== 'SocketTimeout' || err.retry !== retry) fail(`${name}: ${err.reason} ${err.retry} ${err.message}`);
  }));
  assert.equal(s.requests.length, all.length);
  s.stop();
});

test('exactly-once writes', async (env) => {
  const body = '{"documents":[]}';
  const again = { status: 503, body: failed('NoSuitableServer', 'same-request') };
  const cases = {
    'a write': [true, (orders, options) => orders.insertOne({}, options)],
    'one document, whatever its fields': [true, (orders, options) => orders.put(1, { transaction: 't' }, options)],
    'a write that the gateway refuses then': [true, (orders, options) => orders.updateMany({}, { $set: { a: 1 } }, options)],
    'a write in a transaction': [false, (orders, options) => orders.insertOne({}, { ...options, transaction: 't' })],
    'a statement': [false, (orders, options) => orders.insertOne({}, { ...options, transaction: 't', statement: 1 })],
    'a read': [false, (orders, options) => orders.findOne({}, options)],
  };
  for (const [name, [own, call]] of Object.entries(cases)) {
    for (const [options, ofCall] of [[{ exactlyOnce: true }, {}], [{}, { exactlyOnce: true }], [{ exactlyOnce: true }, { exactlyOnce: false }]]) {
      const s = await env.answering([again, { body }, { body }], options);
      for (let i = 0; i < 2; i += 1) await call(s.client.collection('a', 'b'), ofCall);
      const [first, same, other] = s.requests.map((headers) => headers['idempotency-key']);
      if (first !== same) fail(`${name}: it is repeated with another key`);
      if ((first !== undefined) !== (own && ofCall.exactlyOnce !== false)) fail(`${name}: the key is ${first}`);
      if (first !== undefined && first === other) fail(`${name}: two writes have one key`);
      s.stop();
    }
  }
  const s = await env.answering([{ body }], { exactlyOnce: true });
  await s.client.collection('a', 'b').insertOne({}, { idempotencyKey: 'k' });
  assert.equal(s.requests[0]['idempotency-key'], 'k');
  s.stop();
});

test('exactly-once writes before a gateway', 'replicaSet', async (env) => {
  await filled(env, 'once');
  const orders = new Client(env.url, { exactlyOnce: true }).collection(env.database, 'once');
  assert.equal((await orders.insertOne({ _id: 10 })).insertedId, 10);
  assert.equal((await orders.updateOne({ _id: 10 }, { $inc: { total: 1 } })).modifiedCount, 1);
  assert.equal((await orders.patch(10, { $inc: { total: 1 } })).document.total, 2);
  const all = [{}, { $set: { seen: true } }];
  await assert.rejects(orders.updateMany(...all), { httpStatus: 400, reason: 'IdempotencyKeyUnsupported' });
  assert.equal(await orders.countDocuments({ seen: true }), 0);
  assert.equal((await orders.updateMany(...all, { exactlyOnce: false })).modifiedCount, 11);
});

test('an error has the key of the call', async (env) => {
  const silent = { silent: true };
  const s = await env.answering([{ body: '{', cut: true }, silent], { exactlyOnce: true, retries: 0, socketTimeout: 2000 });
  const orders = s.client.collection('a', 'b');
  for (const reason of ['NoAnswer', 'SocketTimeout']) {
    const err = await orders.insertOne({}).then(() => fail('it succeeds'), (e) => e);
    const key = s.requests.at(-1)['idempotency-key'];
    assert.deepEqual([err.reason, err.retry, err.idempotencyKey], [reason, 'same-request', key]);
  }
  s.stop();
});

test('the deadline is that of all repetitions', async (env) => {
  const later = { status: 503, headers: { 'Retry-After': '3600' }, body: failed('Overloaded', 'same-request') };
  const soon = { ...later, headers: {} };
  const s = await env.answering([later, soon, { body: '{"count":1}' }], { timeout: 7000 });
  const orders = s.client.collection('a', 'b');
  await assert.rejects(orders.countDocuments(), { reason: 'Overloaded', retryAfter: 3600 });
  assert.equal(await orders.countDocuments(), 1);
  const [, first, second] = s.requests.map((headers) => Number.parseInt(headers['request-timeout'], 10));
  assert.equal(first, 7000);
  assert.ok(second <= first);
  s.stop();
});

test('no call is repeated after its deadline, if a timer is late', async (env) => {
  const again = { status: 503, headers: { 'Retry-After': '0.1' }, body: failed('Overloaded', 'same-request') };
  const s = await env.answering([again, { body: '{"count":1}' }, { body: '{"count":1}' }]);
  const orders = s.client.collection('a', 'b');
  const { setTimeout } = globalThis;
  globalThis.setTimeout = (run, milliseconds) => setTimeout(run, milliseconds + 900);
  try {
    await assert.rejects(orders.countDocuments({}, { timeout: 900 }), { reason: 'Overloaded' });
  } finally {
    globalThis.setTimeout = setTimeout;
  }
  assert.equal(s.requests.length, 1);
  for (const timeout of [0.2, 0]) await orders.countDocuments({}, { timeout });
  assert.deepEqual(s.requests.slice(1).map((headers) => headers['request-timeout']), ['1ms', '1ms']);
  s.stop();
});

test('a call is not repeated when its key may be forgotten', async (env) => {
  const later = (seconds) => ({ status: 503, headers: { 'Retry-After': seconds }, body: failed('IdempotencyUnavailable', 'same-request') });
  const s = await env.answering([later('1800'), later('1700'), { body: '{"insertedId":1}' }], { exactlyOnce: true });
  const orders = s.client.collection('a', 'b');
  const { setTimeout } = globalThis;
  globalThis.setTimeout = (run, milliseconds) => setTimeout(run, milliseconds > 1e6 ? 0 : milliseconds);
  try {
    await assert.rejects(orders.insertOne({}), (err) => err.reason === 'IdempotencyUnavailable' && err.idempotencyKey !== undefined);
    assert.equal(s.requests.length, 1);
    await orders.insertOne({});
  } finally {
    globalThis.setTimeout = setTimeout;
  }
  assert.equal(s.requests.length, 3);
  s.stop();
});

test('a call is not repeated when its key was forgotten while the computer slept', async (env) => {
  const later = { status: 503, body: failed('IdempotencyUnavailable', 'same-request') };
  const { setTimeout } = globalThis;
  const { now } = Date;
  for (const asleep of ['before the answer', 'in the pause']) {
    const s = await env.answering([later, { body: '{"insertedId":1}' }], { exactlyOnce: true });
    let slept = false; // the clock of performance.now may stand still then
    Date.now = () => now() + (slept || (asleep === 'before the answer' && s.requests.length > 0) ? 31 * 60_000 : 0);
    globalThis.setTimeout = (run, milliseconds) => {
      const isPause = milliseconds < 1000;
      return setTimeout(() => {
        slept ||= isPause;
        run();
      }, milliseconds);
    };
    try {
      await assert.rejects(s.client.collection('a', 'b').insertOne({}), (err) => {
        assert.deepEqual([err.reason, err.idempotencyKey], ['IdempotencyUnavailable', s.requests[0]['idempotency-key']]);
        return s.requests.length === 1;
      });
    } finally {
      Date.now = now;
      globalThis.setTimeout = setTimeout;
    }
    s.stop();
  }
});

test('a cursor whose page fails is closed', async (env) => {
  const page = { body: '{"documents":[1],"cursor":"c"}' };
  const closed = { body: '{}' };
  const lost = { status: 409, body: failed('CursorPositionUnknown', 'restart') };
  const s = await env.answering([page, lost, closed, page, { status: 404, body: failed('CursorNotFound', 'restart') }, page, { silent: true }, closed]);
  const orders = s.client.collection('a', 'b');
  await assert.rejects(all(orders.find()), { reason: 'CursorPositionUnknown' });
  assert.equal(s.requests.length, 3);
  await assert.rejects(all(orders.find()), { reason: 'CursorNotFound' });
  assert.equal(s.requests.length, 5);
  // The caller's signal aborts between two pages.
  const aborter = new AbortController();
  const documents = orders.find({}, { signal: aborter.signal });
  await documents.next();
  const next = documents.next();
  while (s.requests.length < 7) await new Promise((resolve) => setTimeout(resolve, 10));
  aborter.abort(new Error('enough'));
  await assert.rejects(next, (err) => err.message === 'enough');
  assert.equal(s.requests.length, 8);
  s.stop();
});

test('a stream that is cut is not an end', async (env) => {
  const line = '{"document":{"_id":1}}\n';
  for (const answer of [{ body: line }, { body: line + '{"docu' }, { body: line, cut: true }]) {
    const s = await env.answering([answer]);
    await assert.rejects(all(s.client.collection('a', 'b').stream()), { reason: 'StreamCut', retry: 'restart' });
    s.stop();
  }
});

test('a stream of changes goes on after the last one', async (env) => {
  const change = (n) => `{"document":{"_id":{"_data":"${n}"},"operationType":"insert"}}\n`;
  const s = await env.answering([
    { body: '{"progress":{"resumeToken":{"_data":"0"}}}\n' + change(1), cut: true },
    { body: `${change(2)}{"error":${JSON.stringify(JSON.parse(failed('ShuttingDown', 'restart')).error)}}\n` },
    { body: `${change(3)}{"end":{}}\n` },
  ]);
  const changes = await all(s.client.collection('a', 'b').watch());
  assert.deepEqual(changes.map((c) => c._id._data), ['1', '2', '3']);
  s.stop();
});

// The same test as those of the clients for Go and Python.
test('live documents go on with what differs', async (env) => {
  const says = (kind, ...ids) => ids.map((_id) => `${JSON.stringify({ [kind]: { _id } })}\n`).join('') || `{"${kind}":{}}\n`;
  const ends = (reason, retry) => `{"error":${JSON.stringify(JSON.parse(failed(reason, retry)).error)}}\n`;
  const s = await env.answering([
    { body: says('added', 1, 2) + says('ready') + says('changed', 1) + says('added', 3) + ends('ShuttingDown', 'restart') },
    { body: says('added', 1, 3) + says('ready') + says('removed', 3) + says('removed', 4) + ends('PermissionDenied', 'never') },
  ]);
  const got = [];
  const reading = (async () => {
    for await (const { kind, document } of s.client.collection('a', 'b').live()) got.push(`${kind} ${document?._id ?? 0}`);
  })();
  await assert.rejects(reading, { reason: 'PermissionDenied' });
  assert.deepEqual(got, [
    'added 1', 'added 2', 'ready 0', 'changed 1', 'added 3',
    'changed 1', 'changed 3', 'removed 2', 'ready 0', 'removed 3',
  ]);
  s.stop();
});

/** An ObjectId as that of the package bson: its JSON is that of a string. */
class Id {
  constructor(hex) {
    this.hex = hex;
  }

  toJSON() {
    return this.hex;
  }
}

test('live documents with _ids that JSON makes alike', async (env) => {
  const codec = {
    parse: (of) => JSON.parse(of, (_, v) => (v?.$oid ? new Id(v.$oid) : v?.$numberDouble ? Number(v.$numberDouble) : v)),
    stringify: (value) => JSON.stringify(value, function write(key, v) {
      if (this[key] instanceof Id) return { $oid: v };
      return typeof v !== 'number' || Number.isFinite(v) ? v : { $numberDouble: String(v) };
    }),
  };
  const hex = '651f3c0a0102030405060708';
  const ids = [hex, { $oid: hex }, { $numberDouble: 'Infinity' }, { $numberDouble: 'NaN' }, null];
  const says = (kind) => ids.map((_id) => `${JSON.stringify({ [kind]: { _id } })}\n`).join('');
  const ended = JSON.stringify({ error: JSON.parse(failed('PermissionDenied', 'never')).error });
  const s = await env.answering([{ body: `${says('added')}${says('removed')}${ended}\n` }], { codec });
  const kinds = [];
  const reading = (async () => {
    for await (const { kind } of s.client.collection('a', 'b').live()) kinds.push(kind);
  })();
  await assert.rejects(reading, { reason: 'PermissionDenied' });
  assert.deepEqual(kinds, [...ids.map(() => 'added'), ...ids.map(() => 'removed')]);
  s.stop();
});

test('empty lines keep a quiet stream alive', async (env) => {
  const ended = JSON.stringify({ error: JSON.parse(failed('PermissionDenied', 'never')).error });
  const pieces = ['\n', '{"added":{"_id":1}}\n', '\n', '\n\n', '\n', '\n{"ready"', ':{}}\n', '\n', `\n${ended}\n`];
  const s = await env.answering([{ pieces, every: 600 }], { socketTimeout: 2000 });
  const kinds = [];
  const reading = (async () => {
    for await (const { kind } of s.client.collection('a', 'b').live()) kinds.push(kind);
  })();
  await assert.rejects(reading, { reason: 'PermissionDenied' });
  assert.deepEqual(kinds, ['added', 'ready']);
  assert.equal(s.requests.length, 1);
  s.stop();
});

test('a stream that has begun goes on after a silent gateway, and waits as long as it says', async (env) => {
  const cut = (line) => ({ body: `${JSON.stringify(line)}\n`, cut: true });
  const busy = { status: 503, headers: { 'Retry-After': '1' }, body: failed('Overloaded', 'same-request') };
  const ended = `{"error":${JSON.stringify(JSON.parse(failed('PermissionDenied', 'never')).error)}}\n`;
  const cases = {
    watch: { document: { _id: 1, operationType: 'insert' } },
    live: { added: { _id: 1 } },
  };
  await Promise.all(Object.entries(cases).map(async ([name, line]) => {
    const options = { socketTimeout: 3000, retries: 0 };
    const s = await env.answering([cut(line), { silent: true }, cut(line), busy, { body: ended }, { silent: true }], options);
    const orders = s.client.collection('a', 'b');
    let seen = 0;
    let at;
    const reading = (async () => {
      for await (const _ of orders[name]()) {
        seen += 1;
        at = performance.now();
      }
    })();
    await assert.rejects(reading, { reason: 'PermissionDenied' });
    assert.equal(seen, 2);
    assert.ok(performance.now() - at > 990);
    await assert.rejects(all(orders[name]()), { reason: 'SocketTimeout' }); // it has not begun
    s.stop();
  }));
});

test('another codec', async (env) => {
  const codec = {
    parse: (text) => JSON.parse(text, (_, v) => (v?.$numberLong !== undefined ? BigInt(v.$numberLong) : v)),
    stringify: (value) => JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? { $numberLong: String(v) } : v)),
  };
  const exact = new Client(env.url, { codec }).collection(env.database, 'codec');
  await exact.deleteMany({});
  await exact.insertOne({ _id: 'a', big: 9007199254740993n });
  assert.equal((await exact.findOne()).big, 9007199254740993n);
  assert.equal((await all(exact.stream()))[0].big, 9007199254740993n);
});

test('a codec that writes undefined as null', async (env) => {
  await filled(env, 'undefined');
  const codec = { parse: JSON.parse, stringify: (value) => JSON.stringify(value, (_, v) => (v === undefined ? null : v)) };
  const orders = new Client(env.url, { codec }).collection(env.database, 'undefined');
  assert.equal((await all(orders.find({}, { batchSize: 4, limit: undefined }))).length, 10);
  for await (const _ of orders.find({}, { batchSize: 4 })) break; // closes the cursor
});

test('changes', 'replicaSet', async (env) => {
  const orders = await filled(env, 'changes');
  const aborter = new AbortController();
  const path = { database: env.database, collection: 'changes' };
  const changes = new Client(env.url).lines('watchCollection', { path, body: {}, signal: aborter.signal });
  assert.ok((await changes.next()).value.progress); // from here on nothing is missed
  await orders.insertOne({ _id: 'new' });
  for await (const { document } of changes) {
    // A shared cursor may be behind, and have what came before (docs/change-streams.md).
    if (document?.fullDocument?._id !== 'new') continue;
    assert.equal(document.operationType, 'insert');
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

test('followChanges', async (env) => {
  const asked = [];
  const seen = [];
  await new Promise((resolve, reject) => {
    FakeEventSource.opened = (_, source) =>
      setTimeout(() => {
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
        setTimeout(() => source.listeners.failure({ data: failed('ChangeStreamHistoryLost', 'restart'), lastEventId: 'end' }));
      followChanges(() => '/t', { onError: reject }, { EventSource: FakeEventSource });
    }),
    { reason: 'ChangeStreamHistoryLost' },
  );
});

/** Follows changes with sources that do these things, one after the other, until it ends. */
async function following(...acts) {
  const asked = [];
  const seen = [];
  const random = Math.random;
  Math.random = () => 0; // it does not wait between streams
  try {
    await new Promise((resolve, reject) => {
      FakeEventSource.opened = (_, source) => setTimeout(() => acts.shift()(source));
      const ticket = (after) => `/t${asked.push(after?._data)}`;
      const handlers = { onChange: (change) => seen.push(change._id._data), onEnd: resolve, onError: reject };
      followChanges(ticket, handlers, { EventSource: FakeEventSource });
    });
  } finally {
    Math.random = random;
  }
  return { asked, seen };
}

test('followChanges asks for another ticket when one ends within its stream', async () => {
  const changes = (source, data) => source.onmessage({ data: `{"_id":{"_data":"${data}"}}` });
  const { asked, seen } = await following(
    (source) => {
      changes(source, '1');
      source.listeners.failure({ data: failed('Unauthenticated', 'never'), lastEventId: 'end' });
      source.onerror(); // as a source that has been closed may
    },
    (source) => {
      changes(source, '2');
      source.listeners.end({ data: '{}' });
    },
  );
  assert.deepEqual(asked, [undefined, '1']);
  assert.deepEqual(seen, ['1', '2']);
});

test('followChanges goes on after the newest token, if that is no change', async () => {
  const progress = (source, data) => source.listeners.progress?.({ data: `{"resumeToken":{"_data":"${data}"}}` });
  const ends = (source) => source.listeners.failure({ data: failed('Unauthenticated', 'never'), lastEventId: 'end' });
  const { asked } = await following(
    (source) => {
      progress(source, '1');
      ends(source);
    },
    (source) => {
      source.onmessage({ data: '{"_id":{"_data":"2"}}' });
      progress(source, '3');
      ends(source);
    },
    (source) => source.listeners.end({ data: '{}' }),
  );
  assert.deepEqual(asked, [undefined, '1', '3']);
});

test('followChanges gives up after failures only if no stream opens', async () => {
  const refused = (source) => {
    source.close(); // as after 401
    source.onerror();
  };
  const opened = (source) => {
    source.listeners.open?.({});
    refused(source);
  };
  const { asked } = await following(...Array(8).fill(opened), ...Array(4).fill(refused), (source) => source.listeners.end({}));
  assert.equal(asked.length, 13);
  await assert.rejects(following(opened, ...Array(5).fill(refused)), { reason: 'NoAnswer' });
});

test('followChanges with a ticket', 'replicaSet', 'EventSource', async (env) => {
  const orders = await filled(env, 'tickets');
  const watch = { database: env.database, collection: 'tickets' };
  const ticket = async () => new URL((await new Client(env.url).call('createTicket', { body: { watch } })).url, env.url);
  const seen = [];
  await new Promise((resolve, reject) => {
    const onChange = (change) => {
      seen.push(change.operationType);
      if (change.operationType === 'insert') new Client(env.url).call('dropCollection', { path: watch }).catch(reject);
    };
    class Opened extends EventSource {
      constructor(url) {
        super(url);
        // The gateway tells the page its position before any change.
        this.addEventListener('progress', () => orders.insertOne({ _id: 'new' }).catch(reject), { once: true });
      }
    }
    followChanges(ticket, { onChange, onEnd: resolve, onError: reject }, { EventSource: Opened });
  });
  assert.equal(seen[0], 'insert');
});
