"""The client for asyncio: calls, pages and streams. _client.py is generated from this file."""

import asyncio
from contextlib import aclosing
from typing import (
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Generic,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    overload,
)

import httpx

from ._calls import (
    CLOSING,
    LIMITS,
    Attempts,
    Call,
    Document,
    Lines,
    Live,
    MooringError,
    Resume,
    Settings,
    T,
    Versioned,
    answered,
    concern_of,
    divide,
    document_of,
    failure,
    segment,
    trust,
    undelayed,
    unmet,
)


class AsyncClient:
    """The gateway at a URL.

    token is an API key or a JSON Web Token. timeout, in seconds, is the deadline of each call with
    its repetitions; watch and live have only one of their own. socket_timeout is how long the client waits for the gateway to send something,
    in seconds, in calls without a deadline; None: for ever. retries is how often a call is repeated
    where its error allows that. With bson, documents have the types of pymongo's package bson.
    headers are sent with each call.

    exactly_once gives each write an idempotency key of its own, so that it is repeated if no answer
    comes. Each is a session of the server for 30 minutes. Writes that take no key are refused:
    updateMany, deleteMany and writes in a session. Those of a transaction get none.

    Connections are kept for further calls, which may be made at the same time. Use the client as a
    context manager, or close it, to close them.
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
        self._settings = Settings(
            url, token, timeout, socket_timeout, retries, bson, exactly_once, headers
        )
        self._http = httpx.AsyncClient(limits=LIMITS, verify=trust())

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the client's connections."""
        await self._http.aclose()

    def database(self, name: str) -> "AsyncDatabase":
        return AsyncDatabase(self, name)

    async def call(
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
        call = Call(path, body, method, query, timeout, headers, idempotency_key, exactly_once)
        answer, _ = await self._exchange(call)
        return answer

    async def lines(
        self,
        path: str,
        body: Optional[Mapping[str, Any]] = None,
        *,
        method: str = "POST",
        query: Optional[Mapping[str, Any]] = None,
        timeout: Optional[float] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> AsyncIterator[Document]:
        """Yields the lines of a stream up to its end."""

        async def read(response: httpx.Response) -> httpx.Response:
            return response

        codec, lines, ended = self._settings.codec, Lines(), False
        call = Call(path, body, method, query, timeout, headers)
        response = await self._send(call, codec.accept_lines, read)
        try:
            async for chunk in response.aiter_bytes():
                for text in lines.feed(chunk):
                    if not text.strip():
                        continue  # the gateway keeps a quiet stream alive
                    line = codec.loads(text)
                    if "error" in line:
                        raise MooringError(line, response.status_code)
                    if "end" in line:
                        ended = True  # what follows lets the connection be used again
                    else:
                        yield line
        except (httpx.HTTPError, ValueError) as err:
            raise failure("StreamCut", "restart", f"the stream was cut: {err}") from err
        finally:
            await response.aclose()
        if not ended:
            raise failure("StreamCut", "restart", "the stream has no end")

    async def pages(
        self,
        path: str,
        body: Optional[Mapping[str, Any]] = None,
        *,
        method: str = "POST",
        query: Optional[Mapping[str, Any]] = None,
        timeout: Optional[float] = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> AsyncIterator[List[Document]]:
        """Yields the pages of a result. If the caller leaves early, or a page fails, the cursor is
        closed. The timeout is that of each page."""
        of_call: Document = {"timeout": timeout, "headers": headers}
        common = ("batchSize", "maxAwaitTimeMS", "session", "transaction")
        options = {**(query or {}), **(body or {})}
        rest = {name: options[name] for name in common if name in options}
        cursor = None
        try:
            page = await self.call(path, body, method=method, query=query, **of_call)
            concern = page.get("writeConcernError")  # that of $out or $merge
            while True:
                cursor = page.get("cursor")
                yield page["documents"]
                if cursor is None and concern:
                    raise unmet(concern)
                if cursor is None:
                    return
                body = {**rest, "cursor": cursor}
                page = await self.call("/v1/cursors:next", body, **of_call)
        except MooringError as err:
            if err.http_status == 404:
                cursor = None  # the gateway has it no longer
            raise
        finally:
            if cursor is not None:
                tokens = {k: v for k, v in rest.items() if k in ("session", "transaction")}
                await self._close_cursor({**tokens, "cursor": cursor}, headers)

    async def _close_cursor(self, body: Document, headers: Optional[Mapping[str, str]]) -> None:
        """Closes a cursor. If this fails, the cursor expires."""
        call = Call("/v1/cursors:close", body, headers=headers)
        request = self._settings.attempts(call, self._settings.codec.accept).request()
        try:
            await self._http.request(**{**request, "timeout": CLOSING})
        except httpx.HTTPError:
            pass

    async def _exchange(self, call: Call) -> Tuple[Any, Mapping[str, str]]:
        """Makes a call, and returns its answer and the headers of the answer."""

        async def read(response: httpx.Response) -> Tuple[httpx.Response, bytes]:
            try:
                return response, await response.aread()
            finally:
                await response.aclose()

        codec = self._settings.codec
        response, text = await self._send(call, codec.accept, read)
        try:
            return (codec.loads(text) if text else None), response.headers
        except ValueError:
            status = response.status_code
            raise failure("NoGateway", "never", "the response is not JSON", status) from None

    async def _send(
        self, call: Call, accept: str, read: Callable[[httpx.Response], Awaitable[Any]]
    ) -> Any:
        """Sends a request, again where that is allowed, and returns what read makes of the
        response."""
        attempts = self._settings.attempts(call, accept)
        while True:
            try:
                return await self._once(attempts, read)
            except MooringError as err:
                pause = attempts.pause(err)
            await asyncio.sleep(pause)

    async def _once(
        self, attempts: Attempts, read: Callable[[httpx.Response], Awaitable[Any]]
    ) -> Any:
        """Sends a request once. read closes the response, or its caller does."""
        request = self._http.build_request(**attempts.request())
        try:
            response = await self._http.send(request, stream=True)
            undelayed(response)
            if answered(response):
                return await read(response)
            try:
                text = await response.aread()
            finally:
                await response.aclose()
        except httpx.HTTPError as err:
            raise attempts.unanswered(err) from err
        raise attempts.refused(response, text)


class AsyncDatabase:
    """A database. Its methods take the options of MongoDB's helpers, under the same names."""

    def __init__(self, client: AsyncClient, name: str):
        self.client = client
        self.name = name
        self._path = f"/v1/databases/{segment(name)}"

    @overload
    def collection(self, name: str) -> "AsyncCollection[Document]": ...

    @overload
    def collection(self, name: str, of: Type[T]) -> "AsyncCollection[T]": ...

    def collection(self, name: str, of: Any = None) -> "AsyncCollection[Any]":
        """Returns a collection. `of` is the type of its documents for a type checker, such as a
        TypedDict that mooring types writes; nothing checks documents at run time."""
        return AsyncCollection(self, name)

    async def run_command(self, command: Document, **options: Any) -> Document:
        body, of_call = divide({**options, "command": command})
        return (await self.client.call(f"{self._path}:runCommand", body, **of_call))["reply"]

    async def aggregate(self, pipeline: List[Document], **options: Any) -> AsyncIterator[Document]:
        body, of_call = divide({**options, "pipeline": pipeline})
        pages = self.client.pages(f"{self._path}:aggregate", body, **of_call)
        async with aclosing(pages):
            async for page in pages:
                for document in page:
                    yield document

    def watch(self, **options: Any) -> AsyncIterator[Document]:
        return _watch(self.client, f"{self._path}:watch", options)


class AsyncCollection(Generic[T]):
    """A collection. Its methods take the options of MongoDB's helpers, under the same names:
    `find({}, sort={"_id": 1}, batchSize=500)`. All take timeout and headers, and writes take
    idempotency_key and exactly_once. get, put, patch and delete are about the document with an
    _id."""

    def __init__(self, database: AsyncDatabase, name: str):
        self.database = database
        self.name = name
        self._client = database.client
        self._path = f"{database._path}/collections/{segment(name)}"

    async def _call(self, verb: str, body: Document, options: Document) -> Any:
        rest, of_call = divide(options)
        path = f"{self._path}/documents:{verb}"
        return await self._client.call(path, {**body, **rest}, **of_call)

    async def _document(
        self, method: str, id: Any, body: Any, options: Document
    ) -> Tuple[Any, Any]:
        """Makes a call about the document with an _id. The options are those of the query."""
        query, of_call = divide(options)
        headers = dict(of_call.pop("headers", None) or {})
        for name, header in (("if_match", "If-Match"), ("if_none_match", "If-None-Match")):
            value = query.pop(name, None)
            if value is not None:
                headers[header] = value
        path = f"{self._path}/documents/{segment(self._client._settings.codec.dumps(id))}"
        return await self._client._exchange(
            Call(path, body, method, query or None, headers=headers, **of_call)
        )

    async def get(
        self, id: Any, *, if_none_match: Optional[str] = None, **options: Any
    ) -> Optional[Versioned[T]]:
        """Returns the document with this _id, and its ETag. With if_none_match, the ETag of a
        document that the caller has, it returns None if that is still the newest one."""
        options["if_none_match"] = if_none_match
        document, headers = await self._document("GET", id, None, options)
        return None if document is None else Versioned(document, headers.get("ETag"))

    async def put(
        self,
        id: Any,
        document: T,
        *,
        if_match: Optional[str] = None,
        if_none_match: Optional[str] = None,
        **options: Any,
    ) -> Versioned[T]:
        """Replaces the document with this _id, or creates it. With if_match it replaces only the
        document that has this ETag; if_none_match="*" lets it only create."""
        options.update(if_match=if_match, if_none_match=if_none_match)
        stored, headers = await self._document("PUT", id, document, options)
        return Versioned(stored, headers.get("ETag"), concern_of(headers))

    async def patch(
        self, id: Any, update: Any, *, if_match: Optional[str] = None, **options: Any
    ) -> Versioned[T]:
        """Updates the document with this _id; with if_match, only if it has this ETag."""
        options["if_match"] = if_match
        stored, headers = await self._document("PATCH", id, update, options)
        return Versioned(stored, headers.get("ETag"), concern_of(headers))

    async def delete(self, id: Any, *, if_match: Optional[str] = None, **options: Any) -> None:
        """Deletes the document with this _id; with if_match, only if it has this ETag."""
        options["if_match"] = if_match
        _, headers = await self._document("DELETE", id, None, options)
        concern = concern_of(headers)
        if concern:
            raise unmet(concern)

    async def find_one(
        self, filter: Optional[Document] = None, **options: Any
    ) -> Optional[T]:
        return (await self._call("findOne", {"filter": filter or {}}, options))["document"]

    def pages(
        self, filter: Optional[Document] = None, **options: Any
    ) -> AsyncIterator[List[T]]:
        """Yields the documents that match, page by page."""
        body, of_call = divide({**options, "filter": filter or {}})
        return self._client.pages(f"{self._path}/documents:find", body, **of_call)

    async def find(
        self, filter: Optional[Document] = None, **options: Any
    ) -> AsyncIterator[T]:
        """Yields the documents that match, and reads them in pages."""
        pages = self.pages(filter, **options)
        async with aclosing(pages):
            async for page in pages:
                for document in page:
                    yield document

    async def stream(
        self, filter: Optional[Document] = None, **options: Any
    ) -> AsyncIterator[T]:
        """Yields the documents that match, which come as one stream."""
        body, of_call = divide({**options, "filter": filter or {}})
        lines = self._client.lines(f"{self._path}/documents:streamFind", body, **of_call)
        async with aclosing(lines):
            async for line in lines:
                yield line["document"]

    async def aggregate(self, pipeline: List[Document], **options: Any) -> AsyncIterator[Document]:
        body, of_call = divide({**options, "pipeline": pipeline})
        pages = self._client.pages(f"{self._path}/documents:aggregate", body, **of_call)
        async with aclosing(pages):
            async for page in pages:
                for document in page:
                    yield document

    async def distinct(
        self, field: str, filter: Optional[Document] = None, **options: Any
    ) -> List[Any]:
        body = {"fieldName": field, "filter": filter or {}}
        return (await self._call("distinct", body, options))["values"]

    async def count_documents(self, filter: Optional[Document] = None, **options: Any) -> int:
        return (await self._call("countDocuments", {"filter": filter or {}}, options))["count"]

    async def estimated_document_count(self, **options: Any) -> int:
        return (await self._call("estimatedDocumentCount", {}, options))["count"]

    async def insert_one(self, document: T, **options: Any) -> Document:
        return await self._call("insertOne", {"document": document}, options)

    async def insert_many(self, documents: Sequence[T], **options: Any) -> Document:
        return await self._call("insertMany", {"documents": documents}, options)

    async def update_one(self, filter: Document, update: Any, **options: Any) -> Document:
        return await self._call("updateOne", {"filter": filter, "update": update}, options)

    async def update_many(self, filter: Document, update: Any, **options: Any) -> Document:
        return await self._call("updateMany", {"filter": filter, "update": update}, options)

    async def replace_one(
        self, filter: Document, replacement: T, **options: Any
    ) -> Document:
        body = {"filter": filter, "replacement": replacement}
        return await self._call("replaceOne", body, options)

    async def delete_one(self, filter: Document, **options: Any) -> Document:
        return await self._call("deleteOne", {"filter": filter}, options)

    async def delete_many(self, filter: Document, **options: Any) -> Document:
        return await self._call("deleteMany", {"filter": filter}, options)

    async def find_one_and_update(
        self, filter: Document, update: Any, **options: Any
    ) -> Optional[T]:
        body = {"filter": filter, "update": update}
        return document_of(await self._call("findOneAndUpdate", body, options))

    async def find_one_and_replace(
        self, filter: Document, replacement: T, **options: Any
    ) -> Optional[T]:
        body = {"filter": filter, "replacement": replacement}
        return document_of(await self._call("findOneAndReplace", body, options))

    async def find_one_and_delete(self, filter: Document, **options: Any) -> Optional[T]:
        return document_of(await self._call("findOneAndDelete", {"filter": filter}, options))

    async def bulk_write(self, models: List[Document], **options: Any) -> Document:
        return await self._call("bulkWrite", {"models": models}, options)

    def watch(self, **options: Any) -> AsyncIterator[Document]:
        """Yields changes, and goes on after the last one where a stream is interrupted."""
        return _watch(self._client, f"{self._path}:watch", options)

    def live(
        self, filter: Optional[Document] = None, **options: Any
    ) -> AsyncIterator[Tuple[str, Optional[Document]]]:
        """Yields the documents that match, and then what becomes of them: "added" and "changed"
        with the document, "removed" with its _id, and "ready" with None, when all that match have
        come. Where a stream is interrupted, it opens another one, and yields what differs."""
        options["filter"] = filter or {}
        return _live(self._client, f"{self._path}/documents:live", options)


async def _watch(client: AsyncClient, path: str, options: Document) -> AsyncIterator[Document]:
    options, of_call = divide(options)
    resume = Resume(options)
    while True:
        try:
            async with aclosing(client.lines(path, resume.options, **of_call)) as lines:
                async for line in lines:
                    change = resume.seen(line)
                    if change:
                        yield change
            return
        except MooringError as err:
            pause = resume.pause(err)
        await asyncio.sleep(pause)


async def _live(
    client: AsyncClient, path: str, options: Document
) -> AsyncIterator[Tuple[str, Optional[Document]]]:
    options, of_call = divide(options)
    live = Live()
    while True:
        live.begin()
        try:
            async with aclosing(client.lines(path, options, **of_call)) as lines:
                async for line in lines:
                    for change in live.seen(line):
                        yield change
            pause = live.pause(None)
        except MooringError as err:
            pause = live.pause(err)
        await asyncio.sleep(pause)
