// The collections that the user may list, by their names.
import { namesAt } from './api';
import { segment } from './code';

/** Namespace is a database and the name of a collection. */
export type Namespace = [database: string, collection: string];

const mostDatabases = 20;

/** namespaces lists the collections that the user may list; none of those it may not. */
export async function namespaces(): Promise<Namespace[]> {
  const databases = (await namesAt('v1/databases')).slice(0, mostDatabases);
  const all = await Promise.all(databases.map(async (db) =>
    (await namesAt(`v1/databases/${segment(db)}/collections`)).map((name): Namespace => [db, name])));
  return all.flat();
}
