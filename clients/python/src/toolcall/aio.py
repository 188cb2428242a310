"""The same client for asyncio: each method is that of the blocking client, run in a thread and awaited.

The cancellation of a task reaches the thread as an Interrupt, so that it does what KeyboardInterrupt does there: it
cancels the call. Only then the task's CancelledError goes on.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from . import interrupts
from .client import Toolcall
from .commands import BackgroundCall, Commands
from .errors import ToolcallError, Unavailable
from .files import Files
from .results import CallInfo, Result, SessionInfo
from .sessions import Session
from .specs import RunOptions, SessionOptions

P = ParamSpec("P")
R = TypeVar("R")

# Threads are made when they are needed, one for each wait, and used again.
_THREADS = 512


class Threads:
    """The threads that do a client's work."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="toolcall")
        self._letting_go: set[asyncio.Future[None]] = set()

    async def run(self, work: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        """Does `work` in a thread. When the task is cancelled, the work is interrupted, and its end waited for.

        undo: called with the result of work that came to its end nevertheless, as nobody gets it.
        """
        interrupt = interrupts.Interrupt()

        def interruptible() -> R:
            with interrupts.under(interrupt):
                return work()

        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, interruptible)
        except RuntimeError as error:
            raise Unavailable("ClientClosed", "the client was closed", retry_safe=True) from error
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # Right here: a thread of its own may be long in coming, and a second cancellation would drop it.
            interrupt.set()
            # A task of its own, which a second cancellation leaves alone.
            letting_go = asyncio.ensure_future(self._let_go(future, undo))
            self._letting_go.add(letting_go)
            letting_go.add_done_callback(self._letting_go.discard)
            await asyncio.shield(letting_go)
            raise

    async def _let_go(self, future: asyncio.Future[R], undo: Callable[[R], object] | None) -> None:
        """Waits for the end of work that was given up, and undoes it. Nobody asks for its exception."""
        await asyncio.wait([future])
        if future.cancelled() or future.exception() is not None or undo is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, undo, future.result())
        except (ToolcallError, RuntimeError):  # RuntimeError: the client was closed meanwhile.
            pass  # It lasts until its time is over; the task was cancelled, and says only that.

    def close(self) -> None:
        """Lets the threads end when their work does."""
        self._executor.shutdown(wait=False)


class _Wrapper:
    """An object of the blocking client, and the threads that work for it."""

    def __init__(self, blocking: Any, threads: Threads) -> None:
        self._blocking = blocking
        self._threads = threads


class _Awaited(Generic[P, R]):
    """A method of the blocking class, awaited: the same parameters, result and errors."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, owner: _Wrapper, _: type | None = None) -> Callable[P, Coroutine[Any, Any, R]]:
        def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            return owner._threads.run(lambda: self._method(owner._blocking, *args, **kwargs))

        return call


class AsyncBackgroundCall(_Wrapper):
    """A BackgroundCall, awaited."""

    _blocking: BackgroundCall
    read = _Awaited(BackgroundCall.read)
    write = _Awaited(BackgroundCall.write)
    wait = _Awaited(BackgroundCall.wait)
    cancel = _Awaited(BackgroundCall.cancel)
    kill = _Awaited(BackgroundCall.kill)

    def lines(self, *, stream: str = "stdout") -> AsyncIterator[str]:
        """As `BackgroundCall.lines`, with `async for`."""
        return _each(self._threads, self._blocking.lines(stream=stream))

    @property
    def call(self) -> str:
        """The ToolCall's name."""
        return self._blocking.call

    @property
    def uid(self) -> str:
        """The ToolCall's UID."""
        return self._blocking.uid


class AsyncCommands(_Wrapper):
    """Commands, awaited."""

    _blocking: Commands
    output = _Awaited(Commands.output)
    artifact = _Awaited(Commands.artifact)

    @overload
    async def run(
        self, command: str | None = None, *, background: Literal[True], **options: Unpack[RunOptions]
    ) -> AsyncBackgroundCall: ...

    @overload
    async def run(
        self, command: str | None = None, *, background: Literal[False] = False, **options: Unpack[RunOptions]
    ) -> Result: ...

    async def run(
        self, command: str | None = None, *, background: bool = False, **options: Unpack[RunOptions]
    ) -> Result | AsyncBackgroundCall:
        """As `Commands.run`. Cancelling the task cancels the call."""
        _on_loop(options)
        if background:
            started = await self._threads.run(
                lambda: self._blocking.run(command, background=True, **options), BackgroundCall.give_up
            )
            return AsyncBackgroundCall(started, self._threads)
        return await self._threads.run(lambda: self._blocking.run(command, **options))

    async def connect(self, call: str) -> AsyncBackgroundCall:
        """As `Commands.connect`."""
        return AsyncBackgroundCall(await self._threads.run(lambda: self._blocking.connect(call)), self._threads)


class AsyncFiles(_Wrapper):
    """Files, awaited."""

    edit = _Awaited(Files.edit)
    read_lines = _Awaited(Files.read_lines)
    write = _Awaited(Files.write)
    list = _Awaited(Files.list)
    glob = _Awaited(Files.glob)
    grep = _Awaited(Files.grep)
    stat = _Awaited(Files.stat)
    exists = _Awaited(Files.exists)
    delete = _Awaited(Files.delete)
    mkdir = _Awaited(Files.mkdir)
    move = _Awaited(Files.move)
    upload = _Awaited(Files.upload)
    download = _Awaited(Files.download)
    upload_dir = _Awaited(Files.upload_dir)
    download_dir = _Awaited(Files.download_dir)

    @overload
    async def read(self, path: str, *, offset: int | None = None, limit: int | None = None) -> str: ...

    @overload
    async def read(self, path: str, *, format: Literal["text"]) -> str: ...

    @overload
    async def read(self, path: str, *, format: Literal["bytes"]) -> bytes: ...

    async def read(self, path: str, **how: Any) -> str | bytes:
        """As `Files.read`."""
        read: Callable[..., str | bytes] = self._blocking.read
        return await self._threads.run(lambda: read(path, **how))


class AsyncSession(_Wrapper):
    """A Session, awaited. `async with` ends it with the block."""

    _blocking: Session
    end = _Awaited(Session.end)
    phase = _Awaited(Session.phase)
    wait_until_ready = _Awaited(Session.wait_until_ready)

    def __init__(self, blocking: Session, threads: Threads) -> None:
        super().__init__(blocking, threads)
        self.commands = AsyncCommands(blocking.commands, threads)
        self.files = AsyncFiles(blocking.files, threads)
        self.name = blocking.name
        self.uid = blocking.uid
        self.created = blocking.created
        self.expires = blocking.expires

    @property
    def cwd(self) -> str:
        """The directory that calls start in and that paths are below, the client's own."""
        return self._blocking.cwd

    @cwd.setter
    def cwd(self, directory: str) -> None:
        self._blocking.cwd = directory

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        with self._blocking.noting(error):
            await self.end()


class _Opening:
    """A session that is made when it is awaited, or entered with `async with`."""

    def __init__(self, threads: Threads, make: Callable[[], Session]) -> None:
        self._threads = threads
        self._make = make
        self._session: AsyncSession | None = None

    async def _open(self) -> AsyncSession:
        return AsyncSession(await self._threads.run(self._make, Session.give_up), self._threads)

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncSession:
        self._session = await self._open()
        return self._session

    async def __aexit__(self, *of: Any) -> None:
        if self._session is not None:
            await self._session.__aexit__(*of)


class AsyncToolcall(_Wrapper):
    """Toolcall, awaited: the same arguments, methods, results and errors.

    `async with tc.session("repo") as s:` makes and ends a session; `s = await tc.session("repo")` only makes one.
    """

    _blocking: Toolcall
    output = _Awaited(Toolcall.output)
    artifact = _Awaited(Toolcall.artifact)
    cancel = _Awaited(Toolcall.cancel)

    def __init__(
        self, namespace: str | None = None, *, context: str | None = None, api_client: Any = None, patience: float = 300.0
    ) -> None:
        super().__init__(Toolcall(namespace, context=context, api_client=api_client, patience=patience), Threads())
        self.namespace = self._blocking.namespace

    def close(self) -> None:
        """Closes the client's connections, and lets its threads end. Sessions go on until they are ended."""
        self._threads.close()
        self._blocking.close()

    async def __aenter__(self) -> AsyncToolcall:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def run(
        self, command: str | None = None, *, environment: str | None = None, **options: Unpack[RunOptions]
    ) -> Result:
        """As `Toolcall.run`. Cancelling the task cancels the call."""
        _on_loop(options)
        return await self._threads.run(lambda: self._blocking.run(command, environment=environment, **options))

    def session(self, environment: str | None = None, **options: Unpack[SessionOptions]) -> _Opening:
        """As `Toolcall.session`, when it is awaited or entered."""
        return _Opening(self._threads, lambda: self._blocking.session(environment, **options))

    def connect(self, name: str, cwd: str = "") -> _Opening:
        """As `Toolcall.connect`, when it is awaited or entered."""
        return _Opening(self._threads, lambda: self._blocking.connect(name, cwd))

    def calls(self, *, session: str | None = None, phase: str | None = None, page: int = 200) -> AsyncIterator[CallInfo]:
        """As `Toolcall.calls`, with `async for`."""
        return _each(self._threads, self._blocking.calls(session=session, phase=phase, page=page))

    def sessions(self, *, phase: str | None = None, page: int = 200) -> AsyncIterator[SessionInfo]:
        """As `Toolcall.sessions`, with `async for`."""
        return _each(self._threads, self._blocking.sessions(phase=phase, page=page))


async def _each(threads: Threads, items: Iterator[R]) -> AsyncIterator[R]:
    end = object()
    while (item := await threads.run(lambda: next(items, end))) is not end:
        found: Any = item
        yield found


def _on_loop(options: RunOptions) -> None:
    """Has callbacks run on the event loop, and awaits those that are coroutine functions."""
    loop = asyncio.get_running_loop()

    def on_loop(callback: Callable[[str], object]) -> Callable[[str], object]:
        async def call(text: str) -> None:
            answer = callback(text)
            if inspect.isawaitable(answer):
                await answer

        def hear(text: str) -> object:
            if loop.is_closed():
                return None  # Nobody listens to a background call any more, which goes on.
            heard = asyncio.run_coroutine_threadsafe(call(text), loop)
            # The callback may wait for what was cancelled together with the call.
            with interrupts.calling(heard.cancel):
                try:
                    return heard.result()
                except CancelledError:
                    interrupts.check()
                    return None  # The event loop ends, and with it the callback.

        return hear

    if callable(options.get("on_stdout")):
        options["on_stdout"] = on_loop(options["on_stdout"])
    if callable(options.get("on_stderr")):
        options["on_stderr"] = on_loop(options["on_stderr"])
