"""The client on a cluster, beside what the scenarios have."""

from __future__ import annotations

import asyncio
import os
import tarfile
import tempfile
import threading
import time
import unittest
from pathlib import Path

from tests.bed import Bed, bed, full_only, on_cluster
from toolcall import (
    AsyncToolcall, Cancelled, Denied, FileFailed, Forbidden, InvalidArgument, KeyReused, NotFound, NotStarted, SessionEnded,
    Toolcall, key_of,
)


@full_only
@on_cluster
class Client(unittest.TestCase):
    bed: Bed
    client: Toolcall

    @classmethod
    def setUpClass(cls) -> None:
        cls.bed = cls.enterClassContext(bed("py-client"))
        cls.client = cls.enterClassContext(Toolcall(cls.bed.namespace, api_client=cls.bed.agent()))

    def test_the_kubeconfig_says_where(self) -> None:
        before = os.environ["KUBECONFIG"]
        os.environ["KUBECONFIG"] = self.bed.kubeconfig
        try:
            with Toolcall() as client:
                self.assertEqual(client.namespace, self.bed.namespace)
                list(client.calls())
            os.environ["KUBECONFIG"] = "/nowhere/kubeconfig"
            with self.assertRaisesRegex(InvalidArgument, "/nowhere/kubeconfig"):
                Toolcall()
        finally:
            os.environ["KUBECONFIG"] = before

    def test_without_the_right_nothing_runs(self) -> None:
        with Toolcall("default", api_client=self.bed.agent()) as client, self.assertRaises(Forbidden) as caught:
            client.run("true", key="elsewhere")
        error = caught.exception
        self.assertEqual((error.reason, error.retry_safe, error.call), ("Forbidden", True, "elsewhere"))

    def test_pages(self) -> None:
        with self.client.session("tools") as s:
            names = {s.commands.run("true").call for _ in range(7)}
            for page in (1, 3, 7, 100):
                found = list(self.client.calls(session=s.name, page=page))
                self.assertEqual({call.name for call in found}, names)
                self.assertEqual({(call.phase, call.session) for call in found}, {("Succeeded", s.name)})
            self.assertEqual([c.name for c in self.client.calls(session=s.name, phase="Denied")], [])
            self.assertIn(s.name, {session.name for session in self.client.sessions(page=1)})
        with self.assertRaises(InvalidArgument):
            self.client.calls(page=0)

    def test_a_session_ends_with_its_block(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.client.session("tools", key="block") as s:
            s.commands.run("true")
            1 / 0
        s.end()
        with self.assertRaises(SessionEnded) as caught:
            s.commands.run("true")
        self.assertTrue(caught.exception.retry_safe)

    def test_a_key_finds_the_session_again(self) -> None:
        with self.client.session("tools", key="again", env={"A": "1"}) as s:
            s.files.write("kept", "x")
            same = self.client.session("tools", key="again", env={"A": "1"})
            self.assertEqual((same.uid, same.files.read("kept")), (s.uid, "x"))
            self.assertEqual(self.client.connect("again").uid, s.uid)
            with self.assertRaises(KeyReused):
                self.client.session("tools", key="again", env={"A": "2"})
        with self.assertRaises(NotFound):
            self.client.connect("never-made")

    def test_a_key_whose_call_was_deleted_is_free_again(self) -> None:
        with self.client.session("tools") as s:
            first = s.commands.run("echo $RANDOM$RANDOM", key="free-again")
            for _ in range(3):
                self.bed.delete_call("free-again")
                again = s.commands.run("echo $RANDOM$RANDOM", key="free-again")
                self.assertNotEqual((again.uid, again.stdout), (first.uid, first.stdout))

    def test_a_session_that_cannot_start(self) -> None:
        with self.assertRaisesRegex(NotFound, "not-there"):
            self.client.session("not-there")

    def test_calls_that_wait_hear_of_the_end_of_their_session(self) -> None:
        with self.client.session("tools") as s:
            s.commands.run("true")
            threading.Timer(1.0, s.end).start()
            with self.assertRaises(Cancelled):
                s.commands.run("sleep 50")

    def test_an_exception_in_a_callback_cancels_the_call(self) -> None:
        def fail(text: str) -> None:
            raise ZeroDivisionError(text)

        with self.client.session("tools") as s:
            with self.assertRaises(ZeroDivisionError):
                s.commands.run("echo now; sleep 50", key="callback", on_stdout=fail)
            with self.assertRaises(Cancelled):
                s.commands.run("echo now; sleep 50", key="callback")
            server = s.commands.run("echo up; sleep 2", background=True, on_stdout=fail)
            with self.assertRaises(ZeroDivisionError):
                server.wait()

    def test_live_output_of_what_never_ran(self) -> None:
        heard: list[str] = []
        with self.client.session("tools") as s:
            with self.assertRaises(Denied):
                s.commands.run("curl example.org", on_stdout=heard.append, on_stderr=heard.append)
            s.commands.run("true")
            with self.assertRaises(NotFound):
                s.commands.run("true", cwd="/nowhere", on_stdout=heard.append)
        with self.assertRaises(SessionEnded):
            s.commands.run("true", on_stdout=heard.append)
        self.assertEqual(heard, [])

    def test_waiting_for_output_ends_in_time(self) -> None:
        with self.client.session("tools") as s:
            busy = s.commands.run("sleep 8; echo late", background=True)
            began = time.monotonic()
            self.assertEqual(busy.read(wait_for=0.5).text, "")
            self.assertLess(time.monotonic() - began, 4)
            self.assertEqual(busy.read(wait_for=30).text, "late\n")

    def test_a_background_call_that_is_denied_says_so(self) -> None:
        with self.client.session("tools") as s:
            server = s.commands.run("curl example.org", background=True)
            with self.assertRaises(Denied):
                server.wait()
            with self.assertRaises(Denied):
                server.read(wait_for=5)

    def test_a_background_call_is_found_again(self) -> None:
        with self.client.session("tools") as s:
            first = s.commands.run(program="cat", background=True, key="found-again")
            first.write("one\n")
            again = self.client.connect(s.name).commands.connect("found-again")
            again.write("two\n", eof=True)
            self.assertEqual(again.wait().stdout, "one\ntwo\n")
            with self.assertRaises(InvalidArgument):
                s.commands.connect(s.commands.run("true").call)
            with self.assertRaises(NotFound):
                s.commands.connect("never-made")

    def test_files_that_a_call_kept(self) -> None:
        data = bytes(range(256)) * 2000
        with self.client.session("tools") as s:
            s.files.write("out/a.bin", data)
            result = s.commands.run("true", collect=["out/*.bin"])
            self.assertEqual(len(result.artifacts), 1)
            self.assertEqual(self.client.artifact(result, result.artifacts[0]), data)
            with self.assertRaises(NotFound):
                s.commands.artifact(result.call, "out/other.bin")

    def test_a_tool_as_the_model_called_it(self) -> None:
        with self.client.session("tools") as s:
            result = s.commands.run(tool="bash", arguments={"command": "echo hi"}, key=key_of("thread", "call_1"))
            self.assertEqual(result.stdout, "hi\n")
            with self.assertRaisesRegex(Denied, "make_coffee"):
                s.commands.run(tool="make_coffee", arguments={})

    def test_bytes_that_are_no_text(self) -> None:
        data = bytes(range(256)) * 3000
        with self.client.session("tools", cwd="deep/er") as s:
            s.files.write("large", data)
            s.files.write("small", data[:256], mode="0600")
            self.assertEqual(s.files.read("large", format="bytes"), data)
            self.assertEqual(s.files.read("small", format="bytes"), data[:256])
            self.assertEqual(s.files.read("small"), data[:256].decode(errors="replace"))
            self.assertEqual((s.files.stat("small").mode[-3:], s.files.stat("large").size), ("600", len(data)))
            self.assertTrue(s.files.exists("/workspace/deep/er/large"))
            self.assertFalse(s.files.exists("nothing"))

    def test_long_files_by_lines_and_whole(self) -> None:
        text = "".join(f"line {number}\n" for number in range(1, 30001))
        with self.client.session("tools") as s:
            s.files.write("long", text)
            self.assertEqual(s.files.read("long"), text)
            self.assertEqual(s.files.read("long", offset=29999), "line 29999\nline 30000\n")
            self.assertEqual(s.files.read("long", offset=1, limit=15000), text[: text.index("line 15001\n")])

    def test_a_directory_as_an_archive(self) -> None:
        with tempfile.TemporaryDirectory() as folder, self.client.session("tools") as s:
            s.files.write("tree/a", "one")
            s.files.write("tree/sub/b", "two")
            s.files.download("tree", Path(folder, "tree.tar"), archive=True)
            with tarfile.open(Path(folder, "tree.tar")) as archive:
                self.assertEqual(sorted(m.name for m in archive if m.isfile()), ["a", "sub/b"])
            s.files.upload(Path(folder, "tree.tar"), "copy", archive=True)
            self.assertEqual(s.files.read("copy/sub/b"), "two")
            with self.assertRaises(NotFound):
                s.files.download("not-there", Path(folder, "nothing"))
            with self.assertRaises(FileFailed):
                s.files.read("tree")
            self.assertEqual(os.listdir(folder), ["tree.tar"])

    def test_the_end_of_a_task_is_the_end_of_its_call(self) -> None:
        async def given_up() -> float:
            async with AsyncToolcall(self.bed.namespace, api_client=self.bed.agent()) as tc, tc.session("tools") as s:
                await s.commands.run("true")
                began = time.monotonic()
                with self.assertRaises(TimeoutError):
                    await asyncio.wait_for(s.commands.run("sleep 50", key="given-up"), 1)
                took = time.monotonic() - began
                with self.assertRaises(Cancelled):
                    await s.commands.run("sleep 50", key="given-up")
                return took

        self.assertLess(asyncio.run(given_up()), 5)

    def test_many_at_once(self) -> None:
        heard: list[str] = []

        async def hear(text: str) -> None:
            await asyncio.sleep(0)
            heard.append(text)

        async def many() -> list[str]:
            async with AsyncToolcall(self.bed.namespace, api_client=self.bed.agent()) as tc:
                async with tc.session("tools", max_concurrent_calls=8) as s:
                    runs = [s.commands.run(f"echo {n}", on_stdout=hear) for n in range(24)]
                    results = await asyncio.gather(*runs)
                    names = [call.name async for call in tc.calls(session=s.name, page=5)]
                    self.assertEqual(sorted(names), sorted(r.call for r in results))
                    return [r.stdout for r in results]

        self.assertEqual(asyncio.run(many()), [f"{n}\n" for n in range(24)])
        self.assertEqual(sorted(heard), sorted(f"{n}\n" for n in range(24)))


if __name__ == "__main__":
    unittest.main()
