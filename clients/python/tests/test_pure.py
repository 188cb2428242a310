"""Functions that need no cluster: errors by reason, results, pieces of output, lines of a watch, interrupts."""

from __future__ import annotations

import json
import threading
import time
import unittest
from pathlib import Path
from typing import Any

import toolcall
from toolcall import errors, interrupts
from toolcall.calls import settled
from toolcall.errors import ToolcallError, error_of_answer, error_of_call
from toolcall.files import entries_of
from toolcall.results import Result, call_info, is_finished, result_of, session_info
from toolcall.sessions import check_ended
from toolcall.streams import Piece, texts
from toolcall.transport import Passing, Patience
from toolcall.watches import lines

NAMES: dict[str, Any] = json.loads((Path(__file__).parents[2] / "scenarios/names.json").read_text())


def call(phase: str, reason: str, **status: Any) -> Result:
    return result_of({"metadata": {"name": "c", "uid": "u"}, "status": {"phase": phase, "reason": reason, **status}})


class Reasons(unittest.TestCase):
    def test_the_class_follows_from_phase_and_reason(self) -> None:
        for phase, reason, kind in (
            ("Failed", "TimedOut", errors.TimedOut), ("Failed", "OOMKilled", errors.NonZeroExit),
            ("Failed", "PathNotAllowed", errors.Forbidden), ("Failed", "ImagePullFailed", errors.NotStarted),
            ("Failed", "SomethingNew", errors.NotStarted), ("Denied", "InvalidArguments", errors.Denied),
            ("Denied", "ApprovalDenied", errors.ApprovalNeeded), ("Denied", "ApprovalExpired", errors.ApprovalNeeded),
            ("Cancelled", "CancelRequested", errors.Cancelled),
        ):
            with self.subTest(f"{phase} {reason}"):
                error = error_of_call(phase, call(phase, reason, message="why", retrySafe=phase == "Failed"))
                self.assertIs(type(error), kind)
                self.assertEqual((error.reason, error.message, error.call), (reason, "why", "c"))
                self.assertEqual(error.retry_safe, phase == "Failed")
                self.assertEqual(error.result.phase if error.result else "", phase)
        result = call("Succeeded", "Completed")
        self.assertIs(settled(result, True), result)

    def test_a_session_that_has_ended_says_why(self) -> None:
        for reason in ("IdleTimeout", "PodLost"):
            with self.subTest(reason), self.assertRaises(errors.SessionEnded) as raised:
                check_ended({"metadata": {"name": "s"}, "status": {"phase": "Ended", "reason": reason}})
            self.assertEqual(raised.exception.reason, reason)

    def test_a_commands_own_failure_is_an_error_only_if_asked_for(self) -> None:
        result = call("Failed", "NonZeroExit", exitCode=3)
        self.assertIs(settled(result, False), result)
        with self.assertRaises(errors.NonZeroExit):
            settled(result, True)
        with self.assertRaises(errors.PodLost):
            settled(call("Failed", "PodLost"), False)

    def test_a_session_that_cannot_start_says_what_a_call_would(self) -> None:
        for message, kind, reason in (
            ('EnvironmentNotFound: ExecutionEnvironment "nope" not found', "NotFound", "EnvironmentNotFound"),
            ("ImagePullFailed: there is no such image: x", "NotStarted", "ImagePullFailed"),
            ("PodLost: it is gone", "NotStarted", "PodLost"),
            ("the pod is at fault", "NotStarted", "StartFailed"),
        ):
            with self.subTest(message), self.assertRaises(ToolcallError) as raised:
                check_ended({"metadata": {"name": "s"}, "status": {"phase": "Ended", "reason": "StartFailed", "message": message}})
            self.assertEqual((type(raised.exception).__name__, raised.exception.reason), (kind, reason))
            self.assertTrue(message.endswith(raised.exception.message))

    def test_an_end_of_which_nothing_is_said_has_a_message(self) -> None:
        self.assertEqual(error_of_call("Failed", call("Failed", "TimedOut")).message, "the call ended as Failed: TimedOut")

    def test_the_result_is_there_by_type(self) -> None:
        def stdout_of(error: ToolcallError) -> str:
            if isinstance(error, (errors.Denied, errors.TimedOut, errors.Cancelled, errors.PodLost, errors.NonZeroExit)):
                return error.result.stdout  # mypy checks it.
            return ""

        self.assertEqual(stdout_of(error_of_call("Failed", call("Failed", "TimedOut", stdout="so far"))), "so far")
        self.assertIsInstance(error_of_answer(504, b'{"kind": "Status", "reason": "TimedOut"}'), errors.Unavailable)

    def test_answers_of_the_api_server(self) -> None:
        def status(reason: str, message: str = "why", **more: Any) -> bytes:
            return json.dumps({"kind": "Status", "reason": reason, "message": message, **more}).encode()

        for code, reason, kind in (
            (400, "", errors.InvalidArgument), (401, "", errors.Unauthenticated), (403, "", errors.Forbidden),
            (404, "", errors.NotFound), (409, "", errors.Conflict), (410, "", errors.Conflict), (412, "", errors.FileFailed),
            (413, "", errors.InvalidArgument), (416, "", errors.InvalidArgument), (418, "", ToolcallError),
            (422, "", errors.InvalidArgument), (429, "", errors.Unavailable), (501, "", errors.Unavailable),
            (503, "", errors.Unavailable), (507, "", errors.FileFailed), (404, "NotFound", errors.NotFound),
            (409, "AlreadyExists", errors.Conflict), (409, "IsDirectory", errors.FileFailed),
            (409, "WorkingDirNotFound", errors.NotFound), (410, "OutputNotKept", errors.OutputNotKept),
            (413, "FileTooLarge", errors.FileFailed), (500, "FileError", errors.FileFailed),
            (501, "NotSupported", errors.FileFailed), (504, "TimedOut", errors.Unavailable),
        ):
            with self.subTest(f"{code} {reason}"):
                error = error_of_answer(code, status(reason) if reason else b"no status")
                self.assertIs(type(error), kind)
                self.assertEqual((error.reason, error.retry_safe), (reason or f"HTTP{code}", False))
        self.assertIs(type(error_of_answer(404, b'["no status"]')), errors.NotFound)
        gone = error_of_answer(410, status("OutputNotKept", details={"causes": [{"type": "NextOffset", "message": "42"}]}))
        assert isinstance(gone, errors.OutputNotKept)
        self.assertEqual(gone.resume_at, 42)
        for metadata, rest in (({"continue": "more"}, "more"), ({}, ""), (None, "")):
            expired = error_of_answer(410, status("Expired", metadata=metadata))
            assert isinstance(expired, errors.Conflict)
            self.assertEqual(expired.rest, rest)

    def test_an_error_names_its_call_once(self) -> None:
        for call, name in ((None, "a"), ("b", "b")):
            with self.assertRaises(errors.NotFound) as caught, errors.about("a"):
                raise errors.NotFound("NotFound", "x", call=call)
            self.assertEqual(caught.exception.call, name)

    def test_an_error_reads_well(self) -> None:
        self.assertEqual(str(errors.Denied("ShellDisabled", "no shell", call="c")), "call c: ShellDisabled: no shell")

    def test_an_argument_that_is_not_valid_is_safe_to_correct(self) -> None:
        error = errors.invalid("wrong")
        self.assertIsInstance(error, ValueError)
        self.assertEqual((error.reason, error.retry_safe), ("InvalidArgument", True))

    def test_a_missing_approval_is_a_denial(self) -> None:
        self.assertTrue(issubclass(errors.ApprovalNeeded, errors.Denied))

    def test_all_errors_can_be_imported(self) -> None:
        kinds = {k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.ToolcallError)}
        self.assertEqual({k.__name__ for k in kinds} - set(toolcall.__all__), set())
        for name in toolcall.__all__:
            self.assertIsNotNone(getattr(toolcall, name))
        with self.assertRaises(AttributeError):
            getattr(toolcall, "AsyncNothing")


class Names(unittest.TestCase):
    def test_both_libraries_have_them(self) -> None:
        for name in NAMES["classes"]:
            self.assertIn(name, toolcall.__all__)
        for owner, methods in NAMES["methods"].items():
            for name in methods:
                self.assertTrue(callable(getattr(getattr(toolcall, owner), name, None)), f"{owner}.{name}")
        for thing in (call("Succeeded", "Completed"), errors.Denied("ShellDisabled", "no shell")):
            owner = "Result" if isinstance(thing, Result) else "ToolcallError"
            for name in NAMES["fields"][owner]:
                self.assertTrue(hasattr(thing, name), f"{owner}.{name}")


class Results(unittest.TestCase):
    def test_an_exit_code_that_nobody_knows_is_none(self) -> None:
        self.assertIsNone(call("Failed", "PodLost").exit_code)
        self.assertEqual(call("Failed", "TimedOut", message="stopped").exit_code, None)
        self.assertEqual(call("Succeeded", "Completed", exitCode=0).exit_code, 0)

    def test_a_denied_call_is_safe_to_ask_for_again(self) -> None:
        self.assertTrue(call("Denied", "ShellDisabled").retry_safe)
        self.assertFalse(call("Failed", "PodLost").retry_safe)
        self.assertTrue(call("Cancelled", "CancelRequested", retrySafe=True).retry_safe)

    def test_streams(self) -> None:
        streams = {"stdout": {"bytes": 9, "sha256": "s", "truncated": True, "invalidUTF8": False}}
        status = {"stdout": "x", "output": "x\n\nTook 0.1s", "durationMilliseconds": 1500, "streams": streams}
        result = call("Succeeded", "Completed", **status)
        self.assertEqual((result.truncated, result.streams["stdout"].bytes, result.duration), (True, 9, 1.5))
        self.assertEqual((result.text, result.stderr), ("x\n\nTook 0.1s", ""))

    def test_hosts_that_were_refused(self) -> None:
        denied = [{"host": "b.example.com", "count": 2}, {"host": "2001:db8::7", "port": 443, "count": 1}]
        result = call("Failed", "NonZeroExit", network={"mode": "Listed", "denied": denied, "omittedDenied": 3})
        self.assertEqual(result.denied_hosts, [toolcall.DeniedHost("b.example.com", None, 2), toolcall.DeniedHost("2001:db8::7", 443, 1)])
        for network in ({"mode": "Listed"}, None):
            self.assertEqual(call("Failed", "NonZeroExit", network=network).denied_hosts, [])
        self.assertEqual(call("Succeeded", "Completed").denied_hosts, [])

    def test_the_end_is_a_condition(self) -> None:
        for conditions, finished in [
            ([], False),
            ([{"type": "Finished", "status": "False"}], False),
            ([{"type": "Started", "status": "True"}], False),
            ([{"type": "Started", "status": "True"}, {"type": "Finished", "status": "True"}], True),
        ]:
            self.assertEqual(is_finished({"status": {"conditions": conditions}}), finished)
        self.assertFalse(is_finished({}))

    def test_what_the_operator_has_not_seen_yet_is_pending(self) -> None:
        for status, phase in (("", "Pending"), ("Ready", "Ready")):
            thing = {"metadata": {"name": "s"}, "spec": {}, "status": {"phase": status} if status else {}}
            self.assertEqual((session_info(thing).phase, call_info(thing).phase), (phase, phase))


class Pieces(unittest.TestCase):
    def test_characters_that_arrive_in_parts(self) -> None:
        data = "grün €\U0001f600".encode()
        for size in range(1, len(data) + 1):
            pieces = [Piece(at, data[at : at + size]) for at in range(0, len(data), size)]
            self.assertEqual("".join(texts(iter(pieces))), data.decode())

    def test_what_is_no_text(self) -> None:
        self.assertEqual(list(texts(iter([Piece(0, b"a\xffb"), Piece(3, b"\xc3")]))), ["a\ufffdb", "\ufffd"])

    def test_a_part_that_was_not_kept(self) -> None:
        pieces = [Piece(0, b"a\xc3"), Piece(9, b"", 7), Piece(9, b"b")]
        self.assertEqual("".join(texts(iter(pieces))), "a\ufffd\n[7 bytes were not kept]\nb")

    def test_lines_of_a_body(self) -> None:
        body = b'{"a":1}\n{"b":2}\n{"cut'
        for size in range(1, len(body) + 1):
            chunks = iter([body[at : at + size] for at in range(0, len(body), size)])
            self.assertEqual(list(lines(chunks)), [b'{"a":1}', b'{"b":2}'])

    def test_a_name_that_looks_like_two_lines(self) -> None:
        names = ["a\u0085b", "c\u2028d", "e\x1cf"]
        text = "".join(json.dumps({"path": name}, ensure_ascii=False) + "\n" for name in names)
        self.assertEqual([entry["path"] for entry in entries_of({"status": {"stdout": text}})], names)


class Waits(unittest.TestCase):
    def test_patience_ends(self) -> None:
        patience = Patience(0.2)
        began = time.monotonic()
        with self.assertRaisesRegex(errors.Unavailable, "away"):
            while True:
                patience.failed(Passing("away"))
        self.assertTrue(0.2 <= time.monotonic() - began < 2)

    def test_the_reason_is_that_of_the_last_answer(self) -> None:
        passing = Passing("full")
        passing.reason = "TooManyRequests"
        with self.assertRaises(errors.Unavailable) as caught:
            Patience(0).failed(passing)
        self.assertEqual(caught.exception.reason, "TooManyRequests")

    def test_what_works_begins_it_anew(self) -> None:
        patience = Patience(0.2)
        for _ in range(6):
            patience.failed(Passing("away"))
            patience.worked()

    def test_a_sleep_is_interrupted(self) -> None:
        interrupt = interrupts.Interrupt()
        threading.Timer(0.05, interrupt.set).start()
        began = time.monotonic()
        with interrupts.under(interrupt), self.assertRaises(interrupts.Interrupted):
            interrupts.sleep(30)
        self.assertLess(time.monotonic() - began, 5)
        with interrupts.under(interrupt), interrupts.under(None):
            interrupts.sleep(0.01)

    def test_whoever_comes_late_is_told_at_once(self) -> None:
        interrupt, told = interrupts.Interrupt(), []
        interrupt.set()
        with interrupts.under(interrupt), interrupts.calling(lambda: told.append(1)):
            self.assertEqual(told, [1])


if __name__ == "__main__":
    unittest.main()
