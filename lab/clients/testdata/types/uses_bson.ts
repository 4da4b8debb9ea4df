// Uses of the types that mooring types writes for a client with the codec of the README.

import { Binary, Decimal128, EJSON, ObjectId } from 'bson';
import { Client } from 'mooring-client';
import type { Order } from './shop_bson.js';

const codec = {
  parse: (text: string) => EJSON.parse(text, { useBigInt64: true }),
  stringify: (value: unknown) => EJSON.stringify(value, { relaxed: false }),
};
const orders = new Client('http://127.0.0.1:8080', { codec }).database('shop').collection<Order>('orders');

export async function uses(): Promise<void> {
  await orders.insertOne({ customer: 'Ada', status: 'open', placed: new Date(), price: new Decimal128('1'), views: 5n });
  for await (const order of orders.find({ _id: new ObjectId() })) {
    const picture: Binary | undefined = order.picture;
    console.log(order._id.toHexString(), order.placed.getTime(), (order.views ?? 0n) + 1n, picture?.length());
  }
  // @ts-expect-error A date is a Date.
  await orders.insertOne({ customer: 'Ada', status: 'open', placed: { $date: '2026-01-02' } });
}
