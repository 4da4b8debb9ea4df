"""Inserts documents through Mooring's REST API, reads them page by page, then as one stream.

    python3 main.py                            (the gateway of `make run`)
    MOORING_REST=http://host:port python3 main.py

It needs nothing but the standard library. Bodies and answers are Extended JSON: ordinary JSON, in which what JSON
cannot say is written like {"$oid": "..."} or {"$date": "..."}.
"""

import json
import os
import sys
import urllib.error
import urllib.request

BASE = os.environ.get("MOORING_REST", "http://127.0.0.1:8080")
DATABASE = os.environ.get("MOORING_DATABASE", "example")
DOCUMENTS = f"{BASE}/v1/databases/{DATABASE}/collections/python/documents"
COUNT = 2500


def post(url, body, accept="application/json"):
    """Sends a JSON body and gives the response, which is open."""
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Accept": accept},
    )
    return urllib.request.urlopen(request)


def call(url, body):
    """Sends a JSON body and gives the parsed answer."""
    with post(url, body) as response:
        return json.load(response)


def insert():
    call(f"{DOCUMENTS}:deleteMany", {"filter": {}})
    orders = [
        {
            "_id": i,
            "placed": {"$date": "2026-11-20T12:00:00Z"},
            "cents": {"$numberLong": "9007199254740993"},  # more than a double can hold
            "items": [{"sku": "rope-20m", "quantity": 2}],
        }
        for i in range(COUNT)
    ]
    answer = call(f"{DOCUMENTS}:insertMany", {"documents": orders})
    print(f"inserted {len(answer['insertedIds'])} documents")
    return orders


def pages():
    """One request a page. A page without a cursor is the last."""
    answer = call(f"{DOCUMENTS}:find", {"filter": {}, "batchSize": 500})
    while True:
        yield answer["documents"]
        if "cursor" not in answer:
            return
        answer = call(f"{BASE}/v1/cursors:next", {"cursor": answer["cursor"], "batchSize": 500})


def stream():
    """One request for all: every line is a document, and the last line says how it ended."""
    with post(f"{DOCUMENTS}:streamFind", {"filter": {}}, accept="application/x-ndjson") as response:
        for line in response:
            message = json.loads(line)
            if "document" in message:
                yield message["document"]
            elif "end" in message:
                return
            elif "error" in message:
                raise RuntimeError(message["error"])
    raise RuntimeError("the stream was cut")


def main():
    orders = insert()

    read = list(pages())
    paged = [document for page in read for document in page]
    print(f"read {len(paged)} documents in {len(read)} pages")

    streamed = list(stream())
    print(f"streamed {len(streamed)} documents")

    try:
        call(f"{DOCUMENTS}:insertOne", {"document": {"_id": 1}})
    except urllib.error.HTTPError as error:
        problem = json.load(error)["error"]
        print(f"a duplicate _id is {error.code} {problem['reason']}")

    by_id = sorted(orders, key=lambda order: order["_id"])
    for got in (paged, streamed):
        if sorted(got, key=lambda order: order["_id"]) != by_id:
            sys.exit("what came back is not what was sent")


if __name__ == "__main__":
    main()
