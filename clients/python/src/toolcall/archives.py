"""Local directories as tar archives. What comes from a session isn't trusted: nothing of it is written outside its directory.

`tarfile` only reads the archive. Its own extraction is not used: the filter that makes it safe isn't in every Python 3.11.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from .errors import FileFailed, Forbidden, ToolcallError
from .local import local_errors

_FILE, _DIRECTORY, _LINK = (tarfile.REGTYPE, tarfile.AREGTYPE), (tarfile.DIRTYPE,), (tarfile.SYMTYPE,)
# As many links as Linux follows.
_MAX_LINKS = 40


def pack(directory: str, to: IO[bytes]) -> None:
    """Writes what is in a local directory into a tar archive. Links are packed as links.

    Raises Forbidden for a link that leads out of the directory, and for what is neither file, directory nor link.
    """
    with local_errors(directory), tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT) as archive:
        root = os.path.realpath(directory, strict=True)
        for path in _below(directory):
            _add(archive, root, path, os.path.relpath(path, directory))


def _below(directory: str) -> Iterator[str]:
    """The paths below a directory, each directory before what is in it. Links aren't followed."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)


def _add(archive: tarfile.TarFile, root: str, path: str, name: str) -> None:
    with local_errors(path):
        found = os.lstat(path)
        member = tarfile.TarInfo(name.replace(os.sep, "/"))
        member.mode, member.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
        if stat.S_ISREG(found.st_mode):
            _add_file(archive, member, path)
        elif stat.S_ISDIR(found.st_mode):
            member.type = tarfile.DIRTYPE
            archive.addfile(member)
        elif stat.S_ISLNK(found.st_mode):
            member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
            if _leads_out(name, lambda steps: _target(root, steps)):
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
        # Where an archive broke off between two members, tarfile says nothing.
        archive.seek(members.offset)
        if archive.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it has no end")
    _make_links(links, directory)


def _make_links(members: Sequence[tarfile.TarInfo], directory: str) -> None:
    """Makes the links last, and all directories before the first one: nothing is written through a link."""
    places = [_place(member, directory) for member in members]
    targets: dict[tuple[str, ...], str] = {}
    for member in members:
        targets.setdefault(tuple(_steps(member.name)), member.linkname)
    for member, path in zip(members, places, strict=True):
        steps = tuple(_steps(member.name))
        if any(steps[:end] in targets for end in range(1, len(steps))):
            raise _refused(f"the archive has a member below a link: {member.name!r}")
        if _leads_out(member.name, targets.get):
            raise _leading_out(member)
        with local_errors(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
    for member, path in zip(members, places, strict=True):
        with local_errors(path):
            os.symlink(member.linkname, path)
    # Again, as the file system has the names: it may take two for the same.
    for member in members:
        if _leads_out(member.name, lambda steps: _target(directory, steps)):
            raise _leading_out(member)


def _place(member: tarfile.TarInfo, directory: str) -> str:
    """Where a member belongs."""
    steps = _steps(member.name)
    is_foreign = os.sep != "/" and any(character in member.name for character in (os.sep, ":"))
    if member.name.startswith("/") or "\0" in member.name or ".." in steps or is_foreign:
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


def _leads_out(link: str, target_of: Callable[[tuple[str, ...]], str | None]) -> bool:
    """Whether a link below a directory leads out of it, over whatever other links, also where nothing is.

    target_of: what is written in the link with these steps below the directory, or None for what is no link.
    """
    at: list[str] = []
    left, followed = _steps(link), 0
    while left:
        step = left.pop(0)
        if step == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(step)
        target = target_of(tuple(at))
        if target is None:
            continue
        if "\0" in target or os.path.isabs(target) or os.path.splitdrive(target)[0]:
            return True
        followed += 1
        if followed > _MAX_LINKS:
            return False
        at.pop()
        left = _steps(target) + left
    return False


def _target(directory: str, steps: Sequence[str]) -> str | None:
    """What is written in a link below a directory."""
    try:
        return os.readlink(os.path.join(directory, *steps))
    except OSError:
        return None


def _steps(name: str) -> list[str]:
    return [step for step in name.replace(os.sep, "/").split("/") if step not in ("", ".")]


def _leading_out(member: tarfile.TarInfo) -> Forbidden:
    return _refused(f"the link {member.name!r} leads to {member.linkname!r}, out of its directory")


def _refused(message: str) -> Forbidden:
    return Forbidden("PathNotAllowed", message, retry_safe=True)
