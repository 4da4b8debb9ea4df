import { useEffect, useRef, useState } from 'preact/hooks';
import { lines } from './api';
import { segment } from './code';
import { Tree } from './document';
import { field, parse, short, type Value } from './ejson';
import { clock } from './format';
import { Failure } from './parts';
import { remember, route } from './router';

interface Change {
  id: number;
  at: number;
  kind: string;
  namespace: string;
  key: string;
  document: Value;
}

const kept = 500;

const textOf = (v: Value | undefined): string => (v && 'text' in v ? v.text : '');

function read(id: number, line: string): Change | undefined {
  const document = field(parse(line), 'document');
  if (!document) return undefined; // where the stream is, without a change
  const ns = field(document, 'ns');
  const key = field(document, 'documentKey');
  return {
    id, at: Date.now(), document,
    kind: textOf(field(document, 'operationType')),
    namespace: [textOf(field(ns, 'db')), textOf(field(ns, 'coll'))].filter(Boolean).join('.'),
    key: key ? short(field(key, '_id') ?? key, 60) : '',
  };
}

/** Tail shows the changes of a collection, a database or the deployment as they happen. */
export function Tail() {
  const q = route.value.query;
  const [where, setWhere] = useState({
    database: q.get('db') ?? '', collection: q.get('in') ?? '', pipeline: q.get('pipeline') ?? '',
    full: q.get('full') === '1',
  });
  const [changes, setChanges] = useState<Change[]>([]);
  const [waiting, setWaiting] = useState<Change[]>([]);
  const [state, setState] = useState<'stopped' | 'opening' | 'open'>('stopped');
  const [paused, setPaused] = useState(false);
  const [error, setError] = useState<unknown>();
  const running = useRef<AbortController | undefined>(undefined);
  const isPaused = useRef(false);
  isPaused.current = paused;
  useEffect(() => () => running.current?.abort(), []);

  const start = async (): Promise<void> => {
    running.current?.abort();
    const stop = (running.current = new AbortController());
    const { database, collection, pipeline, full } = where;
    remember('tail', {
      ...(database && { db: database }), ...(collection && { in: collection }),
      ...(pipeline && { pipeline }), ...(full && { full: '1' }),
    });
    const path = !database
      ? 'v1/deployment:watch'
      : collection
        ? `v1/databases/${segment(database)}/collections/${segment(collection)}:watch`
        : `v1/databases/${segment(database)}:watch`;
    const body = `{${[pipeline && `"pipeline":${pipeline}`, full && '"fullDocument":"updateLookup"'].filter(Boolean).join(',')}}`;
    setError(undefined);
    setState('opening');
    try {
      if (pipeline) JSON.parse(pipeline);
      let last = changes[0]?.id ?? 0;
      for await (const line of lines(path, {
        body, signal: stop.signal, accept: 'application/x-ndjson;profile=canonical',
      })) {
        setState('open');
        const change = read(last + 1, line);
        if (!change) continue;
        last = change.id;
        const add = (old: Change[]): Change[] => [change, ...old].slice(0, kept);
        (isPaused.current ? setWaiting : setChanges)(add);
      }
    } catch (e) {
      if (!stop.signal.aborted) setError(e);
    }
    if (running.current === stop) setState('stopped');
  };

  const resume = (): void => {
    setPaused(false);
    setChanges((old) => [...waiting, ...old].slice(0, kept));
    setWaiting([]);
  };

  return (
    <>
      <form
        class="fields"
        onSubmit={(e) => {
          e.preventDefault();
          void start();
        }}
      >
        <p>
          <label for="tail-db">Database</label>
          <input id="tail-db" class="mono" placeholder="all" value={where.database} spellcheck={false}
            onInput={(e) => setWhere({ ...where, database: e.currentTarget.value })} />
        </p>
        <p>
          <label for="tail-in">Collection</label>
          <input id="tail-in" class="mono" placeholder="all" value={where.collection} spellcheck={false}
            onInput={(e) => setWhere({ ...where, collection: e.currentTarget.value })} />
        </p>
        <p class="wide">
          <label for="tail-pipeline">Pipeline</label>
          <input id="tail-pipeline" class="mono" spellcheck={false} value={where.pipeline}
            placeholder='[{"$match": {"operationType": "insert"}}]'
            onInput={(e) => setWhere({ ...where, pipeline: e.currentTarget.value })} />
        </p>
        <p class="check">
          <input id="tail-full" type="checkbox" checked={where.full}
            onInput={(e) => setWhere({ ...where, full: e.currentTarget.checked })} />
          <label for="tail-full">Whole documents of updates</label>
        </p>
        <p>
          {state === 'stopped' ? (
            <button type="submit" class="primary">
              Follow
            </button>
          ) : (
            <button type="button" onClick={() => running.current?.abort()}>
              Stop
            </button>
          )}
        </p>
      </form>
      {error !== undefined && <Failure error={error} what="The changes cannot be followed" />}
      <div class="actions results">
        {paused ? (
          <button type="button" onClick={resume}>
            Resume
          </button>
        ) : (
          <button type="button" disabled={state !== 'open'} onClick={() => setPaused(true)}>
            Pause
          </button>
        )}
        <button type="button" disabled={changes.length === 0} onClick={() => setChanges([])}>
          Clear
        </button>
        <span role="status" class={state === 'open' && !paused ? 'live on' : 'live'}>
          {state === 'stopped'
            ? 'not following'
            : state === 'opening'
              ? 'opening'
              : paused
                ? `paused, ${waiting.length} since then`
                : 'following'}
        </span>
      </div>
      {changes.length === 0 ? (
        <p class="muted">Changes show here as they happen, the newest first.</p>
      ) : (
        <ol class="changes" aria-label="Changes">
          {changes.map((c) => (
            <li key={c.id}>
              <details>
                <summary>
                  <time>{clock(c.at)}</time> <span class={`badge ${c.kind}`}>{c.kind}</span>{' '}
                  <span class="mono">
                    {c.namespace} {c.key}
                  </span>
                </summary>
                <Tree value={c.document} />
              </details>
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
