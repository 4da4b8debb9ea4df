// A client of the Mooring gateway. It uses fetch and nothing of Node, so that it runs wherever
// fetch does. The types are in index.d.ts.

import { operations } from './operations.js';

/** A call that has failed. Its fields are those of the gateway's error. */
export class MooringError extends Error {
  constructor(body, httpStatus, options) {
    super(body.error.message, options);
    this.name = 'MooringError';
    Object.assign(this, body.error, { httpStatus, result: body.result });
  }
}

// The client's own failures have the shape of the gateway's.
function failure(reason, retry, message, cause) {
  return new MooringError({ error: { status: 'UNAVAILABLE', code: 14, requestId: '', reason, retry, message } }, 0, { cause });
}

// unmet is the error of a write that was done, but not acknowledged as its write concern asks.
function unmet(writeConcernError, result) {
  const { code, codeName, labels, message } = writeConcernError;
  const error = {
    status: 'UNAVAILABLE', code: 14, requestId: '', reason: 'WriteConcernFailed', retry: 'never',
    message: `done, but not acknowledged as the write concern asks: ${message || codeName || code}`,
    server: present({ code, codeName, labels }), writeConcernError,
  };
  return new MooringError({ error, result }, 503);
}

// documentOf returns the document of a write, which the write concern asks to be acknowledged.
function documentOf({ document, writeConcernError }) {
  if (writeConcernError) throw unmet(writeConcernError, { document });
  return document;
}

// concernOf reads the header of a write whose write concern is not met.
function concernOf(headers) {
  const [code, codeName] = headers.get('Mooring-Write-Concern-Error')?.split(' ') ?? [];
  return code && present({ code: Number(code), codeName: codeName || undefined });
}

// lowered returns headers with small names, so that one of a call replaces the client's.
const lowered = (headers = {}) => Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));

// optionsOf returns the options of a call that are in its body. The body of a PUT is a document.
const optionsOf = (method, { body }) => (method === 'POST' ? (body ?? {}) : {});

const inTransaction = (method, args, headers) =>
  (optionsOf(method, args).transaction ?? headers['mooring-transaction']) !== undefined;

// isKnown says whether the gateway knows a call again, and does nothing twice.
function isKnown(id, method, args, headers) {
  if (operations[id][2] === 'token' || headers['idempotency-key'] !== undefined) return true;
  return inTransaction(method, args, headers) && optionsOf(method, args).statement > 0;
}

// isRead says whether a call is a read outside transactions.
const isRead = (id, method, args, headers) => operations[id][2] === 'read' && !inTransaction(method, args, headers);

// endless matches the operations whose streams only their deadline would end.
const endless = /^(watch|live)/;

// newKey makes an idempotency key. Pages without TLS have no crypto.randomUUID.
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

// Statuses of a proxy that does not know what the gateway has done.
const ofProxies = new Set([502, 503, 504]);

const plain = /^[A-Za-z0-9_-][A-Za-z0-9_.-]*$/;

// segment writes a name in a path. Names that proxies may change are written as base64url.
function segment(name) {
  if (plain.test(name)) return name;
  const bytes = new TextEncoder().encode(name);
  const text = btoa(String.fromCharCode(...bytes));
  return `~${text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`;
}

// pause waits, and fails if the signal aborts.
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, milliseconds);
    signal?.addEventListener('abort', abort, { once: true });
  });
}

// grace is how long the client waits after a call's deadline, in milliseconds, so that the gateway's
// own error comes first.
const grace = 10_000;

// keyLife is how long the gateway knows an idempotency key, in milliseconds.
const keyLife = 30 * 60_000;

// longest is what setTimeout can wait, in milliseconds. Told to wait longer, it does not wait.
const longest = 2 ** 31 - 1;

/** Ends a request if the gateway sends nothing for some time, or if the caller's signal aborts. */
class Guard {
  #controller = new AbortController();
  #timer;
  expired = false;

  constructor(wait, signal) {
    this.wait = wait;
    this.signal = signal ? AbortSignal.any([signal, this.#controller.signal]) : this.#controller.signal;
    this.touch();
  }

  /** Begins to wait anew. */
  touch() {
    clearTimeout(this.#timer);
    if (!(this.wait <= longest)) return;
    this.#timer = setTimeout(() => {
      this.expired = true;
      this.end();
    }, this.wait);
  }

  /** Stops waiting. */
  rest() {
    clearTimeout(this.#timer);
  }

  /** Ends the request, if it has not ended. */
  end() {
    this.rest();
    this.#controller.abort();
  }

  /** The error of a request that has ended in silence. */
  silence(base, cause, retry = 'never') {
    return failure('SocketTimeout', retry, `${base} has sent nothing for ${this.wait} ms`, cause);
  }
}

// formless are the built-in types of which JSON.stringify would make {} without a word.
const formless = new Set(['Map', 'Set', 'WeakMap', 'WeakSet', 'Promise', 'RegExp', 'ArrayBuffer', 'SharedArrayBuffer']);

const isObject = (value) => typeof value === 'object' && value !== null;

const typeOf = (value) => Object.prototype.toString.call(value).slice(8, -1);

// problemOf says why a value cannot be written; undefined: it can.
function problemOf(value) {
  if (value === undefined) return 'is undefined: leave it out, or write null';
  if (typeof value === 'function' || typeof value === 'symbol') return `is a ${typeof value}, not a value`;
  if (!isObject(value)) return undefined;
  const type = typeOf(value);
  if (formless.has(type) || ArrayBuffer.isView(value)) return `is of the type ${type}, which has no form in Extended JSON`;
  return undefined;
}

// ofDate writes a date. toISOString writes some years with a sign and six digits, which are not
// Extended JSON.
function ofDate(date) {
  const year = date.getUTCFullYear();
  return { $date: year < 0 || year > 9999 ? { $numberLong: String(date.getTime()) } : date.toISOString() };
}

function ofBytes(bytes) {
  let text = '';
  // A call takes only so many arguments.
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return { $binary: { base64: btoa(text), subType: '00' } };
}

// extended writes a value, which has this name, as Extended JSON. What JSON.stringify would drop or
// change without a word is written as what it is, or is an error that says where it is.
function extended(value, name) {
  const places = new Map(); // where each object is
  return JSON.stringify(value, function replace(key, given) {
    const original = this[key]; // JSON.stringify has called its toJSON already
    if (original instanceof Date) return ofDate(original);
    if (ArrayBuffer.isView(original) && typeOf(original) === 'Uint8Array') return ofBytes(original);
    const around = places.get(this);
    let place = name;
    if (Array.isArray(this)) place = `${around}[${key}]`;
    else if (around !== undefined) place = around === '' ? key : `${around}.${key}`;
    const problem = problemOf(given);
    if (problem !== undefined) throw new TypeError(`${place} ${problem}`);
    if (isObject(given)) places.set(given, place);
    if (typeof given !== 'number') return given;
    if (!Number.isFinite(given)) return { $numberDouble: String(given) };
    return Object.is(given, -0) ? { $numberDouble: '-0.0' } : given;
  });
}

// why is the cause of an error of fetch: Node's own message says nothing.
const why = (err) => err.cause?.message || err.cause?.code || err.message;

// backoff is the time before a repetition: the server's word if there is one, else a random time
// that becomes longer.
function backoff(attempt, retryAfter) {
  return retryAfter === undefined ? Math.random() * Math.min(100 * 2 ** attempt, 5000) : retryAfter * 1000;
}

// keyOf returns what tells an _id from others: the text that the client's codec writes.
let keyOf;

export class Client {
  static {
    keyOf = (client, _id) => (client.#codec ?? JSON).stringify({ _id });
  }

  #base;
  #headers;
  #fetch;
  #retries;
  #codec;
  #timeout;
  #socketTimeout;
  #exactlyOnce;

  constructor(baseUrl, options = {}) {
    this.#base = String(baseUrl).replace(/\/+$/, '');
    if (!/^(https?:\/\/|\/|$)/i.test(this.#base)) {
      // The URL is not quoted: that of a database has a password.
      throw new TypeError('the URL of a gateway begins with http:// or https://');
    }
    this.#headers = lowered(options.headers);
    if (options.token !== undefined) this.#headers.authorization = `Bearer ${options.token}`;
    this.#fetch = options.fetch ?? ((...args) => globalThis.fetch(...args));
    this.#retries = options.retries ?? 3;
    this.#codec = options.codec;
    this.#timeout = options.timeout;
    this.#socketTimeout = options.socketTimeout ?? 120_000;
    this.#exactlyOnce = options.exactlyOnce ?? false;
  }

  /** Calls an operation of openapi.json and returns the body of its response. */
  async call(id, args = {}) {
    return (await this.exchange(id, args)).body;
  }

  /** Calls an operation of openapi.json and returns the body and the headers of its response. */
  async exchange(id, args = {}) {
    const read = async (response, guard) => {
      const text = await textOf(response, guard);
      return { text, status: response.status, headers: response.headers };
    };
    const { text, status, headers } = await this.#send(id, args, this.#codec ? 'application/ejson' : 'application/json', read);
    try {
      return { body: text ? this.#parse(text) : undefined, headers };
    } catch (err) {
      throw failure('NoGateway', 'never', `the response, of status ${status}, is not JSON`, err);
    }
  }

  /** Calls an operation that answers with a stream, and yields its lines up to the end. */
  async *lines(id, args = {}) {
    const accept = `application/x-ndjson${this.#codec ? ';profile=canonical' : ''}`;
    const [response, guard] = await this.#send(id, args, accept, (...all) => all);
    try {
      for await (const text of linesOf(response.body, guard)) {
        const line = this.#parse(text);
        if (line.error) throw new MooringError(line, response.status);
        if (line.end) return;
        yield line;
      }
    } catch (err) {
      if (err instanceof MooringError || args.signal?.aborted) throw err;
      const cause = guard.expired ? guard.silence(this.#base, err) : err;
      throw failure('StreamCut', 'restart', 'the connection broke within a stream', cause);
    } finally {
      guard.end(); // the gateway closes the cursor
    }
    throw failure('StreamCut', 'restart', 'the stream has no end');
  }

  database(name) {
    return new Database(this, name);
  }

  collection(database, name) {
    return this.database(database).collection(name);
  }

  #parse(text) {
    return this.#codec ? this.#codec.parse(text) : JSON.parse(text);
  }

  // text writes a value, which has this name.
  #text(value, name) {
    return this.#codec ? this.#codec.stringify(value) : extended(value, name);
  }

  // textOfBody writes the body of a request: options, or one document.
  #textOfBody(method, body) {
    if (method === 'POST') return this.#text(withoutUndefined(body ?? {}), '');
    return this.#text(this.#codec ? present(body ?? {}) : body, 'body');
  }

  #request(id, args, accept) {
    if (!Object.hasOwn(operations, id)) throw new TypeError(`openapi.json has no operation ${id}`);
    const [method, template] = operations[id];
    const path = template.replace(/\{(\w+)\}/g, (_, name) => {
      const value = args.path?.[name];
      return segment(typeof value === 'object' || typeof value === 'bigint' ? this.#text(value, name) : String(value));
    });
    const query = Object.entries(args.query ?? {})
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `${name}=${encodeURIComponent(typeof value === 'string' ? value : this.#text(value, name))}`);
    const headers = { ...this.#headers, accept, ...lowered(args.headers) };
    if (args.idempotencyKey !== undefined) headers['idempotency-key'] = args.idempotencyKey;
    else if (this.#takesKey(id, method, args, headers)) headers['idempotency-key'] = newKey();
    const init = { method, headers };
    if (method !== 'GET' && method !== 'DELETE') {
      headers['content-type'] ??= 'application/json';
      const isText = typeof args.body === 'string' || headers['content-type'] !== 'application/json';
      init.body = isText ? args.body : this.#textOfBody(method, args.body);
    }
    return [`${this.#base}${path}${query.length ? `?${query.join('&')}` : ''}`, init];
  }

  // takesKey says whether a call gets a key of its own. A statement's number has its place. The
  // gateway refuses some writes with a key, such as updateMany.
  #takesKey(id, method, args, headers) {
    if (!(args.exactlyOnce ?? this.#exactlyOnce) || operations[id][2] !== 'key') return false;
    return headers['idempotency-key'] === undefined && !inTransaction(method, args, headers);
  }

  // send sends a request, again where that is allowed, and returns what read makes of a response
  // that is not a failure.
  async #send(id, args, accept, read) {
    const [url, init] = this.#request(id, args, accept);
    const { headers } = init;
    const key = headers['idempotency-key'];
    // The advice if the gateway may have got the request, and if it was silent. After that, the
    // caller repeats the call. Other calls are repeated only if the gateway says so.
    const silent = isKnown(id, init.method, args, headers) ? 'same-request' : 'never';
    const unknown = isRead(id, init.method, args, headers) ? 'same-request' : silent;
    const timeout = args.timeout ?? (endless.test(id) ? undefined : this.#timeout);
    const [begun, since] = [performance.now(), Date.now()];
    const ends = begun + timeout;
    // performance.now may stand still while the computer sleeps, and Date.now may be set back.
    const age = () => Math.max(performance.now() - begun, Date.now() - since);
    const isForgotten = (wait) => key !== undefined && age() + wait >= keyLife;
    for (let attempt = 0, left = timeout; ; attempt += 1) {
      if (timeout !== undefined) headers['request-timeout'] = `${Math.max(1, Math.ceil(left))}ms`;
      let error;
      const guard = new Guard(timeout === undefined ? this.#socketTimeout : left + grace, args.signal);
      try {
        const response = await this.#fetch(url, { ...init, signal: guard.signal });
        if (response.ok || response.status === 304) return await read(response, guard);
        error = new MooringError(await errorOf(response, guard, unknown, (text) => this.#parse(text)), response.status);
        const seconds = Number(response.headers.get('Retry-After')); // a proxy may say a date
        if (seconds > 0) error.retryAfter = seconds;
      } catch (err) {
        guard.rest();
        if (args.signal?.aborted) throw err;
        if (guard.expired) throw Object.assign(guard.silence(this.#base, err, silent), { idempotencyKey: key });
        error = failure('NoAnswer', unknown, `no answer from ${this.#base}: ${why(err)}`, err);
      }
      guard.rest();
      error.idempotencyKey = key;
      const wait = backoff(attempt, error.retryAfter);
      const isLate = performance.now() + wait >= ends || isForgotten(wait);
      if (error.retry !== 'same-request' || attempt >= this.#retries || isLate) throw error;
      await pause(wait, args.signal);
      left = ends - performance.now();
      if (left <= 0 || isForgotten(0)) throw error; // the timer was late
    }
  }
}

// errorOf reads a failure's body. A proxy may have answered with another one: unknown is its advice
// if the gateway may have got the call.
async function errorOf(response, guard, unknown, parse) {
  const text = await textOf(response, guard);
  try {
    const body = parse(text);
    if (body?.error?.reason) return body;
  } catch {
    // It is not JSON.
  }
  const retry = ofProxies.has(response.status) ? unknown : 'never';
  const message = `${response.status} ${response.statusText}, which is not a response of a gateway`;
  return { error: { status: 'UNKNOWN', code: 2, requestId: '', reason: 'NoGateway', retry, message } };
}

// present returns the fields of a request that have a value. A codec may write undefined as null,
// which is an error in most fields.
function present(body) {
  if (Array.isArray(body)) return body;
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));
}

// withoutUndefined returns options without those that are undefined. The stream of a ticket and the
// writes in a list have options of their own; the rest are documents.
function withoutUndefined(body) {
  const options = present(body);
  const presentIn = (value) => (isObject(value) ? present(value) : value);
  const ofWrite = (write) => Object.fromEntries(Object.entries(write).map(([kind, of]) => [kind, presentIn(of)]));
  for (const name of ['watch', 'live']) if (name in options) options[name] = presentIn(options[name]);
  for (const name of ['models', 'operations']) {
    if (Array.isArray(options[name])) options[name] = options[name].map((write) => (isObject(write) ? ofWrite(write) : write));
  }
  return options;
}

// piecesOf yields the text of a body as it arrives. The guard waits only while the client reads.
async function* piecesOf(body, guard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    guard.touch();
    const { done, value } = await reader.read();
    guard.rest();
    if (done) return;
    yield value;
  }
}

async function textOf(response, guard) {
  let text = '';
  if (response.body) for await (const piece of piecesOf(response.body, guard)) text += piece;
  guard.rest();
  return text;
}

async function* linesOf(body, guard) {
  let rest = '';
  for await (const piece of piecesOf(body, guard)) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop();
    for (const line of lines) if (line) yield line;
  }
  if (rest) throw failure('StreamCut', 'restart', 'the stream ends within a line');
}

// divide divides a call's options into those of the body and those of the call.
function divide(path, { timeout, signal, headers, idempotencyKey, exactlyOnce, ...body }) {
  const of = { path, body };
  for (const [name, value] of Object.entries({ timeout, signal, headers, idempotencyKey, exactlyOnce })) {
    if (value !== undefined) of[name] = value;
  }
  return of;
}

export class Database {
  constructor(client, name) {
    this.client = client;
    this.name = name;
  }

  collection(name) {
    return new Collection(this.client, this.name, name);
  }

  async runCommand(command, options = {}) {
    return (await this.client.call('runCommand', divide({ database: this.name }, { ...options, command }))).reply;
  }

  async *aggregate(pipeline, options) {
    const args = divide({ database: this.name }, { ...options, pipeline });
    for await (const page of pages(this.client, 'aggregateDatabase', args)) yield* page;
  }

  watch(options = {}) {
    return watch(this.client, 'watchDatabase', { database: this.name }, options);
  }
}

export class Collection {
  #client;
  #path;

  constructor(client, database, name) {
    this.#client = client;
    this.#path = { database, collection: name };
  }

  get name() {
    return this.#path.collection;
  }

  #call(id, body, options = {}) {
    return this.#client.call(id, divide(this.#path, { ...options, ...body }));
  }

  // one calls an operation about the document with an _id. The options are those of the query.
  async #one(operation, id, body, { ifMatch, ifNoneMatch, ...options } = {}) {
    const { body: query, path, headers, ...args } = divide(this.#path, options);
    const preconditions = { 'If-Match': ifMatch, 'If-None-Match': ifNoneMatch };
    const answer = await this.#client.exchange(operation, {
      ...args,
      path: { ...path, id: typeof id === 'string' ? JSON.stringify(id) : id },
      query,
      body,
      headers: { ...headers, ...present(preconditions) },
    });
    const writeConcernError = concernOf(answer.headers);
    if (answer.body === undefined && !writeConcernError) return null;
    return present({ document: answer.body, etag: answer.headers.get('ETag'), writeConcernError });
  }

  /** The document with this _id and its ETag; null if it still has the ETag of ifNoneMatch. */
  get(id, options) {
    return this.#one('getDocument', id, undefined, options);
  }

  /** Replaces the document with this _id, or creates it. */
  put(id, document, options) {
    return this.#one('putDocument', id, document, options);
  }

  /** Updates the document with this _id. */
  patch(id, update, options) {
    return this.#one('patchDocument', id, update, options);
  }

  /** Deletes the document with this _id. */
  async delete(id, options) {
    const deleted = await this.#one('deleteDocument', id, undefined, options);
    if (deleted?.writeConcernError) throw unmet(deleted.writeConcernError);
  }

  async findOne(filter = {}, options) {
    return (await this.#call('findOne', { filter }, options)).document;
  }

  /** Yields the documents that match, and reads them in pages. */
  async *find(filter = {}, options) {
    for await (const page of this.pages(filter, options)) yield* page;
  }

  pages(filter = {}, options) {
    return pages(this.#client, 'find', divide(this.#path, { ...options, filter }));
  }

  async *aggregate(pipeline, options) {
    for await (const page of pages(this.#client, 'aggregate', divide(this.#path, { ...options, pipeline }))) yield* page;
  }

  /** Yields the documents that match, which come as one stream. */
  async *stream(filter = {}, options) {
    for await (const { document } of this.#client.lines('streamFind', divide(this.#path, { ...options, filter }))) yield document;
  }

  async distinct(fieldName, filter = {}, options) {
    return (await this.#call('distinct', { fieldName, filter }, options)).values;
  }

  async countDocuments(filter = {}, options) {
    return (await this.#call('countDocuments', { filter }, options)).count;
  }

  async estimatedDocumentCount(options) {
    return (await this.#call('estimatedDocumentCount', {}, options)).count;
  }

  insertOne(document, options) {
    return this.#call('insertOne', { document }, options);
  }

  insertMany(documents, options) {
    return this.#call('insertMany', { documents }, options);
  }

  updateOne(filter, update, options) {
    return this.#call('updateOne', { filter, update }, options);
  }

  updateMany(filter, update, options) {
    return this.#call('updateMany', { filter, update }, options);
  }

  replaceOne(filter, replacement, options) {
    return this.#call('replaceOne', { filter, replacement }, options);
  }

  deleteOne(filter, options) {
    return this.#call('deleteOne', { filter }, options);
  }

  deleteMany(filter, options) {
    return this.#call('deleteMany', { filter }, options);
  }

  async findOneAndUpdate(filter, update, options) {
    return documentOf(await this.#call('findOneAndUpdate', { filter, update }, options));
  }

  async findOneAndReplace(filter, replacement, options) {
    return documentOf(await this.#call('findOneAndReplace', { filter, replacement }, options));
  }

  async findOneAndDelete(filter, options) {
    return documentOf(await this.#call('findOneAndDelete', { filter }, options));
  }

  bulkWrite(models, options) {
    return this.#call('bulkWrite', { models }, options);
  }

  watch(options = {}) {
    return watch(this.#client, 'watchCollection', this.#path, options);
  }

  live(filter = {}, options = {}) {
    return live(this.#client, divide(this.#path, { ...options, filter }));
  }
}

// closing bounds how long a cursor's end is waited for, in milliseconds.
const closing = 2000;

// pages yields the pages of a result. If the caller leaves early, or a page fails, the cursor is
// closed.
async function* pages(client, id, args) {
  const { body: { batchSize, maxAwaitTimeMS, session, transaction }, path, idempotencyKey, ...rest } = args;
  let cursor;
  let concern; // that of $out or $merge, which the first page says
  try {
    for (let page = await client.call(id, args); ; page = await client.call('nextPage', next())) {
      cursor = page.cursor;
      concern ??= page.writeConcernError;
      yield page.documents;
      if (!cursor && concern) throw unmet(concern);
      if (!cursor) return;
    }
  } catch (err) {
    if (err.httpStatus === 404) cursor = undefined; // the gateway has it no longer
    throw err;
  } finally {
    if (cursor) await close();
  }

  function next() {
    return { ...rest, body: { cursor, batchSize, maxAwaitTimeMS, session, transaction } };
  }

  // The caller's signal may have aborted. If this fails, the cursor expires.
  async function close() {
    const signal = AbortSignal.timeout(closing);
    await client.call('closeCursor', { ...rest, body: { cursor, session, transaction }, signal }).catch(() => {});
  }
}

// canReopen says whether a stream that has begun may be opened again after an error. That is a read,
// so it may be repeated after silence, too.
const canReopen = (err) => err instanceof MooringError && (err.retry !== 'never' || err.reason === 'SocketTimeout');

// watch yields changes, and goes on after the last one where a stream is interrupted.
async function* watch(client, id, path, options) {
  let { resumeAfter, startAfter, startAtOperationTime, ...rest } = options;
  for (let failures = 0; ; ) {
    const at = startAfter === undefined ? { resumeAfter, startAtOperationTime } : { startAfter };
    try {
      for await (const line of client.lines(id, divide(path, { ...rest, ...at }))) {
        failures = 0;
        startAfter = line.progress?.resumeToken ?? line.document._id;
        if (line.document) yield line.document;
      }
      return;
    } catch (err) {
      const canGoOn = canReopen(err) && err.httpStatus !== 410 && err.code !== 9;
      if (!canGoOn || startAfter === undefined) throw err;
      await pause(backoff((failures += 1), err.retryAfter), options.signal);
    }
  }
}

// live yields what becomes of the documents that match. Where a stream is interrupted, it opens
// another one, which begins with all of them, and yields what differs.
async function* live(client, args) {
  const shown = new Map(); // what the caller has: _ids by their text
  for (let failures = 0, begun = false; ; ) {
    let named = new Set(); // what this stream has told of, until it is ready
    let after; // how long the gateway wants the client to wait
    try {
      for await (const line of client.lines('live', args)) {
        [failures, begun] = [0, true];
        const [[kind, document]] = Object.entries(line);
        if (kind === 'ready') {
          for (const [key, _id] of shown) {
            if (!named || named.has(key)) continue;
            shown.delete(key);
            yield { kind: 'removed', document: { _id } };
          }
          named = undefined;
          yield { kind };
          continue;
        }
        const key = keyOf(client, document._id);
        named?.add(key);
        const had = shown.has(key);
        if (kind !== 'removed') shown.set(key, document._id);
        else if (!shown.delete(key)) continue;
        if (kind === 'removed') yield { kind, document };
        else yield { kind: had ? 'changed' : 'added', document };
      }
    } catch (err) {
      if (!begun || !canReopen(err)) throw err;
      after = err.retryAfter;
    }
    await pause(backoff((failures += 1), after), args.signal);
  }
}

/**
 * Follows a change stream with EventSource, which cannot send credentials: ticket returns the URL
 * of a ticket, which your server has asked for. It is called again when a ticket ends.
 */
export function followChanges(ticket, { onChange, onEnd, onError }, options = {}) {
  const Source = options.EventSource ?? globalThis.EventSource;
  let source;
  let closed = false;
  let last; // the newest resume token
  let failures = 0;

  const close = (report, ...args) => {
    if (closed) return;
    closed = true;
    source?.close();
    source = undefined;
    report?.(...args);
  };
  const reopen = () => {
    source.close();
    source = undefined;
    failures += 1;
    if (failures > 5) close(onError, failure('NoAnswer', 'restart', 'the stream cannot be opened'));
    else setTimeout(() => closed || open(), backoff(failures + 3));
  };
  const open = async () => {
    let url;
    try {
      url = await ticket(last);
    } catch (err) {
      return close(onError, err);
    }
    if (closed) return undefined;
    const own = new Source(url);
    source = own;
    own.addEventListener('open', () => {
      failures = 0;
    });
    own.onmessage = ({ data }) => {
      const change = JSON.parse(data);
      last = change._id;
      onChange(change);
    };
    own.addEventListener('progress', ({ data }) => {
      last = JSON.parse(data).resumeToken;
    });
    own.addEventListener('end', () => close(onEnd));
    own.addEventListener('failure', ({ data, lastEventId }) => {
      if (own !== source || lastEventId !== 'end') return; // it reconnects
      const err = new MooringError(JSON.parse(data), 0);
      if (err.reason === 'Unauthenticated') reopen(); // the ticket has ended within its stream
      else close(onError, err);
    });
    own.onerror = () => {
      // EventSource reconnects by itself where the stream can go on.
      if (own === source && own.readyState === 2) reopen();
    };
    return undefined;
  };
  open();
  return { close: () => close() };
}
