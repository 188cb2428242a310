"""Standard input of background calls, against a server that fails on purpose."""

from __future__ import annotations

import time
import unittest

from tests.scripted import UID, Exchange, Scripted, call, session
from toolcall import Conflict

SPEC = {"shell": {"command": "cat"}, "background": True, "sessionRef": {"name": "s", "uid": UID}}
OFFSET = "Toolcall-Input-Offset"


class Program:
    """A server with a session "s" and its call "c", which has read some input. fail: what happens before each request of
    input instead of an answer."""

    def __init__(self, read: bytes = b"", phase: str = "Running", session_phase: str = "Ready") -> None:
        self.read = read
        self.phase = phase
        self.session_phase = session_phase
        self.faults: list[str] = []

    def answer(self, e: Exchange) -> None:
        if e.path.endswith("/toolsessions/s"):
            e.reply(200, session(phase=self.session_phase))
        elif e.path.endswith("/toolcalls/c"):
            e.reply(200, call("c", SPEC, self.phase))
        elif e.path.endswith("/proxy/input"):
            self._input(e)
        elif e.query.get("watch"):
            e.begin()
            e.hold()

    def _input(self, e: Exchange) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "unavailable":
            e.refuse(503, "ServiceUnavailable")
        elif fault == "slow":
            time.sleep(0.3)
            self.read += e.body[:1]
            e.refuse(429, "InputFull", {OFFSET: str(len(self.read))})
        elif self.phase != "Running" or self.session_phase != "Ready":
            e.refuse(409, "Conflict")
        elif int(e.query["offset"]) != len(self.read):
            e.refuse(409, "InputOffset", {OFFSET: str(len(self.read))})
        else:
            self.read += e.body
            if fault == "lost":
                e.cut()
            else:
                e.reply(200, headers={OFFSET: str(len(self.read))})


class Input(unittest.TestCase):
    def test_a_later_handle_loses_nothing_when_its_first_requests_fail(self) -> None:
        for faults in (["unavailable"], ["", "unavailable"], ["", "lost"], ["lost", "lost"], ["unavailable", "", "lost"]):
            program = Program(b"abcd")
            program.faults = list(faults)
            with self.subTest(faults), Scripted(program.answer) as server, server.toolcall() as tc:
                handle = tc.connect("s").commands.connect("c")
                handle.write("efghijkl")
                handle.write("mn")
                self.assertEqual(program.read, b"abcdefghijklmn")

    def test_more_was_read_before_than_is_written_now(self) -> None:
        program = Program(b"a" * 100)
        program.faults = ["unavailable"]
        with Scripted(program.answer) as server, server.toolcall() as tc:
            tc.connect("s").commands.connect("c").write("b")
        self.assertEqual(program.read, b"a" * 100 + b"b")

    def test_a_program_that_reads_slowly_is_waited_for_as_long_as_it_reads_on(self) -> None:
        program = Program()
        program.faults = [""] + ["slow"] * 8
        with Scripted(program.answer) as server, server.toolcall(patience=1.0) as tc:
            tc.connect("s").commands.connect("c").write("abcdefghijkl")
        self.assertEqual(program.read, b"abcdefghijkl")

    def test_a_call_that_its_suspended_session_ended_says_so_at_once(self) -> None:
        program = Program(b"ab", "Cancelled", "Suspended")
        with Scripted(program.answer) as server, server.toolcall() as tc:
            handle = tc.connect("s").commands.connect("c")
            began = time.monotonic()
            with self.assertRaises(Conflict):
                handle.write("c")
            self.assertLess(time.monotonic() - began, 5)


if __name__ == "__main__":
    unittest.main()
