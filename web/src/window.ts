// The rows of a long table that can be seen, so that the page is not slower with thousands.
import { useEffect, useState } from 'preact/hooks';

export interface Window {
  from: number;
  to: number;
  /** above and below are the heights of what is left out. */
  above: number;
  below: number;
}

/** spare is how many rows are drawn beyond those that can be seen; a table changes in such steps. */
const spare = 16;

/** useWindow returns which of count rows of one height are to be drawn in a box that scrolls. */
export function useWindow(box: { current: HTMLElement | null }, count: number, height: number): Window {
  const [[top, seen], setSeen] = useState<[number, number]>([0, 800]);
  useEffect(() => {
    const of = box.current;
    if (!of) return;
    const step = spare * height;
    const look = (): void => setSeen((old) => {
      const top = Math.floor(of.scrollTop / step) * step;
      return old[0] === top && old[1] === of.clientHeight ? old : [top, of.clientHeight];
    });
    look();
    of.addEventListener('scroll', look, { passive: true });
    const resized = new ResizeObserver(look);
    resized.observe(of);
    return () => {
      of.removeEventListener('scroll', look);
      resized.disconnect();
    };
  }, [count > 0]);
  const from = Math.max(0, Math.min(Math.floor(top / height) - spare, count - 1));
  const to = Math.min(count, Math.ceil((top + seen) / height) + 2 * spare);
  return { from, to, above: from * height, below: (count - to) * height };
}
