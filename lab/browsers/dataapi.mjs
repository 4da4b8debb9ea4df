// Uses two client libraries of the Atlas Data API as they are: only the base URL and the key are
// the gateway's.
import { MongoClient } from "@taskless/mongo-data-api";
import { createMongoDBDataAPI } from "mongodb-data-api";

const endpoint = process.env.ENDPOINT, key = process.env.KEY;
const report = {};

{
  const orders = createMongoDBDataAPI({ apiKey: key, urlEndpoint: endpoint })
    .$cluster("mongodb-atlas").$database("shop").$collection("first");
  const story = (report["mongodb-data-api"] = {});
  story.insertOne = await orders.insertOne({ document: { _id: 1, n: 1 } });
  story.insertMany = await orders.insertMany({ documents: [{ _id: 2, n: 2 }, { _id: 3, n: 3 }] });
  story.findOne = await orders.findOne({ filter: { _id: 2 }, projection: { n: 1 } });
  story.noDocument = await orders.findOne({ filter: { _id: 99 } });
  story.find = await orders.find({ filter: {}, sort: { _id: -1 }, limit: 2 });
  story.updateOne = await orders.updateOne({ filter: { _id: 1 }, update: { $set: { n: 10 } } });
  story.updateMany = await orders.updateMany({ filter: {}, update: { $set: { m: 1 } } });
  story.upsert = await orders.updateOne({ filter: { _id: 4 }, update: { $set: { n: 4 } }, upsert: true });
  story.replaceOne = await orders.replaceOne({ filter: { _id: 4 }, replacement: { n: 5 } });
  story.aggregate = await orders.aggregate({ pipeline: [{ $match: { _id: 4 } }] });
  story.deleteOne = await orders.deleteOne({ filter: { _id: 4 } });
  story.deleteMany = await orders.deleteMany({ filter: {} });
  const wrong = createMongoDBDataAPI({ apiKey: "wrong", urlEndpoint: endpoint }).$cluster("mongodb-atlas").$database("shop").$collection("first");
  story.wrongKey = await wrong.find().catch((e) => e.status);
  story.wrongSource = await orders.$cluster("other").find().catch((e) => e.status);
}

{
  const client = new MongoClient({ endpoint, dataSource: "mongodb-atlas", auth: { apiKey: key } });
  const orders = client.db("shop").collection("second");
  const story = (report["@taskless/mongo-data-api"] = {});
  const data = async (promise) => {
    const { data, error } = await promise;
    if (error) throw error;
    return data;
  };
  story.insertOne = await data(orders.insertOne({ _id: 1, n: 1 }));
  story.insertMany = await data(orders.insertMany([{ _id: 2, n: 2 }, { _id: 3, n: 3 }]));
  story.findOne = await data(orders.findOne({ _id: 2 }, { projection: { n: 1 } }));
  story.noDocument = await data(orders.findOne({ _id: 99 }));
  story.find = await data(orders.find({}, { sort: { _id: -1 }, limit: 2 }));
  story.updateOne = await data(orders.updateOne({ _id: 1 }, { $set: { n: 10 } }));
  story.updateMany = await data(orders.updateMany({}, { $set: { m: 1 } }));
  story.upsert = await data(orders.updateOne({ _id: 4 }, { $set: { n: 4 } }, { upsert: true }));
  story.replaceOne = await data(orders.replaceOne({ _id: 4 }, { n: 5 }));
  story.aggregate = await data(orders.aggregate([{ $match: { _id: 4 } }]));
  story.deleteOne = await data(orders.deleteOne({ _id: 4 }));
  story.deleteMany = await data(orders.deleteMany({ _id: { $gte: 0 } }));
  const of = (auth, dataSource) => new MongoClient({ endpoint, dataSource, auth }).db("shop").collection("second").find({});
  story.wrongKey = (await of({ apiKey: "wrong" }, "mongodb-atlas")).error.code;
  story.wrongSource = (await of({ apiKey: key }, "other")).error.code;
  const email = await of({ email: "a@b.example", password: "x" }, "mongodb-atlas");
  story.email = [email.error.code, email.error.message];
}

console.log(JSON.stringify(report));
