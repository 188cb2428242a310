"""Requests to the API server, through the Kubernetes client's own connections and credentials.

The Kubernetes client hides the headers of answers and repeats requests by itself; output and files need the headers, and
a call must not be created twice. So this sends through the client's connection pool and repeats nothing. What may pass
is raised as Passing, everything else that isn't an answer as asked for is a ToolcallError.
"""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import IO, Any
from urllib.parse import urlencode

from . import interrupts
from .errors import ToolcallError, Unavailable, error_of_answer, invalid
from .specs import JSON

CONNECT_TIMEOUT = 10.0
# For how long a server is asked that has never answered: its address may be wrong.
UNREACHED_SECONDS = 10.0
READ_TIMEOUT = 60.0
# Answers after which the same request may succeed.
_PASSING = frozenset({429, *range(500, 600)} - {501, 507})
_LONGEST_PAUSE = 2.0
# An answer that broke off sooner is asked for again in longer and longer pauses.
_LASTED = 1.0


# How admission begins its refusal of an object that doesn't say who creates it, where nothing fills that in.
_ASKED = "spec.requestedBy must be the user of the request"
# The reason of an answer that says nothing of what became of the request.
UNEXPECTED = "UnexpectedAnswer"
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Passing(Exception):
    """Something that may pass: a broken connection, or an answer that asks for patience.

    reason: of the answer, or Unavailable; retry_after: seconds that the server asks to wait, or None; headers: of the answer, if
    there was one; broke_off: an answer had begun; unsent: the request certainly wasn't carried out; idle: nothing is broken, there was
    just nothing to read for as long as the request waits; unreached_since: when the request began, if the server has never answered any.
    """

    def __init__(self, why: str, retry_after: float | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.reason = "Unavailable"
        self.retry_after = retry_after
        self.headers: Mapping[str, str] = headers or {}
        self.broke_off = False
        self.unsent = False
        self.idle = False
        self.unreached_since: float | None = None


class Patience:
    """Waits longer after each failure in a row, and gives up `seconds` after the first of them, or sooner on a server that
    never answered."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failures = 0
        self._since: float | None = None

    def worked(self) -> None:
        """Ends the row of failures."""
        self._failures, self._since = 0, None

    def answered(self, seconds: float) -> None:
        """Begins the time anew: there was an answer, which lasted so long. Only a short one lengthens the pauses."""
        self._since = None
        if seconds >= _LASTED:
            self._failures = 0

    def failed(self, error: Passing) -> None:
        """Waits before the next attempt. Raises Unavailable when the time is over."""
        now, seconds = time.monotonic(), self._seconds
        if error.unreached_since is not None:
            seconds = min(seconds, UNREACHED_SECONDS)
            self._since = min(error.unreached_since, self._since or now)
        elif self._since is None:
            self._since = now
        self._failures += 1
        if now - self._since >= seconds:
            raise Unavailable(error.reason, f"no answer for {seconds:.0f} s: {error}") from error
        pause = min(0.05 * 2 ** min(self._failures - 1, 6), _LONGEST_PAUSE)
        interrupts.sleep(max(pause, min(error.retry_after or 0.0, _LONGEST_PAUSE)))

    def refused(self, error: ToolcallError) -> None:
        """As `failed`, after an answer that may change. Raises this answer when the time is over: the API server did answer."""
        try:
            self.failed(Passing(error.message))
        except Unavailable:
            raise error from None


@dataclass
class Request:
    """A request below the API server's address.

    body: bytes, or what has a `read` as a file has, sent from where it is; read_timeout: seconds that the answer may stand still.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | IO[bytes] | None = None
    read_timeout: float = READ_TIMEOUT


class Answer:
    """An answer whose body is still to be read. Close it, also after an error; `abort` ends a read of another thread."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes. A connection that breaks raises Passing. The context's interrupt breaks it."""
        try:
            with interrupts.calling(self.abort):
                for chunk in self._response.stream(1 << 16):
                    interrupts.check()
                    yield chunk
            interrupts.check()
        except _connection_errors() as error:
            interrupts.check()
            passing = _broken("the answer broke off", error)
            passing.broke_off = True
            raise passing from error

    def read(self) -> bytes:
        """All of the body."""
        return b"".join(self.chunks())

    def close(self) -> None:
        """Gives the connection back if the body was read, and closes it otherwise."""
        if not self._response.isclosed():
            self._response.close()
        self._response.release_conn()

    def abort(self) -> None:
        """Breaks the connection, so that a thread that reads from it stops."""
        connection = getattr(self._response, "connection", None)
        sock = getattr(connection, "sock", None)
        if sock is not None:
            try:
                # Not the method of the TLS socket, which changes what the other thread is using.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transport:
    """Sends requests with the credentials of a Kubernetes ApiClient."""

    def __init__(self, api_client: Any) -> None:
        self._client = api_client
        self._host: str = api_client.configuration.host.rstrip("/")
        self._pool = api_client.rest_client.pool_manager
        self._has_answered = False
        self._user: JSON | None = None  # What the API server said of the user, once the cluster has asked for it.

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        self._pool.clear()

    def open(self, request: Request) -> Answer:
        """Sends a request once and returns the answer, whose status is 2xx. Raises Passing or ToolcallError."""
        import urllib3

        headers = {**self._client.default_headers, **request.headers}
        self._client.update_params_for_auth(headers, [], ["BearerToken"])
        url = self._host + request.path + ("?" + _encoded(request.query) if request.query else "")
        read_timeout = request.read_timeout if self._has_answered else min(request.read_timeout, UNREACHED_SECONDS)
        timeout, began = urllib3.Timeout(connect=CONNECT_TIMEOUT, read=read_timeout), time.monotonic()
        try:
            response = self._pool.urlopen(
                request.method, url, body=request.body, headers=headers, timeout=timeout,
                retries=False, redirect=False, preload_content=False, enforce_content_length=True,
            )
        except _connection_errors() as error:
            if self._has_answered:
                raise _broken("the connection broke", error) from error
            passing = _broken(f"the API server at {self._host} can't be reached", error)
            passing.unreached_since = began
            raise passing from error
        self._has_answered = True
        answer = Answer(response)
        if answer.status == 401:
            raise self._unauthenticated(request, answer, headers)
        if not 200 <= answer.status < 300:
            _raise(answer)
        return answer

    def _unauthenticated(self, request: Request, answer: Answer, headers: Mapping[str, str]) -> ToolcallError:
        with answer:
            error = error_of_answer(401, answer.read())
        token = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
        message = f"the API server at {self._host} doesn't accept the credentials{expiry_of(token)}"
        # What was to be created wasn't. A credential that expires later says nothing of a call that was created before.
        return type(error)(error.reason, message, retry_safe=request.method == "POST")

    def send(self, request: Request) -> tuple[bytes, Mapping[str, str]]:
        """Sends a request once and reads the whole answer: its body and its headers."""
        with self.open(request) as answer:
            return answer.read(), answer.headers

    def create(self, path: str, body: JSON) -> JSON:
        """Sends a new call or session once. A cluster that doesn't fill in who creates it refuses it: then this asks the API
        server who that is, and sends the object again. The answer changes with the credentials, and is asked for anew."""
        try:
            return self.send_json("POST", path, self._signed(body))
        except ToolcallError as error:
            if error.reason != "Forbidden" or _ASKED not in error.message:
                raise
        try:
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            self._user = self._reviewed(review)
        except Passing as passing:
            passing.unsent = True  # The object was refused.
            raise
        return self.send_json("POST", path, self._signed(body))

    def _reviewed(self, review: JSON) -> JSON | None:
        """Who the API server says the user is; None where the answer doesn't say."""
        answer, _ = self.send(Request("POST", _REVIEWS, {}, _headers("POST"), _sendable(review)))
        status = _json_in(answer).get("status")
        return status.get("userInfo") if isinstance(status, dict) else None

    def _signed(self, body: JSON) -> JSON:
        return body if self._user is None else {**body, "spec": {**body["spec"], "requestedBy": self._user}}

    def send_json(
        self, method: str, path: str, body: JSON | None = None, query: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT,
    ) -> JSON:
        """Sends an object once and returns the answer's, or a list. A PATCH is a merge patch."""
        data = None if body is None else _sendable(body)
        answer, _ = self.send(Request(method, path, query or {}, _headers(method), data, read_timeout))
        found = _json_in(answer)
        metadata = found.get("metadata")
        if not isinstance(metadata, dict) or not ("uid" in metadata or "items" in found):
            raise _foreign(answer)
        return found


def _encoded(query: Mapping[str, str]) -> str:
    try:
        return urlencode(query)
    except UnicodeEncodeError as error:
        raise invalid(f"{error.object!r} can't be sent: it has half of a surrogate pair, which UTF-8 doesn't have") from error


def _sendable(body: JSON) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid(f"an argument can't be sent as JSON: {error}") from error


def _headers(method: str) -> Mapping[str, str]:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return {"Accept": "application/json", "Content-Type": kind}


def _json_in(answer: bytes) -> JSON:
    """The JSON object that an answer is. What a proxy says in the API server's place may be anything."""
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _foreign(answer)
    return found


def _foreign(answer: bytes) -> ToolcallError:
    return ToolcallError(UNEXPECTED, f"the answer isn't the API server's: {answer[:512].decode(errors='replace')}")


def _raise(answer: Answer) -> None:
    """Raises what an answer that isn't 2xx means."""
    with answer:
        headers = dict(answer.headers)
        body = answer.read()
    error = error_of_answer(answer.status, body)
    if answer.status in _PASSING:
        passing = Passing(str(error), _seconds(headers.get("Retry-After")), headers)
        passing.reason = error.reason
        passing.unsent = answer.status == 429
        raise passing
    error.headers = headers
    raise error


def expiry_of(authorization: str) -> str:
    """What a JSON Web Token says of its expiry, to be put behind a sentence; "" for what isn't one."""
    try:
        payload = authorization.split(".")[1]
        expiry = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"]
        at = datetime.fromtimestamp(expiry, timezone.utc)
    except (LookupError, ValueError, TypeError, OverflowError, OSError):
        return ""
    verb = "expired" if at <= datetime.now(timezone.utc) else "expires"
    return f", whose token {verb} at {at:%Y-%m-%dT%H:%M:%SZ}"


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdigit() else None


def _broken(what: str, error: Exception) -> Passing:
    import urllib3

    passing = Passing(f"{what}: {error}")
    passing.idle = isinstance(error, urllib3.exceptions.ReadTimeoutError)
    passing.unsent = isinstance(error, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError))
    return passing


def _connection_errors() -> tuple[type[Exception], ...]:
    import urllib3

    return (urllib3.exceptions.HTTPError, OSError)
