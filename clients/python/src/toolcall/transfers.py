"""Files of any size, up and down, through the API for the files of a session. A file arrives whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from . import interrupts
from .errors import Conflict, FileFailed, ToolcallError
from .results import FileChange
from .transport import Answer, Passing, Patience, Request

if TYPE_CHECKING:
    from .sessions import Session

_BLOCK = 1 << 16
# How often an archive that breaks off is begun again: the server breaks it off for good reasons too, and can't say so.
_ARCHIVES = 5
# A policy can bound how much of a file one answer has. Then it is asked for in parts, the largest that it allows between these, in bytes.
_MAX_PART, _MIN_PART = 16 << 20, 64 << 10


class Transfers:
    """Moves files between this machine and one session.

    path_of: a path as the session's pod has it; wake: waits until the session has a pod, and resumes a suspended one.
    """

    def __init__(self, session: Session, path_of: Callable[[str], str], wake: Callable[[], None]) -> None:
        self._session = session
        self._path_of = path_of
        self._wake = wake

    def put(self, path: str, file: IO[bytes], *, archive: bool = False) -> FileChange:
        """Sends a file from its start. A request whose answer was lost is only repeated if the file isn't there."""
        sha256, size = _sum(file)
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        patience, lost = Patience(self._session.calls.patience), False
        while True:
            try:
                if lost and not archive and self._sha256(path) == sha256:
                    return FileChange(path, size, sha256)
                file.seek(0)
                body: Any = _Body(file, size)
                request = Request("PUT", self._session.proxy("files"), self._query(path, archive), headers, body)
                with self._session.calls.transport.open(request) as answer:
                    answer.read()
                if not archive and answer.headers.get("ETag", "").strip('"') != sha256:
                    raise _changed("the local file changed while it was sent: send it again")
                return FileChange(path, size, sha256, created=answer.status == 201)
            except Passing as error:
                lost = True
                patience.failed(error)
            except Conflict as error:
                self._wait_for_session(error, patience)

    def get(self, path: str, to: IO[bytes], *, archive: bool = False) -> str:
        """Writes a file into `to`, goes on where a connection broke, and returns the SHA-256 that was compared.

        Of an archive there is no sum and no going on: one that breaks off is begun again, and the sum is "".
        """
        if archive:
            return self._get_archive(path, to)
        patience, etag, farthest, part, size = Patience(self._session.calls.patience), "", 0, 0, 0
        while True:
            try:
                with self._open(path, to, etag, part) as answer:
                    etag = answer.headers.get("ETag", "")
                    size = _size_in(answer.headers)
                    for chunk in answer.chunks():
                        to.write(chunk)
                        # Beginning again, because the file is another one now, is no progress.
                        if to.tell() > farthest:
                            farthest = to.tell()
                            patience.worked()
                if to.tell() >= size:
                    break
            except Passing as error:
                patience.failed(error)
            except Conflict as error:
                self._wait_for_session(error, patience)
            except FileFailed as error:
                if error.reason != "FileTooLarge" or part == _MIN_PART:
                    raise
                part = max(_MIN_PART, part // 2) if part else _MAX_PART
        sha256, _ = _sum(to)
        if etag.strip('"') != sha256:
            raise _changed(f"{path} changed while it was read: read it again")
        to.seek(0, 2)
        return sha256

    def _get_archive(self, path: str, to: IO[bytes]) -> str:
        patience, broken = Patience(self._session.calls.patience), 0
        while True:
            try:
                to.seek(0)
                to.truncate()
                with self._ask(path, archive=True) as answer:
                    for chunk in answer.chunks():
                        to.write(chunk)
                return ""
            except Passing as error:
                if error.broke_off:
                    broken += 1
                    patience.worked()
                if broken == _ARCHIVES:
                    raise FileFailed(
                        "FileError", f"the archive of {path} broke off {broken} times: see that each file in it can be "
                        "read, isn't larger than the policy allows, and isn't written to meanwhile",
                    ) from error
                patience.failed(error)
            except Conflict as error:
                self._wait_for_session(error, patience)

    def _open(self, path: str, to: IO[bytes], etag: str, part: int) -> Answer:
        """Asks for what isn't in `to` yet, at most `part` bytes of it unless that is 0, or for all of it where that can't be had or
        the file is another one."""
        at = to.tell() if etag else 0
        headers = {"Range": f"bytes={at}-{at + part - 1 if part else ''}"} if at or part else {}
        if at:
            # The whole of another file would be too large again.
            headers["If-Match" if part else "If-Range"] = etag
        answer = self._ask(path, headers=headers)
        if answer.status != 206:
            to.seek(0)
            to.truncate()
        return answer

    def _ask(self, path: str, *, archive: bool = False, headers: Mapping[str, str] | None = None) -> Answer:
        request = Request("GET", self._session.proxy("files"), self._query(path, archive), headers or {})
        return self._session.calls.transport.open(request)

    def _sha256(self, path: str) -> str:
        request = Request("HEAD", self._session.proxy("files"), self._query(path, False))
        try:
            _, headers = self._session.calls.transport.send(request)
        except ToolcallError:
            return ""
        return headers.get("ETag", "").strip('"')

    def _query(self, path: str, archive: bool) -> Mapping[str, str]:
        return {"path": self._path_of(path), **({"archive": "tar"} if archive else {})}

    def _wait_for_session(self, error: Conflict, patience: Patience) -> None:
        """Waits for a session that isn't ready, or is suspended. Any other conflict is raised."""
        if error.reason != "Conflict":
            raise error
        self._wake()
        patience.refused(error)


class _Body:
    """So many bytes of a file, from where it is: not what is written to its end meanwhile, which would be another request.

    The context's interrupt ends the reading.
    """

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        """At most `size` of the bytes that are left, all of them with -1. Raises FileFailed when the file is shorter now."""
        interrupts.check()
        block = self._file.read(self._left if size < 0 else min(size, self._left))
        if not block and self._left and size:
            raise _changed("the local file became shorter while it was sent: send it again")
        self._left -= len(block)
        return block


def _size_in(headers: Mapping[str, str]) -> int:
    """How many bytes the whole file has of which an answer is a part; 0 for one that isn't a part."""
    size = headers.get("Content-Range", "").rpartition("/")[2]
    return int(size) if size.isdigit() else 0


def _changed(message: str) -> FileFailed:
    return FileFailed("FileChanged", message)


def _sum(file: IO[bytes]) -> tuple[str, int]:
    """The SHA-256 of a file, in hexadecimal, and its size in bytes."""
    file.seek(0)
    digest, size = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        digest.update(block)
        size += len(block)
    return digest.hexdigest(), size
