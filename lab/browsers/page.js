// The page of the tests: it calls the gateway with the libraries of others. Tests evaluate
// expressions in it.
import { createFileRegistry, create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import grpcWeb from "grpc-web";

const files = new Uint8Array(await (await fetch("/descriptors")).arrayBuffer());
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, files));
const service = registry.getService("mooring.v1.DocumentService");
const where = { database: "shop", collection: "orders" };
const json = (value) => ({ encoding: { case: "json", value: JSON.stringify(value) } });

const transports = {
  "connect-json": (o) => createConnectTransport({ ...o, useBinaryFormat: false }),
  "connect-proto": (o) => createConnectTransport({ ...o, useBinaryFormat: true }),
  "grpc-web": (o) => createGrpcWebTransport(o),
};

// rpc makes a write, a read, a stream, and a call that fails.
async function rpc(kind, baseUrl, key) {
  const withKey = (next) => (req) => {
    req.header.set("authorization", "Bearer " + key);
    req.header.set("mooring-document-encoding", "json");
    return next(req);
  };
  const client = createClient(service, transports[kind]({ baseUrl, interceptors: [withKey], defaultTimeoutMs: 60000 }));
  await client.insertOne({ ...where, document: json({ _id: kind }) });
  const one = await client.findOne({ ...where, filter: json({ _id: kind }) });
  let rows = 0;
  for await (const m of client.streamFind({ ...where, filter: json({ _id: kind }) })) rows += m.documents.length;
  const story = { one: one.document.encoding.value, rows };
  try {
    await client.insertOne({ ...where, document: json({ _id: kind }) });
  } catch (e) {
    story.code = Code[e.code];
    story.details = e.details.map((d) => d.type);
  }
  return story;
}

// text makes a read with Google's client, in base64.
function text(baseUrl, key) {
  const m = service.method.findOne;
  const described = new grpcWeb.MethodDescriptor(
    "/mooring.v1.DocumentService/FindOne", grpcWeb.MethodType.UNARY, Object, Object,
    (request) => toBinary(m.input, request), (bytes) => fromBinary(m.output, bytes));
  const client = new grpcWeb.GrpcWebClientBase({ format: "text" });
  const metadata = { authorization: "Bearer " + key, "mooring-document-encoding": "json" };
  const call = (filter) => new Promise((resolve) => client.rpcCall(
    baseUrl + "/mooring.v1.DocumentService/FindOne", create(m.input, { ...where, filter: json(filter) }), metadata, described,
    (err, response) => resolve(err ? { code: err.code } : { one: response.document.encoding.value })));
  return Promise.all([call({ _id: "grpc-web" }), call({ $bad: 1 })]);
}

// post sends JSON, as pages do.
const post = (url, body, key, accept = "application/json") => fetch(url, {
  method: "POST", body: JSON.stringify(body),
  headers: { "Content-Type": "application/json", Accept: accept, Authorization: "Bearer " + key },
});

// lines begins to read a stream of lines into a list, until its end or until stop is called.
function lines(url, body, key) {
  const story = { lines: [], done: false, stop: () => {} };
  (async () => {
    const reader = (await post(url, body, key, "application/x-ndjson")).body.pipeThrough(new TextDecoderStream()).getReader();
    story.stop = () => reader.cancel();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      story.lines.push(...parts);
    }
    story.done = true;
  })();
  return story;
}

// follow opens the stream of a ticket, and notes what comes.
function follow(url) {
  const source = new EventSource(url);
  const story = { opened: 0, ids: [], ends: [], state: () => source.readyState };
  source.onopen = () => story.opened++;
  source.onmessage = (e) => story.ids.push(JSON.parse(e.data).documentKey?._id);
  source.addEventListener("end", () => story.ends.push("end"));
  source.addEventListener("failure", (e) => story.ends.push(JSON.parse(e.data).error.reason));
  return story;
}

globalThis.lab = { rpc, text, post, lines, follow };
