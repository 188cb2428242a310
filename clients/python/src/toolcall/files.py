"""Files of a session: read, written and searched without a process, and moved up and down at any size."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import posixpath
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, overload

from .archives import pack, unpack
from .calls import Order, settled
from .errors import FileFailed, ToolcallError, error_of_reason, invalid
from .local import local_errors, open_file
from .results import FileChange, FileInfo, Lines, Listing, Match, file_change, file_info, match_of, result_of
from .specs import JSON, as_utf8, is_in_home, join_path, name_for
from .transfers import Transfers

if TYPE_CHECKING:
    from .sessions import Session

# As much as a call's spec may hold; more goes another way.
_CALL_BYTES = 512 << 10
# What the pod says of a directory that isn't there or may not be read: it runs, whatever comes of the call.
_SAID_BY_POD = frozenset({
    "FileNotFound", "NotDirectory", "FileError", "PathNotAllowed", "PermissionDenied", "WorkingDirNotFound", "WorkingDirNotAllowed",
})

# `list` is a method below.
FileInfos = Listing[FileInfo]
Matches = Listing[Match]
Entries = list[JSON]


class Files:
    """The files of one session. Paths are absolute, in the home directory with "~/", or relative to the session's `cwd`.

    Every method raises NotFound, Forbidden or FileFailed for what can't be done; `reason` says why.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._transfers = Transfers(session, self._path_of, self._wake)
        self._image_directory = ""

    @overload
    def read(self, path: str, *, offset: int | None = None, limit: int | None = None) -> str: ...

    @overload
    def read(self, path: str, *, format: Literal["text"]) -> str: ...

    @overload
    def read(self, path: str, *, format: Literal["bytes"]) -> bytes: ...

    def read(
        self, path: str, *, offset: int | None = None, limit: int | None = None,
        format: Literal["text", "bytes"] = "text",
    ) -> str | bytes:
        """The whole content of a file, whatever its size; or `limit` lines of it from line `offset` on, the first is 1.

        As text, bytes that aren't UTF-8 are U+FFFD; format="bytes" gives all bytes as they are.
        """
        if offset is not None or limit is not None:
            return "".join(call["status"].get("stdout", "") for call in self._parts(path, 1 if offset is None else offset, limit))
        if format == "bytes":
            return self._get_bytes(path)
        call = self._call("Read", path, {"unit": "Bytes"})
        status = call["status"]
        stream = (status.get("streams") or {}).get("stdout") or {}
        if (status.get("file") or {}).get("truncated") or stream.get("invalidUTF8") or stream.get("truncated"):
            return self._get_bytes(path).decode(errors="replace")
        text: str = status.get("stdout", "")
        return text

    def read_lines(self, path: str, *, offset: int = 1, limit: int | None = None) -> Lines:
        """Lines of a file for a model, which is told in a `note` why there are none: the file isn't text, is empty, or ends before."""
        text = ""
        try:
            for call in self._parts(path, offset, limit):
                text += call["status"].get("stdout", "")
                is_binary = bool((call["status"].get("file") or {}).get("binary"))
                if is_binary or not text:
                    return Lines("", result_of(call).text, is_binary)
        except FileFailed as error:
            if error.reason != "FileTooLarge" or not text:
                raise
            return Lines(text, error.message)
        return Lines(text)

    def write(self, path: str, content: str | bytes, *, mode: str | None = None) -> FileChange:
        """Writes a file whole or not at all, and makes its parents. mode: permissions as octal digits, e.g. "0755"."""
        data = as_utf8("the content", content) if isinstance(content, str) else content
        if len(data) > _CALL_BYTES:
            if mode is not None:
                raise invalid(f"mode is for files of at most {_CALL_BYTES} bytes: write this one without, then run chmod")
            return self._transfers.put(path, io.BytesIO(data))
        fields: JSON = {"mode": mode} if mode is not None else {}
        if isinstance(content, str):
            fields["content"] = content
        else:
            fields["contentBase64"] = base64.b64encode(data).decode()
        return self._change("Write", path, fields)

    def edit(
        self, path: str, old: str = "", new: str = "", *, edits: Sequence[tuple[str, str]] = (), replace_all: bool = False
    ) -> FileChange:
        """Replaces a text that is in the file exactly once, or with replace_all each time.

        edits: several texts with what replaces them, in place of old and new. All of them are replaced, or none.
        """
        if not edits:
            return self._change("Edit", path, {"oldString": old, "newString": new, "replaceAll": replace_all})
        if old or new:
            raise invalid("edits is not used together with old and new: put that change into edits too")
        each: JSON = {"replaceAll": True} if replace_all else {}
        all_edits = [{"oldString": o, "newString": n, **each} for o, n in edits]
        return self._change("Edit", path, {"edits": all_edits})

    def list(self, path: str = ".", *, recursive: bool = False, respect_gitignore: bool = False) -> FileInfos:
        """What is in a directory, at most 1,000 entries, sorted; `truncated` says whether there are more.

        respect_gitignore: without what .gitignore names.
        """
        call = self._call("List", path, {"recursive": recursive, "respectGitIgnore": respect_gitignore})
        return Listing(map(file_info, entries_of(call)), _is_cut(call))

    def glob(self, pattern: str, path: str = ".", *, respect_gitignore: bool = False) -> FileInfos:
        """Files and directories whose path below `path` matches, e.g. "**/*.py"; at most 1,000, as in `list`."""
        call = self._call("Glob", path, {"pattern": pattern, "respectGitIgnore": respect_gitignore})
        return Listing(map(file_info, entries_of(call)), _is_cut(call))

    def grep(
        self, pattern: str, path: str = ".", *, literal: bool = False, glob: str | None = None, context_lines: int = 0,
        respect_gitignore: bool = False,
    ) -> Matches:
        """Lines that match an RE2 expression, or have a text with literal=True; at most 1,000, as in `list`.

        glob: only in files whose path matches. context_lines: so many lines before and after each, at most 20.
        respect_gitignore: not in what .gitignore names.
        """
        call = self._call("Grep", path, {
            "pattern": pattern, "literal": literal, "glob": glob or "", "contextLines": context_lines or None,
            "respectGitIgnore": respect_gitignore,
        })
        return Listing(map(match_of, entries_of(call)), _is_cut(call))

    def stat(self, path: str) -> FileInfo:
        """Describes a file, a directory or a link."""
        call = self._call("Stat", path, {})
        entry = file_info(json.loads(call["status"]["stdout"]))
        sha256 = (call["status"].get("file") or {}).get("sha256", "")
        return dataclasses.replace(entry, sha256=sha256)

    def exists(self, path: str) -> bool:
        """Whether something is there."""
        try:
            self.stat(path)
        except ToolcallError as error:
            if error.reason == "FileNotFound":
                return False
            raise
        return True

    def delete(self, path: str, *, recursive: bool = False) -> FileChange:
        """Deletes a file; a directory with recursive=True."""
        return self._change("Delete", path, {"recursive": recursive})

    def mkdir(self, path: str) -> FileChange:
        """Makes a directory and its parents. One that is there is left as it is."""
        return self._change("MakeDirectory", path, {})

    def move(self, path: str, destination: str, *, overwrite: bool = False) -> FileChange:
        """Gives a file or a directory another path."""
        return self._change("Move", path, {"destination": self._path_of(destination), "overwrite": overwrite})

    def upload(self, local: str | os.PathLike[str], path: str | None = None, *, archive: bool = False) -> FileChange:
        """Copies a local file of any size to `path`, by default to its own name in the session's directory.

        With archive=True the file is a tar archive, which is unpacked below the directory `path`.
        """
        to = os.path.basename(os.fspath(local)) if path is None else path
        with local_errors(os.fspath(local)), open_file(local) as file:
            return self._transfers.put(to, file, archive=archive)

    def upload_dir(self, local: str | os.PathLike[str], path: str | None = None) -> None:
        """Copies what is in a local directory below `path`, by default below its own name in the session's directory.

        Files that are there already are replaced, others stay. Raises Forbidden for a link that leads out of the directory.
        """
        to = os.path.basename(os.path.abspath(local)) if path is None else path
        with local_errors(os.fspath(local)), tempfile.TemporaryFile() as file:
            pack(os.fspath(local), file)
            self._transfers.put(to, file, archive=True)

    def download(
        self, path: str, local: str | os.PathLike[str] | None = None, *, archive: bool = False
    ) -> FileChange:
        """Copies a file of any size to a local file, by default to its own name in the present directory.

        The local file appears whole, its SHA-256 compared, or not at all. With archive=True, `path` is a directory, which
        becomes a tar archive.
        """
        to = os.fspath(os.path.basename(path) if local is None else local)
        with local_errors(to):
            return self._download(path, to, archive)

    def download_dir(self, path: str, local: str | os.PathLike[str] | None = None) -> None:
        """Copies a directory to a local one, by default of its own name in the present directory.

        The local directory may not be there yet, or is empty. It appears whole or not at all. Raises Forbidden for a link that
        leads out of the directory; what is neither file, directory nor link is left out.
        """
        to = os.path.abspath(os.path.basename(path.rstrip("/")) if local is None else local)
        with local_errors(to):
            if _is_taken(to):
                raise error_of_reason("FileExists", f"the local directory {to} isn't empty: name another one")
            where = tempfile.TemporaryDirectory(dir=os.path.dirname(to), prefix=".toolcall-")
            with where as beside, tempfile.TemporaryFile(dir=beside) as file:
                self._transfers.get(path, file, archive=True)
                tree = os.path.join(beside, "tree")
                os.mkdir(tree)
                unpack(file, tree)
                os.rename(tree, to)

    def _download(self, path: str, to: str, archive: bool) -> FileChange:
        directory = os.path.dirname(os.path.abspath(to))
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".toolcall-", delete=False) as file:
            try:
                sha256 = self._transfers.get(path, file, archive=archive)
                size = file.tell()
                file.close()
                os.chmod(file.name, _mode_for(to))
                os.replace(file.name, to)
            except BaseException:
                os.unlink(file.name)
                raise
        return FileChange(path, size, sha256)

    def _parts(self, path: str, offset: int, limit: int | None) -> Iterator[JSON]:
        """The calls that read lines, so many as it takes."""
        if offset < 1 or (limit is not None and limit < 1):
            raise invalid(f"offset {offset} and limit {limit} count lines: both are at least 1")
        left = limit
        while True:
            fields: JSON = {"unit": "Lines", "offset": offset, **({} if left is None else {"limit": left})}
            call = self._call("Read", path, fields)
            yield call
            said = call["status"].get("file") or {}
            if said.get("truncated") and not said.get("nextOffset"):
                message = f"{path} has a line that is too long to be read by lines: read it without offset and limit"
                raise FileFailed("FileTooLarge", message)
            left = None if left is None else left - said.get("lines", 0)
            if not said.get("nextOffset") or (left is not None and left <= 0):
                return
            offset = said["nextOffset"]

    def _change(self, operation: str, path: str, fields: JSON) -> FileChange:
        return file_change(self._call(operation, path, fields)["status"])

    def _call(self, operation: str, path: str, fields: JSON) -> JSON:
        """Runs a file action as a call, and returns the ToolCall."""
        action = {"operation": operation, "path": self._path_of(path), **{k: v for k, v in fields.items() if v not in (False, None)}}
        if action.get("glob") == "":
            del action["glob"]
        return self._run({"file": action})

    def _path_of(self, path: str) -> str:
        """A path below the session's cwd. A relative cwd counts from the image's working directory, as it does for commands."""
        joined = join_path(self._session.cwd, path)
        if not self._session.cwd or joined.startswith("/") or is_in_home(joined):
            return joined
        if not self._image_directory:
            call = self._run({"file": {"operation": "Stat", "path": "."}, "workingDir": "."})
            self._image_directory = json.loads(call["status"]["stdout"])["path"]
        return posixpath.join(self._image_directory, joined)

    def _wake(self) -> None:
        """Has a call wait for the session's pod, as every call does. The directory is what rules on paths allow most likely."""
        try:
            self._call("Stat", ".", {})
        except ToolcallError as error:
            if error.reason not in _SAID_BY_POD:
                raise

    def _run(self, spec: JSON) -> JSON:
        order = Order(name_for(None, "file"), {**spec, **self._session.reference()})
        call = self._session.calls.run_call(order, self._session.watching(order.name))
        settled(result_of(call), check=True)
        return call

    def _get_bytes(self, path: str) -> bytes:
        to = io.BytesIO()
        self._transfers.get(path, to)
        return to.getvalue()


def _is_cut(call: JSON) -> bool:
    return bool((call["status"].get("file") or {}).get("truncated"))


def entries_of(call: JSON) -> Entries:
    """The objects of a list or a search, one on each line. In a name, U+0085 and others that Python takes for ends of lines aren't."""
    text: str = call["status"].get("stdout", "")
    return [json.loads(line) for line in text.split("\n") if line]


def _is_taken(path: str) -> bool:
    """Whether something is there that isn't an empty directory."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.islink(path) or bool(os.listdir(path))


def _mode_for(path: str) -> int:
    """The permissions of the file that is replaced, or those of a new one."""
    try:
        return os.stat(path).st_mode & 0o7777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask
