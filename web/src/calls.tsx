import { effect } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, call, session } from './api';
import { age, milliseconds } from './format';
import { Failure, Panel } from './parts';
import { linkTo } from './router';

interface Call {
  call: string;
  principal: string;
  namespace: string;
  shape?: string;
  reason?: string;
  count: string | number;
  lastTime: string;
  requestId: string;
  client?: string;
  endTime: string;
  message?: string;
  durationMicros: string | number;
  queueMicros: string | number;
  selectionMicros: string | number;
  checkOutMicros: string | number;
  serverMicros: string | number;
}

interface Answer {
  slow?: Call[];
  refused?: Call[];
}

/** parts returns where the time of a call went. What is in no part, the gateway has used. */
function parts(c: Call): { name: string; title: string; micros: number }[] {
  const all = [
    { name: 'queue', title: 'waited for its turn', micros: Number(c.queueMicros) },
    { name: 'selection', title: 'waited for a server', micros: Number(c.selectionMicros) },
    { name: 'check-out', title: 'waited for a connection', micros: Number(c.checkOutMicros) },
    { name: 'server', title: 'waited for replies', micros: Number(c.serverMicros) },
  ];
  const rest = Number(c.durationMicros) - all.reduce((sum, p) => sum + p.micros, 0);
  return [...all, { name: 'gateway', title: 'the gateway itself', micros: Math.max(0, rest) }];
}

/**
 * refusals has the messages of refused calls by their request ids, for the view Why: an address must
 * not say what the page tells an operator, since it can come from a stranger.
 */
export const refusals = new Map<string, string>();

// What an operator was told is not for the next principal.
effect(() => {
  if (session.value === 'needed') refusals.clear();
});

/** Calls lists what was slow and what was refused. A list is audited, so the user asks for the next. */
export function Calls() {
  const [answer, setAnswer] = useState<Answer>();
  const [error, setError] = useState<unknown>();
  const list = async (): Promise<void> => {
    try {
      const next = await call<Answer>('v1/deployment/calls');
      refusals.clear();
      for (const c of next.refused ?? []) refusals.set(c.requestId, c.message ?? '');
      setAnswer(next);
      setError(undefined);
    } catch (e) {
      setError(e);
    }
  };
  useEffect(() => void list(), []);
  if (error instanceof ApiError && error.http === 403) {
    return <Failure error={error} what="Slow and refused calls are for operators to see" />;
  }
  return (
    <>
      <p class="actions">
        <button type="button" class="primary" onClick={() => void list()}>
          List again
        </button>
      </p>
      {error !== undefined && <Failure error={error} />}
      {answer && (
        <>
          <Panel title="Slow" id="slow" aside={<span class="muted">Values are not kept: each is a ?</span>}>
            <Slow calls={answer.slow ?? []} />
          </Panel>
          <Panel title="Refused" id="refused">
            <Refused calls={answer.refused ?? []} />
          </Panel>
        </>
      )}
    </>
  );
}

function Slow({ calls }: { calls: Call[] }) {
  if (calls.length === 0) {
    return <p class="muted">No call took as long as log.slowRequest (1 s by default).</p>;
  }
  return (
    <div class="scroll" role="region" aria-label="Slow calls" tabIndex={0}>
      <table class="calls">
        <Head names={['Call', 'Slowest', 'Where its time went', 'How many', 'Last', 'Request']} />
        <tbody>
          {calls.map((c) => (
            <tr key={c.requestId + c.call + c.shape}>
              <td>
                <Who of={c} />
                {c.shape && <code class="shape">{c.shape}</code>}
                <OpenInQuery of={c} />
              </td>
              <td data-name="Slowest">{milliseconds(Number(c.durationMicros))}</td>
              <td data-name="Where its time went">
                <div>
                  <Split of={c} />
                </div>
              </td>
              <td data-name="How many">{c.count}</td>
              <td data-name="Last">{age(c.lastTime)}</td>
              <td data-name="Request" class="mono">{c.requestId}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** OpenInQuery leads to a query of the same shape, to see how the server runs it. */
function OpenInQuery({ of: c }: { of: Call }) {
  const kind = { Find: 'find', Aggregate: 'aggregate' }[c.call.split('/')[1] ?? ''];
  const [db, ...collection] = c.namespace.replace(/,…$/, '').split('.');
  const q = kind && jsonOf(kind === 'find' ? c.shape || '{}' : `[${c.shape ?? ''}]`);
  if (!kind || !db || !q) return null;
  return <a href={linkTo('query', { db, in: collection.join('.'), kind, q })}>Open in Query</a>;
}

/** jsonOf returns a shape as JSON with null for the values; undefined if that cannot be told. */
function jsonOf(shape: string): string | undefined {
  const text = shape.replace(/([{,] ?)([^{}[\],:]+): /g, (_, before: string, name: string) => `${before}${JSON.stringify(name)}: `)
    .replace(/\?(?=[,}\]])/g, 'null');
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return undefined; // it was cut, or a name has such characters
  }
}

/** Split draws the parts of a call's time, and says those that are a twentieth of it or more. */
function Split({ of }: { of: Call }) {
  const all = parts(of);
  const total = Math.max(1, all.reduce((sum, p) => sum + p.micros, 0));
  return (
    <>
      <span class="split" aria-hidden="true">
        {all.map((p) => (
          <span key={p.name} class={p.name} style={{ flexGrow: p.micros / total }} title={p.title} />
        ))}
      </span>
      <span class="said">
        {all
          .filter((p) => p.micros / total >= 0.05)
          .map((p) => `${p.name} ${milliseconds(p.micros)}`)
          .join(', ')}
      </span>
    </>
  );
}

function Refused({ calls }: { calls: Call[] }) {
  if (calls.length === 0) return <p class="muted">No call was refused by the policy or by a limit.</p>;
  return (
    <div class="scroll" role="region" aria-label="Refused calls" tabIndex={0}>
      <table class="calls">
        <Head names={['Call', 'Reason', 'How many', 'Last', 'Client', 'Request']} />
        <tbody>
          {calls.map((c) => (
            <tr key={c.requestId + c.call + c.reason}>
              <td>
                <Who of={c} />
              </td>
              <td data-name="Reason">
                <div>
                  <strong>{c.reason}</strong>
                  {c.message && <span class="said">{c.message}</span>}
                  {c.reason === 'PolicyRefused' && <a href={linkToWhyOf(c)}>Why?</a>}
                </div>
              </td>
              <td data-name="How many">{c.count}</td>
              <td data-name="Last">{age(c.lastTime)}</td>
              <td data-name="Client" class="mono">{c.client}</td>
              <td data-name="Request" class="mono">{c.requestId}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Head({ names }: { names: string[] }) {
  return (
    <thead>
      <tr>
        {names.map((n) => (
          <th key={n} scope="col">
            {n}
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Who({ of }: { of: Call }) {
  return (
    <>
      <strong>{of.call}</strong> {of.namespace && <span class="mono">{of.namespace}</span>}
      <span class="said">{of.principal || 'a client without a name'}</span>
    </>
  );
}

/** linkToWhyOf returns the address that explains a refused call, as far as its request is known. */
function linkToWhyOf(c: Call): string {
  const [database, ...collection] = c.namespace.replace(/,…$/, '').split('.');
  const request = {
    ...(database && { database }), ...(collection.length > 0 && { collection: collection.join('.') }),
  };
  return linkTo('why', {
    principal: c.principal, call: c.call, q: JSON.stringify(request), refused: c.requestId,
  });
}
