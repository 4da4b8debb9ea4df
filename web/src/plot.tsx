// Plots over time, drawn by uPlot. What they show is also in words, for those who cannot see them.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

export interface Series {
  times: number[];
  /** lines are at most mostLines. */
  lines: Line[];
  /** more is how many lines are left out. */
  more: number;
}

interface Line {
  name: string;
  values: (number | null)[];
}

const dark = matchMedia('(prefers-color-scheme: dark)');
const theme = signal(dark.matches);
dark.addEventListener('change', () => (theme.value = dark.matches));

/** mostLines is how many lines a plot can have: more cannot be told apart. */
export const mostLines = 6;

/** span is how many seconds a plot shows. */
const span = 300;

const minutes = (t: number): string =>
  new Date(t * 1000).toLocaleTimeString(undefined, {
    hour: '2-digit', minute: '2-digit', hour12: false,
  });

export function Plot(p: { title: string; unit: string } & Series) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const data = [p.times.map((t) => t / 1000), ...p.lines.map((l) => l.values)] as uPlot.AlignedData;
  const names = p.lines.map((l) => l.name).join('\n');
  const isDark = theme.value;

  useEffect(() => {
    const at = box.current!;
    const style = getComputedStyle(at);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const axis = {
      stroke: color('--muted'),
      grid: { stroke: color('--line'), width: 1 },
      ticks: { show: false },
      font: '11px system-ui, sans-serif',
    };
    const made = new uPlot(
      {
        width: at.clientWidth,
        height: 140,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { range: (_, __, max) => [max - span, max] },
          y: { range: (_, min, max) => [Math.min(0, min), Math.max(max * 1.15, 1)] },
        },
        axes: [
          { ...axis, space: 70, values: (_, at) => at.map((t) => minutes(t)) },
          { ...axis, size: 42 },
        ],
        series: [
          {},
          ...p.lines.map((l, i) => ({
            label: l.name, stroke: color(`--series-${i + 1}`), width: 2, points: { show: false },
          })),
        ],
      },
      data,
      at,
    );
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: at.clientWidth, height: 140 }));
    resized.observe(at);
    return () => {
      resized.disconnect();
      made.destroy();
    };
  }, [names, isDark]);
  useEffect(() => plot.current?.setData(data), [p.times, p.lines]);

  const newest = (l: Line) => `${l.name} ${format(l.values.at(-1))} ${p.unit}`.trim();
  return (
    <figure class="plot">
      <figcaption>
        {p.title} {p.unit && <span class="muted">({p.unit})</span>}
      </figcaption>
      <div ref={box} role="img" aria-label={`${p.title} now: ${p.lines.map(newest).join(', ')}`} />
      <ul class="legend" aria-hidden="true">
        {p.lines.map((l, i) => (
          <li key={l.name} class={`series-${i + 1}`}>
            {l.name} <b>{format(l.values.at(-1))}</b>
          </li>
        ))}
        {p.more > 0 && <li>and {p.more} more</li>}
      </ul>
    </figure>
  );
}

const format = (n: number | null | undefined): string =>
  n === null || n === undefined ? '–' : Number.isInteger(n) ? String(n) : n.toFixed(n < 10 ? 2 : 1);
