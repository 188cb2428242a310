"""Running commands: in a session, or each in a pod of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Literal, Protocol, Unpack, overload

from . import interrupts
from .calls import Calls, Lost, Order, order_of, raise_lost
from .errors import Conflict, OutputNotKept, ToolcallError, about, error_of_call, invalid
from .results import Output, Result, SomeCall, is_finished, result_of
from .specs import JSON, RunOptions, as_utf8, call_spec, check_options, name_for
from .streams import GROUP, Live, Log
from .transport import Passing, Patience, Request
from .watches import Watch

_INPUT_BYTES = 1 << 20
# How much of a stream is read at a time for its lines, and how long one request waits for more.
_LINES_BYTES = 1 << 20
_LINES_SECONDS = 30.0
_INPUT_OFFSET = "Toolcall-Input-Offset"
# For how long a session that says it is ready may still refuse.
_STARTING_SECONDS = 10.0
# How often a wait for another wait looks whether it was given up.
_LOOK = 0.1


class Place(Protocol):
    """Where calls run: what a spec gets so that it runs there, and the watch that tells of its end."""

    calls: Calls

    def placed(self, spec: JSON) -> JSON:
        """The spec of a call that runs here."""

    def watching(self, name: str) -> Watch:
        """A watch that tells of the call; give it back to `watched`."""

    def watched(self, watch: Watch) -> None:
        """Ends a watch that nobody else uses."""

    def wait_until_ready(self, *, or_suspended: bool = False) -> None:
        """Waits until calls here would start at once, or the session has to be resumed first."""


class Commands:
    """Runs commands in one place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @overload
    def run(
        self, command: str | None = None, *, background: Literal[True], **options: Unpack[RunOptions]
    ) -> BackgroundCall: ...

    @overload
    def run(
        self, command: str | None = None, *, background: Literal[False] = False, **options: Unpack[RunOptions]
    ) -> Result: ...

    def run(
        self, command: str | None = None, *, background: bool = False, **options: Unpack[RunOptions]
    ) -> Result | BackgroundCall:
        """Runs a command line, a program or code as one call, and returns its result when it has ended.

        `options` are those of RunOptions. With background=True, in a session only, it returns a BackgroundCall at once.
        A command that fails by itself is a result with another exit code than 0; what keeps a call from running, or
        stops it, is raised: Denied, TimedOut, PodLost and the other classes of `toolcall.errors`. KeyboardInterrupt,
        and in AsyncToolcall the cancellation of the task, cancel the call.
        """
        order = self.order(command, background, options)
        if background:
            return BackgroundCall(self._place, order, self._place.calls.start(order))
        watch = self._place.watching(order.name)
        try:
            return self._place.calls.run(order, watch)
        finally:
            self._place.watched(watch)

    def order(self, command: str | None, background: bool, options: RunOptions) -> Order:
        """The call that `run` would create."""
        check_options(options, RunOptions)
        spec = self._place.placed(call_spec(command, options))
        if background:
            spec["background"] = True
        return order_of(name_for(options.get("key"), "call"), spec, options)

    def output(
        self, call: SomeCall | str, stream: str = "stdout", offset: int = 0, limit: int | None = None
    ) -> bytes:
        """The bytes that a call wrote to `stream`, from `offset` on, at most `limit`: also what its result leaves out.

        `call` is a result, a background call, or a call's name. Raises OutputNotKept for bytes that aren't kept.
        """
        name, uid = _named(call)
        with about(name):
            return self._place.calls.log(name, uid, stream).read_all(offset, limit)

    def artifact(self, call: SomeCall | str, path: str) -> bytes:
        """A file that a call kept: `path` is one of its result's `artifacts`. Raises NotFound."""
        name, uid = _named(call)
        with about(name):
            return self._place.calls.log(name, uid, None, path).read_all(0)

    def connect(self, call: str) -> BackgroundCall:
        """A background call that is there, by its name, e.g. after the agent was restarted."""
        found = self._place.calls.get(call)
        if not found["spec"].get("background"):
            raise invalid(f"call {call} isn't a background call: run with its key waits for it")
        return BackgroundCall(self._place, Order(call, found["spec"]), found)


def _line(data: bytes) -> str:
    return data.removesuffix(b"\r").decode(errors="replace")


def _named(call: SomeCall | str) -> tuple[str, str]:
    """A call's name, and its UID where that is known."""
    return (call, "") if isinstance(call, str) else (call.call, call.uid)


class BackgroundCall:
    """A server or a watcher that runs beside the other calls of its session until it ends, is cancelled, or the session
    ends.

    call: the ToolCall's name; uid: its UID.
    """

    def __init__(self, place: Place, order: Order, call: JSON) -> None:
        self._place = place
        self._order = order
        # Unknown until the pod was asked: another handle may have written before.
        self._input_offset: int | None = None
        self.call: str = order.name
        self.uid: str = call["metadata"]["uid"]
        self._failure: Exception | None = None
        self._lost: list[Lost] = []
        self._handing_on = threading.RLock()
        self._live = [self._hear(stream, callback) for stream, callback in order.live.items()]

    def read(
        self, offset: int = 0, limit: int | None = None, *, stream: str = "stdout", wait_for: float | None = None
    ) -> Output:
        """What the command has written from `offset` on, at most `limit` bytes; also after its end.

        wait_for: seconds to wait until there is something at `offset` or the stream is complete; without it `read`
        returns what is there now. A call that was denied, or couldn't start, raises that.
        """
        with about(self.call):
            if wait_for is not None:
                self._log(stream).wait_for_more(offset, wait_for)
            output = self._log(stream).read(offset, limit)
        if output.complete and output.next_offset == 0:
            self._raise_if_nothing_ran()
        return output

    def lines(self, *, stream: str = "stdout") -> Iterator[str]:
        """The lines that the command writes, from the first on, each when it is complete, without its end; to the stream's end.

        A part that isn't kept is a line that says so. A call that was denied, or couldn't start, raises that.
        """
        offset, rest = 0, b""
        while True:
            try:
                output = self.read(offset, _LINES_BYTES, stream=stream, wait_for=_LINES_SECONDS)
            except OutputNotKept as error:
                if error.resume_at is None or error.resume_at <= offset:
                    raise
                missing = f"[{error.resume_at - offset} bytes were not kept]"
                yield from ([_line(rest)] if rest else []) + [missing]
                offset, rest = error.resume_at, b""
                continue
            *whole, rest = (rest + output.data).split(b"\n")
            yield from map(_line, whole)
            offset = output.next_offset
            if output.complete:
                yield from [_line(rest)] if rest else []
                return

    def write(self, text: str | bytes = b"", *, eof: bool = False) -> None:
        """Writes to the command's standard input, each byte once whatever breaks; eof=True closes it after that."""
        data = as_utf8("the text", text) if isinstance(text, str) else text
        while True:
            part, data = data[:_INPUT_BYTES], data[_INPUT_BYTES:]
            with about(self.call):
                self._send(part, eof and not data)
            if not data:
                return

    def wait(self) -> Result:
        """Waits for the end of the call. Raises as `run` does. Given up, it leaves the call running."""
        # Of this call alone: it may be one of another session than that of its handle.
        watch = self._place.calls.watch(f"metadata.name={self.call}")
        try:
            result = self._place.calls.wait(self._order, watch, self.uid)
        except ToolcallError as error:
            if error.result is not None:
                self._finish_live(error.result)
            raise
        finally:
            watch.close()
        self._finish_live(result)
        return result

    def cancel(self) -> None:
        """Stops the call. One that has ended is left as it is."""
        self._place.calls.cancel(self.call, self.uid)

    def kill(self) -> None:
        """The same as `cancel`, by the name that other libraries have for it."""
        self.cancel()

    def give_up(self) -> None:
        """Cancels a call whose start nobody waited for, and says nothing more of its output."""
        for live in self._live:
            live.stop()
        self.cancel()

    def _log(self, stream: str) -> Log:
        return self._place.calls.log(self.call, self.uid, stream)

    def _hear(self, stream: str, callback: Callable[[str], object]) -> Live:
        heard = 0

        def take(piece: str | Exception | None) -> None:
            nonlocal heard
            if isinstance(piece, Exception):
                self._lost.append(Lost(stream, heard, piece))
            elif piece is not None and self._failure is None:
                heard += len(piece.encode())
                try:
                    callback(piece)
                except Exception as error:  # The caller's own; `wait` raises it.
                    self._failure = error
                    with suppress(ToolcallError):  # The callback's own error says more.
                        self.cancel()

        return Live(self._log(stream), take)

    def _finish_live(self, result: Result) -> None:
        """Waits until all live output was heard, and raises what a callback raised, or why some can't be heard."""
        for live in self._live:
            live.join()
        # Of several waits one hands on what is left, and all end after that.
        while not self._handing_on.acquire(timeout=_LOOK):
            interrupts.check()
        try:
            if self._failure is None:
                raise_lost(self._lost, self._order.live, result)
        except Exception as error:  # Each wait raises it.
            self._failure = error
        finally:
            self._handing_on.release()
        if self._failure is not None:
            raise self._failure

    def _raise_if_nothing_ran(self) -> None:
        call = self._place.calls.get(self.call)
        if is_finished(call) and (result := result_of(call)).retry_safe:
            raise error_of_call(result.phase, result)

    def _send(self, part: bytes, eof: bool) -> None:
        """Sends a part of the input. The pod counts, so that a part whose answer was lost isn't taken twice."""
        base = self._ask_offset() if self._input_offset is None else self._input_offset
        # After an error nobody knows how much was taken: the next write asks.
        self._input_offset = None
        self._input_offset = self._send_from(base, part, eof)

    def _ask_offset(self) -> int:
        """Where the input goes on: a request with nothing in it is told."""
        patience, starting = Patience(self._place.calls.patience), Patience(_STARTING_SECONDS)
        while True:
            try:
                return self._send_once(0, b"", False)
            except Passing as error:
                patience.failed(error)
            except ToolcallError as error:
                right = _offset_in(error.headers)
                if right is not None:
                    return right
                self._check_refusal(error, starting)

    def _send_from(self, base: int, part: bytes, eof: bool) -> int:
        """Sends a part whose first byte has the offset `base` until all of it was taken, and returns the next offset."""
        patience, starting = Patience(self._place.calls.patience), Patience(_STARTING_SECONDS)
        lost = False
        while True:
            try:
                return self._send_once(base, part, eof)
            except Passing as error:
                before = base
                base, part = _without_taken(base, part, _offset_in(error.headers))
                lost = True
                if base > before:
                    patience.worked()
                patience.failed(error)
            except ToolcallError as error:
                right = _offset_in(error.headers)
                if right is None:
                    if lost and eof and not part and isinstance(error, Conflict) and is_finished(self._place.calls.get(self.call)):
                        return base  # The command has ended: with the end of its input, or without it.
                    self._check_refusal(error, starting)
                    continue
                if right == base:
                    # Nothing was taken: the input is closed. By this very request, if only its answer was lost.
                    if lost and eof and not part:
                        return base
                    raise
                if not lost:
                    base = right  # Somebody else wrote meanwhile; this part begins there.
                    continue
                if not base < right <= base + len(part):
                    raise
                base, part = _without_taken(base, part, right)
            if lost and not part and not eof:
                return base

    def _check_refusal(self, error: ToolcallError, starting: Patience) -> None:
        """Waits when the session's pod isn't there yet; raises the error when that isn't why, e.g. when the call has ended."""
        if not isinstance(error, Conflict) or is_finished(self._place.calls.get(self.call)):
            raise error
        # A suspended session cancels this call, and is resumed by another one, not by input: it may stay as it is.
        self._place.wait_until_ready(or_suspended=True)
        starting.refused(error)

    def _send_once(self, offset: int, part: bytes, eof: bool) -> int:
        """Sends bytes once, and returns the offset of the next one."""
        calls = self._place.calls
        session = self._order.spec["sessionRef"]["name"]
        query = {"call": self.call, "offset": str(offset), **({"eof": "true"} if eof else {})}
        path = f"{GROUP}/{calls.namespace}/toolsessions/{session}/proxy/input"
        calls.transport.send(Request("POST", path, query, {"Content-Type": "application/octet-stream"}, part))
        return offset + len(part)


def _without_taken(base: int, part: bytes, right: int | None) -> tuple[int, bytes]:
    """What is left of a part that may have been taken, when an answer says that the input goes on at `right`."""
    if right is None or not base <= right <= base + len(part):
        return base, part
    return right, part[right - base :]


def _offset_in(headers: Mapping[str, str]) -> int | None:
    """The offset of the next byte of input that an answer names."""
    for name, value in headers.items():
        if name.lower() == _INPUT_OFFSET.lower() and value.isdigit():
            return int(value)
    return None
