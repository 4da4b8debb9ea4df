// Leaves those responses of openapi.json that hooks.js can bring about, and of those of failures one in
// so many, since dredd takes a while for each: node trim.js FROM TO ONE_IN.
"use strict";
const fs = require("fs");
const [from, to, oneIn] = process.argv.slice(2);

// made are the statuses of failures. The others need what a request cannot bring about: a gateway
// with much to do (429), a fault of its own (500), a resume token that is too old (410).
const made = ["400", "401", "403", "406", "413", "414", "415", "421", "431", "503", "504"];

// never lists what an operation does not answer to what hooks.js does.
const server = ["503", "504"];
const never = {
  runTransaction: ["503"], // it is repeated until its time is over
  // These do without a server.
  listHandles: server, killHandle: server, listPools: server, listNotableCalls: server, getTopology: server, watchTopology: server,
  beginTransaction: server, abortTransaction: server, startSession: server, endSession: server, createTicket: server,
  // What these continue is at a server that is not there.
  nextPage: server, streamCursor: server, closeCursor: server, commitTransaction: server,
  watchTicket: ["400", "403", ...server], // what is wrong with the ticket counts first
  importDocuments: ["413"], // its documents have a largest size, and it has none
};

const description = JSON.parse(fs.readFileSync(from));
let n = 0;
for (const methods of Object.values(description.paths))
  for (const { operationId, responses } of Object.values(methods)) {
    for (const status of Object.keys(responses)) {
      const i = made.indexOf(status);
      const tried = i >= 0 && (n + i) % oneIn === 0 && !never[operationId]?.includes(status);
      if (!tried && !(status < "400")) delete responses[status];
    }
    n++;
  }
fs.writeFileSync(to, JSON.stringify(description));
