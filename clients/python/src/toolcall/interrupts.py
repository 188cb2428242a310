"""Giving up a wait from another thread: how the cancellation of an asyncio task reaches the thread that works for it.

A thread that waits looks at the interrupt of its context. The main thread of a program without asyncio has none: there,
KeyboardInterrupt does the same by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Interrupted(BaseException):
    """The wait was given up. Like KeyboardInterrupt it isn't an Exception, so that no handler of errors takes it."""


class Interrupt:
    """Set once, by anyone; whoever waits is told."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    def set(self) -> None:
        """Has each wait of the context end with Interrupted."""
        with self._lock:
            self._set.set()
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def is_set(self) -> bool:
        """Whether the wait was given up."""
        return self._set.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleeps, and returns early with True when the interrupt is set."""
        return self._set.wait(seconds)

    @contextmanager
    def calling(self, callback: Callable[[], object]) -> Iterator[None]:
        """Has the interrupt call `callback`, at once if it is set already."""
        with self._lock:
            self._callbacks.append(callback)
            already = self._set.is_set()
        if already:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)


_current: ContextVar[Interrupt | None] = ContextVar("toolcall_interrupt", default=None)


@contextmanager
def under(interrupt: Interrupt | None) -> Iterator[None]:
    """Has the waits of this block look at `interrupt`; with None they can't be given up."""
    token = _current.set(interrupt)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def calling(callback: Callable[[], object]) -> Iterator[None]:
    """Has the context's interrupt, if there is one, call `callback`."""
    interrupt = _current.get()
    if interrupt is None:
        yield
        return
    with interrupt.calling(callback):
        yield


def check() -> None:
    """Raises Interrupted when the context's interrupt is set."""
    interrupt = _current.get()
    if interrupt is not None and interrupt.is_set():
        raise Interrupted


def sleep(seconds: float) -> None:
    """Sleeps. Raises Interrupted when the context's interrupt is set."""
    interrupt = _current.get()
    if interrupt is None:
        time.sleep(seconds)
    elif interrupt.wait(seconds):
        raise Interrupted
