// Runs the client's tests where nothing can be a server: in a page, and in an edge function.

import { Client } from 'mooring-client';
import { tests } from './suite.js';

/** Runs the tests that have what they need, and returns a line for each. */
export async function report(of) {
  const env = { ...of, answering };
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
  return results;
}

/** What the server of client.test.js does, as a fetch. */
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
