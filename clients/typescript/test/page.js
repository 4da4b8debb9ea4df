// Runs the client's tests in a page, whose query is what client.test.js reads of its environment.
// globalThis.report has their results when all have ended.

import { Client } from 'mooring-client';
import { tests } from './suite.js';

const query = new URLSearchParams(location.search);
const env = {
  url: query.get('url'),
  database: query.get('database'),
  replicaSet: query.get('replicaSet') === '1',
  EventSource: true,
  answering,
};

/** What the server of client.test.js does, as a fetch: a page cannot have a server. */
function answering(answers, options) {
  const requests = [];
  const fetch = (_, { headers, signal }) => {
    requests.push(Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])));
    const { status = 200, headers: ofAnswer = {}, body = '{}', cut = false, silent = false, pieces = [body], every } = answers.shift();
    const aborted = new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
    });
    if (silent && body === '{}') return aborted;
    aborted.catch(() => {});
    const stream = new ReadableStream({
      async start(controller) {
        aborted.catch((reason) => controller.error(reason));
        for (const [i, piece] of pieces.entries()) {
          if (i > 0) await new Promise((resolve) => setTimeout(resolve, every));
          if (signal.aborted) return;
          controller.enqueue(new TextEncoder().encode(piece));
        }
        if (silent) return;
        if (cut) setTimeout(() => controller.error(new TypeError('network error')));
        else controller.close();
      },
    });
    return Promise.resolve(new Response(stream, { status, headers: ofAnswer }));
  };
  return { requests, stop() {}, client: new Client('http://scripted.example', { token: 'secret', fetch, ...options }) };
}

const results = [];
for (const { name, needs, run } of tests) {
  if (needs.some((need) => !env[need])) {
    results.push(`skip ${name}`);
    continue;
  }
  try {
    await run(env);
    results.push(`ok ${name}`);
  } catch (err) {
    results.push(`FAIL ${name}: ${err.stack ?? err}`);
  }
}
globalThis.report = results;
