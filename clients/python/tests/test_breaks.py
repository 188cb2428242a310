"""What breaks on the way: answers that are lost, connections that end, an API server that is away, versions that are old.

The connections are broken by a TCP proxy in front of the real API server.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
import unittest
from pathlib import Path
from queue import SimpleQueue

from tests.bed import Bed, bed, full_only, on_cluster
from tests.proxy import Proxy, through
from toolcall import Toolcall, Unavailable
from toolcall.results import is_finished
from toolcall.watches import Events

CHANCE = 0.15


@full_only
@on_cluster
class Breaks(unittest.TestCase):
    bed: Bed

    @classmethod
    def setUpClass(cls) -> None:
        cls.bed = cls.enterClassContext(bed("py-breaks"))

    def setUp(self) -> None:
        self.proxy = self.enterContext(Proxy(self.bed.agent().configuration.host))
        self.client = self.enterContext(Toolcall(self.bed.namespace, api_client=through(self.bed, self.proxy)))

    def test_a_create_whose_answer_is_lost_runs_once(self) -> None:
        list(self.client.calls())  # The connection is there, and its handshake over.
        time.sleep(0.05)
        self.proxy.lose_answers(1)
        before = {call["metadata"]["name"] for call in self.bed.calls()}
        result = self.client.run("echo once")
        self.assertEqual((result.stdout, self.proxy.cuts), ("once\n", 1))
        made = {call["metadata"]["name"] for call in self.bed.calls()} - before
        self.assertEqual(made, {result.call})

    def test_each_call_of_a_session_runs_once_whatever_breaks(self) -> None:
        with self.client.session("tools") as s:
            s.commands.run("true")
            self.proxy.cut_at_random(CHANCE)
            for number in range(25):
                self.assertEqual(s.commands.run(f"echo {number} >> log").exit_code, 0)
            self.proxy.cut_at_random(0)
            self.assertEqual(s.files.read("log").split(), [str(number) for number in range(25)])
        self.assertGreater(self.proxy.cuts, 5)

    def test_output_is_followed_without_a_byte_lost_or_doubled(self) -> None:
        command = "for b in $(seq 0 19); do seq -f %07.0f ${b}000 ${b}999; sleep 0.1; done"
        whole = "".join("%07d\n" % i for i in range(20000))
        heard: list[str] = []
        with self.client.session("tools") as s:
            s.commands.run("true")
            self.proxy.cut_at_random(CHANCE / 2)
            result = s.commands.run(command, on_stdout=heard.append)
            self.assertTrue(result.truncated)
            self.assertEqual(hashlib.sha256("".join(heard).encode()).digest(), hashlib.sha256(whole.encode()).digest())
            self.assertEqual(s.commands.output(result), whole.encode())
            self.assertEqual(s.commands.output(result, offset=8, limit=8), b"0000001\n")
            self.proxy.cut_at_random(0)
        self.assertGreater(self.proxy.cuts, 0)

    def test_a_watch_that_ends_says_nothing(self) -> None:
        with self.client.session("tools") as s:
            s.commands.run("true")
            cutter = threading.Timer(1.0, self.proxy.cut_all)
            cutter.start()
            result = s.commands.run("sleep 3; echo done")
            self.assertEqual(result.stdout, "done\n")

    def test_input_arrives_once(self) -> None:
        lines = [f"line {number}\n" for number in range(40)]
        with self.client.session("tools") as s:
            cat = s.commands.run(program="cat", background=True)
            cat.write("first\n")
            self.proxy.cut_at_random(CHANCE)
            for line in lines:
                cat.write(line)
            cat.write(eof=True)
            self.proxy.cut_at_random(0)
            self.assertEqual(cat.wait().stdout, "first\n" + "".join(lines))

    def test_files_arrive_whole(self) -> None:
        data = os.urandom(3 << 20)
        with tempfile.TemporaryDirectory() as folder, self.client.session("tools") as s:
            local, back = Path(folder, "data.bin"), Path(folder, "back.bin")
            local.write_bytes(data)
            s.wait_until_ready()
            self.proxy.cut_at_random(0.01)
            sent = s.files.upload(local)
            got = s.files.download("data.bin", back)
            self.proxy.cut_at_random(0)
            self.assertEqual(back.read_bytes(), data)
            self.assertEqual({sent.sha256, got.sha256}, {hashlib.sha256(data).hexdigest()})
            self.assertEqual(sorted(os.listdir(folder)), ["back.bin", "data.bin"])

    def test_an_api_server_that_is_away(self) -> None:
        client = Toolcall(self.bed.namespace, api_client=through(self.bed, self.proxy), patience=1.5)
        self.proxy.close()
        began = time.monotonic()
        with self.assertRaises(Unavailable) as caught:
            client.run("true", key="never-there")
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual((caught.exception.call, caught.exception.retry_safe), ("never-there", True))

    def test_an_old_version_is_caught_up_with(self) -> None:
        events: Events = SimpleQueue()
        calls = self.client._calls
        watch = calls.watch("metadata.name=old")
        with watch.expecting("old", events):
            watch.begin("1")
            self.client.run("true", key="old")
            finished = False
            while not finished:
                what, thing = events.get(timeout=20)
                finished = what == "object" and is_finished(thing)
        watch.close()


if __name__ == "__main__":
    unittest.main()
