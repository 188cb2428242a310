"""The adapters on a cluster. Neither LangChain nor the OpenAI Agents SDK is here: what they don't take part in is tested."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import os
import tarfile
import tempfile
import unittest
from collections.abc import Coroutine
from typing import Any
from unittest import mock

from tests.bed import Bed, bed, full_only, on_cluster
from toolcall import AsyncToolcall, FileFailed, InvalidArgument, KeyReused, SessionEnded, TimedOut, Toolcall, key_of
from toolcall.aio import Threads
from toolcall.executor import ToolExecutor, ToolRequest
from toolcall.langchain import awaited, session_tools
from toolcall.langchain.actions import Actions
from toolcall.openai_agents.workspace import Workspace, line_of, options_of, without


class WithoutCluster(unittest.TestCase):
    def test_a_shell_is_a_command_line_and_anything_else_a_program(self) -> None:
        self.assertEqual(line_of(["sh", "-lc", "ls | wc"]), "ls | wc")
        self.assertEqual(line_of(["bash", "-c", "ls"]), "ls")
        self.assertIsNone(line_of(["sh", "-c", "ls \"$1\"", "sh", "x"]))
        self.assertIsNone(line_of(["ls", "-c", "x"]))
        self.assertEqual(options_of(["ls", "-l"]), {"program": "ls", "args": ["-l"]})
        self.assertEqual(options_of(["sh", "-lc", "ls"]), {})
        wrongs: list[list[str]] = [[], ["sudo", "-u", "me", "--", "ls"]]
        for wrong in wrongs:
            with self.assertRaises(InvalidArgument):
                options_of(wrong)

    def test_an_archive_without_some_paths(self) -> None:
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as archive:
            for name in ("a", "./b/c", "b/d", "bc", "deep/x/y"):
                entry = tarfile.TarInfo(name)
                entry.size = len(name)
                archive.addfile(entry, io.BytesIO(name.encode()))
        whole.seek(0)
        with without(whole, {"b", "deep/x"}) as copy, tarfile.open(fileobj=copy) as archive:
            left = {m.name: archive.extractfile(m) for m in archive}
            self.assertEqual({n: f.read() for n, f in left.items() if f}, {"a": b"a", "bc": b"bc"})

    def test_an_archive_that_cannot_be_had_leaves_no_file(self) -> None:
        session = mock.Mock()
        session.files.download = mock.AsyncMock(side_effect=lambda path, local, **_: self.fail_in_the_middle(local))
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(tempfile, "tempdir", folder):
            with self.assertRaises(FileFailed):
                asyncio.run(Workspace(session, "/workspace", {}).pack(()))
            self.assertEqual(os.listdir(folder), [])

    @staticmethod
    def fail_in_the_middle(local: str) -> None:
        with open(local, "wb") as file:
            file.write(b"a part")
        raise FileFailed("FileError", "it broke off")

    @unittest.skipIf(importlib.util.find_spec("langchain_core"), "langchain-core is here")
    def test_what_is_missing_is_named(self) -> None:
        with self.assertRaisesRegex(ImportError, r"toolcall\[langchain\]"):
            session_tools(None, "thread")  # type: ignore[arg-type]

    @unittest.skipIf(importlib.util.find_spec("agents"), "openai-agents is here")
    def test_what_is_missing_is_named_by_the_sandbox_client_too(self) -> None:
        import toolcall.openai_agents as adapter

        with self.assertRaisesRegex(ImportError, r"toolcall\[openai-agents\]"):
            getattr(adapter, "ToolcallSandboxClient")
        with self.assertRaises(AttributeError):
            getattr(adapter, "Nothing")


@full_only
@on_cluster
class OnCluster(unittest.TestCase):
    bed: Bed

    @classmethod
    def setUpClass(cls) -> None:
        cls.bed = cls.enterClassContext(bed("py-adapters"))

    def client(self) -> AsyncToolcall:
        return AsyncToolcall(self.bed.namespace, api_client=self.bed.agent())

    def run_async(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run(asyncio.wait_for(what, 60))

    def test_the_executor_answers_in_order_and_runs_each_call_once(self) -> None:
        async def agent() -> None:
            async with self.client() as tc, tc.session("tools", max_concurrent_calls=4) as s:
                requests = [
                    ToolRequest("call_1", "bash", {"command": "echo ran >> log; sleep 1; echo one"}),
                    ToolRequest("call_2", "bash", {"command": "echo two; exit 3"}),
                    ToolRequest("call_3", "bash", {"command": "curl example.org"}),
                    ToolRequest("call_4", "make_coffee", {}),
                    ToolRequest("call_5", "bash", {"command": "echo slow; sleep 30", "timeout": 1}),
                ]
                executor = ToolExecutor(s, "thread-1")
                for _ in range(2):  # The second time, as an agent that starts again.
                    answers = await executor.execute_all(requests)
                    self.assertEqual([a.id for a in answers], [r.id for r in requests])
                    self.assertEqual([a.failed for a in answers], [False, True, True, True, True])
                    for answer, says in zip(answers, ("one\n", "code 3", "curl", "make_coffee", "slow"), strict=True):
                        self.assertIn(says, answer.text)
                self.assertEqual(await s.files.read("log"), "ran\n")
                await ToolExecutor(s, "thread-2").execute(requests[0])
                self.assertEqual(await s.files.read("log"), "ran\nran\n")
                with self.assertRaises(KeyReused):
                    await executor.execute_all([ToolRequest("call_1", "bash", {"command": "echo other"})])

        self.run_async(agent())

    def test_the_executor_without_a_session(self) -> None:
        async def agent() -> None:
            async with self.client() as tc:
                answer = await ToolExecutor(tc, "thread").execute(ToolRequest("1", "bash", {"command": "pwd"}))
                self.assertEqual((answer.failed, answer.text.split("\n")[0]), (False, "/workspace"))

        self.run_async(agent())

    def test_the_executor_that_is_cancelled_cancels_all(self) -> None:
        async def agent() -> None:
            async with self.client() as tc, tc.session("tools", max_concurrent_calls=4) as s:
                await s.commands.run("true")
                requests = [ToolRequest(f"c{n}", "bash", {"command": "sleep 40"}) for n in range(3)]
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(ToolExecutor(s, "cancelled").execute_all(requests), 1)
                for request in requests:
                    answer = await ToolExecutor(s, "cancelled").execute(request)
                    self.assertEqual(answer.result.phase if answer.result else "", "Cancelled")

        self.run_async(agent())

    def test_what_the_langchain_tools_do(self) -> None:
        with Toolcall(self.bed.namespace, api_client=self.bed.agent()) as tc, tc.session("tools") as s:
            actions = Actions(s, "thread-3")
            self.assertTrue(actions.bash("echo hi; echo x >> log", None, "call_1").startswith("hi\n\nTook "))
            actions.bash("echo hi; echo x >> log", None, "call_1")
            self.assertEqual(actions.read_file("log", 1, 10), "x\n")
            self.assertIn("curl", actions.bash("curl example.org", 5, "call_2"))
            self.assertEqual(actions.write_file("src/a.py", "def f():\n    pass\n"), "wrote 18 bytes to src/a.py")
            self.assertEqual(actions.edit_file("src/a.py", "pass", "return 1", False), "replaced 1 times")
            self.assertIn("0 times", actions.edit_file("src/a.py", "pass", "x", False))
            self.assertEqual(actions.list_files("."), "log\nsrc/")
            self.assertEqual(actions.search_files("def", ".", "*.py"), "src/a.py:1:def f():")
            self.assertEqual(actions.search_files("nothing", ".", None), "(no match)")
            self.assertIn("not-there", actions.read_file("not-there", 1, 1))
            self.assertIn("offset", actions.read_file("log", -1, 10))
            s.end()
            with self.assertRaises(SessionEnded):
                actions.bash("true", None, "call_3")

    def test_an_awaited_langchain_tool_is_cancelled(self) -> None:
        async def agent() -> None:
            with Toolcall(self.bed.namespace, api_client=self.bed.agent()) as tc, tc.session("tools") as s:
                actions = Actions(s, "thread-2")
                bash = awaited(actions.bash, Threads())
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(bash(command="sleep 40", timeout=None, tool_call_id="1"), 1)
                call = self.bed.call(key_of("thread-2", "1"))
                self.assertTrue(call["spec"]["cancel"])

        self.run_async(agent())

    def test_a_workspace_of_the_openai_agents_sdk(self) -> None:
        async def sdk() -> None:
            async with self.client() as tc, tc.session("tools") as s:
                await s.files.mkdir("/workspace/w")
                space = Workspace(s, "/workspace/w", {"NAME": "sdk"})
                self.assertEqual((await space.execute(["sh", "-lc", "pwd; echo $NAME >&2; exit 4"], 10)).exit_code, 4)
                done = await space.execute(["echo", "a b"], None)
                self.assertEqual((done.stdout, done.stderr, done.exit_code), (b"a b\n", b"", 0))
                long = await space.execute(["sh", "-lc", "seq 60000"], None)
                self.assertEqual(long.stdout, b"".join(b"%d\n" % n for n in range(1, 60001)))
                odd = await space.execute(["sh", "-lc", "printf '\\377'"], None)
                self.assertEqual(odd.stdout, b"\xff")
                self.assertEqual((await space.execute(["sh", "-lc", "curl x"], None)).exit_code, 126)
                with self.assertRaises(TimedOut):
                    await space.execute(["sleep", "20"], 1)
                self.assertTrue(await space.is_running())
                await self.persisted(space)
                await s.end()
                while await space.is_running():
                    await asyncio.sleep(0.1)

        self.run_async(sdk())

    async def persisted(self, space: Workspace) -> None:
        await space.session.files.write("/workspace/w/keep/a", "kept")
        await space.session.files.write("/workspace/w/skip/b", "left out")
        with await space.pack({"skip"}) as archive:
            await space.session.files.delete("/workspace/w", recursive=True)
            await space.unpack(archive)
        self.assertEqual(await space.session.files.read("/workspace/w/keep/a"), "kept")
        self.assertFalse(await space.session.files.exists("/workspace/w/skip"))


if __name__ == "__main__":
    unittest.main()
