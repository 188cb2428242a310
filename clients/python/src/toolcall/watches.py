"""Waiting for objects by a watch, never by asking again and again.

A Watch is one request to the API server that any number of waits share. It goes on over ends and breaks of the
connection from where it was; what it missed for too long it reads once for each object that is waited for.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from .errors import NotFound, ToolcallError
from .specs import JSON
from .transport import UNEXPECTED, Answer, Passing, Patience, Request, Transport

# The API server ends a watch after so many seconds; an answer that stands still for longer is dead.
_WATCH_SECONDS = 60
_DEAD_SECONDS = 75.0
_PAUSE = 0.05

# What comes to a wait: ("object", the object as it is now), ("deleted", as it was last), ("failed", a ToolcallError), and
# ("missing", {}) when it wasn't there: not any more, or not yet.
Events = SimpleQueue[tuple[str, Any]]


class Watch:
    """Watches the objects of a collection that a field selector chooses, in a thread of its own.

    When a request ends and nobody waits, the thread ends too; `begin` starts another one.

    path: of the collection; selector: e.g. "metadata.name=first"; patience: seconds without any answer after which the
    waits fail.
    """

    def __init__(self, transport: Transport, path: str, selector: str, patience: float) -> None:
        self._transport = transport
        self._path = path
        self._selector = selector
        self._seconds = patience
        self._patience = Patience(patience)
        self._lock = threading.Lock()
        self._waits: dict[str, list[Events]] = {}
        self._version = ""
        self._running = False
        self._closed = False
        self._answer: Answer | None = None

    @contextmanager
    def expecting(self, name: str, events: Events) -> Iterator[None]:
        """Has all that happens to the object come to `events`. Begin to expect it before you create it."""
        with self._lock:
            self._waits.setdefault(name, []).append(events)
        try:
            yield
        finally:
            with self._lock:
                self._waits[name].remove(events)
                if not self._waits[name]:
                    del self._waits[name]
                over = self._is_over()
            if over:
                self._abort()

    def begin(self, version: str) -> None:
        """Starts the watch at a resource version, unless it runs: what happened before isn't told."""
        with self._lock:
            if self._running:
                return
            self._running, self._version = True, version
            # An earlier one may have been used up.
            self._patience = Patience(self._seconds)
        threading.Thread(target=self._run, name=f"toolcall watch {self._selector}", daemon=True).start()

    def close(self) -> None:
        """Ends the watch as soon as nobody waits."""
        with self._lock:
            self._closed = True
            over = self._is_over()
        if over:
            self._abort()

    def _is_over(self) -> bool:
        return self._closed and not self._waits

    def _abort(self) -> None:
        answer = self._answer
        if answer is not None:
            answer.abort()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waits:
                    self._running = False
                    return
            began = time.monotonic()
            try:
                if not self._once():
                    self._catch_up()
                self._patience.worked()
                if time.monotonic() - began < 1 and not self._is_over():
                    time.sleep(_PAUSE)  # Whatever ends watches at once isn't asked in a tight loop.
            except Passing as error:
                if error.broke_off:  # A load balancer cuts what is quiet; the API server can be asked.
                    self._patience.answered(time.monotonic() - began)
                if not self._go_on(error):
                    return
            except ToolcallError as error:
                self._fail(error)
                return
            except Exception as error:  # Whoever waits has to hear of it.
                self._fail(ToolcallError(UNEXPECTED, f"the watch can't be understood: {error!r}"))
                raise

    def _go_on(self, error: Passing) -> bool:
        """Waits before the next attempt; False when it is time to give up."""
        try:
            if not self._is_over():
                self._patience.failed(error)
        except ToolcallError as over:
            self._fail(over)
            return False
        return True

    def _fail(self, error: ToolcallError) -> None:
        with self._lock:
            self._running = False
            waits = [events for each in self._waits.values() for events in each]
        for events in waits:
            # One for each: whoever gets it writes its call's name into it.
            own = copy.copy(error)
            own.__cause__ = error
            events.put(("failed", own))

    def _once(self) -> bool:
        """Watches until the server ends the watch. False when it doesn't know the version any more."""
        query = {
            "watch": "true",
            "fieldSelector": self._selector,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        try:
            answer = self._transport.open(Request("GET", self._path, query, read_timeout=_DEAD_SECONDS))
        except ToolcallError as error:
            if error.reason in ("Expired", "Gone"):
                return False
            raise
        with answer:
            with self._lock:
                over = self._is_over()
                self._answer = None if over else answer
            if over:
                return True
            try:
                return all(self._take(json.loads(line)) for line in lines(answer.chunks()))
            finally:
                with self._lock:
                    self._answer = None

    def _take(self, event: JSON) -> bool:
        """Passes an event on. False for the one that says that the version is too old."""
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            if thing.get("code") == 410:
                return False
            raise Passing(f"the watch failed: {thing.get('message', '')}")
        self._patience.worked()
        self._version = thing["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._tell(thing["metadata"]["name"], "deleted" if kind == "DELETED" else "object", thing)
        return True

    def _tell(self, name: str, what: str, thing: JSON) -> None:
        with self._lock:
            waits = list(self._waits.get(name, ()))
        for events in waits:
            events.put((what, thing))

    def _catch_up(self) -> None:
        """Finds the present version, then reads each object that is waited for: what happens later is watched."""
        found = self._transport.send_json("GET", self._path, query={"limit": "1", "fieldSelector": self._selector})
        with self._lock:
            names = list(self._waits)
        for name in names:
            try:
                self._tell(name, "object", self._transport.send_json("GET", f"{self._path}/{name}"))
            except NotFound:
                self._tell(name, "missing", {})
        self._version = found["metadata"]["resourceVersion"]


def lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a body, each when it is complete. A last line without its end isn't one."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
