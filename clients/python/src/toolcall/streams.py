"""What a call writes, through the API for output: by range, to the end, and while it is written.

Bytes are counted, and every request names the offset that comes next. So a connection that breaks, or an operator that is
restarted, loses and doubles nothing.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import interrupts
from .errors import OutputNotKept, ToolcallError, invalid
from .results import Output
from .transport import READ_TIMEOUT, UNEXPECTED, Answer, Passing, Patience, Request, Transport

GROUP = "/apis/subresources.toolcall.dev/v1alpha1/namespaces"
STREAMS = ("stdout", "stderr")
_SHORTEST = 0.05
# How often a wait for a thread looks whether it was given up.
_LOOK = 0.1


@dataclass(frozen=True)
class Piece:
    """A part of a stream that was followed: where it begins, and its bytes; or how many bytes before it weren't kept."""

    offset: int
    data: bytes
    missing: int = 0


class Log:
    """One stream of one call, or one file that it kept.

    path: of the call's log; query: "stream", "stdout" or "stderr", or "artifact", a path; and "uid" of the call, so that no
    other of its name is read; patience: seconds without any answer after which reading fails with Unavailable.
    """

    def __init__(self, transport: Transport, path: str, query: dict[str, str], patience: float) -> None:
        if "artifact" not in query and query.get("stream") not in STREAMS:
            raise invalid(f"stream is {query.get('stream')!r}: it is 'stdout' or 'stderr'")
        self._transport = transport
        self._path = path
        self._query = query
        self._seconds = patience
        self._read_timeout = READ_TIMEOUT
        self._stopped = threading.Event()
        self._answer: Answer | None = None
        self._sha256 = ""  # Of the whole stream, as the last answer says it.

    def read(self, offset: int, limit: int | None = None) -> Output:
        """What there is from `offset` on, at most `limit` bytes. It ends before a part that wasn't kept.

        Raises OutputNotKept when `offset` is in such a part.
        """
        _check_range(offset, limit)
        patience, data = Patience(self._seconds), bytearray()
        while True:
            at = offset + len(data)
            try:
                with self._open(at, None if limit is None else limit - len(data)) as answer:
                    for chunk in answer.chunks():
                        data += chunk
                        patience.worked()
                at = offset + len(data)
                return Output(bytes(data), offset, at, _is_end(answer, at))
            except Passing as error:
                if limit is not None and len(data) >= limit:
                    return Output(bytes(data), offset, offset + len(data), False)
                patience.failed(error)

    def read_all(self, offset: int, limit: int | None = None) -> bytes:
        """All bytes from `offset` to the end of what was written so far, at most `limit`. Raises OutputNotKept at a gap.

        The SHA-256 of a complete stream is compared.
        """
        data = bytearray()
        while True:
            piece = self.read(offset + len(data), None if limit is None else limit - len(data))
            data += piece.data
            if piece.complete or limit is not None and len(data) >= limit or not piece.data:
                break
        is_whole = piece.complete and offset == 0
        if is_whole and self._sha256 and hashlib.sha256(data).hexdigest() != self._sha256:
            raise ToolcallError(UNEXPECTED, f"what was read hasn't the SHA-256 {self._sha256} of the stream")
        return bytes(data)

    def wait_for_more(self, offset: int, seconds: float) -> None:
        """Returns when there is a byte at `offset`, when the stream is complete, or after `seconds`."""
        self._read_timeout = min(self._read_timeout, max(seconds, _SHORTEST))
        timer = threading.Timer(seconds, self.stop)
        timer.daemon = True
        timer.start()
        try:
            for _ in self.follow(offset):
                return
        finally:
            timer.cancel()

    def follow(self, offset: int) -> Iterator[Piece]:
        """The stream from `offset` on as it is written, to its end. After `stop` it ends early."""
        patience, at = Patience(self._seconds), offset
        while not self._stopped.is_set():
            answer, before, began = None, at, time.monotonic()
            try:
                answer = self._open(at, None, follow=True)
                for piece in self._pieces(answer, at):
                    patience.worked()
                    at = piece.offset + len(piece.data)
                    yield piece
                if _is_end(answer, at):
                    return
                if at == before:
                    empty = Passing("the answer ended with nothing in it")
                    empty.broke_off = True
                    raise empty
            except OutputNotKept as error:
                if error.resume_at is None or error.resume_at <= at:
                    raise
                yield Piece(error.resume_at, b"", error.resume_at - at)
                at = error.resume_at
            except Passing as error:
                if not self._stopped.is_set():
                    self._wait(patience, error, time.monotonic() - began)
            finally:
                if answer is not None:
                    answer.close()

    def stop(self) -> None:
        """Ends a follow of another thread."""
        self._stopped.set()
        answer = self._answer
        if answer is not None:
            answer.abort()

    def _pieces(self, answer: Answer, at: int) -> Iterator[Piece]:
        self._answer = answer
        try:
            if self._stopped.is_set():
                return
            for chunk in answer.chunks():
                yield Piece(at, chunk)
                at += len(chunk)
        finally:
            self._answer = None

    def _wait(self, patience: Patience, error: Passing, seconds: float) -> None:
        """A stream that stands still, or is cut then, isn't a failure: only an API server that can't be asked is."""
        if error.idle:
            patience.worked()
            return
        if error.broke_off:
            patience.answered(seconds)
        patience.failed(error)

    def _open(self, offset: int, limit: int | None, follow: bool = False) -> Answer:
        query = {**self._query, "offset": str(offset)}
        if limit is not None:
            query["limit"] = str(limit)
        if follow:
            query["follow"] = "true"
        answer = self._transport.open(Request("GET", self._path, query, read_timeout=self._read_timeout))
        self._sha256 = answer.headers.get("Toolcall-Sha256", "")
        begins = answer.headers.get("Toolcall-Offset")
        if begins != str(offset):
            answer.close()
            raise ToolcallError(UNEXPECTED, f"asked for offset {offset}, the answer begins at {begins}")
        return answer


class Live:
    """Follows a stream in a thread of its own and hands on its text.

    take: called with each piece of text, and with None at the end or an exception when following fails. Characters that
    arrive in parts are put together.
    """

    def __init__(self, log: Log, take: Callable[[str | Exception | None], None]) -> None:
        self._log = log
        self._take = take
        self._thread = threading.Thread(target=self._run, name="toolcall output", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the follow early."""
        self._log.stop()

    def join(self) -> None:
        """Waits until all was handed on. The context's interrupt ends the wait."""
        while self._thread.is_alive():
            self._thread.join(_LOOK)
            interrupts.check()

    def _run(self) -> None:
        try:
            for text in texts(self._log.follow(0)):
                self._take(text)
        except Exception as error:  # Whoever waits for the end has to hear of it.
            self._take(error)
        else:
            self._take(None)


def texts(pieces: Iterator[Piece]) -> Iterator[str]:
    """The text of a stream. What isn't UTF-8 is U+FFFD; a part that wasn't kept is a line that says so."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        text = decoder.decode(piece.data, final=piece.missing > 0)
        if piece.missing:
            text += f"\n[{piece.missing} bytes were not kept]\n"
        if text:
            yield text
    rest = decoder.decode(b"", final=True)
    if rest:
        yield rest


def _is_end(answer: Answer, at: int) -> bool:
    """Whether the stream is complete and ends at this offset."""
    return answer.headers.get("Toolcall-Complete") == "true" and at >= int(answer.headers.get("Toolcall-Bytes", "0"))


def _check_range(offset: int, limit: int | None) -> None:
    if offset < 0:
        raise invalid(f"offset is {offset}: the first byte is 0")
    if limit is not None and limit < 1:
        raise invalid(f"limit is {limit}: ask for at least 1 byte, or leave it out for all there is")
