"""Errors of this machine's files, as the errors of this library."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from .errors import ToolcallError, error_of_reason, invalid

_REASONS = {
    errno.ENOENT: "FileNotFound",
    errno.EISDIR: "IsDirectory",
    errno.ENOTDIR: "NotDirectory",
    errno.EEXIST: "FileExists",
    errno.ENOTEMPTY: "FileExists",
    errno.EACCES: "PermissionDenied",
    errno.EPERM: "PermissionDenied",
    errno.ENOSPC: "NoSpace",
    errno.EDQUOT: "NoSpace",
    errno.EFBIG: "FileTooLarge",
}


@contextmanager
def local_errors(path: str) -> Iterator[None]:
    """Raises what goes wrong with a file of this machine as NotFound, Forbidden, FileFailed or InvalidArgument."""
    try:
        yield
    except OSError as error:
        raise local_error(error, path) from error
    except ValueError as error:  # A NUL character, or half of a surrogate pair.
        if isinstance(error, ToolcallError):
            raise
        raise invalid(f"the local path {path!r} can't be used: {error}") from error


def open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Opens a file of this machine to send it. Raises FileFailed for a pipe, which could be waited for forever, and for a device."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        message = f"the local file {os.fspath(path)} is neither a file nor a directory: copy what it has to a file"
        raise error_of_reason("FileError", message)
    return open(path, "rb")


def local_error(error: OSError, path: str) -> ToolcallError:
    """The error for an operation on a file of this machine that failed."""
    reason = _REASONS.get(error.errno or 0, "FileError")
    name = error.filename2 or error.filename or path
    advice = ": upload_dir and download_dir copy directories" if reason == "IsDirectory" else ""
    return error_of_reason(reason, f"the local file {name}: {error.strerror or error}{advice}")
