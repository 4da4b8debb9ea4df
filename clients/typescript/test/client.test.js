// Runs the client's tests before a gateway: node --test, or deno test. MOORING_REST and
// MOORING_DATABASE say which. MOORING_REPLICA_SET=1 says that it is before a replica set.

import { createServer } from 'node:http';
import process from 'node:process';
import { test } from 'node:test';
import { Client } from 'mooring-client';
import { tests } from './suite.js';

const env = {
  url: process.env.MOORING_REST ?? 'http://127.0.0.1:8080',
  database: process.env.MOORING_DATABASE ?? 'typescript',
  replicaSet: process.env.MOORING_REPLICA_SET === '1',
  answering,
};

/** A server that gives the answers, one after the other, and keeps the headers of the requests. */
async function answering(answers, options) {
  const requests = [];
  const server = createServer((request, response) => {
    requests.push(request.headers);
    const { status = 200, headers = {}, body = '{}', cut = false, silent = false, pieces, every } = answers.shift();
    if (silent && body === '{}') return;
    response.writeHead(status, headers);
    if (pieces) {
      piece(response, pieces, every);
      return;
    }
    if (!cut && !silent) {
      response.end(body);
      return;
    }
    response.write(body);
    if (cut) setImmediate(() => response.destroy());
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  const client = new Client(`http://127.0.0.1:${server.address().port}`, { token: 'secret', ...options });
  return { requests, stop, client };
}

/** Sends pieces of an answer, one each time. */
function piece(response, pieces, every) {
  const [first, ...others] = pieces;
  if (others.length === 0) {
    response.end(first);
    return;
  }
  response.write(first);
  setTimeout(() => piece(response, others, every), every);
}

for (const { name, needs, run } of tests) {
  const lacks = needs.filter((need) => !env[need]); // Node's EventSource is an experiment
  test(name, { skip: lacks.length > 0 && `needs ${lacks}` }, () => run(env));
}
