// The reference of the API, made from the description that the gateway itself serves.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { attempt, call, session, urlOf, type Attempt } from './api';
import { segment, shell } from './code';
import { Confirm, Failure } from './parts';
import { linkTo, remember, route } from './router';

interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  oneOf?: Schema[];
  anyOf?: Schema[];
}

interface Parameter {
  $ref?: string;
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  description?: string;
  example?: unknown;
  content?: Record<string, { example?: unknown }>;
}

interface Media {
  schema?: Schema;
  example?: unknown;
}

interface Operation {
  tags?: string[];
  summary?: string;
  description?: string;
  operationId: string;
  parameters?: Parameter[];
  requestBody?: { content: Record<string, Media>; required?: boolean };
  responses: Record<string, { $ref?: string; description?: string; content?: Record<string, Media> }>;
}

interface Spec {
  info: { version: string };
  tags: { name: string; description?: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: Record<string, Record<string, unknown>>;
}

interface Entry {
  method: string;
  path: string;
  operation: Operation;
}

const spec = signal<Spec | undefined>(undefined);

const methods = ['get', 'post', 'put', 'patch', 'delete'];
/** first are the groups that most readers come for. */
const first = ['Document', 'DocumentResource', 'Cursor', 'ChangeStream', 'Transaction', 'Session', 'Command'];

function resolve<T>(of: T & { $ref?: string }): T {
  const found = /^#\/components\/([^/]+)\/(.+)$/.exec(of.$ref ?? '');
  return found ? (spec.value!.components[found[1]!]![found[2]!] as T) : of;
}

export function Reference() {
  const [error, setError] = useState<unknown>();
  const [search, setSearch] = useState(() => route.value.query.get('find') ?? '');
  useEffect(() => {
    if (!spec.value) call<Spec>('openapi.json').then((s) => (spec.value = s), setError);
  }, []);
  if (error !== undefined) return <Failure error={error} />;
  if (!spec.value) return <p class="muted">Asking the gateway for its description …</p>;
  const s = spec.value;
  const groups = new Map<string, Entry[]>();
  for (const [path, of] of Object.entries(s.paths)) {
    for (const method of methods) {
      const operation = of[method];
      const text = `${method} ${path} ${operation?.operationId} ${operation?.summary}`.toLowerCase();
      if (!operation || !search.toLowerCase().split(/\s+/).every((w) => text.includes(w))) continue;
      const tag = operation.tags?.[0] ?? 'Other';
      groups.set(tag, [...(groups.get(tag) ?? []), { method, path, operation }]);
    }
  }
  const place = (tag: string): number => (first.includes(tag) ? first.indexOf(tag) : first.length);
  const tags = [...groups.keys()].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
  return (
    <>
      <p>
        <label for="search">Find a call</label>{' '}
        <input id="search" type="search" value={search} onInput={(e) => {
          setSearch(e.currentTarget.value);
          remember('api', e.currentTarget.value ? { find: e.currentTarget.value } : {});
        }} />{' '}
        <a href={urlOf('openapi.json')}>openapi.json</a>
      </p>
      {tags.length === 0 && <p class="muted">No call has these words.</p>}
      {tags.map((tag) => (
        <section key={tag} class="group" aria-labelledby={`tag-${tag}`}>
          <h2 id={`tag-${tag}`}>{tag}</h2>
          {paragraphs(s.tags.find((t) => t.name === tag)?.description)}
          {groups.get(tag)!.map((e) => (
            <Call key={e.operation.operationId} entry={e} />
          ))}
        </section>
      ))}
    </>
  );
}

/** words shows a text whose `parts` are code. */
const words = (text: string): ComponentChildren =>
  text.split('`').map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part));

const paragraphs = (text: string | undefined): ComponentChildren =>
  text?.split('\n\n').map((part, i) => <p key={i}>{words(part)}</p>);

function Call({ entry: { method, path, operation: o } }: { entry: Entry }) {
  const chosen = route.value.query.get('call') === o.operationId;
  const [open, setOpen] = useState(chosen);
  const box = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (chosen) box.current!.scrollIntoView();
  }, []);
  return (
    <details
      ref={box}
      class="call"
      open={open}
      onToggle={(e) => {
        setOpen(e.currentTarget.open);
        if (e.currentTarget.open) remember('api', { call: o.operationId });
      }}
    >
      <summary>
        <span class={`badge ${method}`}>{method.toUpperCase()}</span> <code>{path}</code>
        <span class="muted"> {o.summary}</span>
      </summary>
      {open && <Details method={method} path={path} operation={o} />}
    </details>
  );
}

function Details({ method, path, operation: o }: Entry) {
  const parameters = (o.parameters ?? []).map(resolve);
  const body = o.requestBody && Object.values(o.requestBody.content)[0];
  return (
    <>
      {paragraphs(o.description)}
      <p class="muted">
        <a href={linkTo('api', { call: o.operationId })}>{o.operationId}</a>
      </p>
      {parameters.length > 0 && (
        <>
          <h3>Parameters</h3>
          <dl class="properties">
            {parameters.map((p) => (
              <div key={p.in + p.name}>
                <dt>
                  <code>{p.name}</code>{' '}
                  <span class="muted">
                    {p.in}
                    {p.required ? ', required' : ''}
                  </span>
                </dt>
                <dd>{words(p.description ?? '')}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
      {body?.schema && (
        <>
          <h3>Body</h3>
          <Properties schema={body.schema} />
        </>
      )}
      <h3>Answers</h3>
      <dl class="properties">
        {Object.entries(o.responses).map(([code, r]) => {
          const answer = resolve(r);
          const schema = answer.content && Object.values(answer.content).find((m) => m.schema)?.schema;
          return (
            <div key={code}>
              <dt>
                <code>{code}</code>
              </dt>
              <dd>
                {words(answer.description ?? '')}
                {schema && <Nested schema={schema} />}
              </dd>
            </div>
          );
        })}
      </dl>
      <Try method={method} path={path} operation={o} />
    </>
  );
}

function kindOf(schema: Schema): string {
  const s = resolve(schema);
  if (s.enum) return s.enum.map(String).join(' | ');
  if (s.type === 'array' && s.items) return `list of ${kindOf(s.items)}`;
  const several = s.oneOf ?? s.anyOf;
  if (several) return several.map(kindOf).join(' or ');
  return schema.$ref?.split('/').at(-1) ?? [s.type ?? 'any'].flat().join(' or ');
}

function Properties({ schema }: { schema: Schema }) {
  const s = resolve(schema);
  if (!s.properties) return <p>{words(s.description ?? kindOf(schema))}</p>;
  return (
    <dl class="properties">
      {Object.entries(s.properties).map(([name, p]) => (
        <div key={name}>
          <dt>
            <code>{name}</code>{' '}
            <span class="muted">
              {kindOf(p)}
              {s.required?.includes(name) ? ', required' : ''}
            </span>
          </dt>
          <dd>
            {words(p.description ?? resolve(p).description ?? '')}
            <Nested schema={p} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** Nested shows the fields of a value when it is opened: a schema may contain itself. */
function Nested({ schema }: { schema: Schema }) {
  const [open, setOpen] = useState(false);
  const s = resolve(schema);
  const inner = s.items ? resolve(s.items) : s;
  if (!inner.properties) return null;
  return (
    <details onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>Fields</summary>
      {open && <Properties schema={inner} />}
    </details>
  );
}

const exampleOf = (p: Parameter): string => {
  const given = p.example ?? Object.values(p.content ?? {})[0]?.example;
  return given === undefined ? '' : typeof given === 'string' ? given : JSON.stringify(given);
};

function Try({ method, path, operation: o }: Entry) {
  const id = useId();
  const parameters = (o.parameters ?? []).map(resolve).filter((p) => p.in !== 'header' && p.name !== 'timeout');
  const [values, setValues] = useState<Record<string, string>>(() =>
    Object.fromEntries(parameters.map((p) => [p.name, p.in === 'path' ? exampleOf(p) : ''])));
  const example = o.requestBody && Object.values(o.requestBody.content)[0]?.example;
  const [body, setBody] = useState(example === undefined ? '{}' : JSON.stringify(example, null, 2));
  const [answer, setAnswer] = useState<Attempt>();
  const [error, setError] = useState<unknown>();
  const [asking, setAsking] = useState(false);
  const running = useRef<AbortController | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  useEffect(() => () => running.current?.abort(), []);

  const query = new URLSearchParams(
    parameters.flatMap((p) => (p.in === 'query' && values[p.name] ? [[p.name, values[p.name]!]] : [])));
  const at = path.replace(/^\//, '').replace(/\{([^}]+)\}/g, (_, name: string) =>
    (name === 'id' ? encodeURIComponent : segment)(values[name] ?? '')) + (query.size ? `?${query}` : '');
  const types = Object.entries(o.responses)
    .flatMap(([code, r]) => (code.startsWith('2') ? Object.keys(resolve(r).content ?? {}) : []));
  const accept = ['application/json', 'application/x-ndjson'].find((t) => types.includes(t)) ?? 'application/json';
  const sent = o.requestBody ? body : undefined;

  const send = async (): Promise<void> => {
    const stop = (running.current = new AbortController());
    setBusy(true);
    setError(undefined);
    setAnswer(undefined);
    try {
      await attempt(method.toUpperCase(), at, sent, accept, stop.signal, setAnswer);
    } catch (e) {
      if (!stop.signal.aborted) setError(e);
    }
    setBusy(false);
  };
  const ask = (): void => (/^(drop|delete|kill|rename)/.test(o.operationId) ? setAsking(true) : void send());

  return (
    <form
      class="try"
      aria-label={`Try ${o.operationId}`}
      onSubmit={(e) => {
        e.preventDefault();
        ask();
      }}
    >
      <h3>Try it</h3>
      <div class="fields">
        {parameters.map((p) => (
          <p key={p.name}>
            <label for={`${id}-${p.name}`}>{p.name}</label>
            <input
              id={`${id}-${p.name}`}
              class="mono"
              required={p.in === 'path'}
              value={values[p.name]}
              placeholder={exampleOf(p)}
              onInput={(e) => setValues({ ...values, [p.name]: e.currentTarget.value })}
            />
          </p>
        ))}
      </div>
      {sent !== undefined && (
        <p>
          <label for={`${id}-body`}>Body</label>
          <textarea
            id={`${id}-body`}
            class="mono"
            spellcheck={false}
            rows={Math.min(14, body.split('\n').length + 1)}
            value={body}
            onInput={(e) => setBody(e.currentTarget.value)}
          />
        </p>
      )}
      <pre class="code" tabIndex={0}>
        {`curl -sS -X ${method.toUpperCase()} ${shell(urlOf(at))}` +
          (session.value === 'signed-in' ? ` \\\n  -H "Authorization: Bearer $MOORING_KEY"` : '') +
          (accept === 'application/json' ? '' : ` \\\n  -N -H 'Accept: ${accept}'`) +
          (sent === undefined ? '' : ` \\\n  -H 'Content-Type: application/json' -d ${shell(sent)}`)}
      </pre>
      <p class="actions">
        <button type="submit" class="primary" disabled={busy}>
          Send
        </button>
        {busy && (
          <button type="button" onClick={() => running.current?.abort()}>
            Stop
          </button>
        )}
      </p>
      <div role="status">
        {answer && (
          <p>
            Status <strong>{answer.status}</strong>
            <span class="muted"> request {answer.requestId}</span>
          </p>
        )}
      </div>
      {answer && <pre class="code answer" tabIndex={0}>{pretty(answer.text)}</pre>}
      {answer?.cut && <p class="muted">The answer is longer; this is its beginning.</p>}
      {error !== undefined && <Failure error={error} what="No answer" />}
      {asking && (
        <Confirm
          title={`Send ${o.operationId}?`}
          action="Send it"
          onDone={(yes) => {
            setAsking(false);
            if (yes) void send();
          }}
        >
          <p>
            <code>
              {method.toUpperCase()} /{at}
            </code>{' '}
            changes what it names, and cannot be undone.
          </p>
        </Confirm>
      )}
    </form>
  );
}

/** pretty breaks the lines of JSON, without a change of its numbers. */
function pretty(text: string): string {
  let out = '';
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === '"') {
      const from = i;
      for (i++; i < text.length && text[i] !== '"'; i++) if (text[i] === '\\') i++;
      out += text.slice(from, i + 1);
    } else if ('{['.includes(c)) {
      const empty = '}]'.includes(text[i + 1] ?? '');
      out += empty ? c + text[++i] : `${c}\n${'  '.repeat(++depth)}`;
    } else if ('}]'.includes(c)) {
      out += `\n${'  '.repeat(--depth)}${c}`;
    } else {
      out += c === ',' ? `,\n${'  '.repeat(depth)}` : c === ':' ? ': ' : c;
    }
  }
  return out;
}
