// What the gateway knows of the deployment, as it changes: signals that the view reads.
import { batch, effect, signal } from '@preact/signals';
import { ApiError, call, lines, session } from './api';
import { milliseconds } from './format';

export interface Server {
  address: string;
  kind: string;
  lastError?: string;
  electionId?: string;
  tags?: Record<string, string>;
  minWireVersion?: number;
  maxWireVersion?: number;
  averageRTTMicros?: string | number;
  minRTTMicros?: string | number;
  lastUpdateTime?: string;
}

export interface Topology {
  kind: string;
  setName?: string;
  compatibilityError?: string;
  servers?: Server[];
}

export interface Pool {
  address: string;
  state: string;
  generation: string | number;
  total: string | number;
  available: string | number;
  inUse: string | number;
  cursors: string | number;
  transactions: string | number;
  pending: string | number;
  waiting: string | number;
  maxSize?: string | number;
  maxPinned?: string | number;
}

export interface News {
  id: number;
  at: number;
  tone: 'good' | 'bad' | 'plain';
  text: string;
}

/** Sample is what a moment adds to the plots, by server. */
export interface Sample {
  at: number;
  inUse: Map<string, number>;
  waiting: Map<string, number>;
  rtt: Map<string, number>;
}

export const topology = signal<Topology | undefined>(undefined);
export const pools = signal<Pool[]>([]);
export const news = signal<News[]>([]);
export const samples = signal<Sample[]>([]);
export const failed = signal<unknown>(undefined);
/** live says whether changes come as they happen. */
export const live = signal(false);

const keptNews = 200;
const keptSamples = 300;

const words: Record<string, string> = {
  RSPrimary: 'Primary', RSSecondary: 'Secondary', RSArbiter: 'Arbiter', RSOther: 'Other member',
  RSGhost: 'Ghost', Mongos: 'Router', LoadBalancer: 'Load balancer',
};

/** roleOf returns the role of a server in words. */
export const roleOf = (kind: string): string => words[kind] ?? kind;

const primaryOf = (t: Topology) => t.servers?.find((s) => s.kind === 'RSPrimary');

/**
 * compare says what has changed from one picture of the deployment to the next. former is the
 * address of the last primary, which may be of an earlier picture.
 */
export function compare(
  before: Topology,
  after: Topology,
  former: string | undefined,
): Omit<News, 'id' | 'at'>[] {
  const out: Omit<News, 'id' | 'at'>[] = [];
  const old = new Map((before.servers ?? []).map((s) => [s.address, s]));
  const was = primaryOf(before);
  const is = primaryOf(after);
  if (is && is.address !== was?.address) {
    const then = former && former !== is.address ? `, after ${former}` : '';
    out.push({ tone: 'good', text: `${is.address} is the primary${then}` });
  } else if (is && was && is.electionId !== was.electionId) {
    out.push({ tone: 'good', text: `${is.address} was elected again` });
  } else if (was && !is) {
    out.push({ tone: 'bad', text: `No primary: ${was.address} was the last one` });
  }
  for (const s of after.servers ?? []) {
    const b = old.get(s.address);
    old.delete(s.address);
    if (!b) {
      out.push({ tone: 'plain', text: `${s.address} has joined` });
    } else if (b.kind !== s.kind && s.kind === 'Unknown') {
      out.push({ tone: 'bad', text: `${s.address} is lost${s.lastError ? `: ${s.lastError}` : ''}` });
    } else if (b.kind !== s.kind && s.kind !== 'RSPrimary') {
      out.push({ tone: 'plain', text: `${s.address} is ${roleOf(s.kind)}, it was ${roleOf(b.kind)}` });
    }
  }
  for (const address of old.keys()) out.push({ tone: 'plain', text: `${address} has left` });
  return out;
}

let last = 0;
let former: string | undefined;

/** latest is the newest picture. Those that come faster than a person reads are not all drawn. */
let latest: Topology | undefined;
let drawing = 0;
let drawn = 0;
const drawEvery = 250;

function draw(): void {
  drawing = 0;
  drawn = performance.now();
  batch(() => {
    topology.value = latest;
    news.value = known;
  });
}

let known: News[] = [];

function take(next: Topology): void {
  const before = latest;
  latest = next;
  const at = Date.now();
  const more = before ? compare(before, next, former).map((n) => ({ ...n, id: ++last, at })) : [];
  former = primaryOf(next)?.address ?? former;
  if (more.length > 0) known = [...more.reverse(), ...known].slice(0, keptNews);
  if (!drawing) drawing = window.setTimeout(draw, Math.max(0, drawn + drawEvery - performance.now()));
}

const byServer = <T extends { address: string }>(list: T[], of: (t: T) => number | undefined) =>
  new Map(list.flatMap((t) => {
    const n = of(t);
    return n === undefined ? [] : [[t.address, n] as const];
  }));

/** isOver says whether an answer comes too late: for a view, or a principal, that is gone. */
const isOver = (stop: AbortSignal): boolean => stop.aborted || session.peek() === 'needed';

/**
 * poll asks for what a watch does not tell: the pools, and the round-trip times. It is of no use
 * again for a user who may not see them.
 */
export async function poll(stop: AbortSignal): Promise<boolean> {
  try {
    const p = await call<{ pools?: Pool[] }>('v1/deployment/pools', { signal: stop });
    const t = await call<{ topology: Topology }>('v1/deployment/topology', { signal: stop });
    if (isOver(stop)) return true;
    pools.value = p.pools ?? [];
    take(t.topology);
    const sample: Sample = {
      at: Date.now(),
      inUse: byServer(pools.value, (x) => Number(x.inUse)),
      waiting: byServer(pools.value, (x) => Number(x.waiting)),
      rtt: byServer(t.topology.servers ?? [], (s) =>
        s.averageRTTMicros === undefined ? undefined : Number(s.averageRTTMicros) / 1000),
    };
    samples.value = [...samples.peek(), sample].slice(-keptSamples);
    failed.value = undefined;
  } catch (e) {
    if (!isOver(stop)) failed.value = e;
    return !(e instanceof ApiError && e.http === 403);
  }
  return true;
}

/** watch follows the deployment until it is stopped, also when the gateway goes away meanwhile. */
export async function watch(stop: AbortSignal): Promise<void> {
  for (let wait = 500; !stop.aborted; wait = Math.min(2 * wait, 10_000)) {
    try {
      for await (const line of lines('v1/deployment/topology:watch', { signal: stop })) {
        if (isOver(stop)) return;
        live.value = true;
        wait = 500;
        take((JSON.parse(line) as { topology: Topology }).topology);
      }
    } catch (e) {
      if (e instanceof ApiError && (e.http === 401 || e.http === 403)) return;
    }
    live.value = false;
    await new Promise((done) => setTimeout(done, wait));
  }
}

// What a principal has seen is not for the next one.
effect(() => {
  if (session.value !== 'needed') return;
  clearTimeout(drawing);
  drawing = 0;
  topology.value = latest = former = failed.value = undefined;
  pools.value = [];
  samples.value = [];
  news.value = known = [];
});

/** rttOf returns the round-trip time of a server in words. */
export const rttOf = (s: Server): string =>
  s.averageRTTMicros === undefined ? '' : milliseconds(Number(s.averageRTTMicros));
