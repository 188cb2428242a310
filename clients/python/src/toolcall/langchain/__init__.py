"""Tools for LangChain's agents: a shell and files in a session.

    tools = session_tools(session, conversation="thread-1")
    agent = create_agent(model, tools)

It needs langchain-core: pip install 'toolcall[langchain]'.
"""

# Without `from __future__ import annotations`: LangChain reads the annotations of the functions below.

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from ..aio import AsyncSession, Threads
from ..sessions import Session
from .actions import Actions

_READ_LINES = 2000


def session_tools(session: Session | AsyncSession, conversation: str) -> list[Any]:
    """LangChain tools that run in a session: bash, read_file, write_file, edit_file, list_files, search_files.

    conversation: what keeps the ids of different conversations apart. Invoked with a model's tool call, bash runs at most
    once for its id. Awaited, a tool's cancellation cancels its call. Raises ImportError without langchain-core.
    """
    try:
        from langchain_core.tools import InjectedToolCallId, StructuredTool
    except ImportError as error:
        raise ImportError("toolcall.langchain needs langchain-core: pip install 'toolcall[langchain]'") from error

    threads = session._threads if isinstance(session, AsyncSession) else Threads()
    blocking: Session = session._blocking if isinstance(session, AsyncSession) else session
    actions = Actions(blocking, conversation)

    def bash(command: str, tool_call_id: Annotated[str, InjectedToolCallId], timeout: int | None = None) -> str:
        """Run a bash command line in the workspace and return what it printed. timeout is in seconds."""
        return actions.bash(command, timeout, tool_call_id)

    def read_file(path: str, offset: int = 1, limit: int = _READ_LINES) -> str:
        """Read limit lines of a file, from line offset on; the first line is 1."""
        return actions.read_file(path, offset, limit)

    def write_file(path: str, content: str) -> str:
        """Write a whole file. Its directories are made."""
        return actions.write_file(path, content)

    def edit_file(path: str, old: str, new: str, replace_all: bool = False) -> str:
        """Replace a text that is in the file exactly once, or every time with replace_all."""
        return actions.edit_file(path, old, new, replace_all)

    def list_files(path: str = ".") -> str:
        """List a directory."""
        return actions.list_files(path)

    def search_files(pattern: str, path: str = ".", glob: str | None = None) -> str:
        """Find lines that match a regular expression (RE2), in files whose path matches glob."""
        return actions.search_files(pattern, path, glob)

    functions: tuple[Callable[..., str], ...] = (
        bash, read_file, write_file, edit_file, list_files, search_files,
    )
    return [StructuredTool.from_function(func=f, coroutine=awaited(f, threads)) for f in functions]


def awaited(function: Callable[..., str], threads: Threads) -> Callable[..., Coroutine[Any, Any, str]]:
    """A function of a tool as a coroutine function, whose cancellation cancels the call."""

    async def call(**arguments: Any) -> str:
        return await threads.run(lambda: function(**arguments))

    return call
