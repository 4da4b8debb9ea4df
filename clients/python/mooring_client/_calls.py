"""What a call is, what its answer means, and when it is made again. Nothing here does I/O."""

import base64
import datetime
import functools
import json
import math
import random
import re
import secrets
import socket
import ssl
import time
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generic,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    TypeVar,
)

import httpx

from ._operations import REPEAT

Document = Dict[str, Any]
T = TypeVar("T", bound=Mapping[str, Any])  # the type of a collection's documents

# Statuses of a proxy that does not know what the gateway has done.
_OF_PROXIES = frozenset([502, 503, 504])

# How long the client waits after a call's deadline, in seconds, so that the gateway's own error
# comes first.
_GRACE = 10.0

# How long the gateway knows an idempotency key, in seconds.
_KEY_LIFE = 30 * 60.0

# How long the end of a cursor is waited for, in seconds.
CLOSING = 2.0


class MooringError(Exception):
    """A call that has failed. Its attributes are the fields of the gateway's error.

    `body` has all of them; `result` says what a call with several writes did before it failed, or
    has the `document` of a find_one_and_… whose write concern is not met.
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
        self.write_concern_error: Optional[Document] = error.get("writeConcernError")
        self.result: Optional[Document] = body.get("result")
        # How long to wait before the call is repeated, in seconds, if the gateway says so.
        self.retry_after: Optional[float] = None
        # The key of the call: the same call with it is not executed twice.
        self.idempotency_key: Optional[str] = None


def failure(reason: str, retry: str, message: str, status: int = 0) -> MooringError:
    error = {"status": "UNAVAILABLE", "reason": reason, "retry": retry, "message": message}
    return MooringError({"error": error}, status)


def unmet(concern: Document, result: Optional[Document] = None) -> MooringError:
    """Returns the error of a write that was done, but its write concern is not met."""
    why = concern.get("message") or concern.get("codeName") or concern["code"]
    error = {
        "status": "UNAVAILABLE",
        "reason": "WriteConcernFailed",
        "retry": "never",
        "message": f"done, but not acknowledged as the write concern asks: {why}",
        "server": {k: concern[k] for k in ("code", "codeName", "labels") if k in concern},
        "writeConcernError": concern,
    }
    return MooringError({"error": error, "result": result}, 503)


def document_of(answer: Document) -> Any:
    """Returns the document of a write, which the write concern asks to be acknowledged."""
    concern = answer.get("writeConcernError")
    if concern:
        raise unmet(concern, {"document": answer["document"]})
    return answer["document"]


def concern_of(headers: Mapping[str, str]) -> Optional[Document]:
    """Reads the header of a write whose write concern is not met."""
    code, _, name = headers.get("Mooring-Write-Concern-Error", "").partition(" ")
    if not code:
        return None
    return {"code": int(code), "codeName": name} if name else {"code": int(code)}


if TYPE_CHECKING:  # Python 3.10 has no named tuples that are generic

    class Versioned(NamedTuple, Generic[T]):
        document: T
        etag: Optional[str]
        write_concern_error: Optional[Document] = None

else:

    class Versioned(NamedTuple):
        """A document and its ETag, which is None if the gateway gives none.

        write_concern_error says why a write is not acknowledged as its write concern asks.
        """

        document: Document
        etag: Optional[str]
        write_concern_error: Optional[Document] = None


_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


def segment(name: str) -> str:
    """Writes a name in a path. Names that proxies may change are written as base64url."""
    if _PLAIN.fullmatch(name):
        return name
    return "~" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def divide(options: Document) -> Tuple[Document, Document]:
    """Divides options into those of the body and those of the call."""
    of_call = ("timeout", "headers", "idempotency_key", "exactly_once")
    body = {name: value for name, value in options.items() if name not in of_call}
    return body, {name: options[name] for name in of_call if name in options}


def backoff(attempt: int, after: Optional[float]) -> float:
    """Returns the time before a repetition: the gateway's if there is one, else a random time that
    becomes longer."""
    return after if after else random.random() * min(0.1 * 2 ** min(attempt, 6), 5)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def _extended(value: Any) -> Any:
    """Returns the Extended JSON of a date, which is the one type that has a form of its own."""
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    if value.utcoffset() is None:
        advice = "write when.astimezone(), or with timezone.utc"
        raise TypeError(f"{value!r} has no time zone: {advice}")
    # Not isoformat, whose zones may have seconds. astimezone fails at the ends of the calendar.
    return {"$date": {"$numberLong": str((value - _EPOCH) // datetime.timedelta(milliseconds=1))}}


class Codec(NamedTuple):
    """Reads and writes documents, and names their form to the gateway."""

    loads: Callable[[Any], Any]
    dumps: Callable[[Any], str]
    accept: str
    accept_lines: str


def json_codec() -> Codec:
    dumps = functools.partial(json.dumps, default=_extended)
    return Codec(json.loads, dumps, "application/json", "application/x-ndjson")


def bson_codec() -> Codec:
    try:
        from bson import json_util
        from bson.binary import UuidRepresentation
    except ImportError as err:
        message = "bson=True needs the package bson of pymongo: pip install pymongo"
        raise ImportError(message) from err

    # What the options of pymongo say differs between its versions, and those of version 3 write
    # another value than they have read.
    options = json_util.JSONOptions(
        json_mode=json_util.JSONMode.CANONICAL,
        uuid_representation=UuidRepresentation.UNSPECIFIED,
        tz_aware=True,
    )
    return Codec(
        lambda text: json_util.loads(text, json_options=options),
        lambda value: json_util.dumps(value, json_options=options),
        "application/ejson",
        "application/x-ndjson;profile=canonical",
    )


class Call(NamedTuple):
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
        return has or "mooring-transaction" in headers

    def is_endless(self) -> bool:
        """Reports whether the call is a stream that only its deadline would end."""
        return self.path.endswith((":watch", ":live"))

    def takes_key(self, headers: Mapping[str, str]) -> bool:
        """Reports whether an exactly-once client gives the call a key. A statement's number has
        its place. The gateway refuses some writes with a key, such as updateMany."""
        return self._repeat() == "key" and not self._in_transaction(headers)

    def is_known(self, headers: Mapping[str, str]) -> bool:
        """Reports whether the gateway knows the call again, and does nothing twice."""
        if self._repeat() == "token" or "idempotency-key" in headers:
            return True
        return self._in_transaction(headers) and self._options().get("statement") is not None

    def is_read(self, headers: Mapping[str, str]) -> bool:
        """Reports whether the call is a read outside transactions."""
        return self._repeat() == "read" and not self._in_transaction(headers)


def _lowered(headers: Optional[Mapping[str, str]]) -> Dict[str, str]:
    """Returns headers with small names, so that one of a call replaces the client's."""
    return {name.lower(): value for name, value in (headers or {}).items()}


class Settings:
    """What a client says of all its calls."""

    def __init__(
        self,
        url: str,
        token: Optional[str],
        timeout: Optional[float],
        socket_timeout: Optional[float],
        retries: int,
        bson: bool,
        exactly_once: bool,
        headers: Optional[Mapping[str, str]],
    ):
        self.url = url.rstrip("/")
        if not re.match("https?://", self.url, re.IGNORECASE):
            # The URL is not quoted: that of a database has a password.
            raise ValueError("the URL of a gateway begins with http:// or https://")
        self._headers = _lowered(headers)
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._timeout = timeout
        self._socket_timeout = socket_timeout
        self._retries = retries
        self._exactly_once = exactly_once
        self.codec = bson_codec() if bson else json_codec()

    def attempts(self, call: Call, accept: str) -> "Attempts":
        timeout = call.timeout
        if timeout is None and not call.is_endless():
            timeout = self._timeout
        return Attempts(self, call, self._headers_of(call, accept), timeout)

    def _headers_of(self, call: Call, accept: str) -> Dict[str, str]:
        headers = {**self._headers, "accept": accept}
        if call.method in _WITH_BODY:
            headers["content-type"] = "application/json"
        headers.update(_lowered(call.headers))
        once = self._exactly_once if call.exactly_once is None else call.exactly_once
        if call.idempotency_key is not None:
            headers["idempotency-key"] = call.idempotency_key
        elif once and "idempotency-key" not in headers and call.takes_key(headers):
            headers["idempotency-key"] = secrets.token_hex(16)
        return headers


_WITH_BODY = frozenset(["POST", "PUT", "PATCH"])

# The connections of a client. Those that are idle end after five seconds, which is before the
# gateway ends them: a request is not sent on one that the gateway is just closing.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=5.0)


@functools.cache
def trust() -> ssl.SSLContext:
    """Returns the TLS settings that all clients share, since the certificates take long to read.
    They are those of httpx, with SSL_CERT_FILE and SSL_CERT_DIR as the first client finds them."""
    return httpx.create_ssl_context()


def undelayed(response: httpx.Response) -> None:
    """Sets TCP_NODELAY on the connection of a response, as newer versions of httpx do: a request is
    sent in two parts, and the second would wait for the gateway's delayed acknowledgement."""
    connection = response.extensions["network_stream"].get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Attempts:
    """The attempts of one call. Each has the same request, but for the time that is left."""

    def __init__(
        self, settings: Settings, call: Call, headers: Dict[str, str], timeout: Optional[float]
    ):
        self._settings = settings
        self._headers = headers
        self._timeout = timeout
        self._key = headers.get("idempotency-key")
        # The advice if the gateway may have got the request, and if it was silent. After that, the
        # caller repeats the call. Other calls are repeated only if the gateway says so.
        self._silent = "same-request" if call.is_known(headers) else "never"
        self._unknown = "same-request" if call.is_read(headers) else self._silent
        self._begun, self._since = time.monotonic(), time.time()
        self._ends = math.inf if timeout is None else self._begun + timeout
        self._failed = 0
        self._last: Optional[MooringError] = None
        dumps = settings.codec.dumps
        self._request: Document = {"method": call.method, "url": settings.url + call.path}
        if call.query:
            self._request["params"] = {
                k: v if isinstance(v, str) else dumps(v) for k, v in call.query.items()
            }
        if call.method in _WITH_BODY:
            self._request["content"] = dumps({} if call.body is None else call.body).encode()

    @property
    def _wait(self) -> Optional[float]:
        """How long the gateway may send nothing, in seconds."""
        return self._settings._socket_timeout if self._timeout is None else self._timeout + _GRACE

    def _is_late(self, pause: float) -> bool:
        """Reports whether the call is not repeated after a pause: its deadline passes, or the
        gateway may forget its key, without which it would be a new write."""
        now = time.monotonic()
        # monotonic may stand still while the computer sleeps, and the other clock may be set back.
        age = max(now - self._begun, time.time() - self._since)
        is_forgotten = self._key is not None and age + pause >= _KEY_LIFE
        return is_forgotten or now + pause >= self._ends

    def request(self) -> Document:
        """Returns the arguments of httpx's build_request for the next attempt. If the pause before
        it was too long, it raises the failure of the last one."""
        last, self._last = self._last, None
        if last is not None and self._is_late(0):
            raise last
        headers = self._headers
        if self._timeout is not None:
            left = max(1, math.ceil(self._timeout * 1000))  # the gateway refuses 0ms
            headers = {**headers, "request-timeout": f"{left}ms"}
        return {**self._request, "headers": headers, "timeout": self._wait}

    def pause(self, err: MooringError) -> float:
        """Returns how long to wait before the next attempt, in seconds. If there is none, it raises
        the failure of the last one."""
        err.idempotency_key = self._key
        if err.reason == "SocketTimeout":
            raise err
        pause = backoff(self._failed, err.retry_after)
        is_last = self._failed >= self._settings._retries or self._is_late(pause)
        if err.retry != "same-request" or is_last:
            raise err
        self._failed, self._last = self._failed + 1, err
        if self._timeout is not None:
            self._timeout = max(self._ends - time.monotonic() - pause, 0.001)
        return pause

    def unanswered(self, err: Exception) -> MooringError:
        """Returns the failure of an attempt that has no answer."""
        url = self._settings.url
        if isinstance(err, httpx.TimeoutException) and not _kernel(err):
            message = f"{url} has sent nothing for {self._wait:g} s"
            return failure("SocketTimeout", self._silent, message)
        cause = err.__cause__ or err
        return failure("NoAnswer", self._unknown, f"no answer from {url}: {err or cause!r}")

    def refused(self, response: httpx.Response, text: bytes) -> MooringError:
        """Returns the failure of an attempt that an answer says."""
        status = response.status_code
        try:
            err = MooringError(self._settings.codec.loads(text), status)
        except (ValueError, KeyError, TypeError):
            message = f"{status} {response.reason_phrase}, which is not a response of a gateway"
            retry = self._unknown if status in _OF_PROXIES else "never"
            err = failure("NoGateway", retry, message, status)
        after = response.headers.get("Retry-After", "")
        err.retry_after = float(after) if after.isdecimal() else None
        return err


def _kernel(err: Optional[BaseException]) -> bool:
    """Reports whether the kernel gave a connection up. The end of the client's own wait, which is
    an error of the same type, has no number."""
    while err is not None:
        if isinstance(err, OSError) and err.errno is not None:
            return True
        err = err.__cause__ or err.__context__
    return False


def answered(response: httpx.Response) -> bool:
    """Reports whether a response is an answer and no error."""
    return response.status_code < 300 or response.status_code == 304


class Lines:
    """Divides the bytes of a stream into lines. Only b"\\n" ends one, since texts in JSON may have
    the other separators that Python knows."""

    def __init__(self) -> None:
        self._begun: List[bytes] = []

    def feed(self, chunk: bytes) -> List[bytes]:
        """Returns the lines that end in a chunk."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            ended[0] = b"".join([*self._begun, ended[0]])
            self._begun = []
        if rest:
            self._begun.append(rest)
        return ended


def _is_final(err: MooringError, begun: bool) -> bool:
    """Reports whether a failure ends a stream of changes. One that has begun goes on if the gateway
    is silent while the stream is opened again, as it does after a silence in the middle."""
    return err.retry == "never" and not (begun and err.reason == "SocketTimeout")


class Resume:
    """Where a change stream goes on."""

    def __init__(self, options: Document):
        self.options = options
        self._token = options.get("startAfter")
        self._begun = False
        self._failures = 0

    def seen(self, line: Document) -> Optional[Document]:
        """Notes a line, and returns the change that it has."""
        self._begun, self._failures = True, 0
        change = line.get("document")
        self._token = change["_id"] if change else line["progress"]["resumeToken"]
        rest = {
            k: v for k, v in self.options.items() if not k.startswith(("resume", "startAt"))
        }
        self.options = {**rest, "startAfter": self._token}
        return change

    def pause(self, err: MooringError) -> float:
        """Returns how long to wait before the stream goes on, in seconds. If it cannot, it raises
        the failure."""
        is_final = _is_final(err, self._begun)
        # FAILED_PRECONDITION: the deployment has lost what comes after the token.
        if is_final or err.status == "FAILED_PRECONDITION" or self._token is None:
            raise err
        self._failures += 1
        return backoff(self._failures, err.retry_after)


class Live:
    """What the caller has of live documents."""

    def __init__(self) -> None:
        self._shown: Dict[str, Any] = {}  # _ids by their text
        self._named: Optional[Set[str]] = None
        self._begun = False
        self._failures = 0

    def begin(self) -> None:
        """Begins another stream, which tells of all documents again."""
        self._named = set()

    def seen(self, line: Document) -> Iterator[Tuple[str, Optional[Document]]]:
        """Yields what a line tells the caller."""
        self._begun, self._failures = True, 0
        kind, document = next(iter(line.items()))
        if kind == "ready":
            gone = [] if self._named is None else [k for k in self._shown if k not in self._named]
            for key in gone:
                yield "removed", {"_id": self._shown.pop(key)}
            self._named = None
            yield kind, None
            return
        key = repr(document["_id"])
        if self._named is not None:
            self._named.add(key)
        had = key in self._shown
        if kind != "removed":
            self._shown[key] = document["_id"]
            yield "changed" if had else "added", document
        elif had:
            del self._shown[key]
            yield kind, document

    def pause(self, err: Optional[MooringError]) -> float:
        """Returns how long to wait before another stream, in seconds. If there is to be none, it
        raises the failure."""
        if err is not None and (_is_final(err, self._begun) or not self._begun):
            raise err
        self._failures += 1
        return backoff(self._failures, err.retry_after if err else None)
