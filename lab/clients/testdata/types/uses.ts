// Uses of the types that mooring types writes, and what must not compile.

import { Client } from 'mooring-client';
import type { Order } from './shop.js';

const orders = new Client('http://127.0.0.1:8080').database('shop').collection<Order>('orders');
const placed = { $date: '2026-01-02T03:04:05Z' };

export async function uses(): Promise<void> {
  await orders.insertOne({ customer: 'Ada', status: 'open', placed, total: null, items: [{ sku: 'a' }] });
  await orders.insertOne({ customer: 'Ada', status: 'paid', placed, 'gift-note': 'for Eve', price: { $numberDecimal: '1' } });
  for await (const order of orders.find({ status: 'open' })) {
    const total: number | null | undefined = order.total;
    console.log(order._id.$oid, order.items?.[0]?.sku.length, total, order.picture?.$binary.base64);
    // @ts-expect-error A long beyond 2^53 is {"$numberLong": …}.
    console.log((order.views ?? 0) + 1);
  }
  // @ts-expect-error There is no such field.
  await orders.insertOne({ customer: 'Ada', status: 'open', placed, totl: 5 });
  // @ts-expect-error There is no such status.
  await orders.insertOne({ customer: 'Ada', status: 'lost', placed });
  // @ts-expect-error A date is not a string.
  await orders.insertOne({ customer: 'Ada', status: 'open', placed: '2026-01-02' });
  // @ts-expect-error An item has a sku.
  await orders.insertOne({ customer: 'Ada', status: 'open', placed, items: [{}] });
}
