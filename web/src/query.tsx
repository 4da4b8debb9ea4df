import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError, closer, namesAt, session, text, unacknowledged } from './api';
import {
  bodyOf, explainBodyOf, fieldsOf, kindOf, kinds, languages, mainAt, pathOf, segment,
  type KindName, type Query,
} from './code';
import { EditButton, Table, Tree } from './document';
import { Edit } from './edit';
import { field, isArray, isObject, parse, type Value } from './ejson';
import { LazyEditor } from './lazy';
import { namespaces, type Namespace } from './names';
import { Failure, Panel } from './parts';
import { Plan } from './plan';
import { remember, route } from './router';
import { Write } from './write';

interface Page {
  /** of is the query that it is a page of: the form may have another by now. */
  of: Query;
  documents: Value[];
  /** first is the place of the first document in the result. */
  first: number;
  cursor: string | undefined;
}

const noUpdate = '{\n  "$set": {}\n}';

const initial = (): Query => {
  const q = route.value.query;
  const asked = q.get('kind') ?? '';
  const kind = asked in kinds ? (asked as KindName) : 'find';
  return {
    database: q.get('db') ?? '', collection: q.get('in') ?? '', kind,
    text: q.get('q') ?? kinds[kind].start, update: q.get('update') ?? noUpdate, projection: q.get('projection') ?? '',
    sort: q.get('sort') ?? '', limit: q.get('limit') ?? '', batchSize: 100,
  };
};

/** check says what is wrong with the texts of a query, before it is sent. */
function check(q: Query): string | undefined {
  if (!q.database || !q.collection) return 'Name a database and a collection.';
  for (const [name, json] of fieldsOf(q)) {
    try {
      JSON.parse(json);
    } catch (e) {
      return `${name}: ${(e as Error).message}`;
    }
  }
  return undefined;
}

export function QueryView() {
  const [q, setQuery] = useState(initial);
  /** databases and collections are those that the user may list; none if the user may not. */
  const [databases, setDatabases] = useState<string[]>([]);
  const [collections, setCollections] = useState<string[]>([]);
  const [pages, setPages] = useState<Page[]>([]);
  const [at, setAt] = useState(0);
  const [error, setError] = useState<unknown>();
  const [wrong, setWrong] = useState<string>();
  const [took, setTook] = useState<number>();
  const [as, setAs] = useState<'table' | 'json'>('table');
  const [plan, setPlan] = useState<Value>();
  const [writing, setWriting] = useState<Query>();
  const previews = useRef(0);
  /** underWay says that a write is: its panel stays until it says what has become of it. */
  const [underWay, setUnderWay] = useState(false);
  const [editing, setEditing] = useState<Value>();
  const [said, setSaid] = useState('');
  const running = useRef<AbortController | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  /** open gives the cursor back that is open, if there is one. */
  const open = useRef<(() => void) | undefined>(undefined);
  const set = (some: Partial<Query>): void => {
    setQuery((old) => ({ ...old, ...some }));
    if (!underWay) setWriting(undefined); // what was looked at is not what would be done now
  };

  useEffect(() => {
    void namesAt('v1/databases').then(setDatabases);
    return () => {
      running.current?.abort();
      close();
    };
  }, []);
  useEffect(() => {
    setCollections([]);
    if (q.database && (databases.includes(q.database) || databases.length === 0)) {
      void namesAt(`v1/databases/${segment(q.database)}/collections`).then(setCollections);
    }
  }, [q.database, databases]);

  const close = (): void => {
    open.current?.();
    open.current = undefined;
  };

  const ask = async (path: string, body: string, first: number, of: Query): Promise<Page | undefined> => {
    const stop = (running.current = new AbortController());
    setBusy(true);
    setError(undefined);
    const began = performance.now();
    try {
      const answer = parse(await text(path, { body, accept: 'application/ejson', signal: stop.signal }));
      const list = field(answer, 'documents');
      const found = field(answer, 'cursor');
      const cursor = found && 'text' in found ? found.text : undefined;
      setTook(performance.now() - began);
      open.current = cursor === undefined ? undefined : closer(cursor);
      return { of, documents: list && isArray(list) ? list.items : [], first, cursor };
    } catch (e) {
      if (!stop.signal.aborted) setError(e);
      return undefined;
    } finally {
      if (running.current === stop) setBusy(false);
    }
  };

  /** begin checks the query, and puts away what shows of the last one. */
  const begin = (q: Query): boolean => {
    if (underWay) return false;
    const problem = check(q);
    setWrong(problem);
    if (problem) return false;
    running.current?.abort();
    close();
    setPages([]);
    setAt(0);
    setPlan(undefined);
    setWriting(undefined);
    setError(undefined);
    setSaid('');
    remember('query', {
      db: q.database, in: q.collection, kind: q.kind, q: q.text,
      ...(kindOf(q).update && { update: q.update }),
      ...(q.projection && { projection: q.projection }), ...(q.sort && { sort: q.sort }),
      ...(q.limit && { limit: q.limit }),
    });
    return true;
  };

  const run = async (asked: Query = q): Promise<void> => {
    const q = asked;
    if (!begin(q)) return;
    if (!kindOf(q).reads) {
      previews.current++;
      return setWriting(q);
    }
    const page = await ask(pathOf(q), bodyOf(q), 1, q);
    if (page) setPages([page]);
  };

  const explain = async (): Promise<void> => {
    if (!begin(q)) return;
    const stop = (running.current = new AbortController());
    setBusy(true);
    try {
      const answer = parse(await text(pathOf(q, q.kind === 'find' ? 'explainFind' : 'explainAggregate'), {
        body: explainBodyOf(q), accept: 'application/ejson', signal: stop.signal,
      }));
      setPlan(field(answer, 'reply'));
    } catch (e) {
      if (!stop.signal.aborted) setError(e);
    }
    if (running.current === stop) setBusy(false);
  };

  /** edited puts a document that was changed in the place of the old one. */
  const edited = (changed: Value | undefined, concern?: string): void => {
    const id = editing!.raw;
    setEditing(undefined);
    if (!changed) return;
    setSaid(`The document is changed.${concern ? unacknowledged(concern) : ''}`);
    setPages((old) => old.map((p) => ({
      ...p, documents: p.documents.map((d) => (field(d, '_id')?.raw === id ? changed : d)),
    })));
  };
  const shown = pages[at];
  const edit = shown?.of.kind !== 'find' ? undefined : (id: Value): void => {
    setSaid('');
    setEditing(id);
  };

  const next = async (): Promise<void> => {
    if (at + 1 < pages.length) return setAt(at + 1);
    const last = pages.at(-1)!;
    const page = await ask(
      'v1/cursors:next', JSON.stringify({ cursor: last.cursor, batchSize: last.of.batchSize }),
      last.first + last.documents.length, last.of);
    if (!page) return;
    if (page.documents.length === 0) {
      // The end was not known before: the page that shows is the last one.
      setPages((old) => [...old.slice(0, -1), { ...last, cursor: page.cursor }]);
      return;
    }
    setPages((old) => [...old, page]);
    setAt(at + 1);
  };

  const hasNext = shown && (at + 1 < pages.length || shown.cursor !== undefined);
  const fields = [...new Set(pages.flatMap((p) => p.documents.slice(0, 50)).flatMap((d) =>
    isObject(d) ? d.fields.map(([name]) => name) : []))];
  return (
    <>
      <form
        class="query"
        onSubmit={(e) => {
          e.preventDefault();
          void run();
        }}
      >
        <div class="fields">
          <Field label="Database" value={q.database} names={databases} onInput={(database) => set({ database })} />
          <Field label="Collection" value={q.collection} names={collections} onInput={(collection) => set({ collection })} />
          <p>
            <label for="kind">Call</label>
            <select
              id="kind"
              value={q.kind}
              onInput={(e) => {
                const kind = e.currentTarget.value as KindName;
                const keep = kinds[kind].main === kindOf(q).main;
                set({ kind, ...(!keep && { text: kinds[kind].start }) });
              }}
            >
              {Object.keys(kinds).map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </p>
        </div>
        <p class="label" aria-hidden="true">
          {kindOf(q).label}
        </p>
        <LazyEditor
          key={kindOf(q).main}
          label={kindOf(q).label}
          text={q.text}
          fields={fields}
          stages={q.kind === 'aggregate'}
          problem={placeOf(error, q)}
          onChange={(json) => set({ text: json })}
          onRun={() => void run()}
        />
        {kindOf(q).update && (
          <>
            <p class="label" aria-hidden="true">
              Update
            </p>
            <LazyEditor
              label="Update"
              text={q.update}
              fields={fields}
              stages
              problem={undefined}
              onChange={(update) => set({ update })}
              onRun={() => void run()}
            />
          </>
        )}
        {q.kind === 'find' && (
          <div class="fields">
            <Field label="Projection" placeholder='{"total": 1}' value={q.projection} onInput={(projection) => set({ projection })} />
            <Field label="Sort" placeholder='{"total": -1}' value={q.sort} onInput={(sort) => set({ sort })} />
            <Field label="Limit" placeholder="none" value={q.limit} onInput={(limit) => set({ limit })} />
          </div>
        )}
        <p class="actions">
          <button type="submit" class="primary" disabled={busy || underWay}>
            {kindOf(q).reads ? 'Run' : 'Preview'}
          </button>
          {kindOf(q).reads && (
            <button type="button" disabled={busy || underWay} onClick={() => void explain()}>
              Explain
            </button>
          )}
          {busy && (
            <button
              type="button"
              onClick={() => {
                running.current?.abort();
                setBusy(false);
              }}
            >
              Cancel
            </button>
          )}
        </p>
        <CopyAs query={q} />
      </form>
      {!q.collection && (
        <Collections of={q.database} onOpen={([database, collection]) => {
          set({ database, collection });
          void run({ ...q, database, collection });
        }} />
      )}
      {wrong && (
        <p class="notice bad" role="alert">
          {wrong}
        </p>
      )}
      {error !== undefined && <Failure error={error} what="The query was refused" />}
      {writing && <Write key={previews.current} query={writing} onBusy={setUnderWay} />}
      {plan && <Plan reply={plan} />}
      <p class="summary" role="status">
        {said}{' '}
        {shown && (
          <>
            {shown.documents.length === 0
              ? 'No documents'
              : `Documents ${shown.first} to ${shown.first + shown.documents.length - 1}`}
            {!hasNext && shown.documents.length > 0 && ', the last ones'}
            {took !== undefined && <span class="muted"> in {took.toFixed(0)} ms</span>}
          </>
        )}
      </p>
      {shown && shown.documents.length > 0 && (
        <>
          <div class="actions results">
            <button type="button" aria-pressed={as === 'table'} onClick={() => setAs('table')}>
              Table
            </button>
            <button type="button" aria-pressed={as === 'json'} onClick={() => setAs('json')}>
              JSON
            </button>
            <Pager at={at} hasNext={Boolean(hasNext) && !busy} onMove={setAt} onNext={() => void next()} />
          </div>
          {as === 'table' ? (
            <Table documents={shown.documents} label="Result" onEdit={edit} />
          ) : (
            <ol class="trees" start={shown.first}>
              {shown.documents.map((d, i) => (
                <li key={i}>
                  <EditButton document={d} onEdit={edit} />
                  <Tree value={d} />
                </li>
              ))}
            </ol>
          )}
        </>
      )}
      {editing && shown && <Edit database={shown.of.database} collection={shown.of.collection} id={editing} onDone={edited} />}
    </>
  );
}

/** placeOf returns where in the editor's text an error of the gateway is. */
function placeOf(error: unknown, q: Query): { at: number; message: string } | undefined {
  if (!(error instanceof ApiError) || error.body.offset === undefined) return undefined;
  const bytes = Number(error.body.offset) - mainAt(q);
  if (bytes < 0 || bytes > new TextEncoder().encode(q.text).length) return undefined;
  const before = new TextEncoder().encode(q.text).slice(0, bytes);
  return { at: new TextDecoder().decode(before).length, message: error.body.message };
}

function Pager(p: { at: number; hasNext: boolean; onMove: (at: number) => void; onNext: () => void }) {
  return (
    <>
      <button type="button" disabled={p.at === 0} onClick={() => p.onMove(p.at - 1)}>
        Previous page
      </button>
      <button type="button" disabled={!p.hasNext} onClick={p.onNext}>
        Next page
      </button>
    </>
  );
}

function Field(p: {
  label: string;
  value: string;
  placeholder?: string;
  names?: string[];
  onInput: (value: string) => void;
}) {
  const id = useId();
  return (
    <p>
      <label for={id}>{p.label}</label>
      <input
        id={id}
        class="mono"
        value={p.value}
        placeholder={p.placeholder}
        autocomplete="off"
        spellcheck={false}
        list={p.names ? `${id}-names` : undefined}
        onInput={(e) => p.onInput(e.currentTarget.value)}
      />
      {p.names && (
        <datalist id={`${id}-names`}>
          {p.names.map((n) => (
            <option key={n} value={n} />
          ))}
        </datalist>
      )}
    </p>
  );
}

const mostCollections = 200;

/** Collections lists what can be opened, of a database or of all, until a collection is named. */
function Collections({ of, onOpen }: { of: string; onOpen: (name: Namespace) => void }) {
  const [all, setAll] = useState<Namespace[]>([]);
  useEffect(() => void namespaces().then(setAll), []);
  const found = all.filter(([db]) => db.includes(of)).slice(0, mostCollections);
  if (found.length === 0) return null;
  return (
    <Panel title="Open a collection" id="collections">
      <ul class="collections">
        {found.map(([db, name]) => (
          <li key={`${db}.${name}`}>
            <button type="button" class="small" onClick={() => onOpen([db, name])}>
              {db}.{name}
            </button>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** CopyAs copies the query as code of a language, and shows what it has copied. */
function CopyAs({ query }: { query: Query }) {
  const [language, setLanguage] = useState<string>();
  const [said, setSaid] = useState('');
  const code = (name: string): string => check(query) ?? languages[name]!(query, session.value === 'signed-in');
  const copy = (name: string): void => {
    setLanguage(name);
    setSaid('');
    if (check(query)) return;
    navigator.clipboard.writeText(code(name)).then(
      () => setSaid('Copied'), () => setSaid('The browser does not let the page copy: see below'));
  };
  return (
    <div class="copy">
      <div class="actions" role="group" aria-label="Copy as">
        <span aria-hidden="true">Copy as</span>
        {Object.keys(languages).map((name) => (
          <button key={name} type="button" class="small" aria-pressed={name === language} onClick={() => copy(name)}>
            {name}
          </button>
        ))}
        <span role="status">{said}</span>
      </div>
      {language && <pre class="code" tabIndex={0}>{code(language)}</pre>}
    </div>
  );
}
