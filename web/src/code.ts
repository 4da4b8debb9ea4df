// A query as code that can be pasted. The credential is never in it: the code takes it from
// MOORING_KEY.
import { urlOf } from './api';
import { elementsOf, isObject, parse } from './ejson';

export interface Kind {
  /** main is the field that the editor has; label is its name there. */
  main: 'filter' | 'pipeline' | 'document' | 'documents';
  label: string;
  start: string;
  /** reads says that the call changes nothing, and has pages. */
  reads: boolean;
  /** update says that there is another text, of how documents are changed. */
  update?: boolean;
  many?: boolean;
}

/** kinds has the calls that the view makes, by their names on REST. */
export const kinds = {
  find: { main: 'filter', label: 'Filter', start: '{}', reads: true },
  aggregate: { main: 'pipeline', label: 'Pipeline', start: '[\n  { "$match": {} }\n]', reads: true },
  insertOne: { main: 'document', label: 'Document', start: '{}', reads: false },
  insertMany: { main: 'documents', label: 'Documents', start: '[\n  {}\n]', reads: false, many: true },
  updateOne: { main: 'filter', label: 'Filter', start: '{}', reads: false, update: true },
  updateMany: { main: 'filter', label: 'Filter', start: '{}', reads: false, update: true, many: true },
  deleteOne: { main: 'filter', label: 'Filter', start: '{}', reads: false },
  deleteMany: { main: 'filter', label: 'Filter', start: '{}', reads: false, many: true },
} satisfies Record<string, Kind>;

export type KindName = keyof typeof kinds;
export const kindOf = (q: Query): Kind => kinds[q.kind];

export interface Query {
  database: string;
  collection: string;
  kind: KindName;
  /** what kindOf(q).main is, as Extended JSON. */
  text: string;
  update: string;
  projection: string;
  sort: string;
  limit: string;
  batchSize: number;
}

/** pathOf returns the path of a call, by default of the query's own. */
export const pathOf = (q: Query, call: string = q.kind): string =>
  `v1/databases/${segment(q.database)}/collections/${segment(q.collection)}/documents:${call}`;

/** segment returns a name as a path has it. Those that proxies change are in base64url. */
export function segment(name: string): string {
  if (!/[/%:]|^\.{1,2}$|^~/.test(name)) return encodeURIComponent(name);
  const bytes = new TextEncoder().encode(name);
  const text = btoa(String.fromCharCode(...bytes));
  return `~${text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`;
}

/** fieldsOf returns the fields of the request, with the texts that the user has written. */
export function fieldsOf(q: Query): [name: string, json: string][] {
  const fields: [string, string][] = [[kindOf(q).main, q.text]];
  if (kindOf(q).update) fields.push(['update', q.update]);
  if (q.kind === 'find') {
    if (q.projection) fields.push(['projection', q.projection]);
    if (q.sort) fields.push(['sort', q.sort]);
    if (q.limit) fields.push(['limit', q.limit]);
  }
  return fields;
}

const objectOf = (fields: [string, string][]): string =>
  `{${fields.map(([k, v]) => `"${k}":${v}`).join(',')}}`;

/** bodyOf returns the body of the call. The user's text comes first, at mainAt. */
export const bodyOf = (q: Query): string =>
  objectOf([...fieldsOf(q), ...(kindOf(q).reads ? [['batchSize', String(q.batchSize)] as [string, string]] : [])]);

/** explainBodyOf returns the body of the call that explains a query. */
export const explainBodyOf = (q: Query): string =>
  objectOf([...fieldsOf(q), ['verbosity', '"executionStats"']]);

/** mainAt is where the user's text begins in the body, in bytes. */
export const mainAt = (q: Query): number => `{"${kindOf(q).main}":`.length;

const compact = (json: string): string => json.trim().replace(/\s*\n\s*/g, ' ');
/** shell returns a text as a word of a shell. */
export const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
const literal = (text: string): string => JSON.stringify(text);
const capital = (name: string): string => name[0]!.toUpperCase() + name.slice(1);
const isList = (json: string): boolean => json.trimStart().startsWith('[');

function curl(q: Query, key: boolean): string {
  const credential = key ? ` \\\n  -H "Authorization: Bearer $MOORING_KEY"` : '';
  return `curl -sS --fail-with-body ${shell(urlOf(pathOf(q)))} \\
  -H 'Content-Type: application/json'${credential} \\
  -d ${shell(compact(bodyOf(q)))}`;
}

function grpcurl(q: Query, key: boolean): string {
  const doc = (json: string): string => `{"json":${literal(compact(json))}}`;
  const parts = [`"database":${literal(q.database)}`, `"collection":${literal(q.collection)}`];
  for (const [name, json] of fieldsOf(q)) {
    const list = (): string => `[${elementsOf(json).map(doc).join(',')}]`;
    if (name === 'pipeline' || name === 'documents') {
      parts.push(`"${name}":${list()}`);
    } else if (name === 'update') {
      parts.push(isList(json) ? `"update":{"pipeline":{"stages":${list()}}}` : `"update":{"operators":${doc(json)}}`);
    } else {
      parts.push(`"${name}":${name === 'limit' ? json : doc(json)}`);
    }
  }
  const credential = key ? ` \\\n  -H "authorization: Bearer $MOORING_KEY"` : '';
  const plain = location.protocol === 'http:' ? ' -plaintext' : '';
  return `grpcurl${plain} -H 'mooring-document-encoding: json'${credential} \\
  -d ${shell(`{${parts.join(',')}}`)} \\
  "$MOORING_GRPC" mooring.v1.DocumentService/${capital(q.kind)}`;
}

function go(q: Query, key: boolean): string {
  const json = (text: string): string => `client.JSON(${literal(compact(text))})`;
  const setUp = `c := client.New(cc, client.Options{${key ? 'Token: os.Getenv("MOORING_KEY")' : ''}})`;
  const at = `client.In[bson.Raw](c, ${literal(q.database)}, ${literal(q.collection)})`;
  if (!kindOf(q).reads) return goWrite(q, setUp, at, json);
  const options = fieldsOf(q).slice(1).map(([name, text]) =>
    name === 'limit'
      ? `\tr.Limit = proto.Int64(${text})\n`
      : `\tr.${capital(name)}, _ = c.Document(${json(text)})\n`);
  const set = options.length ? `, func(r *mooringv1.FindRequest) {\n${options.join('')}}` : '';
  const what = q.kind === 'find'
    ? `Find(ctx, ${json(q.text)}${set})`
    : `Aggregate(ctx, []any{${elementsOf(q.text).map((s) => `\n\t${json(s)},`).join('')}\n})`;
  return `${setUp}
found := ${at}
for document, err := range found.${what} {
	if err != nil {
		return err
	}
	fmt.Println(document)
}`;
}

function goWrite(q: Query, setUp: string, at: string, json: (text: string) => string): string {
  const { main, update } = kindOf(q);
  const collection = main === 'filter' ? at : at.replace('bson.Raw', 'any');
  const parts = ['ctx', main === 'documents'
    ? `[]any{${elementsOf(q.text).map((s) => `\n\t${json(s)},`).join('')}\n}`
    : json(q.text)];
  let before = '';
  if (update && isList(q.update)) {
    before = `
pipeline := &mooringv1.Pipeline{}
for _, stage := range []string{${elementsOf(q.update).map((s) => literal(compact(s))).join(', ')}} {
	pipeline.Stages = append(pipeline.Stages, &mooringv1.Document{
		Encoding: &mooringv1.Document_Json{Json: stage},
	})
}`;
    parts.push('&mooringv1.Update{Kind: &mooringv1.Update_Pipeline{Pipeline: pipeline}}');
  } else if (update) {
    parts.push(json(q.update));
  }
  return `${setUp}${before}
done, err := ${collection}.${capital(q.kind)}(${parts.join(', ')})
if err != nil {
	return err
}
fmt.Println(done)`;
}

/** script returns JSON as JavaScript that means the same. */
function script(json: string): string {
  const tokens = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\d[\d.eE+-]*/g;
  return json.trim().replace(tokens, (token, text?: string, colon?: string) => {
    if (!text) return number(token);
    return colon && JSON.parse(text) === '__proto__' ? `[${text}]${colon}` : token;
  });
}

/** number returns a number as a wrapper if JavaScript would give it another type or value. */
function number(token: string): string {
  const written = String(Number(token));
  if (/[.eE]/.test(token)) return /[.e]/.test(written) ? token : `{"$numberDouble":"${token}"}`;
  const n = BigInt(token);
  if (written === token || BigInt.asIntN(64, n) !== n) return token; // the latter are doubles
  return n === 0n ? '0' : `{"$numberLong":"${token}"}`;
}

/** ordered returns the keys of a sort as pairs if JavaScript would move one to the front. */
function ordered(json: string): string {
  const sort = parse(json);
  if (!isObject(sort) || !sort.fields.some(([name]) => /^\d+$/.test(name))) return json;
  return `[${sort.fields.map(([name, v]) => `[${literal(name)}, ${v.raw}]`).join(', ')}]`;
}

function typescript(q: Query, key: boolean): string {
  const value = (name: string, json: string): string =>
    name === 'limit' ? json : script(compact(name === 'sort' ? ordered(json) : json));
  const options = fieldsOf(q).slice(1).map(([name, json]) => `${name}: ${value(name, json)}`);
  const some = options.length ? `, { ${options.join(', ')} }` : '';
  const more = kindOf(q).update ? `, ${script(q.update)}` : some;
  const what = `found.${q.kind}(${script(q.text)}${more})`;
  const run = kindOf(q).reads
    ? `for await (const document of ${what}) {\n  console.log(document);\n}`
    : `console.log(await ${what});`;
  return `import { Client } from 'mooring-client';

const client = new Client(${literal(urlOf('').replace(/\/$/, ''))}${key ? ', { token: process.env.MOORING_KEY }' : ''});
const found = client.database(${literal(q.database)}).collection(${literal(q.collection)});
${run}`;
}

function python(q: Query, key: boolean): string {
  const value = (json: string): string => `json.loads(${literal(compact(json))})`;
  const options = fieldsOf(q).slice(1).map(([name, json]) =>
    name === 'update' ? `, ${value(json)}` : `, ${name}=${name === 'limit' ? json : value(json)}`);
  const name = q.kind.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
  const what = `found.${name}(${value(q.text)}${options.join('')})`;
  return `import json${key ? ', os' : ''}

from mooring_client import Client

client = Client(${literal(urlOf('').replace(/\/$/, ''))}${key ? ', token=os.environ["MOORING_KEY"]' : ''})
found = client.database(${literal(q.database)}).collection(${literal(q.collection)})
${kindOf(q).reads ? `for document in ${what}:\n    print(document)` : `print(${what})`}`;
}

function mongosh(q: Query): string {
  const value = (json: string): string => `EJSON.parse(${literal(compact(json))}, { relaxed: false })`;
  const at = `db.getSiblingDB(${literal(q.database)}).getCollection(${literal(q.collection)})`;
  if (kindOf(q).update) return `${at}.${q.kind}(${value(q.text)}, ${value(q.update)})`;
  const rest = fieldsOf(q).slice(1).map(([name, json]) =>
    name === 'limit' ? `.limit(${json})` : `.${name === 'sort' ? 'sort' : 'projection'}(${value(json)})`);
  return `${at}.${q.kind}(${value(q.text)})${rest.join('')}`;
}

/** languages has what a query can be copied as. */
export const languages: Record<string, (q: Query, key: boolean) => string> = {
  curl, grpcurl, Go: go, TypeScript: typescript, Python: python, mongosh,
};
