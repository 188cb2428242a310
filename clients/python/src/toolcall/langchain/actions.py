"""What the LangChain tools do, without LangChain: each action takes a model's arguments and returns text for it."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import Cancelled, SessionEnded, ToolcallError, Unavailable, invalid
from ..sessions import Session
from ..specs import RunOptions, key_of


class Actions:
    """Tools of one conversation, in one session.

    A command runs at most once for each id that the model gave its tool call. File actions may be repeated.
    """

    def __init__(self, session: Session, conversation: str) -> None:
        if not conversation:
            raise invalid("conversation is empty: give a text of your own for each conversation, e.g. its thread's id")
        self._session = session
        self._conversation = conversation

    def bash(self, command: str, timeout: int | None, tool_call_id: str) -> str:
        """What a command line printed, its exit code if it isn't 0, and how long it took."""
        options: RunOptions = {"key": key_of(self._conversation, tool_call_id)}
        if timeout is not None:
            options["timeout"] = timeout
        return _said(lambda: self._session.commands.run(command, **options).text)

    def read_file(self, path: str, offset: int, limit: int) -> str:
        """Lines of a file, or why there are none."""
        def read() -> str:
            lines = self._session.files.read_lines(path, offset=offset, limit=limit)
            return lines.text + ("\n" if lines.text and lines.note else "") + lines.note

        return _said(read)

    def write_file(self, path: str, content: str) -> str:
        """Writes a file whole."""
        return _said(lambda: f"wrote {self._session.files.write(path, content).bytes} bytes to {path}")

    def edit_file(self, path: str, old: str, new: str, replace_all: bool) -> str:
        """Replaces a text in a file."""
        return _said(lambda: f"replaced {self._session.files.edit(path, old, new, replace_all=replace_all).replaced} times")

    def list_files(self, path: str) -> str:
        """The entries of a directory, one on each line."""
        def listed() -> str:
            entries = self._session.files.list(path)
            return _text_of([e.path + ("/" if e.type == "Directory" else "") for e in entries], "(empty)", entries.truncated)

        return _said(listed)

    def search_files(self, pattern: str, path: str, glob: str | None) -> str:
        """Lines that match a regular expression."""
        def found() -> str:
            matches = self._session.files.grep(pattern, path, glob=glob)
            return _text_of([f"{m.path}:{m.line_number}:{m.line}" for m in matches], "(no match)", matches.truncated)

        return _said(found)


def _text_of(lines: list[str], nothing: str, truncated: bool) -> str:
    return "\n".join([*(lines or [nothing]), *(["… there is more: narrow the search"] if truncated else [])])


def _said(action: Callable[[], str]) -> str:
    """The answer of an action. Failures that a model can do something about are answers too: their text says what would work."""
    try:
        return action()
    except ToolcallError as error:
        if isinstance(error, (Cancelled, SessionEnded, Unavailable)):
            raise
        return error.message if error.result is None else error.result.text
