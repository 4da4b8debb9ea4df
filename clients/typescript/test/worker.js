// Runs the client's tests in an edge function, which answers with their results. Its environment is
// what client.test.js reads of its own.

import { report } from './run.js';

export default {
  async fetch(request, env) {
    const replicaSet = env.MOORING_REPLICA_SET === '1';
    const results = await report({ url: env.MOORING_REST, database: env.MOORING_DATABASE, replicaSet });
    return Response.json(results);
  },
};
