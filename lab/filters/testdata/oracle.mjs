// Reads pairs of a filter and a document, a line of Extended JSON each, and answers each line with
// what mingo makes of it: true, false, or the error.
import { createInterface } from 'node:readline';
import { EJSON } from 'bson';
import { Query } from 'mingo';

// revive makes regular expressions of mingo's kind of those that EJSON has made.
function revive(v) {
  if (v?._bsontype === 'BSONRegExp') return new RegExp(v.pattern, v.options);
  if (Array.isArray(v)) return v.map(revive);
  if (v === null || typeof v !== 'object' || Object.getPrototypeOf(v) !== Object.prototype) return v;
  return Object.fromEntries(Object.entries(v).map(([key, item]) => [key, revive(item)]));
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const { filter, document } = EJSON.parse(line, { relaxed: true });
    answer = String(new Query(revive(filter)).test(revive(document)));
  } catch (e) {
    answer = `${e.name}: ${e.message}`.replaceAll('\n', ' ');
  }
  process.stdout.write(`${answer}\n`);
}
