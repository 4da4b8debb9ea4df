// A serverless function: a list of open orders, and new ones. It is a handler of the Fetch API, as
// edge functions have it: `export default { fetch(request, env) }`. It needs no connection pool and
// no login at a cold start: the gateway has them. env has MOORING_REST and MOORING_KEY.
//
//   GET  /orders?customer=Ada
//   POST /orders            {"customer": "Ada", "total": 39.95}, with an Idempotency-Key

import { Client, MooringError } from 'mooring-client';

const json = (body, status = 200) => new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json' } });

async function list(orders, url) {
  const customer = url.searchParams.get('customer');
  const filter = { status: 'open', ...(customer && { customer }) };
  const found = [];
  for await (const order of orders.find(filter, { limit: 20, sort: { _id: -1 }, timeout: 3000 })) found.push(order);
  return json(found);
}

async function add(orders, request) {
  const { customer, total } = await request.json();
  if (typeof customer !== 'string' || typeof total !== 'number') return json({ error: 'customer and total, please' }, 400);
  // The caller's key makes the write exactly-once: a repeated request is one order. It needs a replica set, such
  // as that of `make run`, or a sharded cluster: on a standalone server the gateway refuses the key.
  const idempotencyKey = request.headers.get('Idempotency-Key') ?? undefined;
  const { insertedId } = await orders.insertOne({ customer, total, status: 'open' }, { idempotencyKey, timeout: 3000 });
  return json({ id: insertedId }, 201);
}

export default {
  async fetch(request, env) {
    const client = new Client(env.MOORING_REST, { token: env.MOORING_KEY });
    const orders = client.collection(env.MOORING_DATABASE ?? 'example', 'serverless');
    const url = new URL(request.url);
    try {
      if (url.pathname !== '/orders') return json({ error: 'not found' }, 404);
      if (request.method === 'POST') return await add(orders, request);
      return await list(orders, url);
    } catch (err) {
      if (!(err instanceof MooringError)) throw err;
      console.error(err.reason, err.message, err.requestId); // for the operator; the caller learns less
      return err.retry === 'never' ? json({ error: 'the call failed' }, 500) : json({ error: 'try again later' }, 503);
    }
  },
};
