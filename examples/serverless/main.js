// Calls the function as a platform does, without one: node main.js (the gateway of `make run`).

import handler from './handler.js';

const env = { MOORING_REST: 'http://127.0.0.1:8080', ...process.env };
const call = async (method, path, body, headers = {}) => {
  const init = { method, body: body && JSON.stringify(body), headers };
  const response = await handler.fetch(new Request(`https://function.example${path}`, init), env);
  const text = await response.text();
  console.log(`${method} ${path}: ${response.status} ${text}`);
  return JSON.parse(text);
};

const customer = `Ada ${Date.now()}`;
await call('POST', '/orders', { customer, total: 39.95 });
await call('POST', '/orders', { customer });
const found = await call('GET', `/orders?customer=${encodeURIComponent(customer)}`);
if (found.length !== 1 || found[0].total !== 39.95) throw new Error('the order is not in the list');
await call('GET', '/elsewhere');
