// A call of REST that was refused, as the view that explains it takes it.
import { isObject, parse } from './ejson';
import { linkTo } from './router';

/** callOf returns the call and its request of a path of REST with a body, if it is one of documents. */
export function callOf(path: string, body: string): { call: string; request: string } | undefined {
  const m = /(?:^|\/)v1\/databases\/([^/:]+)(?:\/collections\/([^/:]+))?(?:\/documents)?:(\w+)$/.exec(path.trim().replace(/^\w+ /, ''));
  if (!m) return undefined;
  const [, database, collection, verb] = m;
  const names = Object.entries({ database, collection }).filter(([, v]) => v !== undefined)
    .map(([k, v]) => `${JSON.stringify(k)}:${JSON.stringify(nameOf(v!))}`);
  const rest = others(body).trim().replace(/^\{\s*/, '').replace(/^\}$/, '');
  return {
    call: `${verb === 'watch' ? 'ChangeStream' : 'Document'}Service/${verb![0]!.toUpperCase()}${verb!.slice(1)}`,
    request: `{${[...names, ...(rest ? [rest] : ['}'])].join(',').replace(/,\}$/, '}')}`,
  };
}

/** others returns a body without the names that its path has; as it is if it is no JSON. */
function others(body: string): string {
  try {
    JSON.parse(body);
    const v = parse(body);
    if (!isObject(v)) return body;
    const rest = v.fields.filter(([name]) => name !== 'database' && name !== 'collection');
    return `{${rest.map(([name, x]) => `${JSON.stringify(name)}:${x.raw}`).join(',')}}`;
  } catch {
    return body;
  }
}

/** nameOf returns the name that a segment of a path stands for. */
function nameOf(segment: string): string {
  const name = decodeURIComponent(segment);
  if (!name.startsWith('~')) return name;
  const bytes = atob(name.slice(1).replaceAll('-', '+').replaceAll('_', '/'));
  return new TextDecoder().decode(Uint8Array.from(bytes, (c) => c.charCodeAt(0)));
}

/** linkToWhy returns the address that explains a call of REST; undefined if it is of another kind. */
export function linkToWhy(path: string, body: string, principal: string): string | undefined {
  const found = callOf(path, body);
  return found && linkTo('why', { principal, call: found.call, q: found.request });
}
