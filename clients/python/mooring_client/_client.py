"""The client: calls, pages, streams and errors."""

import base64
import datetime
import functools
import http.client
import json
import math
import random
import re
import secrets
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ._operations import REPEAT

Document = Dict[str, Any]

# Statuses of a proxy that does not know what the gateway has done.
_OF_PROXIES = frozenset([502, 503, 504])


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
        # How long to wait before the call is repeated, in seconds, if the gateway says so.
        self.retry_after: Optional[float] = None
        # The key of the call: the same call with it is not executed twice.
        self.idempotency_key: Optional[str] = None


def _failure(reason: str, retry: str, message: str, status: int = 0) -> MooringError:
    error = {"status": "UNAVAILABLE", "reason": reason, "retry": retry, "message": message}
    return MooringError({"error": error}, status)


_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def _segment(name: str) -> str:
    """Writes a name in a path. Names that proxies may change are written as base64url."""
    if _PLAIN.fullmatch(name):
        return name
    return "~" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


# How long the client waits after a call's deadline, in seconds, so that the gateway's own error
# comes first.
_GRACE = 10.0

# How long the end of a cursor is waited for, in seconds.
_CLOSING = 2.0


class Versioned(NamedTuple):
    """A document and its ETag, which is None if the gateway gives none."""

    document: Document
    etag: Optional[str]


class _Call(NamedTuple):
    """A request, and what its sender says beside it."""

    path: str
    body: Any = None
    method: str = "POST"
    query: Optional[Mapping[str, Any]] = None
    timeout: Optional[float] = None
    headers: Optional[Mapping[str, str]] = None
    idempotency_key: Optional[str] = None
    exactly_once: Optional[bool] = None

    def _repeat(self) -> str:
        """Returns whether the call can be repeated: "never", "read", "key" or "token"."""
        if self.method == "POST":
            return REPEAT.get(self.path.rpartition(":")[2], "never")
        return "read" if self.method == "GET" else "key"

    def _options(self) -> Mapping[str, Any]:
        """Returns the options that are in the body. The body of a PUT is a document."""
        return self.body if self.method == "POST" and isinstance(self.body, Mapping) else {}

    def _in_transaction(self, headers: Mapping[str, str]) -> bool:
        has = self._options().get("transaction") is not None
        return has or _header(headers, "mooring-transaction") is not None

    def takes_key(self, headers: Mapping[str, str]) -> bool:
        """Reports whether an exactly-once client gives the call a key. A statement's number has
        its place. The gateway refuses some writes with a key, such as updateMany."""
        return self._repeat() == "key" and not self._in_transaction(headers)

    def repeatable(self, headers: Mapping[str, str]) -> bool:
        """Reports whether the call, without a key, may be repeated if no answer comes. Other calls
        are repeated only if the gateway says so."""
        if self._repeat() == "token":
            return True
        if self._in_transaction(headers):
            return self._options().get("statement") is not None
        return self._repeat() == "read"


def _header(headers: Mapping[str, str], name: str) -> Optional[str]:
    return next((value for key, value in headers.items() if key.lower() == name), None)


def _divide(options: Document) -> Tuple[Document, Document]:
    """Divides options into those of the body and those of the call."""
    of_call = ("timeout", "headers", "idempotency_key", "exactly_once")
    body = {name: value for name, value in options.items() if name not in of_call}
    return body, {name: options[name] for name in of_call if name in options}


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def _extended(value: Any) -> Any:
    """Returns the Extended JSON of a date, which is the one type that has a form of its own."""
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    if value.utcoffset() is None:
        raise TypeError(f"{value!r} has no time zone: write when.astimezone(), or with timezone.utc")
    # Not isoformat, whose zones may have seconds. astimezone fails at the ends of the calendar.
    return {"$date": {"$numberLong": str((value - _EPOCH) // datetime.timedelta(milliseconds=1))}}


class Client:
    """The gateway at a URL.

    token is an API key or a JSON Web Token. timeout, in seconds, is the deadline of each call with
    its repetitions. socket_timeout is how long the client waits for the gateway to send something,
    in seconds, in calls without a deadline; None: for ever. retries is how often a call is repeated
    where its error allows that. With bson, documents have the types of pymongo's package bson.
    headers are sent with each call.

    exactly_once gives each write an idempotency key of its own, so that it is repeated if no answer
    comes. Each is a session of the server for 30 minutes. Writes that take no key are refused:
    updateMany, deleteMany and writes in a session. Those of a transaction get none.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Optional[str] = None,
        timeout: Optional[float] = None,
        socket_timeout: Optional[float] = 120.0,
        retries: int = 3,
        bson: bool = False,
        exactly_once: bool = False,
        headers: Optional[Mapping[str, str]] = None,
    ):
        self._url = url.rstrip("/")
        if not re.match("https?://", self._url, re.IGNORECASE):
            # The URL is not quoted: that of a database has a password.
            raise ValueError("the URL of a gateway begins with http:// or https://")
        self._headers = dict(headers or {})
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout = timeout
        self._socket_timeout = socket_timeout
        self._retries = retries
        self._exactly_once = exactly_once
        self._loads: Callable[[Any], Any] = json.loads
        self._dumps: Callable[[Any], str] = functools.partial(json.dumps, default=_extended)
        self._accept = ("application/json", "application/x-ndjson")
        if bson:
            self._use_bson()

    def _use_bson(self) -> None:
        try:
            from bson import json_util
        except ImportError as err:
            message = "bson=True needs the package bson of pymongo: pip install pymongo"
            raise ImportError(message) from err

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
        timeout: Optional[float] = None,
        headers: Optional[Mapping[str, str]] = None,
        idempotency_key: Optional[str] = None,
        exactly_once: Optional[bool] = None,
    ) -> Any:
        """Makes a call, such as `call("/v1/sessions:start", {})`, and returns its answer, which is
        None if it has no body."""
        call = _Call(path, body, method, query, timeout, headers, idempotency_key, exactly_once)
        return self._exchange(call)[0]

    def lines(
        self,
        path: str,
        body: Optional[Mapping[str, Any]] = None,
        *,
        timeout: Optional[float] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Iterator[Document]:
        """Yields the lines of a stream up to its end."""
        call = _Call(path, body, timeout=timeout, headers=headers)
        with self._send(call, self._accept[1], lambda response: response) as response:
            try:
                for text in response:
                    line = self._loads(text)
                    if "error" in line:
                        raise MooringError(line, response.status)
                    if "end" in line:
                        return
                    yield line
            except (OSError, http.client.HTTPException, ValueError) as err:
                raise _failure("StreamCut", "restart", f"the stream was cut: {err}") from err
        raise _failure("StreamCut", "restart", "the stream has no end")

    def pages(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout: Optional[float] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Iterator[List[Document]]:
        """Yields the pages of a result. If the caller leaves early, or a page fails, the cursor is
        closed. The timeout is that of each page."""
        of_call: Document = {"timeout": timeout, "headers": headers}
        common = ("batchSize", "maxAwaitTimeMS", "session", "transaction")
        rest = {name: body[name] for name in common if name in body}
        cursor = None
        try:
            page = self.call(path, body, **of_call)
            while True:
                cursor = page.get("cursor")
                yield page["documents"]
                if cursor is None:
                    return
                page = self.call("/v1/cursors:next", {**rest, "cursor": cursor}, **of_call)
        except MooringError as err:
            if err.http_status == 404:
                cursor = None  # the gateway has it no longer
            raise
        finally:
            if cursor is not None:
                tokens = {k: v for k, v in rest.items() if k in ("session", "transaction")}
                self._close({**tokens, "cursor": cursor}, headers)

    def _close(self, body: Document, headers: Optional[Mapping[str, str]]) -> None:
        """Closes a cursor. If this fails, the cursor expires."""
        request = self._request(_Call("/v1/cursors:close", body, headers=headers), self._accept[0])
        try:
            urllib.request.urlopen(request, timeout=_CLOSING).close()
        except (OSError, http.client.HTTPException):
            pass

    def _exchange(self, call: _Call) -> Tuple[Any, Mapping[str, str]]:
        """Makes a call, and returns its answer and the headers of the answer."""

        def read(response):
            with response:
                return response.status, response.read(), response.headers

        status, text, headers = self._send(call, self._accept[0], read)
        try:
            return (self._loads(text) if text else None), headers
        except ValueError:
            raise _failure("NoGateway", "never", "the answer is no JSON", status) from None

    def _send(self, call: _Call, accept: str, read: Callable[[Any], Any]) -> Any:
        """Sends a request, again where that is allowed, and returns what read makes of the
        response."""
        timeout = self._timeout if call.timeout is None else call.timeout
        request = self._request(call, accept)
        key = _header(request.headers, "idempotency-key")
        known = key is not None or call.repeatable(request.headers)
        ends = math.inf if timeout is None else time.monotonic() + timeout
        attempt = 0
        while True:
            try:
                return self._once(request, timeout, read, "same-request" if known else "never")
            except MooringError as err:
                failure = err
            failure.idempotency_key = key
            if failure.reason == "SocketTimeout" and key is not None:
                failure.retry = "same-request"  # by the caller
                raise failure
            pause = _backoff(attempt, failure.retry_after)
            late = time.monotonic() + pause >= ends
            if failure.retry != "same-request" or attempt >= self._retries or late:
                raise failure
            time.sleep(pause)
            attempt += 1
            if timeout is not None:
                timeout = max(ends - time.monotonic(), 0.001)

    def _once(
        self,
        request: urllib.request.Request,
        timeout: Optional[float],
        read: Callable[[Any], Any],
        unknown: str,
    ) -> Any:
        """Sends a request once. unknown is the advice if the gateway may have got it."""
        if timeout is not None:
            request.add_header("Request-Timeout", f"{int(timeout * 1000)}ms")
        wait = self._socket_timeout if timeout is None else timeout + _GRACE
        try:
            try:
                return read(urllib.request.urlopen(request, timeout=wait))
            except urllib.error.HTTPError as err:
                if err.code == 304:
                    return read(err)
                raise self._error(err, unknown) from None
        except (OSError, http.client.HTTPException) as err:
            cause = getattr(err, "reason", err)
            # With a number it is the kernel's error, not the end of the client's wait.
            if isinstance(cause, socket.timeout) and cause.errno is None:
                message = f"{self._url} has sent nothing for {wait:g} s"
                raise _failure("SocketTimeout", "never", message) from err
            raise _failure("NoAnswer", unknown, f"no answer from {self._url}: {err}") from err

    def _request(self, call: _Call, accept: str) -> urllib.request.Request:
        url = self._url + call.path
        if call.query:
            texts = {
                k: v if isinstance(v, str) else self._dumps(v) for k, v in call.query.items()
            }
            url += "?" + urllib.parse.urlencode(texts)
        headers = {**self._headers, "Accept": accept}
        data = None
        if call.method in ("POST", "PUT", "PATCH"):
            headers["Content-Type"] = "application/json"
            data = self._dumps({} if call.body is None else call.body).encode()
        headers.update(call.headers or {})
        if call.idempotency_key is not None:
            headers["Idempotency-Key"] = call.idempotency_key
        elif self._takes_key(call, headers):
            headers["Idempotency-Key"] = secrets.token_hex(16)
        return urllib.request.Request(url, data=data, headers=headers, method=call.method)

    def _takes_key(self, call: _Call, headers: Mapping[str, str]) -> bool:
        """Reports whether a call gets a key of its own."""
        once = self._exactly_once if call.exactly_once is None else call.exactly_once
        return once and _header(headers, "idempotency-key") is None and call.takes_key(headers)

    def _error(self, err: urllib.error.HTTPError, unknown: str) -> MooringError:
        with err:
            text = err.read()
        try:
            failure = MooringError(self._loads(text), err.code)
        except (ValueError, KeyError, TypeError):
            message = f"{err.code} {err.reason}, which is no answer of a gateway"
            retry = unknown if err.code in _OF_PROXIES else "never"
            failure = _failure("NoGateway", retry, message, err.code)
        after = err.headers.get("Retry-After", "")
        failure.retry_after = float(after) if after.isdecimal() else None
        return failure


def _backoff(attempt: int, after: Optional[float]) -> float:
    """Returns the time before a repetition: the gateway's if there is one, else a random time that
    becomes longer."""
    return after if after else random.random() * min(0.1 * 2**attempt, 5)


class Database:
    """A database. Its methods take the options of MongoDB's helpers, under the same names."""

    def __init__(self, client: Client, name: str):
        self.client = client
        self.name = name
        self._path = f"/v1/databases/{_segment(name)}"

    def collection(self, name: str) -> "Collection":
        return Collection(self, name)

    def run_command(self, command: Document, **options: Any) -> Document:
        body, of_call = _divide({**options, "command": command})
        return self.client.call(f"{self._path}:runCommand", body, **of_call)["reply"]

    def aggregate(self, pipeline: List[Document], **options: Any) -> Iterator[Document]:
        body, of_call = _divide({**options, "pipeline": pipeline})
        for page in self.client.pages(f"{self._path}:aggregate", body, **of_call):
            yield from page

    def watch(self, **options: Any) -> Iterator[Document]:
        return _watch(self.client, f"{self._path}:watch", options)


class Collection:
    """A collection. Its methods take the options of MongoDB's helpers, under the same names:
    `find({}, sort={"_id": 1}, batchSize=500)`. All take timeout and headers, and writes
    idempotency_key and exactly_once. get, put, patch and delete are about the document with an _id."""

    def __init__(self, database: Database, name: str):
        self.database = database
        self.name = name
        self._client = database.client
        self._path = f"{database._path}/collections/{_segment(name)}"

    def _call(self, verb: str, body: Document, options: Document) -> Any:
        rest, of_call = _divide(options)
        return self._client.call(f"{self._path}/documents:{verb}", {**body, **rest}, **of_call)

    def _document(self, method: str, id: Any, body: Any, options: Document) -> Tuple[Any, Any]:
        """Makes a call about the document with an _id. The options are those of the query."""
        query, of_call = _divide(options)
        headers = dict(of_call.pop("headers", None) or {})
        for name, header in (("if_match", "If-Match"), ("if_none_match", "If-None-Match")):
            value = query.pop(name, None)
            if value is not None:
                headers[header] = value
        path = f"{self._path}/documents/{_segment(self._client._dumps(id))}"
        return self._client._exchange(
            _Call(path, body, method, query or None, headers=headers, **of_call)
        )

    def get(
        self, id: Any, *, if_none_match: Optional[str] = None, **options: Any
    ) -> Optional[Versioned]:
        """Returns the document with this _id, and its ETag. With if_none_match, the ETag of a
        document that the caller has, it returns None if that is still the newest one."""
        options["if_none_match"] = if_none_match
        document, headers = self._document("GET", id, None, options)
        return None if document is None else Versioned(document, headers.get("ETag"))

    def put(
        self,
        id: Any,
        document: Document,
        *,
        if_match: Optional[str] = None,
        if_none_match: Optional[str] = None,
        **options: Any,
    ) -> Versioned:
        """Replaces the document with this _id, or creates it. With if_match it replaces only the
        document that has this ETag; if_none_match="*" lets it only create."""
        options.update(if_match=if_match, if_none_match=if_none_match)
        stored, headers = self._document("PUT", id, document, options)
        return Versioned(stored, headers.get("ETag"))

    def patch(
        self, id: Any, update: Any, *, if_match: Optional[str] = None, **options: Any
    ) -> Versioned:
        """Updates the document with this _id; with if_match, only if it has this ETag."""
        options["if_match"] = if_match
        stored, headers = self._document("PATCH", id, update, options)
        return Versioned(stored, headers.get("ETag"))

    def delete(self, id: Any, *, if_match: Optional[str] = None, **options: Any) -> None:
        """Deletes the document with this _id; with if_match, only if it has this ETag."""
        options["if_match"] = if_match
        self._document("DELETE", id, None, options)

    def find_one(self, filter: Optional[Document] = None, **options: Any) -> Optional[Document]:
        return self._call("findOne", {"filter": filter or {}}, options)["document"]

    def pages(self, filter: Optional[Document] = None, **options: Any) -> Iterator[List[Document]]:
        """Yields the documents that match, page by page."""
        body, of_call = _divide({**options, "filter": filter or {}})
        return self._client.pages(f"{self._path}/documents:find", body, **of_call)

    def find(self, filter: Optional[Document] = None, **options: Any) -> Iterator[Document]:
        """Yields the documents that match, and reads them in pages."""
        for page in self.pages(filter, **options):
            yield from page

    def stream(self, filter: Optional[Document] = None, **options: Any) -> Iterator[Document]:
        """Yields the documents that match, which come as one stream."""
        body, of_call = _divide({**options, "filter": filter or {}})
        for line in self._client.lines(f"{self._path}/documents:streamFind", body, **of_call):
            yield line["document"]

    def aggregate(self, pipeline: List[Document], **options: Any) -> Iterator[Document]:
        body, of_call = _divide({**options, "pipeline": pipeline})
        for page in self._client.pages(f"{self._path}/documents:aggregate", body, **of_call):
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
    options, of_call = _divide(options)
    token = options.get("startAfter")
    failures = 0
    while True:
        try:
            for line in client.lines(path, options, **of_call):
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
            time.sleep(_backoff(failures, err.retry_after))
