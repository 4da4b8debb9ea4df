import type { components, operations } from './openapi.js';

type Schemas = components['schemas'];

/**
 * A document as relaxed Extended JSON: ordinary JSON, and `{"$oid": …}` where JSON has no type. The
 * client writes a Date, a number that JSON lacks (NaN, Infinity, -0) and a Uint8Array as what they
 * are. It throws a TypeError for undefined, functions, symbols and other built-in objects, such as
 * Map, Set and RegExp. A codec has rules of its own.
 */
export type Document = { [key: string]: unknown };
export type ObjectId = { $oid: string };
export type DateTime = { $date: string | { $numberLong: string } };
export type Long = { $numberLong: string };
export type Decimal128 = { $numberDecimal: string };
export type Binary = { $binary: { base64: string; subType: string } };
export type Timestamp = { $timestamp: { t: number; i: number } };
export type RegularExpression = { $regularExpression: { pattern: string; options: string } };
export type Code = { $code: string; $scope?: Document };
export type BSONSymbol = { $symbol: string };
export type DBPointer = { $dbPointer: { $ref: string; $id: ObjectId } };
export type MinKey = { $minKey: 1 };
export type MaxKey = { $maxKey: 1 };

/** An operation of openapi.json, by its id. */
export type OperationId = keyof operations;

type JSONOf<T> = T extends { content: infer C } ? (C extends { 'application/json': infer J } ? J : never) : never;
type Part<T, Name extends string> = T extends { parameters: infer P } ? (P extends { [K in Name]?: infer V } ? V : never) : never;

/** The body of an operation's request. */
export type RequestBody<Id extends OperationId> = operations[Id] extends { requestBody: infer B } ? JSONOf<B> : never;
/** The body of an operation's response. */
export type ResponseBody<Id extends OperationId> = operations[Id] extends { responses: { 200: infer R } } ? JSONOf<R> : never;

/** What every call takes. */
export interface CallOptions {
  /** Aborts the call, or the whole iteration. */
  signal?: AbortSignal;
  /** The deadline of the call with its repetitions, in milliseconds. */
  timeout?: number;
  /** Makes a write exactly-once: the same call with the same key is executed once. */
  idempotencyKey?: string;
  /** Gives the call an idempotency key of its own if it is a write, or none; see ClientOptions. */
  exactlyOnce?: boolean;
  headers?: Record<string, string>;
}

export interface CallArguments<Id extends OperationId> extends CallOptions {
  /** A document's id is its Extended JSON, or a value for the codec. */
  path?: { [K in keyof Part<operations[Id], 'path'>]: K extends 'id' ? unknown : string };
  query?: Part<operations[Id], 'query'>;
  /** A string, such as what importDocuments takes, is sent as it is. */
  body?: RequestBody<Id> | string;
}

/** Texts to values and back; the README has one with the types of the package bson. The default is JSON. */
export interface Codec {
  parse(text: string): any;
  stringify(value: unknown): string;
}

export interface ClientOptions {
  /** An API key, or a JSON Web Token. */
  token?: string;
  /** Sent with each call. */
  headers?: Record<string, string>;
  /** How often a call is repeated where its error allows that; 3 unless given. */
  retries?: number;
  /** The deadline of calls that have none of their own, in milliseconds, but not of watch and live. */
  timeout?: number;
  /**
   * How long the client waits for the gateway to send something, in milliseconds, in calls without
   * a deadline; 120 seconds unless given. Infinity: for ever.
   */
  socketTimeout?: number;
  /**
   * Gives each write an idempotency key of its own, so that it is repeated if no answer comes. Each
   * is a session of the server for 30 minutes. Writes that take no key are refused: updateMany,
   * deleteMany, importDocuments and writes in a session. Those of a transaction get none.
   */
  exactlyOnce?: boolean;
  /** Another fetch, such as that of an edge function. */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** With a codec, documents travel as canonical Extended JSON. */
  codec?: Codec;
}

export declare class Client {
  constructor(baseUrl: string | URL, options?: ClientOptions);
  call<Id extends OperationId>(id: Id, args?: CallArguments<Id>): Promise<ResponseBody<Id>>;
  /** As call, with the headers of the response. */
  exchange<Id extends OperationId>(id: Id, args?: CallArguments<Id>): Promise<{ body: ResponseBody<Id>; headers: Headers }>;
  lines<Id extends OperationId>(id: Id, args?: CallArguments<Id>): AsyncGenerator<Line, void, undefined>;
  database(name: string): Database;
  collection<T extends object = Document>(database: string, name: string): Collection<T>;
}

/** A line of a stream that is neither its end nor an error: it has exactly one of these. */
export interface Line {
  document?: any;
  topology?: Schemas['TopologyDescription'];
  progress?: { resumeToken: Document; shared?: boolean };
}

/** A change, as MongoDB describes it. */
export interface Change<T extends object = Document> {
  _id: Document;
  operationType: string;
  documentKey?: Document;
  fullDocument?: T | null;
  ns?: { db: string; coll?: string };
  [key: string]: unknown;
}

/** What has become of a document that matches, or, at ready, that the caller has all of them. */
export type LiveChange<T extends object = Document> =
  | { kind: 'added' | 'changed'; document: T }
  | { kind: 'removed'; document: { _id: unknown } }
  | { kind: 'ready'; document?: undefined };

type Options<Id extends OperationId, Taken extends string> = Omit<Exclude<RequestBody<Id>, string>, Taken> & CallOptions;
export type FindOptions = Options<'find', 'filter'>;
export type WatchOptions = Options<'watchCollection', never>;
export type Update = Schemas['Update'];

type Query<Id extends OperationId> = Exclude<Part<operations[Id], 'query'>, undefined>;
type OfDocuments = 'filter' | 'projection' | 'options' | 'let' | 'writeConcern';
/** Options of a call about one document. */
export type DocumentOptions<Id extends OperationId> = CallOptions & {
  [K in Exclude<keyof Query<Id>, 'timeout' | 'idType'>]?: K extends OfDocuments
    ? Document
    : K extends 'arrayFilters'
      ? Document[]
      : Query<Id>[K];
};

/** A document that need not have an _id: the gateway gives an inserted one an ObjectId. */
export type OptionalId<T extends object> = T extends unknown ? Omit<T, '_id'> & { [K in keyof T & '_id']?: T[K] } : never;

/** A document and its ETag, which is null if the gateway gives none. */
export interface Versioned<T extends object = Document> {
  document: T;
  etag: string | null;
  /** Why a write is not acknowledged as its write concern asks. */
  writeConcernError?: Schemas['WriteConcernError'];
}

export declare class Database {
  readonly client: Client;
  readonly name: string;
  constructor(client: Client, name: string);
  collection<T extends object = Document>(name: string): Collection<T>;
  runCommand(command: Document, options?: Options<'runCommand', 'command'>): Promise<Document>;
  aggregate<R extends object = Document>(
    pipeline: Document[],
    options?: Options<'aggregateDatabase', 'pipeline'>,
  ): AsyncGenerator<R, void, undefined>;
  watch(options?: WatchOptions): AsyncGenerator<Change, void, undefined>;
}

export declare class Collection<T extends object = Document> {
  readonly name: string;
  constructor(client: Client, database: string, name: string);
  /** The document with this _id; null if it still has the ETag ifNoneMatch. */
  get(id: unknown, options?: DocumentOptions<'getDocument'> & { ifNoneMatch?: undefined }): Promise<Versioned<T>>;
  get(id: unknown, options: DocumentOptions<'getDocument'> & { ifNoneMatch?: string }): Promise<Versioned<T> | null>;
  /** Replaces the document, only if it has the ETag ifMatch, or creates it; ifNoneMatch '*': only creates it. */
  put(
    id: unknown,
    document: Omit<T, '_id'>,
    options?: DocumentOptions<'putDocument'> & { ifMatch?: string; ifNoneMatch?: '*' },
  ): Promise<Versioned<T>>;
  /** Updates the document, only if it has the ETag ifMatch. */
  patch(id: unknown, update: Update, options?: DocumentOptions<'patchDocument'> & { ifMatch?: string }): Promise<Versioned<T>>;
  /** Deletes the document, only if it has the ETag ifMatch. */
  delete(id: unknown, options?: DocumentOptions<'deleteDocument'> & { ifMatch?: string }): Promise<void>;
  findOne(filter?: Document, options?: Options<'findOne', 'filter'>): Promise<T | null>;
  /** The documents that match, read in pages. */
  find(filter?: Document, options?: FindOptions): AsyncGenerator<T, void, undefined>;
  pages(filter?: Document, options?: FindOptions): AsyncGenerator<T[], void, undefined>;
  /** The documents that match, as one stream. */
  stream(filter?: Document, options?: Options<'streamFind', 'filter'>): AsyncGenerator<T, void, undefined>;
  aggregate<R extends object = Document>(
    pipeline: Document[],
    options?: Options<'aggregate', 'pipeline'>,
  ): AsyncGenerator<R, void, undefined>;
  distinct(fieldName: string, filter?: Document, options?: Options<'distinct', 'fieldName' | 'filter'>): Promise<unknown[]>;
  countDocuments(filter?: Document, options?: Options<'countDocuments', 'filter'>): Promise<number>;
  estimatedDocumentCount(options?: Options<'estimatedDocumentCount', never>): Promise<number>;
  insertOne(document: OptionalId<T>, options?: Options<'insertOne', 'document'>): Promise<ResponseBody<'insertOne'>>;
  insertMany(documents: OptionalId<T>[], options?: Options<'insertMany', 'documents'>): Promise<ResponseBody<'insertMany'>>;
  updateOne(filter: Document, update: Update, options?: Options<'updateOne', 'filter' | 'update'>): Promise<ResponseBody<'updateOne'>>;
  updateMany(filter: Document, update: Update, options?: Options<'updateMany', 'filter' | 'update'>): Promise<ResponseBody<'updateMany'>>;
  replaceOne(filter: Document, replacement: OptionalId<T>, options?: Options<'replaceOne', 'filter' | 'replacement'>): Promise<ResponseBody<'replaceOne'>>;
  deleteOne(filter: Document, options?: Options<'deleteOne', 'filter'>): Promise<ResponseBody<'deleteOne'>>;
  deleteMany(filter: Document, options?: Options<'deleteMany', 'filter'>): Promise<ResponseBody<'deleteMany'>>;
  findOneAndUpdate(filter: Document, update: Update, options?: Options<'findOneAndUpdate', 'filter' | 'update'>): Promise<T | null>;
  findOneAndReplace(filter: Document, replacement: OptionalId<T>, options?: Options<'findOneAndReplace', 'filter' | 'replacement'>): Promise<T | null>;
  findOneAndDelete(filter: Document, options?: Options<'findOneAndDelete', 'filter'>): Promise<T | null>;
  bulkWrite(models: Schemas['WriteModel'][], options?: Options<'bulkWrite', 'models'>): Promise<ResponseBody<'bulkWrite'>>;
  /** The changes of the collection; it goes on after the last one where a stream is interrupted. */
  watch(options?: WatchOptions): AsyncGenerator<Change<T>, void, undefined>;
  /** The documents that match, and then what becomes of them; it goes on where a stream is interrupted. */
  live(filter?: Document, options?: Options<'live', 'filter'>): AsyncGenerator<LiveChange<T>, void, undefined>;
}

type ErrorFields = Schemas['Error'];

/** A call that has failed. Its fields are those of the gateway's error. */
export declare class MooringError extends Error implements ErrorFields {
  readonly status: ErrorFields['status'];
  readonly reason: string;
  readonly code: number;
  readonly requestId: string;
  readonly retry: ErrorFields['retry'];
  readonly field?: string;
  readonly offset?: number;
  readonly server?: Schemas['ServerError'];
  readonly writeErrors?: Schemas['WriteError'][];
  readonly writeConcernError?: Schemas['WriteConcernError'];
  readonly truncated?: boolean;
  /** The status of HTTP; 0 if no gateway has answered. */
  readonly httpStatus: number;
  /** How long to wait before the call is repeated, in seconds, if the gateway says so. */
  readonly retryAfter?: number;
  /** The key of the call: the same call with it is not executed twice. */
  readonly idempotencyKey?: string;
  /**
   * What a call with several writes did before it failed, or the document of findOneAnd… whose write
   * concern is not met.
   */
  readonly result?: Schemas['BulkWriteResult'] & { document?: any };
}

/** The part of EventSource that followChanges uses. */
export interface EventSourceLike {
  readyState: number;
  onmessage: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  addEventListener(type: string, listener: (event: any) => void): void;
  close(): void;
}

export interface ChangeHandlers<T extends object = Document> {
  onChange(change: Change<T>): void;
  /** The stream has ended well: after an invalidate event. */
  onEnd?(): void;
  /** The stream cannot go on. */
  onError?(error: Error): void;
}

/**
 * Follows a change stream with EventSource; ticket returns the URL of a ticket. It is called again,
 * with the newest resume token, when the ticket ends.
 */
export declare function followChanges<T extends object = Document>(
  ticket: (startAfter?: Document) => string | Promise<string>,
  handlers: ChangeHandlers<T>,
  options?: { EventSource?: new (url: string) => EventSourceLike },
): { close(): void };
