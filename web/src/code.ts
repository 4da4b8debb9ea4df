// A query as code that can be pasted. The credential is never in it: the code takes it from
// MOORING_KEY.
import { urlOf } from './api';
import { elementsOf } from './ejson';

export interface Query {
  database: string;
  collection: string;
  kind: 'find' | 'aggregate';
  /** filter of a find, pipeline of an aggregation, as Extended JSON. */
  text: string;
  projection: string;
  sort: string;
  limit: string;
  batchSize: number;
}

/** pathOf returns the path of the call. */
export const pathOf = (q: Query): string =>
  `v1/databases/${segment(q.database)}/collections/${segment(q.collection)}/documents:${q.kind}`;

/** segment returns a name as a path has it. Those that proxies change are in base64url. */
export function segment(name: string): string {
  if (!/[/%:]|^\.{1,2}$|^~/.test(name)) return encodeURIComponent(name);
  const bytes = new TextEncoder().encode(name);
  const text = btoa(String.fromCharCode(...bytes));
  return `~${text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`;
}

/** fieldsOf returns the fields of the request, with the texts that the user has written. */
export function fieldsOf(q: Query): [name: string, json: string][] {
  const fields: [string, string][] = [[q.kind === 'find' ? 'filter' : 'pipeline', q.text]];
  if (q.kind === 'find') {
    if (q.projection) fields.push(['projection', q.projection]);
    if (q.sort) fields.push(['sort', q.sort]);
    if (q.limit) fields.push(['limit', q.limit]);
  }
  return fields;
}

/** bodyOf returns the body of the call. The user's text comes first, at mainAt. */
export const bodyOf = (q: Query): string =>
  `{${[...fieldsOf(q), ['batchSize', String(q.batchSize)]].map(([k, v]) => `"${k}":${v}`).join(',')}}`;

/** mainAt is where the user's text begins in the body, in bytes. */
export const mainAt = (q: Query): number => `{"${q.kind === 'find' ? 'filter' : 'pipeline'}":`.length;

const compact = (json: string): string => json.trim().replace(/\s*\n\s*/g, ' ');
/** shell returns a text as a word of a shell. */
export const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
const literal = (text: string): string => JSON.stringify(text);

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
    if (name === 'pipeline') {
      parts.push(`"pipeline":[${elementsOf(json).map(doc).join(',')}]`);
    } else {
      parts.push(`"${name}":${name === 'limit' ? json : doc(json)}`);
    }
  }
  const credential = key ? ` \\\n  -H "authorization: Bearer $MOORING_KEY"` : '';
  const plain = location.protocol === 'http:' ? ' -plaintext' : '';
  return `grpcurl${plain} -H 'mooring-document-encoding: json'${credential} \\
  -d ${shell(`{${parts.join(',')}}`)} \\
  "$MOORING_GRPC" mooring.v1.DocumentService/${q.kind === 'find' ? 'Find' : 'Aggregate'}`;
}

function go(q: Query, key: boolean): string {
  const options = fieldsOf(q).slice(1).map(([name, json]) =>
    name === 'limit'
      ? `\tr.Limit = proto.Int64(${json})\n`
      : `\tr.${name[0]!.toUpperCase() + name.slice(1)}, _ = c.Document(client.JSON(${literal(compact(json))}))\n`);
  const set = options.length ? `, func(r *mooringv1.FindRequest) {\n${options.join('')}}` : '';
  const what = q.kind === 'find'
    ? `Find(ctx, client.JSON(${literal(compact(q.text))})${set})`
    : `Aggregate(ctx, []any{${elementsOf(q.text).map((s) => `\n\tclient.JSON(${literal(compact(s))}),`).join('')}\n})`;
  return `c := client.New(cc, client.Options{${key ? 'Token: os.Getenv("MOORING_KEY")' : ''}})
found := client.In[bson.Raw](c, ${literal(q.database)}, ${literal(q.collection)})
for document, err := range found.${what} {
	if err != nil {
		return err
	}
	fmt.Println(document)
}`;
}

function typescript(q: Query, key: boolean): string {
  const options = fieldsOf(q).slice(1).map(([name, json]) => `${name}: ${compact(json)}`);
  const more = options.length ? `, { ${options.join(', ')} }` : '';
  return `import { Client } from 'mooring-client';

const client = new Client(${literal(urlOf('').replace(/\/$/, ''))}${key ? ', { token: process.env.MOORING_KEY }' : ''});
const found = client.database(${literal(q.database)}).collection(${literal(q.collection)});
for await (const document of found.${q.kind}(${q.text.trim()}${more})) {
  console.log(document);
}`;
}

function python(q: Query, key: boolean): string {
  const value = (json: string): string => `json.loads(${literal(compact(json))})`;
  const options = fieldsOf(q).slice(1).map(([name, json]) => `, ${name}=${name === 'limit' ? json : value(json)}`);
  return `import json${key ? ', os' : ''}

from mooring_client import Client

client = Client(${literal(urlOf('').replace(/\/$/, ''))}${key ? ', token=os.environ["MOORING_KEY"]' : ''})
found = client.database(${literal(q.database)}).collection(${literal(q.collection)})
for document in found.${q.kind}(${value(q.text)}${options.join('')}):
    print(document)`;
}

function mongosh(q: Query): string {
  const value = (json: string): string => `EJSON.parse(${literal(compact(json))})`;
  const at = `db.getSiblingDB(${literal(q.database)}).getCollection(${literal(q.collection)})`;
  const rest = fieldsOf(q).slice(1).map(([name, json]) =>
    name === 'limit' ? `.limit(${json})` : `.${name === 'sort' ? 'sort' : 'projection'}(${value(json)})`);
  return `${at}.${q.kind}(${value(q.text)})${rest.join('')}`;
}

/** languages has what a query can be copied as. */
export const languages: Record<string, (q: Query, key: boolean) => string> = {
  curl, grpcurl, Go: go, TypeScript: typescript, Python: python, mongosh,
};
