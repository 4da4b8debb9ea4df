// Runs one operation for each line of its input, which is JavaScript as a JSON text, and answers each
// with a line: empty, or the error.
import { createInterface } from "node:readline";
import { MongoClient } from "mongodb";

const client = new MongoClient(process.argv[2]);
const c = client.db("wire").collection("things");

// inTransaction has a session run a transaction, and end it as it says.
async function inTransaction(end) {
  const session = client.startSession();
  try {
    session.startTransaction();
    await transfer(session);
    await end(session);
  } finally {
    await session.endSession();
  }
}

async function transfer(session) {
  await c.insertOne({ _id: 60 }, { session });
  await c.updateOne({ _id: 1 }, { $set: { a: 9 } }, { session });
}

// follow inserts documents, and reads the event of each. It returns the last resume token.
async function follow(options, ...ids) {
  const stream = c.watch([], options);
  try {
    await stream.cursor.cursorInit(); // else the first event is asked for at next
    for (const _id of ids) {
      await c.insertOne({ _id });
      await stream.next();
    }
    return stream.resumeToken;
  } finally {
    await stream.close();
  }
}

const AsyncFunction = (async () => {}).constructor;
const help = { c, client, inTransaction, transfer, follow };
for await (const line of createInterface({ input: process.stdin })) {
  let answer = "";
  try {
    await new AsyncFunction(...Object.keys(help), JSON.parse(line))(...Object.values(help));
  } catch (e) {
    answer = `${e.name}: ${e.message}`.replaceAll("\n", " ");
  }
  console.log(answer);
}
await client.close();
