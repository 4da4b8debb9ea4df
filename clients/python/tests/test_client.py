"""Tests of the client before a gateway: python3 -m unittest.

MOORING_REST and MOORING_DATABASE say which one. MOORING_CHANGES=1 says that it has change streams.
"""

import http.server
import json
import os
import threading
import unittest

from mooring_client import Client, MooringError

URL = os.environ.get("MOORING_REST", "http://127.0.0.1:8080")
DATABASE = os.environ.get("MOORING_DATABASE", "python")

try:
    import bson
except ImportError:
    bson = None


def filled(name, client=None):
    """Returns a collection with ten orders."""
    orders = (client or Client(URL)).database(DATABASE).collection(name)
    orders.delete_many({})
    result = orders.insert_many([{"_id": i, "customer": f"c{i}", "total": i * 5} for i in range(10)])
    assert result["insertedCount"] == 10, result
    return orders


class Gateway(unittest.TestCase):
    def test_reads_and_writes(self):
        orders = filled("words")
        self.assertEqual(orders.find_one({"_id": 3})["customer"], "c3")
        self.assertIsNone(orders.find_one({"_id": 99}))
        changed = orders.update_one({"_id": 3}, {"$set": {"total": 1}})
        self.assertEqual(changed["modifiedCount"], 1)
        self.assertEqual(orders.count_documents({"total": 1}), 1)
        self.assertEqual(orders.delete_one({"_id": 3})["deletedCount"], 1)
        after = orders.find_one_and_update(
            {"_id": 4}, {"$set": {"total": 2}}, returnDocument="after"
        )
        self.assertEqual(after["total"], 2)
        self.assertEqual(orders.database.run_command({"ping": 1})["ok"], 1)
        self.assertEqual(sorted(orders.distinct("total", {"_id": {"$lt": 2}})), [0, 5])

    def test_names_that_a_path_cannot_have(self):
        odd = Client(URL).database(DATABASE).collection("a b:~ü")
        odd.delete_many({})
        odd.insert_one({"_id": 1})
        self.assertEqual(odd.find_one(), {"_id": 1})

    def test_one_document(self):
        orders = filled("resource")
        path = f"/v1/databases/{DATABASE}/collections/resource/documents/3"
        call = orders.database.client.call
        self.assertEqual(call(path, {"total": 1}, method="PUT"), {"_id": 3, "total": 1})
        changed = call(path, {"$set": {"total": 2}}, method="PATCH")
        self.assertEqual(changed, {"_id": 3, "total": 2})
        self.assertEqual(call(path, method="GET"), {"_id": 3, "total": 2})
        self.assertIsNone(call(path, method="DELETE"))
        self.assertIsNone(orders.find_one({"_id": 3}))

    def test_pages(self):
        orders = filled("pages")
        pages = orders.pages({}, sort={"_id": 1}, batchSize=4)
        self.assertEqual([len(page) for page in pages], [4, 4, 2])
        self.assertEqual(len(list(orders.find({"_id": {"$gte": 5}}, batchSize=2))), 5)
        self.assertEqual(len(list(orders.aggregate([{"$match": {"_id": {"$lt": 3}}}]))), 3)

    def test_a_cursor_that_is_left_is_closed(self):
        orders = filled("left")
        documents = orders.find({}, batchSize=2)
        next(documents)
        documents.close()
        query = {"namespace": f"{DATABASE}.left"}
        answer = Client(URL).call("/v1/deployment/handles", method="GET", query=query)
        self.assertEqual(answer["handles"], [])

    def test_streams(self):
        orders = filled("streams")
        self.assertEqual(len(list(orders.stream({}, batchSize=3))), 10)

    def test_errors(self):
        orders = filled("errors")
        with self.assertRaises(MooringError) as caught:
            orders.insert_many([{"_id": 20}, {"_id": 1}])
        err = caught.exception
        self.assertEqual((err.http_status, err.status, err.retry), (409, "ALREADY_EXISTS", "never"))
        self.assertEqual(err.server["code"], 11000)
        self.assertEqual(err.result["insertedCount"], 1)
        with self.assertRaises(MooringError):
            list(orders.stream({"$nonsense": 1}))

    @unittest.skipIf(bson is None, "pymongo is not installed")
    def test_bson(self):
        exact = Client(URL, bson=True).database(DATABASE).collection("bson")
        exact.delete_many({})
        document = {"_id": bson.ObjectId(), "big": bson.Int64(2**60), "small": 5}
        exact.insert_one(document)
        self.assertEqual(exact.find_one({"_id": document["_id"]}), document)
        self.assertEqual(list(exact.stream()), [document])
        self.assertIsInstance(exact.find_one()["big"], bson.Int64)

    @unittest.skipUnless(os.environ.get("MOORING_CHANGES") == "1", "no change streams")
    def test_changes(self):
        orders = filled("changes")
        lines = orders._client.lines(f"{orders._path}:watch", {})
        self.assertIn("progress", next(lines))  # from here on nothing is missed
        orders.insert_one({"_id": "new"})
        change = next(line["document"] for line in lines if "document" in line)
        self.assertEqual(change["fullDocument"]["_id"], "new")
        lines.close()


def failed(reason, retry):
    error = {"status": "UNAVAILABLE", "reason": reason, "retry": retry, "message": "x"}
    return json.dumps({"error": error})


class Scripted(unittest.TestCase):
    """Tests before a server that gives answers, one after the other."""

    def serve(self, *answers):
        answers, seen = list(answers), []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                seen.append((dict(self.headers), json.loads(body)))
                status, text = answers.pop(0)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        client = Client(f"http://127.0.0.1:{server.server_port}", token="secret", timeout=5)
        return client.database("a").collection("b"), seen

    def test_repeats_what_may_be_repeated(self):
        again = (503, failed("NoSuitableServer", "same-request"))
        collection, seen = self.serve(again, again, (200, '{"insertedId": 1}'))
        self.assertEqual(collection.insert_one({}, idempotency_key="k")["insertedId"], 1)
        self.assertEqual(len(seen), 3)
        self.assertEqual(seen[2][0]["Authorization"], "Bearer secret")
        self.assertEqual(seen[2][0]["Idempotency-Key"], "k")
        self.assertEqual(seen[2][0]["Request-Timeout"], "5000ms")

    def test_repeats_nothing_else(self):
        for retry in ("never", "restart", "transaction"):
            collection, seen = self.serve((500, failed("WriteOutcomeUnknown", retry)))
            with self.assertRaises(MooringError):
                collection.update_one({}, {"$set": {"a": 1}})
            self.assertEqual(len(seen), 1)

    def test_no_answer_of_a_gateway(self):
        collection, _ = self.serve((404, "<html>"))
        with self.assertRaises(MooringError) as caught:
            collection.find_one()
        self.assertEqual((caught.exception.reason, caught.exception.http_status), ("NoGateway", 404))
        gone = Client("http://127.0.0.1:1", retries=0).database("a").collection("b")
        for call, retry in (
            (gone.find_one, "same-request"),
            (lambda _: list(gone.stream()), "same-request"),
            (lambda _: list(gone.watch()), "same-request"),
            (gone.insert_one, "never"),
        ):
            with self.assertRaises(MooringError) as caught:
                call({})
            self.assertEqual((caught.exception.reason, caught.exception.retry), ("NoAnswer", retry))

    def test_a_stream_that_is_cut_is_no_end(self):
        line = '{"document": {"_id": 1}}\n'
        for text in (line, line + '{"docu'):
            collection, _ = self.serve((200, text))
            with self.assertRaises(MooringError) as caught:
                list(collection.stream())
            self.assertEqual(caught.exception.reason, "StreamCut")

    def test_changes_go_on_after_the_last_one(self):
        def change(n):
            return json.dumps({"document": {"_id": {"_data": n}}}) + "\n"

        collection, seen = self.serve(
            (200, '{"progress": {"resumeToken": {"_data": "0"}}}\n' + change("1")),
            (200, change("2") + failed("ShuttingDown", "restart") + "\n"),
            (200, change("3") + '{"end": {}}\n'),
        )
        changes = collection.watch(resumeAfter={"_data": "-1"})
        self.assertEqual([c["_id"]["_data"] for c in changes], ["1", "2", "3"])
        self.assertEqual(
            [body for _, body in seen],
            [
                {"resumeAfter": {"_data": "-1"}},
                {"startAfter": {"_data": "1"}},
                {"startAfter": {"_data": "2"}},
            ],
        )


if __name__ == "__main__":
    unittest.main()
