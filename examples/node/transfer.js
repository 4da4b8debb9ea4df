// Moves money between two accounts in transactions, through Mooring's REST API with fetch.
//
//   MOORING_REST=http://host:port node transfer.js
//
// It needs a gateway before a replica set or a sharded cluster, and no packages.

const base = process.env.MOORING_REST ?? 'http://127.0.0.1:8080';
const database = process.env.MOORING_DATABASE ?? 'example';
const limit = 120_000; // milliseconds for all attempts of a transaction

// Failure is an error that the gateway answered with, or the lack of an answer.
class Failure extends Error {
  constructor({ reason, retry, message }) {
    super(`${reason}: ${message}`);
    Object.assign(this, { reason, retry });
  }
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// post makes a call.
async function post(path, body) {
  let response;
  let answer;
  try {
    response = await fetch(base + path, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    });
    answer = await response.json();
  } catch (err) {
    // No answer: the call may have been run.
    throw new Failure({ reason: 'NoAnswer', retry: 'same-request', message: err.message });
  }
  if (!response.ok) throw new Failure(answer.error);
  return answer;
}

// repeated repeats a call that cannot be applied twice until it is answered.
async function repeated(deadline, path, body) {
  for (;;) {
    try {
      return await post(path, body);
    } catch (err) {
      if (err.retry !== 'same-request' || Date.now() > deadline) throw err;
    }
    await sleep(Math.random() * 200);
  }
}

// Transaction is one that has begun. Its operations have numbers, so each can be repeated.
class Transaction {
  #statement = 0;

  constructor(deadline, token) {
    Object.assign(this, { deadline, token });
  }

  static async begin(deadline) {
    const { transaction } = await repeated(deadline, '/v1/transactions:begin', {});
    return new Transaction(deadline, transaction);
  }

  call(collection, verb, body) {
    this.#statement += 1;
    return repeated(
      this.deadline,
      `/v1/databases/${database}/collections/${collection}/documents:${verb}`,
      { ...body, transaction: this.token, statement: this.#statement },
    );
  }

  commit() {
    return repeated(this.deadline, '/v1/transactions:commit', { transaction: this.token });
  }

  // abort ignores errors: without another call the gateway aborts the transaction after a minute.
  abort() {
    return post('/v1/transactions:abort', { transaction: this.token }).catch(() => {});
  }
}

// inTransaction runs work(transaction) and commits. It runs work again if the gateway says so.
async function inTransaction(work) {
  const deadline = Date.now() + limit;
  for (let wait = 5; ; wait = Math.min(1.5 * wait, 500)) {
    try {
      const transaction = await Transaction.begin(deadline);
      let result;
      try {
        result = await work(transaction);
      } catch (err) {
        await transaction.abort();
        throw err;
      }
      await transaction.commit();
      return result;
    } catch (err) {
      if (err.retry !== 'transaction' || Date.now() > deadline) throw err;
      console.log(`run again: ${err.reason}`);
    }
    await sleep(Math.random() * wait);
  }
}

class NotEnough extends Error {}

// transfer moves money statement by statement. The payment's document is inserted first: if the
// payment was made before, that is a duplicate.
function transfer(payment) {
  const { from, to, amount } = payment;
  return inTransaction(async (transaction) => {
    await transaction.call('payments', 'insertOne', { document: payment });
    const { matchedCount } = await transaction.call('accounts', 'updateOne', {
      filter: { _id: from, balance: { $gte: amount } },
      update: { $inc: { balance: -amount } },
    });
    if (matchedCount === 0) throw new NotEnough(`${from} does not have the money`);
    await transaction.call('accounts', 'updateOne', {
      filter: { _id: to },
      update: { $inc: { balance: amount } },
    });
  });
}

// transferAtOnce moves money by one call. The gateway runs it again where that is needed.
function transferAtOnce(payment) {
  const { from, to, amount } = payment;
  const accounts = { database, collection: 'accounts' };
  const expect = { matchedCount: 1 };
  return post('/v1/transactions:run', {
    operations: [
      { insertOne: { database, collection: 'payments', document: payment } },
      {
        updateOne: {
          ...accounts,
          filter: { _id: from, balance: { $gte: amount } },
          update: { $inc: { balance: -amount } },
        },
        expect,
      },
      { updateOne: { ...accounts, filter: { _id: to }, update: { $inc: { balance: amount } } }, expect },
    ],
  });
}

function documents(collection, verb, body) {
  return post(`/v1/databases/${database}/collections/${collection}/documents:${verb}`, body);
}

// refused returns the error of a promise that must fail.
const refused = (promise) =>
  promise.then(
    () => {
      throw new Error('it was not refused');
    },
    (err) => err,
  );

async function main() {
  for (const collection of ['accounts', 'payments']) {
    await documents(collection, 'deleteMany', { filter: {} });
  }
  await documents('accounts', 'insertMany', {
    documents: [
      { _id: 'anna', balance: 100 },
      { _id: 'ben', balance: 50 },
    ],
  });

  await transfer({ _id: 'payment-1', from: 'anna', to: 'ben', amount: 30 });
  console.log('moved 30 from anna to ben');

  await transferAtOnce({ _id: 'payment-2', from: 'ben', to: 'anna', amount: 5 });
  console.log('moved 5 from ben to anna');

  const again = await refused(transfer({ _id: 'payment-1', from: 'anna', to: 'ben', amount: 30 }));
  console.log(`payment-1 was made before: ${again.reason}`);

  const much = { _id: 'payment-3', from: 'anna', to: 'ben', amount: 1000 };
  const poor = await refused(transfer(much));
  if (!(poor instanceof NotEnough)) throw poor;
  console.log(poor.message);
  console.log(`the gateway says so, too: ${(await refused(transferAtOnce(much))).reason}`);

  const found = await documents('accounts', 'find', { sort: [['_id', 1]] });
  console.log(found.documents.map(({ _id, balance }) => `${_id} has ${balance}`).join(', '));
}

await main();
