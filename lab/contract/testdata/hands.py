"""Makes the calls of internal/contract, which are lines of JSON on standard input, by the client of
the gateway at MOORING_REST."""

import json
import os
import sys

from mooring_client import Client, MooringError

DATABASE = "contract"
PLUS_ONE = {"$inc": {"n": 1}}
BATCH = {"batchSize": 4}

client = Client(os.environ["MOORING_REST"])


def make(call, answer):
    verb, collection = call["verb"], call["collection"]
    orders = client.database(DATABASE).collection(collection)
    token = {"transaction": call.get("transaction")}
    options = {}
    if "key" in call:
        options["idempotency_key"] = call["key"]
    if "transaction" in call:
        options.update(token, statement=call.get("statement"))
    if verb == "updateOne":
        orders.update_one({"_id": call["id"]}, PLUS_ONE, **options)
    elif verb == "insertOne":
        orders.insert_one({"_id": call["id"]}, **options)
    elif verb == "begin":
        answer["transaction"] = client.call("/v1/transactions:begin", {})["transaction"]
    elif verb in ("commit", "abort"):
        client.call(f"/v1/transactions:{verb}", token)
    elif verb == "run":
        where = {"database": DATABASE, "collection": collection, "update": PLUS_ONE}
        operations = [{"updateOne": {**where, "filter": {"_id": i}}} for i in (1, 2)]
        client.call("/v1/transactions:run", {"operations": operations})
    elif verb in ("find", "next"):
        if verb == "find":
            path = f"/v1/databases/{DATABASE}/collections/{collection}/documents:find"
            page = client.call(path, BATCH)
        else:
            page = client.call("/v1/cursors:next", {**BATCH, "cursor": call["cursor"]})
        answer["ids"] = [document["_id"] for document in page["documents"]]
        answer["cursor"] = page.get("cursor", "")
    elif verb == "stream":
        answer["ids"] = []
        for document in orders.stream({}, **BATCH):
            answer["ids"].append(document["_id"])
    else:
        raise ValueError(f"an unknown call: {verb}")


for line in sys.stdin:
    answer = {}
    try:
        make(json.loads(line), answer)
    except MooringError as err:
        answer["failure"] = {
            "reason": err.reason,
            "retry": err.retry,
            "retryAfter": err.retry_after or 0,
            "message": err.message,
            "inserted": (err.result or {}).get("insertedCount", 0),
        }
    print(json.dumps(answer), flush=True)
