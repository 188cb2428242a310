"""What comes back: results of calls, pieces of output, and what is said about files. Pure data and pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .specs import JSON

T = TypeVar("T")
TERMINAL = frozenset({"Succeeded", "Failed", "Denied", "Cancelled"})


@dataclass(frozen=True)
class Stream:
    """What a command wrote to one of its streams.

    bytes: how many; sha256: of all of them, hexadecimal, or "" where nobody saw all; truncated: the result's text isn't
    all of it; invalid_utf8: bytes that aren't UTF-8 are U+FFFD in the text.
    """

    bytes: int = 0
    sha256: str = ""
    truncated: bool = False
    invalid_utf8: bool = False


@dataclass(frozen=True)
class DeniedHost:
    """A host that a call looked up, or tried to connect to, and wasn't allowed to.

    host: the name, or the address where it wasn't looked up by a name; port: of TCP, or None for a lookup; count: how
    often.
    """

    host: str
    port: int | None
    count: int


@dataclass(frozen=True)
class Result:
    """A call that has ended.

    stdout, stderr: text that the command wrote; of a long stream the first and the last part, with a line between that
        says how much is missing. `commands.output` reads all of it.
    exit_code: of a command that ended by itself; None otherwise.
    text: one text for a model: the output, how the command ended unless with 0, what was refused, and how long it took.
    retry_safe: True when it is certain that the command never started.
    call: the ToolCall's name; uid: its UID.
    phase: "Succeeded", "Failed", "Denied" or "Cancelled"; reason: one word, e.g. "Completed"; message: a sentence.
    duration: seconds that the command ran, or None.
    streams: "stdout" and "stderr" to what is known of each.
    artifacts: paths of the files that were kept.
    denied_hosts: hosts that the call looked up or tried to connect to, and may not reach: the first 20.
    """

    stdout: str
    stderr: str
    exit_code: int | None
    text: str
    retry_safe: bool
    call: str
    reason: str
    phase: str
    message: str = ""
    uid: str = ""
    duration: float | None = None
    streams: dict[str, Stream] = field(default_factory=dict)
    artifacts: list[str] = field(default_factory=list)
    denied_hosts: list[DeniedHost] = field(default_factory=list)

    @property
    def truncated(self) -> bool:
        """Whether stdout or stderr isn't all that the command wrote."""
        return any(stream.truncated for stream in self.streams.values())


class SomeCall(Protocol):
    """A call: its result, or a background call."""

    @property
    def call(self) -> str:
        """The ToolCall's name."""

    @property
    def uid(self) -> str:
        """The ToolCall's UID."""


@dataclass(frozen=True)
class Output:
    """A piece of a stream of a call.

    data: its bytes; offset: where it begins; next_offset: where to go on; complete: the stream has ended and this piece
    reaches its end.
    """

    data: bytes
    offset: int
    next_offset: int
    complete: bool

    @property
    def text(self) -> str:
        """The bytes as text. What isn't UTF-8, also a character that was cut, is U+FFFD."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class FileInfo:
    """A file or directory.

    path: relative to what was listed, or absolute for `stat`; type: "File", "Directory", "Link", "Pipe", "Socket" or
    "Device"; size: bytes; mode: four octal digits; mod_time: RFC 3339; target: what is written in a link; sha256: of
    the content, where `stat` knows it. A field that doesn't apply is None or "".
    """

    path: str
    type: str = ""
    size: int | None = None
    mode: str = ""
    uid: int | None = None
    gid: int | None = None
    mod_time: str = ""
    target: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Match:
    """A line that a search found: its file, relative to where was searched, its number and column from 1, its text, and
    the lines before and after it that were asked for."""

    path: str
    line_number: int
    column: int
    line: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Listing(list[T]):
    """A list that says whether there is more.

    truncated: there is more than 1,000 entries, or than the policy lets a call return (64 KiB by default).
    """

    def __init__(self, items: Iterable[T] = (), truncated: bool = False) -> None:
        super().__init__(items)
        self.truncated = truncated


@dataclass(frozen=True)
class Lines:
    """Lines of a file for a model.

    text: the lines; note: where there are none to show, or not all, a sentence that says why, otherwise ""; binary: the file isn't text.
    """

    text: str
    note: str = ""
    binary: bool = False


@dataclass(frozen=True)
class FileChange:
    """What an operation did: the path with links resolved, the file's bytes and sha256 where they are known, whether it
    was created, how often a text was replaced, and how many entries were deleted."""

    path: str
    bytes: int | None = None
    sha256: str = ""
    created: bool = False
    replaced: int | None = None
    matches: int | None = None


@dataclass(frozen=True)
class CallInfo:
    """A ToolCall in a list. reason is "" before the operator has said anything; session is "" without one."""

    name: str
    phase: str
    reason: str
    session: str
    created: str


@dataclass(frozen=True)
class SessionInfo:
    """A ToolSession in a list: its phase is "Pending", "Ready", "Suspended" or "Ended"."""

    name: str
    phase: str
    reason: str
    created: str


def is_finished(call: JSON) -> bool:
    """Whether a ToolCall has ended, whatever the outcome."""
    conditions = (call.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Finished" and c.get("status") == "True" for c in conditions)


def result_of(call: JSON) -> Result:
    """The result of a ToolCall that has ended."""
    status: JSON = call.get("status", {})
    milliseconds = status.get("durationMilliseconds")
    phase = status.get("phase", "")
    # A denied call says nothing about it: nothing is ever started for one.
    retry_safe = status.get("retrySafe", phase == "Denied")
    return Result(
        stdout=status.get("stdout", ""),
        stderr=status.get("stderr", ""),
        exit_code=status.get("exitCode"),
        text=status.get("output", "") or status.get("message", ""),
        retry_safe=bool(retry_safe),
        call=call["metadata"]["name"],
        reason=status.get("reason", ""),
        phase=phase,
        message=status.get("message", ""),
        uid=call["metadata"].get("uid", ""),
        duration=None if milliseconds is None else milliseconds / 1000,
        streams={name: _stream(said) for name, said in (status.get("streams") or {}).items()},
        artifacts=[artifact["path"] for artifact in status.get("artifacts") or []],
        denied_hosts=[_denied_host(said) for said in (status.get("network") or {}).get("denied") or []],
    )


def unheard(result: Result, stream: str, heard: int) -> str | None:
    """What a result has of a stream behind its first bytes, of which so many were heard; None where it hasn't all of the stream."""
    whole = (result.stdout if stream == "stdout" else result.stderr).encode(errors="replace")
    said = result.streams.get(stream)
    if said is None or said.truncated or said.invalid_utf8 or said.bytes != len(whole):
        return None
    return whole[heard:].decode(errors="replace")


def _denied_host(said: JSON) -> DeniedHost:
    return DeniedHost(said["host"], said.get("port"), said["count"])


def _stream(said: JSON) -> Stream:
    return Stream(
        bytes=said.get("bytes", 0),
        sha256=said.get("sha256", ""),
        truncated=said.get("truncated", False),
        invalid_utf8=said.get("invalidUTF8", False),
    )


def file_info(said: JSON) -> FileInfo:
    """An entry of a list, a search by name or a stat."""
    return FileInfo(
        path=said["path"],
        type=said.get("type", ""),
        size=said.get("size"),
        mode=said.get("mode", ""),
        uid=said.get("uid"),
        gid=said.get("gid"),
        mod_time=said.get("modTime", ""),
        target=said.get("target", ""),
    )


def match_of(said: JSON) -> Match:
    """A line of a search's result."""
    before, after = tuple(said.get("before", ())), tuple(said.get("after", ()))
    return Match(said["path"], said["lineNumber"], said.get("column", 1), said.get("line", ""), before, after)


def file_change(status: JSON) -> FileChange:
    """What the status of a call says about a file that it changed."""
    said: dict[str, Any] = status.get("file") or {}
    return FileChange(
        path=said.get("path", ""),
        bytes=said.get("bytes"),
        sha256=said.get("sha256", ""),
        created=said.get("created", False),
        replaced=said.get("replaced"),
        matches=said.get("matches"),
    )


def call_info(call: JSON) -> CallInfo:
    """A ToolCall as a list shows it."""
    status, session = call.get("status") or {}, call["spec"].get("sessionRef") or {}
    return CallInfo(
        name=call["metadata"]["name"],
        phase=status.get("phase") or "Pending",
        reason=status.get("reason", ""),
        session=session.get("name", ""),
        created=call["metadata"].get("creationTimestamp", ""),
    )


def session_info(session: JSON) -> SessionInfo:
    """A ToolSession as a list shows it."""
    status = session.get("status") or {}
    return SessionInfo(
        name=session["metadata"]["name"],
        phase=status.get("phase") or "Pending",
        reason=status.get("reason", ""),
        created=session["metadata"].get("creationTimestamp", ""),
    )
