"""Creates calls, at most once each, waits for their end and cancels those that nobody waits for any more.

A call has its name before it is sent. When an answer is lost, the same name is sent again: the API server takes it once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple
from weakref import WeakSet

from . import interrupts
from .errors import Conflict, InvalidArgument, KeyReused, NotFound, ToolcallError, Unavailable, about, error_of_call, invalid
from .results import Result, is_finished, result_of, unheard
from .specs import JSON, RunOptions, is_same, is_same_session, metadata_of, named
from .streams import GROUP, STREAMS, Live, Log
from .transport import READ_TIMEOUT, UNEXPECTED, Passing, Patience, Transport
from .watches import Events, Watch

API = "/apis/toolcall.dev/v1alpha1/namespaces"
VERSION = "toolcall.dev/v1alpha1"
# A command's own failures: an error only if the caller asks for it.
_COMMANDS_OWN = frozenset({"NonZeroExit", "Signaled", "OOMKilled"})
# How many pieces of output wait for a slow callback before following waits too.
_PIECES = 64
# How long after the first request that may have arrived the create request for a call is repeated. The name of one that was created
# and has ended is taken for 300 s in a session: repeated after that, the request would run the command again. A session runs nothing.
_REPEAT_SECONDS = 60.0
# How long giving up goes on trying to cancel a call or end a session, and how long each of its requests may take to be answered.
GIVE_UP_SECONDS = 10.0
# How long a create request that was given up may still be on its way.
_LATE_SECONDS = 2.0


@dataclass
class Order:
    """A call to run: its name, its spec, whether exit codes other than 0 are errors, who takes its live output, and its metadata
    where that is more than the name. Or a session to make, which has none of the options of calls."""

    name: str
    spec: JSON
    check: bool = False
    live: dict[str, Callable[[str], object]] = field(default_factory=dict)
    metadata: JSON | None = None
    kind: str = "ToolCall"

    @property
    def call(self) -> str | None:
        """The name, if it is a call's."""
        return self.name if self.kind == "ToolCall" else None


def order_of(name: str, spec: JSON, options: RunOptions) -> Order:
    """An order with what `options` say about waiting."""
    given = {"stdout": options.get("on_stdout"), "stderr": options.get("on_stderr")}
    live = {stream: callback for stream, callback in given.items() if callback is not None}
    for stream, callback in live.items():
        if not callable(callback):
            raise invalid(f"on_{stream} is {callback!r}: give a function, e.g. the write method of a file")
    return Order(name, spec, options.get("check", False), live, metadata_of(name, options))


class Calls:
    """The calls of a namespace. patience: seconds without any answer of the API server before a wait fails."""

    def __init__(self, transport: Transport, namespace: str, patience: float) -> None:
        self.transport = transport
        self.namespace = namespace
        self.patience = patience
        self.path = f"{API}/{namespace}/toolcalls"
        self._watches: WeakSet[Watch] = WeakSet()

    def close(self) -> None:
        """Ends each watch as soon as nobody waits for it, and closes the connections that nobody uses."""
        for watch in list(self._watches):
            watch.close()
        self.transport.close()

    def watch(self, selector: str) -> Watch:
        """A watch of the calls that a field selector chooses."""
        watch = Watch(self.transport, self.path, selector, self.patience)
        self._watches.add(watch)
        return watch

    def run(self, order: Order, watch: Watch) -> Result:
        """Creates a call, or finds the same one, and waits for its end. Given up, it cancels the call."""
        return settled(result_of(self.run_call(order, watch)), order.check)

    def run_call(self, order: Order, watch: Watch) -> JSON:
        """As `run`, and returns the ToolCall however it has ended."""
        events: Events = SimpleQueue()
        with interrupts.calling(lambda: events.put(("interrupted", None))), watch.expecting(order.name, events):
            return self._wait(order, self.start(order, events), watch, events)

    def start(self, order: Order, events: Events | None = None) -> JSON:
        """As `create`. Given up, it cancels the call."""
        interrupts.check()
        try:
            return self.create(order, events)
        except ToolcallError:
            raise
        except BaseException as error:  # KeyboardInterrupt, or a task's cancellation: the call may be there.
            self.give_up_unanswered(f"{self.path}/{order.name}", order.spec, {"cancel": True}, error)
            raise

    def wait(self, order: Order, watch: Watch, uid: str) -> Result:
        """Waits for the end of a call that exists. Given up, it leaves the call alone."""
        events: Events = SimpleQueue()
        with interrupts.calling(lambda: events.put(("interrupted", None))), watch.expecting(order.name, events):
            call = self.get(order.name)
            if call["metadata"]["uid"] != uid:
                raise _gone(order.name)
            watch.begin(call["metadata"]["resourceVersion"])
            try:
                finished, _ = self._end(call, events, {})
            except _EndUnknown as unknown:
                raise unknown.error from unknown.error.__cause__
            return settled(result_of(finished), order.check)

    def create(self, order: Order, events: Events | None = None) -> JSON:
        """Creates a call or a session and returns it. One of this name with the same arguments is the same one; another is KeyReused."""
        body = {"apiVersion": VERSION, "kind": order.kind, "metadata": order.metadata or {"name": order.name}, "spec": order.spec}
        patience = Patience(self.patience)
        sent: float | None = None  # When the first request began that may have arrived.
        while True:
            seen = self._seen(order, events) if sent is not None and events is not None else None
            if seen is not None:
                return seen
            now = time.monotonic()
            if order.call and sent is not None and now - sent >= _REPEAT_SECONDS:
                return self._found(order)
            try:
                return self.transport.create(self._objects(order), body)
            except Passing as error:
                if sent is None and not error.unsent:
                    sent = now
                try:
                    patience.failed(error)
                except Unavailable as over:
                    over.retry_safe, over.call = sent is None, order.call
                    raise
            except ToolcallError as error:
                # A refusal says nothing of the requests before it: what is there does.
                there = self._there(order) if error.reason == "AlreadyExists" or sent is not None else None
                if there is not None:
                    return there
                if error.reason == "AlreadyExists" and order.call and sent is not None:
                    raise _gone(order.name) from error
                # Nothing runs after a refusal. After a lost answer, the refusal is only of the repetition.
                error.retry_safe, error.call = sent is None and error.reason != UNEXPECTED, order.call
                if error.reason not in ("AlreadyExists", "Conflict"):
                    raise
                # What had the name has just gone, or others came in between, as where a quota counts: the same request may pass now.
                patience.refused(error)

    def get(self, name: str) -> JSON:
        """A call as it is now."""
        with about(name):
            return self.fetch(self.path_of(name))

    def path_of(self, name: str) -> str:
        """The path of a call. Raises InvalidArgument for what can't be a name."""
        return f"{self.path}/{named('call', name)}"

    def fetch(self, path: str, query: Mapping[str, str] | None = None) -> JSON:
        """An object, or a page of a list."""
        patience = Patience(self.patience)
        while True:
            try:
                return self.transport.send_json("GET", path, query=query)
            except Passing as error:
                patience.failed(error)

    def cancel(self, name: str, uid: str = "") -> None:
        """Asks the operator to stop a call. One that has ended or is gone is left as it is, and with `uid` any other one."""
        with about(name):
            self.change(self.path_of(name), {"cancel": True}, uid)

    def change(self, path: str, spec: JSON, uid: str = "", seconds: float | None = None) -> None:
        """Sets fields of an object's spec. Nothing when the object is gone, or its name has become another one's.

        seconds: how long it goes on asking, and at most how long it waits for an answer.
        """
        patience = Patience(self.patience if seconds is None else seconds)
        timeout = READ_TIMEOUT if seconds is None else min(seconds, READ_TIMEOUT)
        body = {"spec": spec, **({"metadata": {"uid": uid}} if uid else {})}
        while True:
            try:
                self.transport.send_json("PATCH", path, body, read_timeout=timeout)
                return
            except NotFound:
                return
            except (Conflict, InvalidArgument) as error:  # Another UID is one or the other: it can't be changed.
                if uid and self._uid_at(path) != uid:
                    return
                if not isinstance(error, Conflict):
                    raise
                patience.refused(error)
            except Passing as error:
                patience.failed(error)

    def give_up(self, name: str, uid: str, cause: BaseException) -> None:
        """Cancels a call while `cause` is on its way, which is what the caller gets to know."""
        self._change_or_note(f"{self.path}/{name}", {"cancel": True}, uid, cause)

    def give_up_unanswered(self, path: str, wanted: JSON | None, end: JSON, cause: BaseException) -> None:
        """Sets `end` in the spec of an object whose create request may still arrive; `cause` is on its way to the caller.

        wanted: the spec that was sent, where the name isn't a random one: an object with another spec is somebody else's.
        """
        until = time.monotonic() + _LATE_SECONDS
        with interrupts.under(None):
            while True:
                try:
                    found = self.transport.send_json("GET", path, read_timeout=GIVE_UP_SECONDS)
                    break
                except (Passing, ToolcallError) as error:
                    if time.monotonic() >= until:
                        if not isinstance(error, NotFound):
                            cause.add_note(f"{path} may go on: {error}")
                        return
                    time.sleep(0.1)
        if wanted is None or is_same(found["spec"], wanted):
            self._change_or_note(path, end, found["metadata"]["uid"], cause)

    def _change_or_note(self, path: str, spec: JSON, uid: str, cause: BaseException) -> None:
        with interrupts.under(None):
            try:
                self.change(path, spec, uid, GIVE_UP_SECONDS)
            except ToolcallError as error:
                cause.add_note(f"{path} couldn't be stopped, and may go on: {error}")

    def _uid_at(self, path: str) -> str:
        try:
            uid: str = self.fetch(path)["metadata"]["uid"]
        except NotFound:
            return ""
        return uid

    def log(self, name: str, uid: str, stream: str | None, artifact: str = "") -> Log:
        """A stream of a call; with None, a file that it kept."""
        query = {"artifact": artifact} if stream is None else {"stream": stream}
        if uid:
            query["uid"] = uid
        return Log(self.transport, f"{GROUP}/{self.namespace}/toolcalls/{named('call', name)}/log", query, self.patience)

    def _seen(self, order: Order, events: Events) -> JSON | None:
        """The call, if the watch has seen it, even if it is gone by now."""
        while not events.empty():
            what, thing = events.get()
            if what == "interrupted":
                raise interrupts.Interrupted
            if what == "failed":
                raise thing
            if what != "missing":
                events.put((what, thing))
                return self._checked(order, thing)
        return None

    def _found(self, order: Order) -> JSON:
        """The call whose create request isn't repeated any more, if it is there."""
        there = self._there(order)
        if there is None:
            message = f"no answer to the create request for {_REPEAT_SECONDS:.0f} s, and the call isn't there: whether it ran isn't known"
            raise Unavailable("Unavailable", message, call=order.call)
        return there

    def _there(self, order: Order) -> JSON | None:
        """The call or session that has the name; None when there is none."""
        try:
            return self._checked(order, self.fetch(f"{self._objects(order)}/{order.name}"))
        except NotFound:
            return None
        except ToolcallError as error:
            error.call = order.call
            raise

    def _objects(self, order: Order) -> str:
        """The path of the objects of the kind."""
        return f"{API}/{self.namespace}/{order.kind.lower()}s"

    def _checked(self, order: Order, there: JSON) -> JSON:
        what, is_as_wanted = ("call", is_same) if order.call else ("session", is_same_session)
        if not is_as_wanted(there["spec"], order.spec):
            message = f"a {what} with the key {order.name} exists and has other arguments: use another key"
            raise KeyReused("KeyReused", message, retry_safe=True, call=order.call)
        return there

    def _wait(self, order: Order, call: JSON, watch: Watch, events: Events) -> JSON:
        uid: str = call["metadata"]["uid"]
        try:
            watch.begin(call["metadata"]["resourceVersion"])
            with self._following(order, call, events) as live:
                finished, lost = self._end(call, events, live)
        except _EndUnknown as unknown:
            # The caller hasn't given up: the call goes on, and its name finds it again.
            raise unknown.error from unknown.error.__cause__
        except BaseException as error:
            self.give_up(order.name, uid, error)
            raise
        raise_lost(lost, order.live, result_of(finished))
        return finished

    def _end(
        self, call: JSON, events: Events, live: dict[str, Callable[[str], object]]
    ) -> tuple[JSON, list[Lost]]:
        """The call when it has ended and all of its live output has been heard, and why some can't be. Raises _EndUnknown."""
        open_streams, heard = set(live), dict.fromkeys(live, 0)
        lost: list[Lost] = []
        finished = call if is_finished(call) else None
        while finished is None or open_streams:
            what, thing = events.get()
            if what in STREAMS:
                if isinstance(thing, str):
                    heard[what] += len(thing.encode())
                    live[what](thing)
                    continue
                open_streams.discard(what)
                if thing is not None:  # Following failed, which says nothing about the call.
                    lost.append(Lost(what, heard[what], thing))
            elif what == "interrupted":
                raise interrupts.Interrupted
            elif finished is None:
                try:
                    finished = self._finished(call["metadata"], what, thing)
                except ToolcallError as error:
                    error.call = call["metadata"]["name"]
                    raise _EndUnknown(error) from error
        return finished, lost

    def _finished(self, of: JSON, what: str, thing: Any) -> JSON | None:
        """What an event of the watch says of the end of the call with the metadata `of`; None when it hasn't ended."""
        if what == "failed":
            raise thing
        if what == "missing":
            thing = self.get(of["name"])
        if thing["metadata"]["uid"] != of["uid"]:
            return None  # An earlier call of this name, which was deleted.
        if is_finished(thing):
            found: JSON = thing
            return found
        if what == "deleted":
            raise _gone(of["name"])
        return None

    @contextmanager
    def _following(self, order: Order, call: JSON, events: Events) -> Iterator[dict[str, Callable[[str], object]]]:
        """Has the live output come to `events` too, and gives back who takes it."""
        room = threading.Semaphore(_PIECES)
        follows, stopped = [], threading.Event()

        def taker(stream: str) -> Callable[[str | Exception | None], None]:
            def take(piece: str | Exception | None) -> None:
                if not stopped.is_set():
                    room.acquire()
                    events.put((stream, piece))
            return take

        def heard(callback: Callable[[str], object]) -> Callable[[str], object]:
            def hear(text: str) -> None:
                room.release()
                callback(text)
            return hear

        for stream in order.live:
            log = self.log(order.name, call["metadata"]["uid"], stream)
            follows.append(Live(log, taker(stream)))
        try:
            yield {stream: heard(callback) for stream, callback in order.live.items()}
        finally:
            stopped.set()
            room.release(_PIECES)
            for follow in follows:
                follow.stop()


class _EndUnknown(Exception):
    """How the call has ended can't be known; `error` is what the caller gets. What callbacks raise is never one."""

    def __init__(self, error: ToolcallError) -> None:
        super().__init__(str(error))
        self.error = error


class Lost(NamedTuple):
    """Live output that couldn't be followed to its end: of which stream, behind how many bytes, and why."""

    stream: str
    heard: int
    error: Exception


def raise_lost(lost: list[Lost], callbacks: Mapping[str, Callable[[str], object]], result: Result) -> None:
    """Hands on what the result has of lost live output, and takes it off the list. Raises why the rest can't be had, unless the
    call's end says more: that of a lost pod, or of one that never ran."""
    for each in list(lost):
        stream, heard, why = each
        rest = unheard(result, stream, heard)
        if rest is not None:
            lost.remove(each)  # Before its callback, which may raise: no text is handed on twice.
        if rest:
            callbacks[stream](rest)
        if rest is None and (result.phase == "Succeeded" or result.reason in _COMMANDS_OWN):
            error = _stream_error(why)
            error.call, error.result = result.call, result
            raise error


def _stream_error(error: Exception) -> ToolcallError:
    if isinstance(error, ToolcallError):
        return error
    failed = ToolcallError("UnexpectedAnswer", f"the live output can't be understood: {error!r}")
    failed.__cause__ = error
    return failed


def settled(result: Result, check: bool) -> Result:
    """A result that is as it was asked for. Raises the error for another one."""
    if result.phase == "Succeeded" or (result.reason in _COMMANDS_OWN and not check):
        return result
    raise error_of_call(result.phase, result)


def _gone(name: str) -> NotFound:
    return NotFound("Deleted", "it was deleted before its end was seen: whether it ran isn't known", call=name)


