"""What a sandbox session of the OpenAI Agents SDK needs, without the SDK: commands, and a workspace as a tar archive."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import IO

from ..aio import AsyncSession
from ..errors import Denied, NonZeroExit, NotFound, OutputNotKept, invalid
from ..results import Result
from ..specs import RunOptions

# As a shell says them, and as kubectl toolcall does: there is no exit code of the command's own.
_DENIED, _NOT_FOUND = 126, 127
# As Python's subprocess says it of a signal, roughly: there is no exit code. The message tells more.
_SIGNALED, _NO_CODE = ("Signaled", "OOMKilled"), -1
_SHELLS = (("sh", "-lc"), ("sh", "-c"), ("bash", "-lc"), ("bash", "-c"))


@dataclass(frozen=True)
class Executed:
    """A command that ended: its whole output and its exit code, 126 when it was denied, 127 without such a program, -1 when a signal ended it."""

    stdout: bytes
    stderr: bytes
    exit_code: int


class Workspace:
    """A directory of a session, called `root`.

    env: variables of each command.
    """

    def __init__(self, session: AsyncSession, root: str, env: dict[str, str]) -> None:
        self.session = session
        self.root = root
        self._env = env

    async def execute(self, command: Sequence[str], timeout: float | None) -> Executed:
        """Runs a program with arguments; what is prefixed by a shell and -c is run as a command line.

        Raises TimedOut, PodLost and others for a command whose exit code nobody knows.
        """
        options: RunOptions = {"cwd": self.root, **options_of(command)}  # type: ignore[misc]
        if self._env:
            options["env"] = self._env
        if timeout is not None:
            options["timeout"] = timeout
        line = line_of(command)
        try:
            result = await self.session.commands.run(line, **options)
        except Denied as error:
            return Executed(b"", error.message.encode(), _DENIED)
        except NotFound as error:
            if error.reason != "CommandNotFound":
                raise
            return Executed(b"", error.message.encode(), _NOT_FOUND)
        if result.reason in _SIGNALED:
            said = await self._whole(result, "stderr")
            return Executed(await self._whole(result, "stdout"), said + result.message.encode(), _NO_CODE)
        if result.exit_code is None:
            unknown = NonZeroExit(result.reason, result.message, call=result.call)
            unknown.result = result
            raise unknown
        return Executed(await self._whole(result, "stdout"), await self._whole(result, "stderr"), result.exit_code)

    async def _whole(self, result: Result, stream: str) -> bytes:
        text: str = getattr(result, stream)
        said = result.streams.get(stream)
        if said is None or not (said.truncated or said.invalid_utf8):
            return text.encode()
        try:
            return await self.session.commands.output(result, stream)
        except OutputNotKept:
            return text.encode()

    async def is_running(self) -> bool:
        """Whether a command would start at once."""
        try:
            return await self.session.phase() == "Ready"
        except NotFound:
            return False

    async def pack(self, skipped: Collection[str]) -> IO[bytes]:
        """A tar archive of the workspace, without the paths `skipped`, as a file at its start. Close it."""
        with tempfile.TemporaryDirectory(prefix="toolcall-") as beside:
            path = os.path.join(beside, "workspace.tar")
            await self.session.files.download(self.root, path, archive=True)
            with open(path, "rb") as whole:
                return without(whole, skipped)

    async def unpack(self, archive: IO[bytes]) -> None:
        """Writes what is in a tar archive into the workspace."""
        with tempfile.NamedTemporaryFile() as file:
            while block := archive.read(1 << 20):
                file.write(block)
            file.flush()
            await self.session.files.upload(file.name, self.root, archive=True)


def line_of(command: Sequence[str]) -> str | None:
    """The command line of a shell's call, e.g. of ("sh", "-lc", "ls"), or None for a program with arguments."""
    if len(command) == 3 and (command[0], command[1]) in _SHELLS:
        return command[2]
    return None


def options_of(command: Sequence[str]) -> RunOptions:
    """The program and its arguments, where the command isn't a shell's."""
    if not command:
        raise invalid("the command is empty: give a program and its arguments")
    if command[0] == "sudo":
        raise invalid("user isn't supported: each command runs as the user of its pod")
    if line_of(command) is not None:
        return {}
    return {"program": command[0], "args": list(command[1:])}


def without(archive: IO[bytes], skipped: Collection[str]) -> IO[bytes]:
    """A copy of a tar archive without some paths and all below them, as a file at its start."""
    copy = tempfile.TemporaryFile()
    with tarfile.open(fileobj=archive) as source, tarfile.open(fileobj=copy, mode="w") as to:
        for entry in source:
            path = os.path.normpath(entry.name)
            if any(path == skip or path.startswith(skip + "/") for skip in skipped):
                continue
            to.addfile(entry, source.extractfile(entry) if entry.isreg() else None)
    copy.seek(0)
    return copy
