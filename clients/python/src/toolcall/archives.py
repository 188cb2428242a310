"""Local directories as tar archives. What comes from a session isn't trusted: nothing of it is written outside its directory.

`tarfile` only reads the archive. Its own extraction is not used: the filter that makes it safe isn't in every Python 3.11.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from typing import IO

from .errors import FileFailed, Forbidden, ToolcallError
from .local import local_errors

_FILE, _DIRECTORY, _LINK = (tarfile.REGTYPE, tarfile.AREGTYPE), (tarfile.DIRTYPE,), (tarfile.SYMTYPE,)


def pack(directory: str, to: IO[bytes]) -> None:
    """Writes what is in a local directory into a tar archive. Links are packed as links.

    Raises Forbidden for a link that leads out of the directory, and for what is neither file, directory nor link.
    """
    with local_errors(directory), tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT) as archive:
        root = os.path.realpath(directory, strict=True)
        for path in _below(directory):
            _add(archive, root, path, os.path.relpath(path, directory).replace(os.sep, "/"))


def _below(directory: str) -> Iterator[str]:
    """The paths below a directory, each directory before what is in it. Links aren't followed."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)


def _add(archive: tarfile.TarFile, root: str, path: str, name: str) -> None:
    with local_errors(path):
        found = os.lstat(path)
        member = tarfile.TarInfo(name)
        member.mode, member.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
        if stat.S_ISREG(found.st_mode):
            _add_file(archive, member, path)
        elif stat.S_ISDIR(found.st_mode):
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
        elif stat.S_ISLNK(found.st_mode):
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
            if os.path.isabs(member.linkname) or not _is_inside(root, path):
                raise _refused(f"{path} is a link to {member.linkname}, outside the directory: remove it")
            archive.addfile(member)
        else:
            raise _refused(f"{path} is neither a file nor a directory nor a link: remove it")


def _add_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    """Adds a file as long as it is when it is opened."""
    with open(path, "rb") as file:
        member.size = os.fstat(file.fileno()).st_size
        try:
            archive.addfile(member, file)
        except OSError as error:
            if error.errno is None:  # That of tarfile.
                raise FileFailed("FileChanged", f"{path} became shorter while it was read: try again", retry_safe=True) from error
            raise


def unpack(archive: IO[bytes], directory: str) -> None:
    """Writes what is in a tar archive into a new, empty directory of ours, and nothing elsewhere.

    Raises Forbidden for a member or a link that leads out of the directory, and for what is neither file, directory nor link.
    """
    archive.seek(0)
    try:
        _unpack(archive, directory)
    except (tarfile.TarError, ValueError) as error:  # ValueError: e.g. a name with a NUL character.
        if isinstance(error, ToolcallError):
            raise
        raise FileFailed("FileError", f"the archive can't be read: {error}") from error


def _unpack(archive: IO[bytes], directory: str) -> None:
    links: list[tarfile.TarInfo] = []
    with tarfile.open(fileobj=archive, mode="r:") as members:
        for member in members:
            if member.type in _LINK:
                links.append(member)
            else:
                _write(members, member, _place(member, directory))
    # Links come last: nothing is written through one.
    for member in links:
        _link(member, _place(member, directory))
    root = os.path.realpath(directory)
    for member in links:
        if not _is_inside(root, _place(member, directory)):
            raise _refused(f"the link {member.name} leads to {member.linkname}, out of its directory")


def _place(member: tarfile.TarInfo, directory: str) -> str:
    """Where a member belongs."""
    steps = [step for step in member.name.split("/") if step not in ("", ".")]
    is_foreign = os.sep != "/" and any(character in member.name for character in (os.sep, ":"))
    if member.name.startswith("/") or ".." in steps or is_foreign:
        raise _refused(f"the archive has a member that leads out of its directory: {member.name!r}")
    return os.path.join(directory, *steps)


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    """Writes a file or a directory, so that its owner can go on writing there."""
    if member.type not in _FILE + _DIRECTORY:
        raise _refused(f"the archive's {member.name} is neither a file nor a directory nor a link")
    with local_errors(path):
        if member.type in _DIRECTORY:
            os.makedirs(path, exist_ok=True)
            os.chmod(path, member.mode & 0o777 | 0o700)
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        content = members.extractfile(member)
        assert content is not None
        with open(path, "xb") as file:
            while block := content.read(1 << 16):
                file.write(block)
        os.chmod(path, member.mode & 0o777)


def _link(member: tarfile.TarInfo, path: str) -> None:
    if os.path.isabs(member.linkname):
        raise _refused(f"the link {member.name} leads to {member.linkname}, out of its directory")
    with local_errors(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(member.linkname, path)


def _is_inside(root: str, link: str) -> bool:
    """Whether a link leads to a place below the directory, over whatever other links, also where nothing is."""
    return os.path.commonpath([root, os.path.realpath(link)]) == root


def _refused(message: str) -> Forbidden:
    return Forbidden("PathNotAllowed", message, retry_safe=True)
