"""Errors by reason: what a program catches instead of looking at texts.

Every error is a ToolcallError with `reason`, `message`, `retry_safe`, `call` and `result`. `error_of_call` and
`error_of_answer` are pure: they choose the class for a call that has ended and for an answer of the API server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._reasons import CLASS_NAMES

if TYPE_CHECKING:
    from .results import Result


class ToolcallError(Exception):
    """Something that was asked for didn't happen.

    reason: one word in CamelCase, as in the call's status or the API server's answer.
    message: a sentence for a person or a model; it says what would be right where that is known.
    retry_safe: True when it is certain that no command was started, so that asking again repeats nothing.
    call: the name of the ToolCall, or None where there is none.
    result: what the call left, output included, or None. A CallEnded has one.
    headers: of the API server's answer that said so; empty where none did.
    """

    def __init__(self, reason: str, message: str, *, retry_safe: bool = False, call: str | None = None) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message
        self.retry_safe = retry_safe
        self.call = call
        self.result: Result | None = None
        self.headers: Mapping[str, str] = {}

    def __str__(self) -> str:
        of = f"call {self.call}: " if self.call else ""
        return f"{of}{self.reason}: {self.message}"


class CallEnded(ToolcallError):
    """A call ended otherwise than asked for. `result` is what it left."""

    result: Result


class Denied(CallEnded):
    """A policy or a right refused the call; nothing ran. The message says what would pass."""


class ApprovalNeeded(Denied):
    """A person has to approve the call, and hasn't: it was refused, or the time for it is over."""


class TimedOut(CallEnded):
    """The command ran longer than its time limit and was stopped. `result` has the output so far."""


class Cancelled(CallEnded):
    """Somebody cancelled the call, or its session was ended or suspended while it ran."""


class PodLost(CallEnded):
    """The pod is gone and left no result. Nobody knows how far the command came; the exit code is None."""


class NonZeroExit(CallEnded):
    """The command exited with another code than 0, or a signal or the memory limit ended it. Only with check=True."""


class NotFound(ToolcallError):
    """An environment, skill, session, call, program, directory or file isn't there."""


class Forbidden(ToolcallError):
    """The user may not do this, or the path may not be reached."""


class Unauthenticated(ToolcallError):
    """The API server doesn't accept the credentials. The message says when their token expires, where the token has that."""


class NotStarted(ToolcallError):
    """The command wasn't started, or the session isn't ready: an image, a pod, a node, a limit, an environment or a policy
    is at fault."""


class SessionEnded(ToolcallError):
    """The session has ended and takes no calls any more."""


class KeyReused(ToolcallError):
    """A call with this key exists and has other arguments. The new arguments ran nowhere."""


class FileFailed(ToolcallError):
    """An operation on a file failed; `reason` says how, e.g. IsDirectory, EditNotFound or NoSpace."""


class OutputNotKept(ToolcallError):
    """These bytes of an output aren't kept any more.

    resume_at: the offset of the next byte that is kept, or None where nothing is.
    """

    resume_at: int | None = None


class InvalidArgument(ToolcallError, ValueError):
    """An argument that can't be meant: nothing was sent, or the API server refuses the request as it is written."""


class Conflict(ToolcallError):
    """The object isn't in a state for this, e.g. a session that isn't ready.

    rest: of a list that took too long, where it goes on; "" where nothing does.
    """

    rest: str = ""


class Unavailable(ToolcallError):
    """The API server didn't answer for as long as the client goes on asking. A call that was created goes on."""


# The class of a denial follows from the phase, but for the first two. No call ends with the others.
_CLASSES: dict[str, type[ToolcallError]] = {reason: globals()[name] for reason, name in CLASS_NAMES.items()} | {
    "ApprovalDenied": ApprovalNeeded,
    "ApprovalExpired": ApprovalNeeded,
    "NotSupported": FileFailed,
    "OutputNotKept": OutputNotKept,
}

_CLASSES_OF_CODES: dict[int, type[ToolcallError]] = {
    400: InvalidArgument,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Conflict,
    412: FileFailed,
    413: InvalidArgument,
    416: InvalidArgument,
    422: InvalidArgument,
    429: Unavailable,
    507: FileFailed,
}


def error_of_call(phase: str, result: Result) -> ToolcallError:
    """The error for a call that has ended otherwise than asked for, from its phase and what it left."""
    kind = _CLASSES.get(result.reason, NotStarted)
    if phase == "Denied" and kind is not ApprovalNeeded:
        kind = Denied
    if phase == "Cancelled":
        kind = Cancelled
    message = result.message or f"the call ended as {phase}: {result.reason}"
    error = kind(result.reason, message, retry_safe=result.retry_safe, call=result.call)
    error.result = result
    return error


def error_of_answer(status: int, body: bytes) -> ToolcallError:
    """The error for an answer of the API server with this HTTP status and a body that may be a Kubernetes Status."""
    said = _status(body)
    reason = said.get("reason") or f"HTTP{status}"
    message = said.get("message") or body[:512].decode(errors="replace") or f"the API server answered {status}"
    by_code = _CLASSES_OF_CODES.get(status, Unavailable if status >= 500 else ToolcallError)
    kind = _CLASSES.get(reason, by_code)
    error = (by_code if issubclass(kind, CallEnded) else kind)(reason, message)
    if isinstance(error, OutputNotKept):
        error.resume_at = _resume_at(said)
    if isinstance(error, Conflict):
        error.rest = (said.get("metadata") or {}).get("continue") or ""
    return error


def error_of_start(message: str, default: str) -> ToolcallError:
    """The error for a session that couldn't start, whose message begins with the reason that a call would end with."""
    reason, colon, rest = message.partition(": ")
    if not colon or not reason.isalpha():
        reason, rest = default, message
    kind = _CLASSES.get(reason, NotStarted)
    if issubclass(kind, CallEnded):
        kind = NotStarted
    return kind(reason, rest, retry_safe=True)


def error_of_reason(reason: str, message: str) -> ToolcallError:
    """The error for something of this machine that failed for a reason that calls have too."""
    return _CLASSES[reason](reason, message, retry_safe=True)


def _status(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) and said.get("kind") == "Status" else {}


def _resume_at(said: dict[str, Any]) -> int | None:
    """The offset that the details of error 410 name."""
    for cause in (said.get("details") or {}).get("causes") or []:
        text = str(cause.get("message", ""))
        if text.isdigit():
            return int(text)
    return None


def invalid(message: str) -> InvalidArgument:
    """The error for an argument that can't be meant, before anything is sent."""
    return InvalidArgument("InvalidArgument", message, retry_safe=True)


@contextmanager
def about(call: str) -> Iterator[None]:
    """Names the call in an error that doesn't."""
    try:
        yield
    except ToolcallError as error:
        error.call = error.call or call
        raise
