"""Cancelling tasks, against a server that stands still."""

from __future__ import annotations

import asyncio
import threading
import time
import unittest
from collections.abc import Awaitable, Callable
from typing import Any

from tests.scripted import NAMESPACE, Exchange, Scripted, session
from tests.test_calls import Calls
from toolcall import AsyncSession, AsyncToolcall, InvalidArgument, Unavailable


class Cancelling(unittest.TestCase):
    def setUp(self) -> None:
        self.fake = Calls()
        self.server = self.enterContext(Scripted(self.fake.answer))
        self.asked = threading.Event()

    async def cancel(self, work: Callable[[AsyncToolcall, AsyncSession], Awaitable[Any]]) -> None:
        """Begins the work, cancels it once `asked` is set, and expects that to be quick."""
        async with AsyncToolcall(NAMESPACE, api_client=self.server.api_client(), patience=5) as tc:
            s = await tc.connect("s")
            task = asyncio.ensure_future(work(tc, s))
            await asyncio.to_thread(self.asked.wait, 10)
            began = time.monotonic()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertLess(time.monotonic() - began, 4)

    def on_post(self, answer: Callable[[Exchange], None]) -> None:
        def before(e: Exchange) -> bool:
            if e.command != "POST":
                return False
            self.asked.set()
            time.sleep(0.3)
            answer(e)
            return True

        self.fake.before = before

    def test_without_callbacks_and_after_the_end(self) -> None:
        async def work() -> None:
            async with AsyncToolcall(NAMESPACE, api_client=self.server.api_client(), patience=5) as tc:
                s = await tc.connect("s")
                nothing: Any = None
                self.assertEqual((await s.commands.run("true", on_stdout=nothing, on_stderr=nothing)).phase, "Succeeded")
            with self.assertRaises(Unavailable) as raised:
                await s.end()
            self.assertEqual(raised.exception.reason, "ClientClosed")

        asyncio.run(work())

    def test_a_callback_that_is_none(self) -> None:
        async def work() -> None:
            async with AsyncToolcall(NAMESPACE, api_client=self.server.api_client()) as tc:
                await tc.run("true", on_stdout=self.server)  # type: ignore[arg-type]

        with self.assertRaisesRegex(InvalidArgument, "give a function"):
            asyncio.run(work())

    def test_a_background_start(self) -> None:
        self.on_post(self.fake.create)
        asyncio.run(self.cancel(lambda tc, s: s.commands.run("true", key="k", background=True)))
        self.assertEqual(self.fake.cancelled, ["k"])

    def test_a_session_that_is_there_when_nobody_waits_any_more(self) -> None:
        def create(e: Exchange) -> None:
            name = e.json()["metadata"]["name"]
            self.fake.calls[name] = session(name)
            e.reply(201, self.fake.calls[name])

        self.on_post(create)

        async def open_one(tc: AsyncToolcall, s: AsyncSession) -> None:
            async with tc.session():
                pass

        asyncio.run(self.cancel(open_one))
        self.assertEqual(len(self.fake.cancelled), 1)

    def test_a_callback_that_waits_for_what_was_cancelled_too(self) -> None:
        def log(e: Exchange) -> None:
            e.begin({"Toolcall-Offset": "0"})
            e.part(b"one")
            e.hold()

        async def hear(text: str) -> None:
            self.asked.set()
            await asyncio.Event().wait()

        self.fake.log = log
        asyncio.run(self.cancel(lambda tc, s: s.commands.run("true", key="k", on_stdout=hear)))
        self.assertEqual(self.fake.cancelled, ["k"])

    def test_an_answer_that_stands_still(self) -> None:
        def log(e: Exchange) -> None:
            e.begin({"Toolcall-Offset": "0"})
            e.part(b"one")
            self.asked.set()
            e.hold()

        self.fake.log = log
        asyncio.run(self.cancel(lambda tc, s: s.commands.output("k")))

        async def read(tc: AsyncToolcall, s: AsyncSession) -> None:
            handle = await s.commands.run("true", background=True)
            self.asked.clear()
            await handle.read(3, wait_for=3600)

        def silent(e: Exchange) -> None:
            e.begin({"Toolcall-Offset": "3"})
            self.asked.set()
            e.hold()

        self.fake.log = silent
        self.asked.clear()
        asyncio.run(self.cancel(read))

    def test_the_output_of_a_background_call_that_nobody_takes(self) -> None:
        def log(e: Exchange) -> None:
            e.begin({"Toolcall-Offset": "0"})
            e.part(b"one")
            self.asked.set()
            e.hold()

        async def wait(tc: AsyncToolcall, s: AsyncSession) -> None:
            await (await s.commands.run("true", background=True, on_stdout=print)).wait()

        self.fake.log = log
        self.fake.ended.set()
        asyncio.run(self.cancel(wait))


if __name__ == "__main__":
    unittest.main()
