// How values are shown.

const decimals = (n: number): number => (n < 10 ? 2 : n < 100 ? 1 : 0);

/** milliseconds formats a duration that is given in microseconds. */
export const milliseconds = (micros: number): string => {
  const ms = micros / 1000;
  return ms >= 10_000 ? `${(ms / 1000).toFixed(1)} s` : `${ms.toFixed(decimals(ms))} ms`;
};

/** age formats how long ago a time was. */
export function age(then: string | number | undefined, now = Date.now()): string {
  if (then === undefined) return 'never';
  const s = Math.max(0, (now - new Date(then).getTime()) / 1000);
  if (s < 1.5) return 'now';
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 129_600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** until formats how far away a time is. */
export const until = (then: string): string => {
  const now = Date.now();
  return age(now - (new Date(then).getTime() - now), now);
};

export const clock = (t: number): string =>
  new Date(t).toLocaleTimeString(undefined, { hour12: false });
