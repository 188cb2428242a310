"""Tool calls of AI agents as Kubernetes objects, from Python.

    from toolcall import Toolcall

    tc = Toolcall(namespace="agents")
    r = tc.run("git status", environment="repo")
    with tc.session("repo") as s:
        s.files.write("notes.txt", "hello")
        r = s.commands.run("cat notes.txt", timeout=60)

`AsyncToolcall` has the same, awaited. Errors are classes by reason, all of them ToolcallError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .client import Toolcall
from .commands import BackgroundCall, Commands
from .errors import (
    ApprovalNeeded,
    CallEnded,
    Cancelled,
    Conflict,
    Denied,
    FileFailed,
    Forbidden,
    InvalidArgument,
    KeyReused,
    NonZeroExit,
    NotFound,
    NotStarted,
    OutputNotKept,
    PodLost,
    SessionEnded,
    TimedOut,
    ToolcallError,
    Unauthenticated,
    Unavailable,
)
from .files import Files
from .results import CallInfo, DeniedHost, FileChange, FileInfo, Lines, Listing, Match, Output, Result, SessionInfo, SomeCall, Stream
from .sessions import Session
from .specs import RunOptions, SessionOptions, key_of

if TYPE_CHECKING:
    from .aio import AsyncBackgroundCall, AsyncCommands, AsyncFiles, AsyncSession, AsyncToolcall

__all__ = [
    "ApprovalNeeded", "AsyncBackgroundCall", "AsyncCommands", "AsyncFiles", "AsyncSession", "AsyncToolcall",
    "BackgroundCall", "CallEnded", "CallInfo", "Cancelled", "Commands", "Conflict", "Denied", "DeniedHost", "FileChange", "FileFailed",
    "FileInfo", "Files", "Forbidden", "InvalidArgument", "KeyReused", "Lines", "Listing", "Match", "NonZeroExit", "NotFound",
    "NotStarted", "Output", "OutputNotKept", "PodLost", "Result", "RunOptions", "Session", "SessionEnded", "SessionInfo", "SessionOptions",
    "SomeCall", "Stream", "TimedOut", "Toolcall", "ToolcallError", "Unauthenticated", "Unavailable", "key_of",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Loads what needs asyncio when it is first asked for: programs without it start sooner."""
    if name.startswith("Async") and name in __all__:
        from . import aio

        return getattr(aio, name)
    raise AttributeError(f"module 'toolcall' has no attribute {name!r}")
