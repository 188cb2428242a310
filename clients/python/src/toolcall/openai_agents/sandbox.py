"""The sandbox client of the OpenAI Agents SDK. Importing it needs the package openai-agents."""

from __future__ import annotations

import io
import uuid
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.errors import (
    ExecTimeoutError, ExecTransportError, WorkspaceArchiveReadError, WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from agents.sandbox.snapshot import resolve_snapshot
from agents.sandbox.types import ExecResult

from ..aio import AsyncSession, AsyncToolcall
from ..errors import NotFound, TimedOut, ToolcallError
from ..specs import SessionOptions
from .workspace import Workspace


class ToolcallSandboxClientOptions(BaseSandboxClientOptions):  # type: ignore[misc]
    """environment: the ExecutionEnvironment, by default that of the namespace; workspace: the size of a volume."""

    type: Literal["toolcall"] = "toolcall"
    environment: str | None = None
    workspace: str | None = None


class ToolcallSandboxSessionState(SandboxSessionState):  # type: ignore[misc]
    """What it takes to find the session again."""

    type: Literal["toolcall"] = "toolcall"
    namespace: str
    session: str
    environment: str | None = None
    workspace: str | None = None


class ToolcallSandboxSession(BaseSandboxSession):  # type: ignore[misc]
    """A session as a sandbox. A command whose exit code nobody knows raises; it is never 0 or 1."""

    def __init__(self, state: ToolcallSandboxSessionState, workspace: Workspace) -> None:
        self.state = state
        self.workspace = workspace

    async def _prepare_backend_workspace(self) -> None:
        await self.workspace.session.files.mkdir(self.workspace.root)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> Any:
        try:
            done = await self.workspace.execute([str(part) for part in command], timeout)
        except TimedOut as error:
            raise ExecTimeoutError(command=command, timeout_s=timeout, cause=error) from error
        except ToolcallError as error:
            raise ExecTransportError(command=command, cause=error, retryable=error.retry_safe) from error
        return ExecResult(stdout=done.stdout, stderr=done.stderr, exit_code=done.exit_code)

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        """The bytes of a file."""
        _no_user(user)
        where = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self.workspace.session.files.read(Path(where).as_posix(), format="bytes"))
        except NotFound as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except ToolcallError as error:
            raise WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        """Writes a file whole."""
        _no_user(user)
        where = await self._validate_path_access(path, for_write=True)
        try:
            await self.workspace.session.files.write(Path(where).as_posix(), data.read())
        except ToolcallError as error:
            raise WorkspaceArchiveWriteError(path=path, cause=error) from error

    async def running(self) -> bool:
        """Whether a command would start at once."""
        return await self.workspace.is_running()

    async def persist_workspace(self) -> Any:
        """A tar archive of the workspace."""
        root = Path(self.workspace.root)
        try:
            return await self.workspace.pack({Path(p).as_posix() for p in self._persist_workspace_skip_relpaths()})
        except ToolcallError as error:
            raise WorkspaceArchiveReadError(path=root, cause=error) from error

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Writes what is in a tar archive into the workspace."""
        archive: Any = data
        try:
            await self.workspace.unpack(archive)
        except ToolcallError as error:
            raise WorkspaceArchiveWriteError(path=Path(self.workspace.root), cause=error) from error

    async def _shutdown_backend(self) -> None:
        await self.workspace.session.end()


class ToolcallSandboxClient(BaseSandboxClient[ToolcallSandboxClientOptions]):  # type: ignore[misc]
    """Makes sandboxes of sessions.

    client: an AsyncToolcall, whose namespace the sessions are in; instrumentation: the SDK's own, by default a plain one.
    """

    backend_id = "toolcall"
    supports_default_options = True

    def __init__(self, client: AsyncToolcall, instrumentation: Instrumentation | None = None) -> None:
        self._client = client
        self._instrumentation = instrumentation or Instrumentation()

    async def create(self, *, snapshot: Any = None, manifest: Manifest | None = None, options: Any = None) -> Any:
        """Makes a session. The manifest's variables are those of each command."""
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        wanted = options or ToolcallSandboxClientOptions()
        made = await self._open(wanted.environment, wanted.workspace)
        session_id = uuid.uuid4()
        state = ToolcallSandboxSessionState(
            session_id=session_id, manifest=manifest, snapshot=resolve_snapshot(snapshot, str(session_id)),
            namespace=self._client.namespace, session=made.name, environment=wanted.environment,
            workspace=wanted.workspace,
        )
        return await self._wrapped(state, made, preserved=False)

    async def resume(self, state: SandboxSessionState) -> Any:
        """The session that the state names if it is still there, and otherwise a new one."""
        if not isinstance(state, ToolcallSandboxSessionState):
            raise TypeError(f"the state is of {state.type}, not of toolcall: resume it with the client that made it")
        state.assert_path_grants_rebound()
        found = await self._found(state.session)
        made = found or await self._open(state.environment, state.workspace)
        if found is None:
            state.session, state.workspace_root_ready = made.name, False
        return await self._wrapped(state, made, preserved=found is not None)

    async def _found(self, name: str) -> AsyncSession | None:
        try:
            session = await self._client.connect(name)
            return None if await session.phase() == "Ended" else session
        except NotFound:
            return None

    async def delete(self, session: Any) -> Any:
        """Ends the session."""
        inner = session._inner
        if not isinstance(inner, ToolcallSandboxSession):
            raise TypeError("delete takes a session that ToolcallSandboxClient made")
        await inner.workspace.session.end()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> Any:
        """A state from what serialize_session_state made of it."""
        return self._deserialize_session_state_payload(payload, ToolcallSandboxSessionState)

    async def _open(self, environment: str | None, workspace: str | None) -> AsyncSession:
        options: SessionOptions = {"workspace": workspace} if workspace else {}
        return await self._client.session(environment, **options)

    async def _wrapped(self, state: ToolcallSandboxSessionState, session: AsyncSession, preserved: bool) -> Any:
        env = dict(await state.manifest.environment.resolve())
        inner = ToolcallSandboxSession(state, Workspace(session, state.manifest.root, env))
        inner._set_start_state_preserved(preserved)
        return self._wrap_session(inner, instrumentation=self._instrumentation)


def _no_user(user: Any) -> None:
    if user is not None:
        raise ValueError("user isn't supported: each command runs as the user of its pod")
