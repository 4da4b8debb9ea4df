// Calls of the gateway's public API, and the credential that they carry. The credential is a
// variable of this module and is kept nowhere else: closing or reloading the page forgets it.
import { signal } from '@preact/signals';

const root = new URL('..', new URL('.', document.baseURI));

/** Credential is what calls are made with, from a sign-in to its end. */
interface Credential {
  key: string | undefined;
}
let credential: Credential = { key: undefined };

/** session says whether calls can be made: whether the user has signed in, or need not. */
export const session = signal<'unknown' | 'needed' | 'open' | 'signed-in'>('unknown');
/** principal is who the gateway says that the user is. */
export const principal = signal('');
/** refused says why the credential does not count any more. */
export const refused = signal<ApiError | undefined>(undefined);

export interface ErrorBody {
  status: string;
  reason: string;
  code: number;
  message: string;
  requestId?: string;
  retry?: string;
  field?: string;
  offset?: number;
  server?: { code?: number; codeName?: string; labels?: string[]; errInfo?: unknown };
}

/** ApiError is the failure of a call. Its status is 0 if there was no answer. */
export class ApiError extends Error {
  /** sent is the call that has failed, if it was one of a view. */
  sent: { path: string; body: string } | undefined;

  constructor(
    readonly http: number,
    readonly body: ErrorBody,
    /** result is what a write that has failed in part has done. */
    readonly result: Record<string, unknown> = {},
  ) {
    super(body.message);
  }
}

/** unsure has the reasons with which a write may have been done; a proxy gives none. */
const unsure = ['', 'WriteOutcomeUnknown', 'InvalidUTF8', 'MalformedReply', 'Internal'];

/** mayBeDone says whether a write that has failed so may have been done, in whole or part. */
export const mayBeDone = (e: unknown): boolean =>
  !(e instanceof ApiError) || e.http === 0 ||
  (unsure.includes(e.body.reason) && (e.http >= 500 || e.body.reason !== ''));

interface Options {
  method?: 'GET' | 'POST' | 'PATCH';
  headers?: Record<string, string>;
  body?: string;
  accept?: string;
  signal?: AbortSignal | undefined;
}

/** urlOf returns the address of a path of the API. */
export const urlOf = (path: string): string => new URL(path.replace(/^\//, ''), root).href;

const unanswered = (message: string): ApiError =>
  new ApiError(0, { status: 'UNAVAILABLE', reason: 'NoAnswer', code: 14, message });

/**
 * answerTo passes an answer on while the credential that it was asked with counts. After its end
 * nothing comes: what would go on from there would go on as the next principal.
 */
const answerTo = <T>(asker: Credential, answer: Promise<T>): Promise<T> =>
  new Promise((resolve, reject) => answer.then(
    (v) => void (asker === credential && resolve(v)),
    (e: unknown) => void (asker === credential && reject(e)),
  ));

async function send<T>(
  path: string, o: Options, read: (r: Response) => T | Promise<T>, asker = credential,
): Promise<T> {
  const headers: Record<string, string> = { Accept: o.accept ?? 'application/json', ...o.headers };
  if (asker.key !== undefined) headers['Authorization'] = `Bearer ${asker.key}`;
  if (o.body !== undefined) headers['Content-Type'] = 'application/json';
  let response: Response;
  try {
    response = await answerTo(asker, fetch(urlOf(path), {
      method: o.method ?? (o.body === undefined ? 'GET' : 'POST'),
      headers,
      cache: 'no-store',
      ...(o.body === undefined ? {} : { body: o.body }),
      ...(o.signal ? { signal: o.signal } : {}),
    }));
  } catch (e) {
    if (o.signal?.aborted) throw e;
    throw unanswered('The gateway does not answer.');
  }
  if (response.ok) return answerTo(asker, Promise.resolve(read(response)));
  const failed = await answerTo(asker, failure(response));
  failed.sent = { path, body: o.body ?? '' };
  if (failed.http === 401) {
    refused.value = failed;
    signOut();
  }
  throw failed;
}

async function failure(response: Response): Promise<ApiError> {
  try {
    const { error, result } = (await response.json()) as {
      error: ErrorBody;
      result?: Record<string, unknown>;
    };
    if (typeof error.message === 'string') return new ApiError(response.status, error, result);
  } catch {
    // A proxy has answered.
  }
  return new ApiError(response.status, {
    status: '', reason: '', code: 2, message: `HTTP ${response.status} ${response.statusText}`,
  });
}

/** text makes a call and returns its answer as it is written. */
export async function text(path: string, o: Options = {}): Promise<string> {
  return send(path, o, (r) => r.text());
}

/** Answer is an answer as it is written, with what its header says. */
interface Answer {
  text: string;
  etag: string | undefined;
  /** concern is the server's code and name if the write concern was not met. */
  concern: string | undefined;
}

/** exchange makes a call and returns its answer. */
export async function exchange(path: string, o: Options): Promise<Answer> {
  return send(path, o, async (r) => {
    const header = (name: string): string | undefined => r.headers.get(name) ?? undefined;
    return { text: await r.text(), etag: header('Etag'), concern: header('Mooring-Write-Concern-Error') };
  });
}

/** unacknowledged is what is said of a write that is done, whose write concern was not met. */
export const unacknowledged = (concern: string): string =>
  ` It is not acknowledged as the write concern asks, and may be undone: ${concern}.`;

/** call makes a call whose answer is JSON. */
export async function call<T>(path: string, o: Options = {}): Promise<T> {
  return send(path, o, (r) => r.json() as Promise<T>);
}

/** closer returns what gives a cursor back as who has opened it, also after the sign-out. */
export function closer(cursor: string): () => void {
  const asker = credential;
  const body = JSON.stringify({ cursor });
  return () => void send('v1/cursors:close', { body }, () => undefined, asker).catch(() => undefined);
}

/** namesAt returns the names in a list of databases or collections; none if it is refused. */
export async function namesAt(path: string): Promise<string[]> {
  try {
    const { documents } = await call<{ documents: { name: string }[] }>(path);
    return documents.map((d) => d.name).sort();
  } catch {
    return []; // the names can still be written
  }
}

/** lines makes a call that answers with a stream, and yields its lines that are not empty. */
export async function* lines(path: string, o: Options): AsyncGenerator<string> {
  const response = await send(path, { accept: 'application/x-ndjson', ...o }, (r) => r);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let rest = ''; ; ) {
      const { done, value } = await reader.read().catch((e: unknown) => {
        if (o.signal?.aborted) throw e;
        throw unanswered('The stream has broken off.');
      });
      if (done) throw unanswered('The stream has broken off.');
      const parts = (rest + value).split('\n');
      rest = parts.pop()!;
      for (const line of parts) {
        if (line.startsWith('{"error":')) {
          throw new ApiError(response.status, (JSON.parse(line) as { error: ErrorBody }).error);
        }
        if (line.startsWith('{"end":')) return;
        if (line) yield line;
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

/** atIssuer says that people can sign in at the issuer of tokens. */
export const atIssuer = signal(false);

/** start finds out whether the gateway asks for a credential. */
export async function start(): Promise<void> {
  const settings = await call<{ signIn: boolean; oidc: boolean }>('console/settings.json');
  atIssuer.value = settings.oidc;
  session.value = settings.signIn ? 'needed' : 'open';
}

/** signIn tries a credential; undefined is none, for browsers with a client certificate. */
export async function signIn(key: string | undefined): Promise<void> {
  credential = { key };
  refused.value = undefined;
  try {
    principal.value = (await call<{ principal: string }>('console/principal.json')).principal;
  } catch (e) {
    credential = { key: undefined };
    throw e;
  }
  session.value = 'signed-in';
}

/** signOut forgets the credential. */
export function signOut(): void {
  if (session.value !== 'signed-in') return;
  credential = { key: undefined };
  session.value = 'needed';
}

/** Attempt is how a call of the reference went. */
export interface Attempt {
  status: number;
  requestId: string;
  text: string;
  /** cut says that more of the answer came than is kept. */
  cut: boolean;
}

const mostText = 256 << 10;

/** attempt makes any call, and tells of its answer as it comes. */
export async function attempt(
  method: string, path: string, body: string | undefined, accept: string,
  stop: AbortSignal, tell: (a: Attempt) => void,
): Promise<void> {
  const { key } = credential;
  const response = await fetch(urlOf(path), {
    method, signal: stop, cache: 'no-store',
    headers: {
      Accept: accept,
      ...(key === undefined ? {} : { Authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body }),
  });
  const told: Attempt = {
    status: response.status, requestId: response.headers.get('Mooring-Request-Id') ?? '',
    text: '', cut: false,
  };
  tell({ ...told });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader?.read(); part && !part.done; part = await reader!.read()) {
    told.text += part.value;
    if (told.text.length > mostText) {
      told.text = told.text.slice(0, mostText);
      told.cut = true;
      void reader!.cancel();
      tell({ ...told });
      return;
    }
    tell({ ...told });
  }
}
