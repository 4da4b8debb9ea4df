// Reads pairs of a filter and a document, a line of Extended JSON each, and answers each line with
// what mingo makes of it: true, false, or the error.
import { createInterface } from 'node:readline';
import { EJSON } from 'bson';
import { Query } from 'mingo';

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    const { filter, document } = EJSON.parse(line, { relaxed: true });
    answer = String(new Query(filter).test(document));
  } catch (e) {
    answer = `${e.name}: ${e.message}`.replaceAll('\n', ' ');
  }
  process.stdout.write(`${answer}\n`);
}
