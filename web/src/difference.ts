// What the user has changed in a document, as the fields of an update. Fields that are the same are
// not in it, so that the server leaves their bytes as they are.
import { isArray, isObject, type Value } from './ejson';

export interface Change {
  /** path names the field, as an update does: items.0.price. */
  path: string;
  before: Value | undefined;
  /** after is the new value; undefined removes the field. */
  after: Value | undefined;
}

const isPlainDouble = /^-?\d+(\.\d+([eE][+-]?\d+)?|[eE][+-]?\d+)$/;

/**
 * written returns a value as the editor shows it, which the gateway reads as the same BSON. What is
 * a plain number in it is an Int32 or a Double; other types have their names.
 */
export function written(v: Value, indent?: string): string {
  const [deeper, line, end] = indent === undefined
    ? [undefined, '', '']
    : [`${indent}  `, `\n${indent}  `, `\n${indent}`];
  const separator = indent === undefined ? ',' : `,${line}`;
  if (isObject(v)) {
    if (v.fields.length === 0) return '{}';
    const colon = indent === undefined ? ':' : ': ';
    return `{${line}${v.fields.map(([name, x]) =>
      `${JSON.stringify(name)}${colon}${written(x, deeper)}`).join(separator)}${end}}`;
  }
  if (isArray(v)) {
    if (v.items.length === 0) return '[]';
    return `[${line}${v.items.map((x) => written(x, deeper)).join(separator)}${end}]`;
  }
  if (v.type === 'Int32' || (v.type === 'Double' && isPlainDouble.test(v.text))) return v.text;
  if (v.type === 'Date' && /^\d/.test(v.text) && v.text > '1970') return `{"$date":"${v.text}"}`;
  return withoutSpaces(v.raw);
}

/** withoutSpaces returns JSON without the spaces between its tokens. */
const withoutSpaces = (json: string): string =>
  json.replace(/"(?:[^"\\]|\\.)*"|\s+/g, (m) => (m[0] === '"' ? m : ''));

/** difference returns what turns a document into another. It throws if no update can do that. */
export function difference(before: Value, after: Value): Change[] {
  if (!isObject(before) || !isObject(after)) throw new Error('A document is an object: {…}.');
  const id = (v: typeof before): string => v.fields.filter(([n]) => n === '_id').map(([, x]) => written(x)).join();
  if (id(before) !== id(after)) throw new Error('The _id of a document cannot be changed.');
  const changes: Change[] = [];
  compare(before, after, [], changes);
  return changes;
}

function compare(before: Value, after: Value, path: string[], to: Change[]): void {
  if (written(before) === written(after)) return;
  if (isObject(before) && isObject(after)) return compareFields(before.fields, after.fields, path, to);
  if (isArray(before) && isArray(after) && after.items.length >= before.items.length) {
    after.items.forEach((item, i) => {
      const old = before.items[i];
      if (old) compare(old, item, [...path, String(i)], to);
      else to.push({ path: pathOf([...path, String(i)]), before: undefined, after: item });
    });
    return;
  }
  to.push({ path: pathOf(path), before, after });
}

function compareFields(
  before: [string, Value][], after: [string, Value][], path: string[], to: Change[],
): void {
  const [old, now] = [new Map(before), new Map(after)];
  const where = path.length ? ` of ${path.join('.')}` : '';
  if (old.size < before.length || now.size < after.length) {
    throw new Error(`Two fields${where} have the same name: no update can tell them apart.`);
  }
  const stay = before.filter(([name]) => now.has(name)).map(([name]) => name);
  const come = after.filter(([name]) => !old.has(name)).map(([name]) => name);
  if (after.some(([name], i) => name !== [...stay, ...come][i])) {
    throw new Error(`Fields${where} keep their order in an update, and new ones come last.`);
  }
  for (const [name, x] of before) {
    const y = now.get(name);
    if (y) compare(x, y, [...path, name], to);
    else to.push({ path: pathOf([...path, name]), before: x, after: undefined });
  }
  for (const name of come) {
    to.push({ path: pathOf([...path, name]), before: undefined, after: now.get(name)! });
  }
}

/** pathOf returns the path of a field, if an update can name it. */
function pathOf(names: string[]): string {
  for (const name of names) {
    if (name === '' || name.startsWith('$') || /[.\0]/.test(name)) {
      throw new Error(`No update can name the field ${JSON.stringify(name)}: it is empty, begins with $ or has a dot.`);
    }
  }
  return names.join('.');
}

/** updateOf returns the update that makes the changes. */
export function updateOf(changes: Change[]): string {
  const fields = (which: Change[], value: (c: Change) => string): string =>
    `{${which.map((c) => `${JSON.stringify(c.path)}:${value(c)}`).join(',')}}`;
  const set = changes.filter((c) => c.after);
  const unset = changes.filter((c) => !c.after);
  const parts = [
    ...(set.length ? [`"$set":${fields(set, (c) => written(c.after!))}`] : []),
    ...(unset.length ? [`"$unset":${fields(unset, () => '""')}`] : []),
  ];
  return `{${parts.join(',')}}`;
}
