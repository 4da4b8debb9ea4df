// Runs the client's tests in a page, whose query is what client.test.js reads of its environment.
// globalThis.report has their results when all have ended.

import { report } from './run.js';

const query = new URLSearchParams(location.search);
globalThis.report = await report({
  url: query.get('url'),
  database: query.get('database'),
  replicaSet: query.get('replicaSet') === '1',
  EventSource: true,
});
