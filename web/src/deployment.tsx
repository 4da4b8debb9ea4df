import { useEffect, useState } from 'preact/hooks';
import { ApiError } from './api';
import {
  failed, live, news, poll, pools, roleOf, rttOf, samples, topology, watch,
  type Pool, type Sample, type Server,
} from './deployment-state';
import { age, clock } from './format';
import { Failure, Panel, usePolling } from './parts';
import { mostLines, Plot, type Series } from './plot';
import { linkTo, remember, route } from './router';

/** mostCards is how many servers are drawn at once. */
const mostCards = 60;

export function Deployment() {
  const [search, setSearch] = useState(route.value.query.get('find') ?? '');
  usePolling(poll, 2000);
  useEffect(() => {
    const stop = new AbortController();
    void watch(stop.signal);
    return () => stop.abort();
  }, []);
  const t = topology.value;
  const e = failed.value;
  if (e instanceof ApiError && e.http === 403) {
    return <Failure error={e} what="The deployment is for operators to see" />;
  }
  if (!t) return e ? <Failure error={e} /> : <p class="muted">Asking the gateway …</p>;
  const byAddress = new Map(pools.value.map((p) => [p.address, p]));
  const all = t.servers ?? [];
  const found = !search ? all : all.filter((s) => `${s.address} ${roleOf(s.kind)} ${s.kind}`.toLowerCase().includes(search.toLowerCase()));
  const worst = (s: Server): number => Number(s.kind !== 'Unknown');
  const shown = found.length > mostCards ? [...found].sort((a, b) => worst(a) - worst(b)).slice(0, mostCards) : found;
  return (
    <>
      {e !== undefined && <Failure error={e} />}
      <p class="summary">
        <strong>{kinds[t.kind] ?? t.kind}</strong>
        <span>
          {t.setName && `${t.setName}, `}
          {t.servers?.length ?? 0} {t.servers?.length === 1 ? 'server' : 'servers'}
        </span>
        <span class={live.value ? 'live on' : 'live'}>
          {live.value ? 'changes show as they happen' : 'connecting'}
        </span>
      </p>
      {t.compatibilityError && <p class="notice bad">{t.compatibilityError}</p>}
      {all.length > 12 && (
        <p>
          <label for="servers">Find servers</label>{' '}
          <input id="servers" type="search" value={search} placeholder="address or role" onInput={(x) => {
            setSearch(x.currentTarget.value);
            remember('deployment', x.currentTarget.value ? { find: x.currentTarget.value } : {});
          }} />{' '}
          <span class="muted" role="status">
            {shown.length < found.length
              ? `${shown.length} of ${found.length}, lost ones first`
              : found.length < all.length ? `${found.length} of ${all.length}` : ''}
          </span>
        </p>
      )}
      <ul class="servers" aria-label="Servers">
        {shown.map((s) => (
          <ServerCard key={s.address} server={s} pool={byAddress.get(s.address)} />
        ))}
      </ul>
      <Plots />
      <Events />
    </>
  );
}

function Plots() {
  return (
    <div class="plots">
      <Plot title="Connections in use" unit="" {...series((s) => s.inUse)} />
      <Plot title="Waiting for a connection" unit="" {...series((s) => s.waiting)} />
      <Plot title="Round trip" unit="ms" {...series((s) => s.rtt)} />
    </div>
  );
}

function Events() {
  return (
    <Panel id="news" title="Since you came">
      <div class="news" role="log" aria-label="Changes of the deployment" tabIndex={0}>
        <ol>
          {news.value.map((n) => (
            <li key={n.id} class={n.tone}>
              <time>{clock(n.at)}</time> <span>{n.text}</span>
            </li>
          ))}
        </ol>
      </div>
      {news.value.length === 0 && (
        <p class="muted">Nothing has changed. Elections and lost servers show here.</p>
      )}
    </Panel>
  );
}

const kinds: Record<string, string> = {
  ReplicaSetWithPrimary: 'Replica set',
  ReplicaSetNoPrimary: 'Replica set without a primary',
  Sharded: 'Sharded cluster',
  LoadBalanced: 'Load-balanced deployment',
  Single: 'Single server',
  Unknown: 'Unknown deployment',
};

/**
 * series returns the lines of a plot, all at the same times: one for each server, or for those that
 * have the highest values now, and how many more there are.
 */
function series(of: (s: Sample) => Map<string, number>): Series {
  const all = samples.value;
  const newest = all.at(-1);
  const now = newest ? of(newest) : new Map<string, number>();
  // Those that are gone have room if there are few.
  const found = now.size < mostLines ? new Set(all.flatMap((s) => [...of(s).keys()])) : now.keys();
  const names = [...found].sort((a, b) => (now.get(b) ?? -1) - (now.get(a) ?? -1));
  return {
    times: all.map((s) => s.at),
    more: Math.max(0, names.length - mostLines),
    lines: names.slice(0, mostLines).sort().map((name) => ({
      name, values: all.map((s) => of(s).get(name) ?? null),
    })),
  };
}

function ServerCard({ server: s, pool }: { server: Server; pool: Pool | undefined }) {
  const role = roleOf(s.kind);
  const tags = Object.entries(s.tags ?? {});
  return (
    <li class={`card ${s.kind}`}>
      <h2>
        <span class="badge">{role}</span> <span class="address">{s.address}</span>
      </h2>
      {s.lastError && <p class="error">{s.lastError}</p>}
      <dl class="facts">
        {s.averageRTTMicros !== undefined && (
          <div>
            <dt>Round trip</dt>
            <dd>{rttOf(s)}</dd>
          </div>
        )}
        {s.kind !== 'LoadBalancer' && (
          <div>
            <dt>Answered</dt>
            <dd>{age(s.lastUpdateTime)}</dd>
          </div>
        )}
        {s.maxWireVersion !== undefined && (
          <div>
            <dt>Wire</dt>
            <dd>
              {s.minWireVersion}–{s.maxWireVersion}
            </dd>
          </div>
        )}
        {tags.length > 0 && (
          <div>
            <dt>Tags</dt>
            <dd>{tags.map(([k, v]) => `${k}=${v}`).join(', ')}</dd>
          </div>
        )}
      </dl>
      {pool && <PoolBar pool={pool} />}
    </li>
  );
}

function PoolBar({ pool: p }: { pool: Pool }) {
  const n = (v: string | number | undefined) => Number(v ?? 0);
  const pinned = n(p.cursors) + n(p.transactions);
  const parts: [name: string, count: number][] = [
    ['used', n(p.inUse) - pinned],
    ['pinned', pinned],
    ['pending', n(p.pending)],
    ['idle', n(p.available)],
  ];
  const most = Math.max(n(p.maxSize), n(p.total), 1);
  return (
    <div class="pool">
      <div class="bar" aria-hidden="true">
        {parts.map(([name, count]) => (
          <span key={name} class={name} style={{ width: `${(100 * count) / most}%` }} />
        ))}
      </div>
      <dl class="counts" aria-label="Connections">
        {[...parts, ['waiting', n(p.waiting)] as const].map(([name, count]) => (
          <div key={name} class={`${name}${count > 0 ? '' : ' none'}`}>
            <dt>{name}</dt>
            <dd>
              {count}
              {name === 'pinned' && count > 0 && (
                <>
                  {' '}
                  <a href={linkTo('held', { pinned: '1' })}>by whom?</a>
                </>
              )}
            </dd>
          </div>
        ))}
        <div>
          <dt>at most</dt>
          <dd>{p.maxSize ?? '∞'}</dd>
        </div>
      </dl>
      {p.state !== 'ready' && <p class="error">The pool is {p.state}.</p>}
      {n(p.generation) > 0 && <p class="muted">Cleared {p.generation} times</p>}
    </div>
  );
}
