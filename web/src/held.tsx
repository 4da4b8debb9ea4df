import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, call } from './api';
import { age, until } from './format';
import { Confirm, Failure } from './parts';
import { remember, route } from './router';
import { useWindow } from './window';

interface Handle {
  id: string;
  kind: string;
  principal: string;
  namespace: string;
  server?: string;
  pinned: boolean;
  busy: boolean;
  pages: string | number;
  replica?: string;
  openTime: string;
  lastUseTime: string;
  expireTime: string;
}

interface Page {
  handles?: Handle[];
  cursor?: string;
  unreachable?: { address: string; error: string }[];
}

const size = 1000;
/** rowHeight is that of .list tr in the style sheet. */
const rowHeight = 46;

/** Held lists what clients hold. A list is audited, so it is asked for only when the user asks. */
export function Held() {
  const [handles, setHandles] = useState<Handle[]>();
  const [more, setMore] = useState<string>();
  const [lost, setLost] = useState<Page['unreachable']>([]);
  const [error, setError] = useState<unknown>();
  const [asking, setAsking] = useState<Handle>();
  const [said, setSaid] = useState('');
  const [filter, setFilter] = useState(() => ({
    principal: route.value.query.get('principal') ?? '',
    namespace: route.value.query.get('namespace') ?? '',
    pinned: route.value.query.get('pinned') === '1',
  }));

  /** listed is the filter of the list that shows, whose cursor goes on with no other. */
  const [listed, setListed] = useState(filter);

  const list = async (cursor?: string): Promise<void> => {
    const asked = cursor ? listed : filter;
    const q = new URLSearchParams({ batchSize: String(size) });
    if (asked.principal) q.set('principal', asked.principal);
    if (asked.namespace) q.set('namespace', asked.namespace);
    if (asked.pinned) q.set('pinned', 'true');
    if (cursor) q.set('cursor', cursor);
    remember('held', {
      ...(asked.principal && { principal: asked.principal }),
      ...(asked.namespace && { namespace: asked.namespace }), ...(asked.pinned && { pinned: '1' }),
    });
    try {
      const page = await call<Page>(`v1/deployment/handles?${q}`);
      setListed(asked);
      setHandles((old) => [...((cursor && old) || []), ...(page.handles ?? [])]);
      setMore(page.cursor);
      setLost(page.unreachable ?? []);
      setError(undefined);
    } catch (e) {
      setError(e);
    }
  };
  useEffect(() => void list(), []);
  const principals = useMemo(() => summary(handles ?? []), [handles]);

  const kill = async (h: Handle): Promise<void> => {
    setAsking(undefined);
    try {
      await call('v1/deployment/handles:kill', { body: JSON.stringify({ id: h.id }) });
      setSaid(`The ${h.kind} on ${h.namespace} has ended.`);
      await list();
    } catch (e) {
      setError(e);
    }
  };

  if (error instanceof ApiError && error.http === 403 && !handles) {
    return <Failure error={error} what="What clients hold is for operators to see" />;
  }
  return (
    <>
      <form
        class="fields"
        onSubmit={(e) => {
          e.preventDefault();
          setSaid('');
          void list();
        }}
      >
        <p>
          <label for="principal">Principal</label>
          <input
            id="principal"
            placeholder="any"
            value={filter.principal}
            onInput={(e) => setFilter({ ...filter, principal: e.currentTarget.value })}
          />
        </p>
        <p>
          <label for="namespace">Database or collection</label>
          <input
            id="namespace"
            placeholder="shop.orders"
            value={filter.namespace}
            onInput={(e) => setFilter({ ...filter, namespace: e.currentTarget.value })}
          />
        </p>
        <p class="check">
          <input
            id="pinned"
            type="checkbox"
            checked={filter.pinned}
            onInput={(e) => setFilter({ ...filter, pinned: e.currentTarget.checked })}
          />
          <label for="pinned">Only with a pinned connection</label>
        </p>
        <p>
          <button type="submit" class="primary">
            List
          </button>
        </p>
      </form>
      {error !== undefined && <Failure error={error} />}
      <p role="status">{said}</p>
      {lost!.map((r) => (
        <p key={r.address} class="notice bad">
          The replica {r.address} could not be asked: {r.error}
        </p>
      ))}
      {handles?.length === 0 && <p class="muted">Clients hold no cursors now.</p>}
      {handles && handles.length > 0 && (
        <>
          <p>
            {handles.length}
            {more ? ' or more' : ''} {handles.length === 1 ? 'cursor' : 'cursors'}:{' '}
            {principals}
          </p>
          <List handles={handles} onKill={setAsking} />
        </>
      )}
      {more && (
        <p class="actions">
          <button type="button" onClick={() => void list(more)}>
            More
          </button>
        </p>
      )}
      {asking && (
        <Confirm
          title={`Kill this ${asking.kind}?`}
          action="Kill it"
          onDone={(yes) => (yes ? void kill(asking) : setAsking(undefined))}
        >
          <p>
            It is of <strong>{asking.principal || 'a client without a name'}</strong> on{' '}
            <code>{asking.namespace}</code>, open for {age(asking.openTime)}. What its client is
            doing with it fails, and the client cannot go on with it.
          </p>
        </Confirm>
      )}
    </>
  );
}

/** summary counts handles by principal, those with most first. */
function summary(handles: Handle[]): string {
  const counts = new Map<string, { all: number; pinned: number }>();
  for (const h of handles) {
    const n = counts.get(h.principal) ?? { all: 0, pinned: 0 };
    n.all++;
    n.pinned += Number(h.pinned);
    counts.set(h.principal, n);
  }
  return [...counts]
    .sort((a, b) => b[1].all - a[1].all)
    .slice(0, 12)
    .map(([name, n]) => `${name || 'without a name'} ${n.all}${n.pinned ? ` (${n.pinned} pinned)` : ''}`)
    .join(', ');
}

/** List draws the rows that can be seen. */
function List({ handles, onKill }: { handles: Handle[]; onKill: (h: Handle) => void }) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useWindow(box, handles.length, rowHeight);
  return (
    <div ref={box} class="scroll long" role="region" aria-label="What clients hold" tabIndex={0}>
      <table class="list" aria-rowcount={handles.length + 1}>
        <thead>
          <tr>
            {['Principal', 'On', 'Open for', 'Unused for', 'Ends in', 'Pages', 'Server', 'State'].map((h) => (
              <th key={h} scope="col">
                {h}
              </th>
            ))}
            <th scope="col">
              <span class="hidden">Action</span>
            </th>
          </tr>
        </thead>
        <tbody>
          <Space height={rows.above} />
          {handles.slice(rows.from, rows.to).map((h, i) => (
            <tr key={h.id} aria-rowindex={rows.from + i + 2}>
              <td title={h.principal}>{h.principal || <span class="muted">–</span>}</td>
              <td class="mono" title={h.namespace}>{h.namespace}</td>
              <td>{age(h.openTime)}</td>
              <td>{age(h.lastUseTime)}</td>
              <td>{until(h.expireTime)}</td>
              <td>{h.pages}</td>
              <td class="mono" title={h.replica ? `${h.server} at ${h.replica}` : h.server}>
                {h.server}
                {h.replica && <span class="muted"> at {h.replica}</span>}
              </td>
              <td>
                {[h.busy ? 'busy' : 'idle', ...(h.pinned ? ['pinned'] : [])].join(', ')}
              </td>
              <td class="action">
                <button
                  type="button"
                  aria-label={`Kill the ${h.kind} of ${h.principal || 'a client without a name'} on ${h.namespace}`}
                  onClick={() => onKill(h)}
                >
                  Kill
                </button>
              </td>
            </tr>
          ))}
          <Space height={rows.below} />
        </tbody>
      </table>
    </div>
  );
}

/** Space stands for rows that are not drawn. */
function Space({ height }: { height: number }) {
  return height > 0 ? (
    <tr aria-hidden="true" class="space">
      <td colSpan={9} style={{ height: `${height}px` }} />
    </tr>
  ) : null;
}
