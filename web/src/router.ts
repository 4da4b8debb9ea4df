// The view is in the address's fragment, so that it can be bookmarked and needs no server.
import { signal } from '@preact/signals';

export interface Route {
  view: string;
  query: URLSearchParams;
  /** visit tells one visit from the next, also of the same view with another query. */
  visit: number;
}

let visits = 0;

function read(): Route {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  return { view: path, query: new URLSearchParams(query), visit: visits++ };
}

export const route = signal<Route>(read());
/** reread takes the view from the address, in which remember may have changed it. */
export const reread = (): void => void (route.value = read());
addEventListener('hashchange', reread);

/** linkTo returns the address of a view. */
export function linkTo(view: string, query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#/${view}${text && `?${text}`}`;
}

/** remember changes the query of the view in the address, without a step in the history. */
export function remember(view: string, query: Record<string, string>): void {
  history.replaceState(null, '', linkTo(view, query));
}
