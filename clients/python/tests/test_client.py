"""Tests of the client before a gateway: python3 -m unittest.

MOORING_REST and MOORING_DATABASE say which one. MOORING_REPLICA_SET=1 says that it is before a
replica set, which has change streams and can compare documents. Each test runs twice: with the
client for threads, and with the one for asyncio.
"""

import asyncio
import datetime
import errno
import functools
import http.server
import inspect
import json
import os
import socket
import threading
import time
import unittest
import unittest.mock
import urllib.parse
import uuid

import httpx

import mooring_client
from mooring_client import MooringError
from mooring_client._calls import backoff

URL = os.environ.get("MOORING_REST", "http://127.0.0.1:8080")
DATABASE = os.environ.get("MOORING_DATABASE", "python")

needs_replica_set = unittest.skipUnless(
    os.environ.get("MOORING_REPLICA_SET") == "1", "not before a replica set"
)

try:
    import bson
except ImportError:
    bson = None


class Blocking:
    """An AsyncClient, or what it returns, whose methods wait for their results on a loop."""

    def __init__(self, loop, inner):
        self._loop, self._inner = loop, inner

    def __getattr__(self, name):
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return self._blocking(attribute)
        return lambda *args, **options: self._blocking(attribute(*args, **options))

    def _blocking(self, value):
        if inspect.iscoroutine(value):
            return self._loop.run_until_complete(value)
        if inspect.isasyncgen(value):
            return self._items(value)
        ours = type(value).__module__.startswith("mooring_client")
        return Blocking(self._loop, value) if ours and not isinstance(value, tuple) else value

    def _items(self, generator):
        try:
            while True:
                try:
                    yield self._loop.run_until_complete(anext(generator))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run_until_complete(generator.aclose())


class Clients(unittest.TestCase):
    """A test whose clients are closed at its end."""

    asynchronous = False

    def client(self, *args, **options):
        if not self.asynchronous:
            client = mooring_client.Client(*args, **options)
        else:
            client = Blocking(self.loop, mooring_client.AsyncClient(*args, **options))
        self.addCleanup(client.close)
        return client

    @functools.cached_property
    def loop(self):
        loop = asyncio.new_event_loop()
        self.addCleanup(loop.close)
        return loop


def filled(client, name):
    """Returns a collection with ten orders."""
    orders = client.database(DATABASE).collection(name)
    orders.delete_many({})
    documents = [{"_id": i, "customer": f"c{i}", "total": i * 5} for i in range(10)]
    result = orders.insert_many(documents)
    assert result["insertedCount"] == 10, result
    return orders


class Gateway(Clients):
    def test_reads_and_writes(self):
        orders = filled(self.client(URL), "words")
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
        odd = self.client(URL).database(DATABASE).collection("a b:~ü")
        odd.delete_many({})
        odd.insert_one({"_id": 1})
        self.assertEqual(odd.find_one(), {"_id": 1})

    def test_one_document(self):
        orders = filled(self.client(URL), "resource")
        self.assertEqual(orders.put(3, {"total": 1}).document, {"_id": 3, "total": 1})
        first = orders.patch(3, {"$set": {"total": 2}})
        self.assertEqual(first.document, {"_id": 3, "total": 2})
        self.assertEqual(orders.get(3), first)
        self.assertIsNone(orders.get(3, if_none_match=first.etag))
        second = orders.patch(3, {"$set": {"total": 3}})
        self.assertEqual(orders.get(3, if_none_match=first.etag), second)
        self.assertEqual(orders.get(3, projection={"total": 1}).etag, None)
        self.assertIsNone(orders.delete(3))
        with self.assertRaises(MooringError) as caught:
            orders.get(3)
        self.assertEqual(caught.exception.reason, "DocumentNotFound")
        for id in ("a/b", {"$oid": "651f3c0a0102030405060708"}, {"$numberLong": str(2**60)}):
            orders.put(id, {"total": 4}, if_none_match="*")
            self.assertEqual(orders.get(id).document["_id"], id)
            with self.assertRaises(MooringError) as caught:
                orders.put(id, {"total": 5}, if_none_match="*")
            self.assertEqual(caught.exception.http_status, 412)
        # A call with a name takes no precondition.
        with self.assertRaises(MooringError) as caught:
            orders.update_one({}, {"$set": {"total": 5}}, headers={"If-Match": first.etag})
        self.assertEqual((caught.exception.http_status, caught.exception.field), (400, "If-Match"))

    @needs_replica_set
    def test_no_update_is_lost(self):
        orders = filled(self.client(URL), "preconditions")
        first = orders.get(3)
        second = orders.patch(3, {"$set": {"total": 2}}, if_match=first.etag)
        for change in (
            lambda: orders.put(3, {"total": 3}, if_match=first.etag),
            lambda: orders.patch(3, {"$set": {"total": 3}}, if_match=first.etag),
            lambda: orders.delete(3, if_match=first.etag),
        ):
            with self.assertRaises(MooringError) as caught:
                change()
            err = caught.exception
            self.assertEqual((err.http_status, err.reason), (412, "PreconditionFailed"))
        self.assertEqual(orders.get(3), second)
        third = orders.put(3, {"total": 3}, if_match=second.etag)
        orders.delete(3, if_match=third.etag)

    @needs_replica_set
    def test_exactly_once(self):
        filled(self.client(URL), "once")
        client = self.client(URL, exactly_once=True)
        orders = client.database(DATABASE).collection("once")
        self.assertEqual(orders.insert_one({"_id": 10})["insertedId"], 10)
        self.assertEqual(orders.update_one({"_id": 10}, {"$inc": {"total": 1}})["modifiedCount"], 1)
        self.assertEqual(orders.patch(10, {"$inc": {"total": 1}}).document["total"], 2)
        seen = {"$set": {"seen": True}}
        with self.assertRaises(MooringError) as caught:
            orders.update_many({}, seen)
        err = caught.exception
        self.assertEqual((err.http_status, err.reason), (400, "IdempotencyKeyUnsupported"))
        self.assertEqual(orders.count_documents({"seen": True}), 0)
        self.assertEqual(orders.update_many({}, seen, exactly_once=False)["modifiedCount"], 11)

    def test_dates(self):
        orders = filled(self.client(URL), "dates")
        at = datetime.datetime(2026, 11, 22, 10, 0, 0, 123000, datetime.timezone.utc)
        orders.insert_one({"_id": "a", "at": at, "all": [at]})
        date = {"$date": "2026-11-22T10:00:00.123Z"}
        self.assertEqual(orders.find_one({"at": at}), {"_id": "a", "at": date, "all": [date]})
        self.assertEqual(orders.get("a", filter={"at": at}).document["at"], date)

        class Nowhere(datetime.tzinfo):
            def utcoffset(self, when):
                return None

        for zone in (None, Nowhere()):
            with self.assertRaisesRegex(TypeError, "has no time zone"):
                orders.insert_one({"at": datetime.datetime(2026, 11, 22, tzinfo=zone)})
        with self.assertRaisesRegex(TypeError, "type set is not JSON serializable"):
            orders.insert_one({"at": {1}})

    def test_dates_of_every_zone(self):
        orders = filled(self.client(URL), "zones")

        def zone(**offset):
            return datetime.timezone(datetime.timedelta(**offset))

        for at, want in (
            # Amsterdam before 1937
            (datetime.datetime(1920, 1, 1, tzinfo=zone(minutes=19, seconds=32)), -1577924372000),
            (datetime.datetime.min.replace(tzinfo=zone(hours=1)), -62135600400000),
            (datetime.datetime.max.replace(tzinfo=zone(hours=-1)), 253402304399999),
        ):
            orders.insert_one({"_id": "zone", "at": at})
            date = {"$date": {"$numberLong": str(want)}}
            self.assertEqual(orders.find_one({"at": at}), {"_id": "zone", "at": date})
            orders.delete_one({"_id": "zone"})

    def test_pages(self):
        orders = filled(self.client(URL), "pages")
        pages = orders.pages({}, sort={"_id": 1}, batchSize=4)
        self.assertEqual([len(page) for page in pages], [4, 4, 2])
        self.assertEqual(len(list(orders.find({"_id": {"$gte": 5}}, batchSize=2))), 5)
        self.assertEqual(len(list(orders.aggregate([{"$match": {"_id": {"$lt": 3}}}]))), 3)

    def test_a_cursor_that_is_left_is_closed(self):
        orders = filled(self.client(URL), "left")
        documents = orders.find({}, batchSize=2)
        next(documents)
        documents.close()
        query = {"namespace": f"{DATABASE}.left"}
        answer = self.client(URL).call("/v1/deployment/handles", method="GET", query=query)
        self.assertEqual(answer["handles"], [])

    def test_streams(self):
        orders = filled(self.client(URL), "streams")
        self.assertEqual(len(list(orders.stream({}, batchSize=3))), 10)

    def test_pages_and_streams_of_get(self):
        filled(self.client(URL), "got")
        pages = self.client(URL).pages("/v1/databases", method="GET", query={"nameOnly": True})
        self.assertIn(DATABASE, [database["name"] for page in pages for database in page])
        path = f"/v1/databases/{DATABASE}/collections"
        pages = self.client(URL).pages(path, method="GET", query={"batchSize": 1})
        self.assertIn("got", [one["name"] for page in pages for one in page])
        lines = self.client(URL).lines("/v1/deployment/topology:watch", method="GET")
        self.assertIn("topology", next(lines))
        lines.close()

    def test_errors(self):
        orders = filled(self.client(URL), "errors")
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
        exact = self.client(URL, bson=True).database(DATABASE).collection("bson")
        exact.delete_many({})
        document = {"_id": bson.ObjectId(), "big": bson.Int64(2**60), "small": 5}
        exact.insert_one(document)
        self.assertEqual(exact.find_one({"_id": document["_id"]}), document)
        self.assertEqual(list(exact.stream()), [document])
        self.assertIsInstance(exact.find_one()["big"], bson.Int64)

    @needs_replica_set
    def test_changes(self):
        orders = filled(self.client(URL), "changes")
        lines = orders._client.lines(f"{orders._path}:watch", {})
        self.assertIn("progress", next(lines))  # from here on nothing is missed
        orders.insert_one({"_id": "new"})
        changes = (line["document"] for line in lines if "document" in line)
        # A shared cursor that is behind gives what filled has done, too (docs/change-streams.md).
        change = next(c for c in changes if c["documentKey"]["_id"] == "new")
        self.assertEqual(change["fullDocument"]["_id"], "new")
        lines.close()


def failed(reason, retry):
    error = {"status": "UNAVAILABLE", "reason": reason, "retry": retry, "message": "x"}
    return json.dumps({"error": error})


class Scripted(Clients):
    """Tests before a server that gives answers, one after the other."""

    def serve(self, *answers, retry_after=None, of_answers=None, **options):
        """Returns a collection on a server with these answers, and a list of what it gets: headers,
        of which "request" is the method with the path, and a body. An answer is a status and a
        text, and it is cut if its length is given as another one. The server is silent after the
        status 0. retry_after is a header of all answers, and of_answers has more of them."""
        answers, seen, over = list(answers), [], threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = httpx.Headers(self.headers.items())
                headers["request"] = f"{self.command} {urllib.parse.unquote_plus(self.path)}"
                seen.append((headers, json.loads(body or "null")))
                status, text, *length = answers.pop(0)
                if status == 0:
                    over.wait()
                    return
                self.send_response(status)
                if length:
                    self.send_header("Content-Length", str(length[0]))
                if retry_after is not None:
                    self.send_header("Retry-After", retry_after)
                for name, value in (of_answers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(over.set)
        options = {"token": "secret", "timeout": 5, **options}
        client = self.client(f"http://127.0.0.1:{server.server_port}", **options)
        return client.database("a").collection("b"), seen

    def test_repeats_what_may_be_repeated(self):
        again = (503, failed("NoSuitableServer", "same-request"))
        collection, seen = self.serve(again, again, (200, '{"insertedId": 1}'))
        self.assertEqual(collection.insert_one({}, idempotency_key="k")["insertedId"], 1)
        self.assertEqual(len(seen), 3)
        self.assertEqual(seen[2][0]["Authorization"], "Bearer secret")
        self.assertEqual(seen[2][0]["Idempotency-Key"], "k")
        self.assertEqual(seen[0][0]["Request-Timeout"], "5000ms")

    @unittest.skipIf(bson is None, "pymongo is not installed")
    def test_bson_writes_what_it_has_read(self):
        def binary(subtype):
            return {"$binary": {"base64": "yO2rw/c4TKO2jauSqRR4ow==", "subType": subtype}}

        # A UUID has the subtype 4, or 3 if it is old.
        document = {subtype: binary(subtype) for subtype in ("00", "03", "04", "05", "80")}
        document["at"] = {"$date": {"$numberLong": "1"}}
        answer = json.dumps({"document": document})
        collection, seen = self.serve((200, answer), (200, "{}"), bson=True)
        found = collection.find_one()
        self.assertEqual(found["04"], bson.Binary(found["00"], 4))
        self.assertEqual(found["at"].utcoffset(), datetime.timedelta(0))
        collection.insert_one(found)
        self.assertEqual(seen[1][1], {"document": document})
        with self.assertRaisesRegex(ValueError, "uuid"):
            collection.insert_one({"_id": uuid.uuid4()})

    def test_a_write_concern_that_is_not_met(self):
        named = {"code": 64, "codeName": "WriteConcernFailed"}
        concern = {**named, "message": "waiting timed out", "labels": ["l"]}

        def answer(**fields):
            return (200, json.dumps(fields))

        def unmet(call, why):
            with self.assertRaises(MooringError) as caught:
                call()
            err = caught.exception
            got = (err.status, err.reason, err.retry, err.http_status, err.message)
            message = f"done, but not acknowledged as the write concern asks: {why}"
            self.assertEqual(got, ("UNAVAILABLE", "WriteConcernFailed", "never", 503, message))
            return err

        found = answer(document={"_id": 1}, writeConcernError=concern)
        none = answer(document=None, writeConcernError={"code": 100})
        first = answer(documents=[1], cursor="c", writeConcernError=concern)
        last = answer(documents=[2])
        collection, _ = self.serve(found, found, found, none, first, last, first, last)
        for call in (
            lambda: collection.find_one_and_update({}, {}),
            lambda: collection.find_one_and_replace({}, {}),
            lambda: collection.find_one_and_delete({}),
        ):
            self.assertEqual(unmet(call, "waiting timed out").result, {"document": {"_id": 1}})
        err = unmet(lambda: collection.find_one_and_delete({}), "100")
        self.assertEqual(err.result, {"document": None})
        for of in (collection, collection.database):
            seen = []

            def read():
                for document in of.aggregate([{"$out": "c"}]):
                    seen.append(document)

            err = unmet(read, "waiting timed out")
            self.assertEqual(err.server, {**named, "labels": ["l"]})
            self.assertEqual(err.write_concern_error, concern)
            self.assertEqual(seen, [1, 2])  # the pages have come
        header = {"Mooring-Write-Concern-Error": "64 WriteConcernFailed", "ETag": '"a"'}
        collection, _ = self.serve(*[(200, '{"_id": 1}')] * 3, of_answers=header)
        for done in (collection.put(1, {}), collection.patch(1, {})):
            self.assertEqual(done, ({"_id": 1}, '"a"', named))
        unmet(lambda: collection.delete(1), "WriteConcernFailed")

    def test_headers_and_timeouts_of_one_call(self):
        page = (200, '{"documents": [], "cursor": "c"}')
        last = (200, '{"documents": []}')
        collection, seen = self.serve((200, '{"count": 1}'), page, last, (200, '{"end": {}}\n'))
        of_call = {"timeout": 2, "headers": {"If-None-Match": "x", "Accept": "application/ejson"}}
        collection.count_documents({}, **of_call)
        list(collection.find({}, batchSize=1, **of_call))
        list(collection.stream({}, **of_call))
        for headers, _ in seen:
            for name, value in (
                ("Request-Timeout", "2000ms"),
                ("If-None-Match", "x"),
                ("Accept", "application/ejson"),
                ("Authorization", "Bearer secret"),
            ):
                self.assertEqual(headers.get(name), value)
        self.assertEqual([sorted(body) for _, body in seen][1], ["batchSize", "filter"])

    def test_pages_and_lines_of_other_methods(self):
        page = (200, '{"documents": [1], "cursor": "c"}')
        line = (200, '{"topology": {}}\n{"end": {}}\n')
        collection, seen = self.serve(page, (200, '{"documents": [2]}'), line)
        client, query = collection._client, {"nameOnly": True, "batchSize": 1}
        self.assertEqual(list(client.pages("/a", method="GET", query=query)), [[1], [2]])
        lines = client.lines("/b:watch", method="GET", query={"a": {"b": 1}})
        self.assertEqual(list(lines), [{"topology": {}}])
        self.assertEqual(
            [(headers["request"], body) for headers, body in seen],
            [
                ("GET /a?nameOnly=true&batchSize=1", None),
                ("POST /v1/cursors:next", {"batchSize": 1, "cursor": "c"}),
                ('GET /b:watch?a={"b": 1}', None),
            ],
        )

    def test_a_header_of_a_call_replaces_that_of_another_case(self):
        ok = (200, '{"count": 1}')
        of_client = {"AUTHORIZATION": "x", "ACCEPT": "x", "Own": "1"}
        collection, seen = self.serve(ok, ok, headers=of_client)
        of_call = {"authorization": "y", "accept": "z", "REQUEST-TIMEOUT": "1h", "oWN": "2"}
        collection.count_documents()
        collection.insert_one({}, headers={**of_call, "idempotency-key": "a"}, idempotency_key="b")
        names = ("Authorization", "Accept", "Own", "Request-Timeout", "Idempotency-Key")
        for (headers, _), want in zip(
            seen,
            (
                ["Bearer secret", "application/json", "1", "5000ms", None],
                ["y", "z", "2", "5000ms", "b"],
            ),
        ):
            self.assertEqual([headers.get(name) for name in names], want)

    def test_a_silent_gateway(self):
        silent = (0, "")
        collection, seen = self.serve(silent, silent, timeout=None, socket_timeout=1.0)
        for call in (collection.find_one, lambda: list(collection.stream())):
            with self.assertRaises(MooringError) as caught:
                call()
            err = caught.exception
            self.assertEqual((err.reason, err.retry), ("SocketTimeout", "never"))
            self.assertIn("has sent nothing for 1 s", err.message)

    def test_a_connection_that_the_kernel_gives_up(self):
        """That is not a silence that the client has measured, and its error has no time."""
        if self.asynchronous:
            self.skipTest("the sockets of asyncio are not made by create_connection")
        gave_up = OSError(errno.ETIMEDOUT, "Connection timed out")
        connect = socket.create_connection

        class GivenUp(socket.socket):
            def recv(self, *args):
                while super().recv(*args):
                    pass  # the server has ended
                raise gave_up

        def while_reading(*args, **options):
            connection = connect(*args, **options)
            wait = connection.gettimeout()
            given_up = GivenUp(fileno=connection.detach())
            given_up.settimeout(wait)
            return given_up

        answer = (200, '{"count": 1}')
        for wait in (None, 120):
            for first, sent in ((gave_up, 1), (while_reading, 2)):
                collection, seen = self.serve(*[answer] * 3, timeout=None, socket_timeout=wait)
                dials = [first, connect]

                def dial(*args, **options):
                    step = dials.pop(0)
                    if isinstance(step, OSError):
                        raise step
                    return step(*args, **options)

                with unittest.mock.patch("socket.create_connection", dial), unittest.mock.patch(
                    "time.sleep"
                ):
                    self.assertEqual(collection.count_documents(), 1)
                    self.assertEqual((dials, len(seen)), ([], sent))
                    dials.append(first)
                    with self.assertRaises(MooringError) as caught:
                        collection.insert_one({})
                err = caught.exception
                self.assertEqual((err.reason, err.retry), ("NoAnswer", "never"))
                self.assertIn("Connection timed out", err.message)

    def test_an_answer_that_is_cut(self):
        cut, whole = (200, '{"count": 1}', 100), (200, '{"count": 1}')
        collection, seen = self.serve(cut, whole)
        self.assertEqual(collection.count_documents(), 1)
        collection, seen = self.serve((200, "{}", 100), (200, "<html>"), (409, "{", 100))
        for reason in ("NoAnswer", "NoGateway", "NoAnswer"):
            with self.assertRaises(MooringError) as caught:
                collection.insert_one({})
            self.assertEqual((caught.exception.reason, caught.exception.retry), (reason, "never"))

    def test_clients_share_certificates(self):
        self.client("https://gateway.example")
        with unittest.mock.patch("ssl.SSLContext.load_verify_locations") as load:
            self.client("https://gateway.example")
            self.client("http://gateway.example")
        load.assert_not_called()

    def test_wrong_options(self):
        database = "mongodb://ada:secret@db.example"
        others = ("127.0.0.1:8080", "gateway.example", "localhost:8080/", "ftp://gateway")
        for url in (*others, database):
            with self.assertRaisesRegex(ValueError, "begins with http:// or https://") as caught:
                self.client(url)
            self.assertNotIn(url, str(caught.exception))
        with unittest.mock.patch.dict("sys.modules", {"bson": None}):
            with self.assertRaisesRegex(ImportError, "pip install pymongo"):
                self.client("http://gateway.example", bson=True)

    def test_repeats_nothing_that_may_be_done_twice(self):
        """Each call gets no answer. Those that are repeated are reads, or known to the gateway."""
        in_one = {"transaction": "t"}
        statement = {"transaction": "t", "statement": 1}
        header, key = {"mooring-transaction": "t"}, {"idempotency-key": "k"}
        for name, repeatable, call in (
            ("a read", True, lambda c: c.find_one()),
            ("a read in a transaction", False, lambda c: c.find_one({}, **in_one)),
            ("with the header of one", False, lambda c: c.find_one({}, headers=header)),
            ("a read as a statement", True, lambda c: c.find_one({}, **statement)),
            ("a document by its id", True, lambda c: c.get(1)),
            ("a write", False, lambda c: c.insert_one({})),
            ("with a key", True, lambda c: c.insert_one({}, idempotency_key="k")),
            ("with the header of a key", True, lambda c: c.insert_one({}, headers=key)),
            ("exactly-once", True, lambda c: c.insert_one({}, exactly_once=True)),
            ("in a transaction", False, lambda c: c.insert_one({}, exactly_once=True, **in_one)),
            ("a write as a statement", True, lambda c: c.insert_one({}, **statement)),
            ("fields like options", False, lambda c: c.put(1, statement)),
            ("writes of many", False, lambda c: c.update_many({}, {"$set": {"a": 1}})),
            ("an aggregation, which may write", False, lambda c: list(c.aggregate([]))),
            ("Commit", True, lambda c: c._client.call("/v1/transactions:commit", in_one)),
            ("Abort", True, lambda c: c._client.call("/v1/transactions:abort", in_one)),
            ("Run", False, lambda c: c._client.call("/v1/transactions:run", {"operations": []})),
            ("Begin", False, lambda c: c._client.call("/v1/transactions:begin", {})),
        ):
            for unanswered in ((200, "{", 100), (502, "<html>"), (503, "{", 100)):
                with self.subTest(name, unanswered=unanswered):
                    ok = (200, '{"document": {}, "documents": []}')
                    collection, seen = self.serve(unanswered, ok)
                    try:
                        call(collection)
                        self.assertTrue(repeatable)
                    except MooringError as err:
                        self.assertEqual((err.retry, repeatable), ("never", False))
                    self.assertEqual(len(seen), 2 if repeatable else 1)

    def test_after_a_silence_what_the_gateway_knows_is_to_be_repeated_by_the_caller(self):
        in_one, statement = {"transaction": "t"}, {"transaction": "t", "statement": 1}
        for name, retry, call in (
            ("Commit", "same-request", lambda c: c._client.call("/v1/transactions:commit", in_one)),
            ("Abort", "same-request", lambda c: c._client.call("/v1/transactions:abort", in_one)),
            ("a write as a statement", "same-request", lambda c: c.insert_one({}, **statement)),
            ("a read as a statement", "same-request", lambda c: c.find_one({}, **statement)),
            ("with a key", "same-request", lambda c: c.insert_one({}, idempotency_key="k")),
            ("a write in a transaction", "never", lambda c: c.insert_one({}, **in_one)),
            ("a write", "never", lambda c: c.insert_one({})),
            ("a read", "never", lambda c: c.find_one({})),
        ):
            with self.subTest(name):
                collection, seen = self.serve((0, ""), timeout=None, socket_timeout=1.0)
                with self.assertRaises(MooringError) as caught:
                    call(collection)
                err = caught.exception
                self.assertEqual((err.reason, err.retry, len(seen)), ("SocketTimeout", retry, 1))

    def test_exactly_once(self):
        again, ok = (503, failed("NoSuitableServer", "same-request")), (200, "{}")
        for name, own, call in (
            ("a write", True, lambda c, **of: c.insert_one({}, **of)),
            ("one document", True, lambda c, **of: c.put(1, {"transaction": "t"}, **of)),
            ("refused then", True, lambda c, **of: c.update_many({}, {"$set": {"a": 1}}, **of)),
            ("in a transaction", False, lambda c, **of: c.insert_one({}, transaction="t", **of)),
            ("a read", False, lambda c, **of: c.estimated_document_count(**of)),
        ):
            one, none = {"exactly_once": True}, {"exactly_once": False}
            for always, of_call in ((True, {}), (False, one), (True, none)):
                with self.subTest(name, always=always, of_call=of_call):
                    counted = (200, '{"count": 1}')
                    collection, seen = self.serve(again, counted, counted, exactly_once=always)
                    for _ in range(2):
                        call(collection, **of_call)
                    first, same, other = [headers.get("Idempotency-Key") for headers, _ in seen]
                    self.assertEqual(first, same)
                    self.assertEqual(first is not None, own and of_call.get("exactly_once", True))
                    if first is not None:
                        self.assertNotEqual(first, other)
        collection, seen = self.serve(ok, exactly_once=True)
        collection.insert_one({}, idempotency_key="k")
        self.assertEqual(seen[0][0]["Idempotency-Key"], "k")

    def test_an_error_has_the_key_of_the_call(self):
        options = {"exactly_once": True, "retries": 0, "timeout": None, "socket_timeout": 1.0}
        collection, seen = self.serve((200, "{", 100), (0, ""), **options)
        for reason in ("NoAnswer", "SocketTimeout"):
            with self.assertRaises(MooringError) as caught:
                collection.insert_one({})
            err = caught.exception
            key = seen[-1][0]["Idempotency-Key"]
            got = (err.reason, err.retry, err.idempotency_key)
            self.assertEqual(got, (reason, "same-request", key))

    def test_the_deadline_is_that_of_all_repetitions(self):
        later = (503, failed("Overloaded", "same-request"))
        collection, seen = self.serve(later, retry_after="3600", timeout=7)
        with self.assertRaises(MooringError) as caught:
            collection.find_one()
        self.assertEqual((caught.exception.retry_after, len(seen)), (3600, 1))
        # A proxy may say when in words.
        words = "Wed, 21 Oct 2026 07:28:00 GMT"
        collection, seen = self.serve(later, (200, '{"count": 1}'), retry_after=words, timeout=7)
        self.assertEqual(collection.count_documents(), 1)
        first, second = [int(headers["Request-Timeout"][:-2]) for headers, _ in seen]
        self.assertEqual(first, 7000)
        self.assertLessEqual(second, first)

    def test_a_deadline_of_less_than_a_millisecond(self):
        ok = (200, '{"count": 1}')
        collection, seen = self.serve(ok, ok, ok)
        for timeout in (0.0004, 0, -1):
            collection.count_documents(timeout=timeout)
        self.assertEqual([headers["Request-Timeout"] for headers, _ in seen], ["1ms"] * 3)

    def test_streams_of_changes_have_only_a_deadline_of_their_own(self):
        denied = (200, failed("PermissionDenied", "never") + "\n")
        for options, finite, endless in (
            ({}, "7000ms", None),
            ({"timeout": 2}, "2000ms", "2000ms"),
        ):
            for call, want in (
                (lambda c: c.watch(**options), endless),
                (lambda c: c.database.watch(**options), endless),
                (lambda c: c.live(**options), endless),
                (lambda c: c.stream(**options), finite),
            ):
                collection, seen = self.serve(denied, timeout=7)
                with self.assertRaises(MooringError):
                    list(call(collection))
                self.assertEqual([h.get("Request-Timeout") for h, _ in seen], [want])

    def test_a_key_is_not_sent_again_when_it_may_be_forgotten(self):
        later = (503, failed("IdempotencyUnavailable", "same-request"))
        for after, once, calls in (("1860", True, 1), ("1700", True, 2), ("1860", False, 2)):
            with self.subTest(after=after, once=once):
                answers = (later, (200, '{"insertedId": 1}'))
                collection, seen = self.serve(*answers, retry_after=after, timeout=None)
                with unittest.mock.patch("time.sleep"), unittest.mock.patch("asyncio.sleep"):
                    try:
                        collection.insert_one({}, exactly_once=once)
                    except MooringError as err:
                        key = seen[0][0]["Idempotency-Key"]
                        self.assertEqual((err.idempotency_key, err.retry_after), (key, 1860))
                self.assertEqual(len(seen), calls)

    def test_a_key_is_not_sent_again_when_it_was_forgotten_in_a_sleep_of_the_computer(self):
        later = (503, failed("IdempotencyUnavailable", "same-request"))
        clock = time.time
        for asleep in ("before the answer", "in the pause"):
            with self.subTest(asleep):
                answers = (later, (200, '{"insertedId": 1}'))
                collection, seen = self.serve(*answers, timeout=None, exactly_once=True)
                slept = []  # the clock of time.monotonic may stand still then

                def now():
                    late = slept or asleep == "before the answer" and seen
                    return clock() + (31 * 60 if late else 0)

                async def in_task(seconds):
                    slept.append(seconds)

                with unittest.mock.patch("time.time", now), unittest.mock.patch(
                    "time.sleep", slept.append
                ), unittest.mock.patch("asyncio.sleep", in_task):
                    with self.assertRaises(MooringError) as caught:
                        collection.insert_one({})
                err, key = caught.exception, seen[0][0]["Idempotency-Key"]
                got = (err.reason, err.idempotency_key, len(seen))
                self.assertEqual(got, ("IdempotencyUnavailable", key, 1))

    def test_a_cursor_whose_page_fails_is_closed(self):
        page = (200, '{"documents": [1], "cursor": "c"}')
        for failure, reason, calls in (
            ((409, failed("CursorPositionUnknown", "restart")), "CursorPositionUnknown", 3),
            ((404, failed("CursorNotFound", "restart")), "CursorNotFound", 2),
            ((0, ""), "SocketTimeout", 3),
        ):
            with self.subTest(reason):
                answers = (page, failure, (200, "{}"))
                collection, seen = self.serve(*answers, timeout=None, socket_timeout=1.0)
                with self.assertRaises(MooringError) as caught:
                    list(collection.find())
                self.assertEqual(caught.exception.reason, reason)
                self.assertEqual(len(seen), calls)
                self.assertEqual(seen[-1][1], {"cursor": "c"})

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
        err = caught.exception
        self.assertEqual((err.reason, err.http_status), ("NoGateway", 404))
        gone = self.client("http://127.0.0.1:1", retries=0).database("a").collection("b")
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

    def test_empty_lines(self):
        line = '{"document": {"_id": 1}}\n'
        collection, _ = self.serve((200, f'\n{line}\n\r\n{line}\n{{"end": {{}}}}\n\n'))
        self.assertEqual(list(collection.stream()), [{"_id": 1}] * 2)

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

    # The same test as those of the clients for Go and TypeScript.
    def test_live_documents_go_on_with_what_differs(self):
        def says(kind, *ids):
            lines = [{kind: {"_id": n}} for n in ids] or [{kind: {}}]
            return "".join(json.dumps(line) + "\n" for line in lines)

        collection, _ = self.serve(
            (
                200,
                says("added", 1, 2)
                + says("ready")
                + says("changed", 1)
                + says("added", 3)
                + failed("ShuttingDown", "restart")
                + "\n",
            ),
            (
                200,
                says("added", 1, 3)
                + says("ready")
                + says("removed", 3)
                + says("removed", 4)
                + failed("PermissionDenied", "never")
                + "\n",
            ),
        )
        got = []
        with self.assertRaises(MooringError) as caught:
            for kind, document in collection.live():
                got.append(f"{kind} {document['_id'] if document else 0}")
        self.assertEqual(caught.exception.reason, "PermissionDenied")
        self.assertEqual(
            got,
            ["added 1", "added 2", "ready 0", "changed 1", "added 3"]
            + ["changed 1", "changed 3", "removed 2", "ready 0", "removed 3"],
        )

    def test_a_stream_that_has_begun_goes_on_after_a_silence(self):
        denied, silent = (200, failed("PermissionDenied", "never") + "\n"), (0, "")
        token = {"startAfter": {"_data": "1"}}
        for begin, call in (
            ('{"progress": {"resumeToken": {"_data": "1"}}}\n', lambda c: c.watch(**token)),
            ('{"ready": {}}\n', lambda c: c.live()),
        ):
            for answers, reason, calls in (
                (((200, begin), silent, denied), "PermissionDenied", 3),
                ((silent, denied), "SocketTimeout", 1),
            ):
                with self.subTest(begin=begin, reason=reason):
                    collection, seen = self.serve(*answers, timeout=None, socket_timeout=1.0)
                    with self.assertRaises(MooringError) as caught:
                        list(call(collection))
                    self.assertEqual((caught.exception.reason, len(seen)), (reason, calls))

    def test_a_stream_waits_no_longer_after_many_failures(self):
        for attempt in (1, 6, 7, 1023, 1024, 5000):
            self.assertLessEqual(backoff(attempt, None), 5)
        self.assertEqual(backoff(5000, 7), 7)

    def test_texts_with_other_separators(self):
        text = "a\u2028b\u0085c\x1cd"
        line = json.dumps({"document": {"_id": text}}, ensure_ascii=False) + "\n"
        collection, _ = self.serve((200, line + '{"end": {}}\n'))
        self.assertEqual(list(collection.stream()), [{"_id": text}])


class Connections(Clients):
    """Tests before a server that keeps connections, and counts them."""

    def setUp(self):
        self.opened = opened = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self):
                opened.append(self)
                super().setup()

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                stream = self.path.endswith("streamFind")
                text = b'{"document": {}}\n{"end": {}}\n' if stream else b'{"document": null}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def test_are_kept(self):
        collection = self.client(self.url).database("a").collection("b")
        for _ in range(100):
            self.assertIsNone(collection.find_one())
        for _ in range(10):
            self.assertEqual(list(collection.stream()), [{}])
        self.assertEqual(len(self.opened), 1)

    def test_send_without_delay(self):
        if self.asynchronous:
            self.skipTest("the sockets of asyncio are not made by create_connection")
        dialed, connect = [], socket.create_connection

        def dial(*args, **options):
            dialed.append(connect(*args, **options))
            return dialed[-1]

        with unittest.mock.patch("socket.create_connection", dial):
            self.assertIsNone(self.client(self.url).database("a").collection("b").find_one())
        (connection,) = dialed
        self.assertTrue(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    def test_calls_at_the_same_time(self):
        async def ask():
            async with mooring_client.AsyncClient(self.url) as client:
                orders = client.database("a").collection("b")
                return await asyncio.gather(*(orders.find_one() for _ in range(20)))

        self.assertEqual(asyncio.run(ask()), [None] * 20)


def asynchronous(cls):
    """Returns a class of the same tests with the client for asyncio."""
    return type(f"Async{cls.__name__}", (cls,), {"asynchronous": True})


AsyncGateway, AsyncScripted = asynchronous(Gateway), asynchronous(Scripted)
AsyncConnections = asynchronous(Connections)


if __name__ == "__main__":
    unittest.main()
