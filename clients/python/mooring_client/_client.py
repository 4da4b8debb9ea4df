"""The client: calls, pages, streams and errors."""

import base64
import http.client
import json
import random
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

Document = Dict[str, Any]

# Calls that may be repeated if no answer comes. Other calls are repeated only if the gateway says
# so, or if they have an idempotency key.
_READS = frozenset(
    ["find", "findOne", "distinct", "countDocuments", "estimatedDocumentCount", "next", "close"]
    + ["streamFind", "watch"]
)


class MooringError(Exception):
    """A call that has failed. Its attributes are the fields of the gateway's error.

    `body` has all of them; `result` says what a call with several writes did before it failed.
    """

    def __init__(self, body: Mapping[str, Any], http_status: int):
        error = body["error"]
        super().__init__(f"{error['reason']}: {error['message']}")
        self.body = error
        self.http_status = http_status
        self.status: str = error["status"]
        self.reason: str = error["reason"]
        self.message: str = error["message"]
        self.retry: str = error["retry"]
        self.request_id: str = error.get("requestId", "")
        self.field: Optional[str] = error.get("field")
        self.server: Document = error.get("server", {})
        self.write_errors: List[Document] = error.get("writeErrors", [])
        self.result: Optional[Document] = body.get("result")


def _failure(reason: str, retry: str, message: str, status: int = 0) -> MooringError:
    error = {"status": "UNAVAILABLE", "reason": reason, "retry": retry, "message": message}
    return MooringError({"error": error}, status)


_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def _segment(name: str) -> str:
    """Writes a name in a path. Names that proxies may change are written as base64url."""
    if _PLAIN.fullmatch(name):
        return name
    return "~" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


class Client:
    """The gateway at a URL.

    token is an API key or a JSON Web Token. timeout, in seconds, is the deadline of each call.
    retries is how often a call is repeated where its error allows that. With bson, documents have
    the types of pymongo's package bson.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Optional[str] = None,
        timeout: Optional[float] = None,
        retries: int = 3,
        bson: bool = False,
        headers: Optional[Mapping[str, str]] = None,
    ):
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout = timeout
        self._retries = retries
        self._loads: Callable[[Any], Any] = json.loads
        self._dumps: Callable[[Any], str] = json.dumps
        self._accept = ("application/json", "application/x-ndjson")
        if bson:
            self._use_bson()

    def _use_bson(self) -> None:
        from bson import json_util

        options = json_util.CANONICAL_JSON_OPTIONS
        self._loads = lambda text: json_util.loads(text, json_options=options)
        self._dumps = lambda value: json_util.dumps(value, json_options=options)
        self._accept = ("application/ejson", "application/x-ndjson;profile=canonical")

    def database(self, name: str) -> "Database":
        return Database(self, name)

    def call(
        self,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        query: Optional[Mapping[str, Any]] = None,
        idempotency_key: Optional[str] = None,
    ) -> Any:
        """Makes a call, such as `call("/v1/sessions:start", {})`, and returns its answer, which is
        None if it has no body."""
        with self._open(path, body, method, query, idempotency_key, self._accept[0]) as response:
            text = response.read()
            return self._loads(text) if text else None

    def lines(self, path: str, body: Optional[Mapping[str, Any]] = None) -> Iterator[Document]:
        """Yields the lines of a stream up to its end."""
        with self._open(path, body, "POST", None, None, self._accept[1]) as response:
            try:
                for text in response:
                    line = self._loads(text)
                    if "error" in line:
                        raise MooringError(line, response.status)
                    if "end" in line:
                        return
                    yield line
            except (OSError, http.client.HTTPException, ValueError) as err:
                raise _failure("StreamCut", "restart", "the stream was cut") from err
        raise _failure("StreamCut", "restart", "the stream has no end")

    def pages(self, path: str, body: Mapping[str, Any]) -> Iterator[List[Document]]:
        """Yields the pages of a result. A caller that leaves early closes the cursor."""
        common = ("batchSize", "maxAwaitTimeMS", "session", "transaction")
        rest = {name: body[name] for name in common if name in body}
        page = self.call(path, body)
        cursor = page.get("cursor")
        try:
            while True:
                yield page["documents"]
                if cursor is None:
                    return
                token, cursor = cursor, None
                page = self.call("/v1/cursors:next", {**rest, "cursor": token})
                cursor = page.get("cursor")
        finally:
            if cursor is not None:
                tokens = {k: v for k, v in rest.items() if k in ("session", "transaction")}
                try:
                    self.call("/v1/cursors:close", {**tokens, "cursor": cursor})
                except MooringError:
                    pass  # the cursor expires

    def _open(self, path, body, method, query, key, accept):
        request = self._request(path, body, method, query, key, accept)
        repeatable = method == "GET" or key is not None or path.rpartition(":")[2] in _READS
        attempt = 0
        while True:
            wait = None
            try:
                return urllib.request.urlopen(request)
            except urllib.error.HTTPError as err:
                wait = err.headers.get("Retry-After")
                failure = self._error(err)
            except (OSError, http.client.HTTPException) as err:
                retry = "same-request" if repeatable else "never"
                failure = _failure("NoAnswer", retry, f"no answer from {self._url}: {err}")
            if failure.retry != "same-request" or attempt >= self._retries:
                raise failure
            attempt += 1
            longest = min(0.1 * 2**attempt, 5)
            time.sleep(float(wait) if wait else random.random() * longest)

    def _request(self, path, body, method, query, key, accept):
        url = self._url + path
        if query:
            texts = {k: v if isinstance(v, str) else self._dumps(v) for k, v in query.items()}
            url += "?" + urllib.parse.urlencode(texts)
        headers = {**self._headers, "Accept": accept}
        if self._timeout is not None:
            headers["Request-Timeout"] = f"{int(self._timeout * 1000)}ms"
        if key is not None:
            headers["Idempotency-Key"] = key
        data = None
        if method in ("POST", "PUT", "PATCH"):
            headers["Content-Type"] = "application/json"
            data = self._dumps({} if body is None else body).encode()
        return urllib.request.Request(url, data=data, headers=headers, method=method)

    def _error(self, err: urllib.error.HTTPError) -> MooringError:
        with err:
            text = err.read()
        try:
            return MooringError(self._loads(text), err.code)
        except (ValueError, KeyError, TypeError):
            message = f"{err.code} {err.reason}, which is no answer of a gateway"
            return _failure("NoGateway", "never", message, err.code)


class Database:
    """A database. Its methods take the options of MongoDB's helpers, under the same names."""

    def __init__(self, client: Client, name: str):
        self.client = client
        self.name = name
        self._path = f"/v1/databases/{_segment(name)}"

    def collection(self, name: str) -> "Collection":
        return Collection(self, name)

    def run_command(self, command: Document, **options: Any) -> Document:
        return self.client.call(f"{self._path}:runCommand", {"command": command, **options})["reply"]

    def aggregate(self, pipeline: List[Document], **options: Any) -> Iterator[Document]:
        for page in self.client.pages(f"{self._path}:aggregate", {"pipeline": pipeline, **options}):
            yield from page

    def watch(self, **options: Any) -> Iterator[Document]:
        return _watch(self.client, f"{self._path}:watch", options)


class Collection:
    """A collection. Its methods take the options of MongoDB's helpers, under the same names:
    `find({}, sort={"_id": 1}, batchSize=500)`. Writes also take idempotency_key."""

    def __init__(self, database: Database, name: str):
        self.database = database
        self.name = name
        self._client = database.client
        self._path = f"{database._path}/collections/{_segment(name)}"

    def _call(self, verb: str, body: Document, options: Document) -> Any:
        key = options.pop("idempotency_key", None)
        path = f"{self._path}/documents:{verb}"
        return self._client.call(path, {**body, **options}, idempotency_key=key)

    def find_one(self, filter: Optional[Document] = None, **options: Any) -> Optional[Document]:
        return self._call("findOne", {"filter": filter or {}}, options)["document"]

    def pages(self, filter: Optional[Document] = None, **options: Any) -> Iterator[List[Document]]:
        """Yields the documents that match, page by page."""
        body = {"filter": filter or {}, **options}
        return self._client.pages(f"{self._path}/documents:find", body)

    def find(self, filter: Optional[Document] = None, **options: Any) -> Iterator[Document]:
        """Yields the documents that match, and reads them in pages."""
        for page in self.pages(filter, **options):
            yield from page

    def stream(self, filter: Optional[Document] = None, **options: Any) -> Iterator[Document]:
        """Yields the documents that match, which come as one stream."""
        body = {"filter": filter or {}, **options}
        for line in self._client.lines(f"{self._path}/documents:streamFind", body):
            yield line["document"]

    def aggregate(self, pipeline: List[Document], **options: Any) -> Iterator[Document]:
        path = f"{self._path}/documents:aggregate"
        for page in self._client.pages(path, {"pipeline": pipeline, **options}):
            yield from page

    def distinct(self, field: str, filter: Optional[Document] = None, **options: Any) -> List[Any]:
        body = {"fieldName": field, "filter": filter or {}}
        return self._call("distinct", body, options)["values"]

    def count_documents(self, filter: Optional[Document] = None, **options: Any) -> int:
        return self._call("countDocuments", {"filter": filter or {}}, options)["count"]

    def estimated_document_count(self, **options: Any) -> int:
        return self._call("estimatedDocumentCount", {}, options)["count"]

    def insert_one(self, document: Document, **options: Any) -> Document:
        return self._call("insertOne", {"document": document}, options)

    def insert_many(self, documents: List[Document], **options: Any) -> Document:
        return self._call("insertMany", {"documents": documents}, options)

    def update_one(self, filter: Document, update: Any, **options: Any) -> Document:
        return self._call("updateOne", {"filter": filter, "update": update}, options)

    def update_many(self, filter: Document, update: Any, **options: Any) -> Document:
        return self._call("updateMany", {"filter": filter, "update": update}, options)

    def replace_one(self, filter: Document, replacement: Document, **options: Any) -> Document:
        return self._call("replaceOne", {"filter": filter, "replacement": replacement}, options)

    def delete_one(self, filter: Document, **options: Any) -> Document:
        return self._call("deleteOne", {"filter": filter}, options)

    def delete_many(self, filter: Document, **options: Any) -> Document:
        return self._call("deleteMany", {"filter": filter}, options)

    def find_one_and_update(
        self, filter: Document, update: Any, **options: Any
    ) -> Optional[Document]:
        body = {"filter": filter, "update": update}
        return self._call("findOneAndUpdate", body, options)["document"]

    def find_one_and_replace(
        self, filter: Document, replacement: Document, **options: Any
    ) -> Optional[Document]:
        body = {"filter": filter, "replacement": replacement}
        return self._call("findOneAndReplace", body, options)["document"]

    def find_one_and_delete(self, filter: Document, **options: Any) -> Optional[Document]:
        return self._call("findOneAndDelete", {"filter": filter}, options)["document"]

    def bulk_write(self, models: List[Document], **options: Any) -> Document:
        return self._call("bulkWrite", {"models": models}, options)

    def watch(self, **options: Any) -> Iterator[Document]:
        """Yields changes, and goes on after the last one where a stream is interrupted."""
        return _watch(self._client, f"{self._path}:watch", options)


def _watch(client: Client, path: str, options: Document) -> Iterator[Document]:
    token = options.get("startAfter")
    failures = 0
    while True:
        try:
            for line in client.lines(path, options):
                failures = 0
                change = line.get("document")
                token = change["_id"] if change else line["progress"]["resumeToken"]
                rest = {k: v for k, v in options.items() if not k.startswith(("resume", "startAt"))}
                options = {**rest, "startAfter": token}
                if change:
                    yield change
            return
        except MooringError as err:
            # FAILED_PRECONDITION: the deployment has lost what comes after the token.
            if err.retry == "never" or err.status == "FAILED_PRECONDITION" or token is None:
                raise
            failures += 1
            time.sleep(random.random() * min(0.1 * 2**failures, 5))
