"""Sessions: a workspace that lasts for many calls, and ends with the `with` block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue

from . import interrupts
from .calls import API, GIVE_UP_SECONDS, Calls, Order
from .commands import Commands
from .errors import NotFound, NotStarted, SessionEnded, ToolcallError, error_of_start, invalid
from .files import Files
from .specs import JSON, SessionOptions, join_path, metadata_of, name_for, session_spec
from .streams import GROUP
from .watches import Events, Watch

# Longer than a pod may take to start where the environment doesn't say otherwise, which is 120 s.
WAIT_SECONDS = 300.0
# The API's default.
MAX_LIFETIME_SECONDS = 28_800


class Session:
    """A session that is there.

    name: the ToolSession's name; uid: its UID; created, expires: when it was created, and when it ends at the latest;
    cwd: the directory that calls start in and that paths are below, the client's own: set it as you like; commands: runs
    commands; files: reads and writes files.

    As a context manager it ends with the block. Ending it twice, or after it has ended by itself, is no error.
    """

    def __init__(self, calls: Calls, session: JSON, cwd: str = "") -> None:
        self.calls = calls
        self.name: str = session["metadata"]["name"]
        self.uid: str = session["metadata"]["uid"]
        self.created = datetime.fromisoformat(session["metadata"].get("creationTimestamp", "1970-01-01T00:00:00Z"))
        self.expires = self.created + timedelta(seconds=session["spec"].get("maxLifetimeSeconds", MAX_LIFETIME_SECONDS))
        self.cwd = cwd
        self._watch = calls.watch(f"spec.sessionRef.name={self.name}")
        self._is_ended = False
        self._is_ours = False
        self.commands = Commands(self)
        self.files = Files(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with self.noting(error):
            self.end()

    def __repr__(self) -> str:
        return f"Session({self.name!r})"

    def end(self) -> None:
        """Ends the session for good: its calls are cancelled and its files go, unless a volume keeps them."""
        self._watch.close()
        self.calls.change(self._path(), {"end": True}, self.uid)
        self._is_ended = True

    @contextmanager
    def noting(self, error: BaseException | None) -> Iterator[None]:
        """Notes on an error that is on its way that the session couldn't be ended: it says more, and may be an interrupt."""
        try:
            yield
        except ToolcallError as failed:
            if error is None:
                raise
            error.add_note(f"session {self.name} couldn't be ended, and may go on: {failed}")

    def give_up(self) -> None:
        """Ends the session that `open_session` has made, unless it has a key: nobody waits for it any more."""
        if self._is_ours:
            self._watch.close()
            with interrupts.under(None):
                self.calls.change(self._path(), {"end": True}, self.uid, GIVE_UP_SECONDS)

    def opened(self, is_ours: bool, wait: float) -> Session:
        """Waits until the session can be used. Otherwise it is ended if it is this program's alone."""
        self._is_ours = is_ours
        try:
            self.wait_until_ready(or_suspended=True, wait=wait)
        except BaseException as error:
            with self.noting(error):
                self.give_up()
            raise
        return self

    def phase(self) -> str:
        """What the session is now: "Pending", "Ready", "Suspended" or "Ended". Raises NotFound when it is gone."""
        return (self._get().get("status") or {}).get("phase") or "Pending"

    def wait_until_ready(self, *, or_suspended: bool = False, wait: float = WAIT_SECONDS) -> None:
        """Waits until a call would start at once; with or_suspended also ends when a call would have it resumed first.

        Only a call, or a file's way up or down, resumes a suspended session; this doesn't. Raises NotFound when its environment
        isn't there, NotStarted when its pod can't be started, or it isn't ready after `wait` seconds, and SessionEnded when the
        session ends before for another reason.
        """
        until = time.monotonic() + checked_wait(wait)
        events: Events = SimpleQueue()
        phases = ("Ready", "Suspended") if or_suspended else ("Ready",)
        watch = Watch(
            self.calls.transport, f"{API}/{self.calls.namespace}/toolsessions", f"metadata.name={self.name}",
            self.calls.patience,
        )
        try:
            with interrupts.calling(lambda: events.put(("interrupted", None))), watch.expecting(self.name, events):
                session = self._get()
                watch.begin(session["metadata"]["resourceVersion"])
                while session.get("status", {}).get("phase") not in phases:
                    check_ended(session)
                    try:
                        session = self._next(events, until - time.monotonic())
                    except Empty:
                        raise not_ready(session, wait) from None
        finally:
            watch.close()

    def placed(self, spec: JSON) -> JSON:
        """The spec of a call that runs in this session."""
        directory = join_path(self.cwd, spec["workingDir"]) if "workingDir" in spec else self.cwd
        return {**spec, **self.reference(), **({"workingDir": directory} if directory else {})}

    def reference(self) -> JSON:
        """What binds a spec to this very session. Raises SessionEnded once this client has ended it."""
        if self._is_ended:
            raise SessionEnded("SessionEnded", f"session {self.name} was ended: nothing ran", retry_safe=True)
        return {"sessionRef": {"name": self.name, "uid": self.uid}}

    def watching(self, name: str) -> Watch:
        """The session's one watch: it tells of all of its calls."""
        return self._watch

    def watched(self, watch: Watch) -> None:
        """Nothing: the next call may use the watch, which ends by itself when nobody waits for a minute."""

    def proxy(self, what: str) -> str:
        """The path of the session's files or input."""
        return f"{GROUP}/{self.calls.namespace}/toolsessions/{self.name}/proxy/{what}"

    def _path(self) -> str:
        return f"{API}/{self.calls.namespace}/toolsessions/{self.name}"

    def _get(self) -> JSON:
        return self._checked(self.calls.fetch(self._path()))

    def _checked(self, session: JSON) -> JSON:
        """The session, if it is this very one and no later one of its name."""
        if session["metadata"]["uid"] != self.uid:
            raise NotFound("Deleted", f"session {self.name} is gone: another one has its name now", retry_safe=True)
        return session

    def _next(self, events: Events, seconds: float) -> JSON:
        what, thing = events.get(timeout=max(seconds, 0.0))
        if what == "interrupted":
            raise interrupts.Interrupted
        if what == "failed":
            raise thing
        if what == "deleted":
            raise NotFound("Deleted", f"session {self.name} was deleted", retry_safe=True)
        return self._get() if what == "missing" else self._checked(thing)


def open_session(calls: Calls, environment: str | None, options: SessionOptions) -> Session:
    """Creates a session and waits until it is ready, or finds the one of the same key and arguments.

    One that nobody waits for any more is ended, unless it has a key: it may be somebody else's too, and is found again by it.
    """
    spec = session_spec(environment, options)
    name = name_for(options.get("key"), "session")
    is_named, wait = options.get("key") is not None, checked_wait(options.get("wait", WAIT_SECONDS))
    try:
        made = calls.create(Order(name, spec, metadata=metadata_of(name, options), kind="ToolSession"))
    except ToolcallError:
        raise
    except BaseException as error:
        if not is_named:
            calls.give_up_unanswered(f"{API}/{calls.namespace}/toolsessions/{name}", None, {"end": True}, error)
        raise
    return Session(calls, made, options.get("cwd", "")).opened(not is_named, wait)


def check_ended(session: JSON) -> None:
    """Raises the error for a session that has ended."""
    status = session.get("status") or {}
    if status.get("phase") == "Ended":
        reason = status.get("reason", "SessionEnded")
        if reason == "StartFailed":
            raise error_of_start(status.get("message", ""), reason)
        message = f"session {session['metadata']['name']} has ended: {status.get('message') or reason}"
        raise SessionEnded(reason, message, retry_safe=True)


def not_ready(session: JSON, seconds: float) -> NotStarted:
    """The error for a session that isn't ready in time: why, as its status says."""
    status = session.get("status") or {}
    why = status.get("message") or "the operator hasn't said anything about it: see that it runs"
    message = f"session {session['metadata']['name']} isn't ready after {seconds:g} s: {why}"
    return NotStarted(status.get("reason") or "NotReady", message, retry_safe=True)


def checked_wait(seconds: float) -> float:
    """How long to wait for a session."""
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= threading.TIMEOUT_MAX:
        raise invalid(f"wait is {seconds!r}: give a number of seconds above 0")
    return seconds
