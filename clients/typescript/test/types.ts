// Uses of the client that must compile, or must not. lab's TestTypeScript compiles it.

import { Client, followChanges, MooringError, type ResponseBody } from 'mooring-client';

interface Order {
  _id: number;
  customer: string;
  total?: number;
}

const client = new Client('http://127.0.0.1:8080', { token: 'key', retries: 2, exactlyOnce: true });
const orders = client.database('shop').collection<Order>('orders');

export async function uses(): Promise<void> {
  const one: Order | null = await orders.findOne({ _id: 1 }, { projection: { total: 0 }, timeout: 5000 });
  if (one !== null) console.log(one.customer.length, one.total?.toFixed(2));
  for await (const order of orders.find({}, { sort: [['_id', 1]], batchSize: 10 })) console.log(order.customer);
  for await (const page of orders.pages()) console.log(page.length);
  for await (const change of orders.watch({ fullDocument: 'updateLookup' })) console.log(change.fullDocument?.customer);
  const { matchedCount } = await orders.updateOne({ _id: 1 }, { $set: { total: 5 } }, { idempotencyKey: 'k', exactlyOnce: false });
  console.log((matchedCount ?? 0) + 1);
  const found = await orders.get(1);
  if (found.etag !== null) await orders.patch(1, { $set: { total: 5 } }, { ifMatch: found.etag, timeout: 5000 });
  const again: Order | undefined = (await orders.get(1, { ifNoneMatch: found.etag ?? '*', filter: { total: 5 } }))?.document;
  console.log(again?.customer);
  await orders.insertOne({ customer: 'Ada', total: 39.95 });
  await orders.insertMany([{ customer: 'Ada' }, { _id: 7, customer: 'Eva' }]);
  await orders.replaceOne({ _id: 7 }, { customer: 'Ada' });
  await client.database('shop').collection('any').insertOne({ customer: 'Ada' });
  const put = await orders.put(1, { customer: 'Ada' }, { ifNoneMatch: '*' });
  console.log(put.writeConcernError?.codeName);
  await orders.delete({ $oid: '651f3c0a0102030405060708' }, { ifMatch: '*' });
  const { headers } = await client.exchange('getTopology');
  console.log(headers.get('Mooring-Request-Id'));
  const topology: ResponseBody<'getTopology'> = await client.call('getTopology');
  console.log(topology.topology.kind);
  const run = await client.call('runTransaction', {
    body: { operations: [{ insertOne: { database: 'shop', collection: 'orders', document: { _id: 5 } } }] },
  });
  console.log(run.results.length);
  followChanges<Order>(() => '/ticket', { onChange: (change) => console.log(change.fullDocument?.customer) });
  try {
    // @ts-expect-error The collection has documents with a customer.
    await orders.insertOne({ _id: 1 });
    // @ts-expect-error Its _id is a number.
    await orders.insertOne({ _id: 'x', customer: 'Ada' });
    // @ts-expect-error It has no such field.
    await orders.insertOne({ customer: 'Ada', totl: 5 });
    // @ts-expect-error There is no such option.
    await orders.findOne({}, { sorted: {} });
    // @ts-expect-error A patch has no such precondition.
    await orders.patch(1, { $set: { total: 5 } }, { ifNoneMatch: '*' });
    // @ts-expect-error There is no such operation.
    await client.call('findTwo');
    // @ts-expect-error A cursor is a text.
    await client.call('nextPage', { body: { cursor: 5 } });
  } catch (err) {
    if (err instanceof MooringError && err.retry === 'same-request') console.log(err.server?.code, err.idempotencyKey);
    if (err instanceof MooringError && err.writeConcernError) console.log(err.result?.document?.customer);
  }
}
