"""Runs a model's tool calls for an agent that is a plain asyncio program.

    async with AsyncToolcall("agents") as tc:
        s = await tc.session("repo", key="thread-1")  # Not a block, which would end it when the agent fails.
        executor = ToolExecutor(s, conversation="thread-1")
        answers = await executor.execute_all([ToolRequest("call_1", "bash", {"command": "make test"})])

Each tool call runs at most once, whatever becomes of the agent: its ToolCall's name is made of the conversation and the id
that the model gave. An agent that starts again from its saved messages gets the answers of the calls that ran.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..aio import AsyncCommands, AsyncSession, AsyncToolcall
from ..errors import InvalidArgument, ToolcallError, invalid
from ..results import Result
from ..specs import key_of


@dataclass(frozen=True)
class ToolRequest:
    """A tool call as a model emitted it. id: the model's own; name: the tool's, e.g. "bash"; arguments: a JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class ToolAnswer:
    """What the model gets. id: the request's; text: the answer; failed: it isn't what was asked for; result: of the call,
    or None where none was created."""

    id: str
    text: str
    failed: bool
    result: Result | None


class ToolExecutor:
    """Runs tool calls in a session, or with an AsyncToolcall each in a pod of its own.

    conversation: what keeps the ids of different conversations apart, since models use them again.
    parallel: how many calls it has under way at the same time.
    """

    def __init__(self, place: AsyncSession | AsyncToolcall, conversation: str, *, parallel: int = 8) -> None:
        if not conversation:
            raise invalid("conversation is empty: give a text of your own for each conversation, e.g. its thread's id")
        if parallel < 1:
            raise invalid(f"parallel is {parallel}: at least 1 call has to run")
        self._place: AsyncToolcall | AsyncCommands = place if isinstance(place, AsyncToolcall) else place.commands
        self._conversation = conversation
        self._gate = asyncio.Semaphore(parallel)

    async def execute(self, request: ToolRequest) -> ToolAnswer:
        """Runs one tool call. What keeps it from succeeding is an answer too: its text says what would work.

        Raises what no model can do anything about: Unavailable, Forbidden, KeyReused.
        """
        if not request.id:
            raise invalid(f"the tool call {request.name!r} has no id: it is what makes sure that it runs at most once")
        key = key_of(self._conversation, request.id)
        async with self._gate:
            try:
                result = await self._place.run(tool=request.name, arguments=request.arguments, key=key)
            except ToolcallError as error:
                if error.result is None and not isinstance(error, InvalidArgument):
                    raise
                return ToolAnswer(request.id, error.result.text if error.result else error.message, True, error.result)
        return ToolAnswer(request.id, result.text, result.exit_code != 0, result)

    async def execute_all(self, requests: Iterable[ToolRequest]) -> list[ToolAnswer]:
        """Runs the tool calls of one message at the same time; the answers are in their order.

        When one raises, or the task is cancelled, the others are cancelled.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.execute(request)) for request in requests]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]
