"""Calls, against a server that fails on purpose: what is created, awaited and cancelled, and what an error says."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any
from unittest import mock

from tests.scripted import OTHER_UID, UID, Exchange, Scripted, call, session
from toolcall import (
    Conflict, Denied, Forbidden, InvalidArgument, NotFound, TimedOut, Toolcall, ToolcallError, Unauthenticated, Unavailable, calls,
    interrupts,
)
from toolcall.watches import Events, Watch

SHELL = {"shell": {"command": "true"}}


class Calls:
    """A server with calls. Each ends once `ended` is set. before: called with each request; True when
    it has answered. lose_answer: creates a call, and the answer is lost."""

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, Any]] = {"s": session()}
        self.ended = threading.Event()
        self.cancelled: list[str] = []
        self.wrong_uid = (409, "Conflict")
        self.log: Callable[[Exchange], None] = lambda e: e.refuse(404, "NotFound")
        self.lose_answer: Callable[[Exchange], None] = self._lose_answer
        self.before: Callable[[Exchange], bool] = lambda e: False

    def answer(self, e: Exchange) -> None:
        name = e.path.rpartition("/")[2]
        if self.before(e):
            return
        if e.path.endswith("/log"):
            self.log(e)
        elif e.query.get("watch"):
            self._watch(e)
        elif e.command == "POST":
            self.create(e)
        elif name not in self.calls:
            e.refuse(404, "NotFound")
        elif e.command == "PATCH":
            self._patch(e, self.calls[name])
        else:
            e.reply(200, self.calls[name])

    def create(self, e: Exchange) -> None:
        """Creates a call."""
        made = e.json()
        name = made["metadata"]["name"]
        made["spec"]["requestedBy"] = {"username": "me"}
        if name in self.calls:
            e.refuse(409, "AlreadyExists")
        else:
            self.calls[name] = call(name, made["spec"])
            e.reply(201, self.calls[name])

    def _lose_answer(self, e: Exchange) -> None:
        made = e.json()
        self.calls.setdefault(made["metadata"]["name"], call(made["metadata"]["name"], made["spec"]))
        e.refuse(503, "ServiceUnavailable")

    def _patch(self, e: Exchange, found: dict[str, Any]) -> None:
        wanted = e.json().get("metadata", {}).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            e.refuse(*self.wrong_uid)
            return
        self.cancelled.append(found["metadata"]["name"])
        e.reply(200, found)

    def _watch(self, e: Exchange) -> None:
        e.begin()
        self.ended.wait(10)
        chosen = e.query.get("fieldSelector", "")
        for name, each in [pair for pair in self.calls.items() if pair[0] != "s"]:
            of = each["spec"].get("sessionRef", {}).get("name")
            if chosen.startswith("spec.sessionRef.name=") and of and chosen != f"spec.sessionRef.name={of}":
                continue
            e.part({"type": "MODIFIED", "object": call(name, each["spec"], "Succeeded", each["metadata"]["uid"])})
        e.hold()


class Base(unittest.TestCase):
    def setUp(self) -> None:
        self.fake = Calls()
        self.server = self.enterContext(Scripted(self.fake.answer))
        self.tc: Toolcall = self.enterContext(self.server.toolcall())


class LiveOutput(Base):
    def test_output_that_cannot_be_followed_leaves_the_call_alone(self) -> None:
        for status, reason, kind in ((404, "NotFound", NotFound), (403, "Forbidden", Forbidden)):
            self.fake.log = lambda e, status=status, reason=reason: e.refuse(status, reason)  # type: ignore[misc]
            self.fake.ended.clear()
            threading.Timer(0.3, self.fake.ended.set).start()
            with self.subTest(reason), self.assertRaises(kind) as caught:
                self.tc.run("true", key=f"k-{status}", on_stdout=print)
            assert caught.exception.result is not None
            self.assertEqual((caught.exception.result.phase, self.fake.cancelled), ("Succeeded", []))

    def end(self, phase: str, **status: Any) -> None:
        """Has calls end so, and their output refused."""
        def before(e: Exchange) -> bool:
            if e.command == "POST":
                made = e.json()
                name = made["metadata"]["name"]
                self.fake.calls[name] = call(name, made["spec"], phase, **status)
                e.reply(201, self.fake.calls[name])
            return e.command == "POST"

        self.fake.before = before

    def hear(self, key: str, background: bool) -> str:
        """All that a callback for the output of a call gets."""
        heard: list[str] = []
        if background:
            self.tc.connect("s").commands.run("x", key=key, background=True, on_stdout=heard.append).wait()
        else:
            self.tc.run("x", key=key, on_stdout=heard.append)
        return "".join(heard)

    def test_output_that_cannot_be_followed_is_taken_from_the_result(self) -> None:
        def log(e: Exchange) -> None:
            if self.server.count("GET", "/log") % 2:
                e.begin({"Toolcall-Offset": "0"})
                e.part("aü€".encode()[:-1])
                e.end()
            else:
                e.refuse(404, "NotFound")

        self.fake.log = log
        said = {"bytes": 6, "truncated": False, "invalidUTF8": False}
        self.end("Succeeded", stdout="aü€", streams={"stdout": said})
        self.assertEqual([self.hear("k-1", False), self.hear("k-2", True)], ["aü€", "aü€"])
        self.end("Succeeded", stdout="aü€", streams={"stdout": {**said, "bytes": 9, "truncated": True}})
        for background in (False, True):
            with self.subTest(background), self.assertRaises(NotFound) as caught:
                self.hear(f"k-{background}".lower(), background)
            assert caught.exception.result is not None
            self.assertEqual(caught.exception.result.stdout, "aü€")

    def test_what_is_taken_from_the_result_is_handed_on_once(self) -> None:
        def log(e: Exchange) -> None:
            if self.server.count("GET", "/log") % 2:
                e.begin({"Toolcall-Offset": "0"})
                e.part(b"aa")
                e.end()
            else:
                e.refuse(404, "NotFound")

        def slow(text: str) -> None:
            time.sleep(0.3 if text == "bb" else 0)
            heard.append(text)

        def fail(text: str) -> None:
            heard.append(text)
            if text == "bb":
                raise OSError(text)

        self.fake.log = log
        self.end("Succeeded", stdout="aabb", streams={"stdout": {"bytes": 4, "truncated": False, "invalidUTF8": False}})
        run = self.tc.connect("s").commands.run
        heard: list[str] = []
        handle = run("x", key="k-1", background=True, on_stdout=slow)
        with ThreadPoolExecutor() as threads:
            waits = [threads.submit(lambda: (handle.wait().stdout, list(heard))) for _ in range(2)]
            self.assertEqual([wait.result() for wait in waits], [("aabb", ["aa", "bb"])] * 2)
        handle.wait()
        self.assertEqual(heard, ["aa", "bb"])

        heard.clear()
        handle = run("x", key="k-2", background=True, on_stdout=fail)
        for _ in range(2):
            with self.assertRaisesRegex(OSError, "bb"):
                handle.wait()
        self.assertEqual(heard, ["aa", "bb"])

    def test_an_end_says_more_than_output_that_cannot_be_followed(self) -> None:
        for phase, reason, kind in (("Denied", "ShellDisabled", Denied), ("Failed", "TimedOut", TimedOut)):
            self.end(phase, reason=reason)
            for background in (False, True):
                with self.subTest(reason), self.assertRaises(kind):
                    self.hear(f"k-{reason}-{background}".lower(), background)

    def test_a_callback_that_is_none_is_refused_before_anything_is_sent(self) -> None:
        with self.assertRaisesRegex(InvalidArgument, "on_stdout .* give a function"):
            self.tc.run("true", on_stdout=sys.stdout)  # type: ignore[arg-type]
        self.assertEqual(self.server.count("POST"), 0)

    def test_what_a_callback_raises_cancels_the_call_whatever_it_is(self) -> None:
        def log(e: Exchange) -> None:
            e.begin({"Toolcall-Offset": "0"})
            e.part(b"text")
            e.hold()

        def fail(text: str) -> None:
            raise error

        self.fake.log = log
        for number, error in enumerate((NotFound("FileNotFound", "x"), Unavailable("Unavailable", "x"), OSError())):
            with self.subTest(error), self.assertRaises(type(error)):
                self.tc.run("true", key=f"k-{number}", on_stdout=fail)
            self.assertEqual(self.fake.cancelled[-1:], [f"k-{number}"])

    def test_what_a_callback_raises_cancels_a_background_call_too(self) -> None:
        def log(e: Exchange) -> None:
            e.begin({"Toolcall-Offset": "0", "Toolcall-Complete": "true", "Toolcall-Bytes": "4"})
            e.part(b"text")
            e.end()

        def ends_when_cancelled(e: Exchange) -> bool:
            if e.command == "PATCH":
                self.fake.ended.set()
            return False

        def fail(text: str) -> None:
            raise OSError(text)

        self.fake.log, self.fake.before = log, ends_when_cancelled
        handle = self.tc.connect("s").commands.run("true", key="k", background=True, on_stdout=fail)
        with self.assertRaisesRegex(OSError, "text"):
            handle.wait()
        self.assertEqual(self.fake.cancelled, ["k"])


class Quiet(unittest.TestCase):
    def test_a_quiet_call_whose_connections_are_cut_lasts_longer_than_patience(self) -> None:
        fake = Calls()
        watches: list[float] = []

        def cut(e: Exchange) -> bool:
            if not (e.query.get("watch") or e.path.endswith("/log")):
                return False
            if e.query.get("watch"):
                watches.append(time.monotonic())
                if time.monotonic() - began > 3:
                    fake.ended.set()
                    return False
            e.begin({"Toolcall-Offset": "0", **({"Toolcall-Complete": "true"} if fake.ended.is_set() else {})})
            if fake.ended.is_set():
                e.end()
                return True
            time.sleep(0.1)
            e.cut()
            return True

        fake.before = cut
        began = time.monotonic()
        with Scripted(fake.answer) as server, server.toolcall(patience=1) as tc:
            self.assertEqual(tc.run("true", on_stdout=print).phase, "Succeeded")
        self.assertGreater(len(watches), 2)


class GivenUp(Base):
    def give_up_during_create(self, key: str, background: bool = False) -> None:
        """Runs a call whose create request stands still, and interrupts it."""
        asked = threading.Event()
        held = self.fake.before

        def before(e: Exchange) -> bool:
            if e.command != "POST":
                return held(e)
            self.fake.lose_answer(e)
            asked.set()
            return True

        self.fake.before = before
        interrupt = interrupts.Interrupt()

        def give_up() -> None:
            asked.wait(10)
            interrupt.set()

        threading.Thread(target=give_up).start()
        with interrupts.under(interrupt), self.assertRaises(interrupts.Interrupted):
            s = self.tc.connect("s")
            s.commands.run("true", key=key, background=True) if background else s.commands.run("true", key=key)

    def test_a_start_that_is_given_up_is_cancelled(self) -> None:
        for background in (False, True):
            self.give_up_during_create(f"k-{background}".lower(), background)
        self.assertEqual(self.fake.cancelled, ["k-false", "k-true"])

    def test_a_call_with_other_arguments_is_somebody_elses(self) -> None:
        self.fake.calls["k"] = call("k", SHELL)
        self.give_up_during_create("k")
        self.assertEqual(self.fake.cancelled, [])

    def test_what_was_given_up_before_is_not_sent(self) -> None:
        interrupt = interrupts.Interrupt()
        interrupt.set()
        with interrupts.under(interrupt), self.assertRaises(interrupts.Interrupted):
            self.tc.run("true")
        self.assertEqual(self.server.count("POST"), 0)

    def test_a_create_request_that_arrives_late_is_cancelled_too(self) -> None:
        def create(spec: dict[str, Any]) -> None:
            time.sleep(0.5)
            self.fake.calls["k"] = call("k", spec)

        def answer(e: Exchange) -> None:
            threading.Thread(target=create, args=(e.json()["spec"],)).start()
            e.refuse(503, "ServiceUnavailable")

        self.fake.lose_answer = answer
        self.give_up_during_create("k")
        self.assertEqual(self.fake.cancelled, ["k"])

    def test_what_cannot_be_cancelled_is_noted(self) -> None:
        def before(e: Exchange) -> bool:
            if e.command == "PATCH":
                e.refuse(403, "Forbidden")
            return e.command == "PATCH"

        def fail(text: str) -> None:
            raise ZeroDivisionError

        def log(e: Exchange) -> None:
            e.begin({"Toolcall-Offset": "0"})
            e.part(b"text")
            e.hold()

        self.fake.before, self.fake.log = before, log
        with self.assertRaises(ZeroDivisionError) as caught:
            self.tc.run("true", key="k", on_stdout=fail)
        self.assertRegex(caught.exception.__notes__[0], "k couldn't be stopped.*Forbidden")


class LostAnswers(Base):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(calls, "_REPEAT_SECONDS", 0.5))
        self.created = 0

    def test_a_create_request_is_not_repeated_for_as_long_as_patience(self) -> None:
        began = time.monotonic()

        def before(e: Exchange) -> bool:
            if e.command != "POST":
                return False
            if not self.created or time.monotonic() - began > 1:
                self.created += 1
            e.refuse(503, "ServiceUnavailable")
            return True

        self.fake.before = before
        with self.assertRaises(Unavailable) as caught:
            self.tc.run("true", key="k")
        self.assertEqual((self.created, caught.exception.retry_safe, caught.exception.call), (1, False, "k"))

    def test_a_session_runs_nothing_and_is_created_for_as_long_as_patience(self) -> None:
        began = time.monotonic()

        def before(e: Exchange) -> bool:
            if e.command != "POST":
                return False
            if time.monotonic() - began < 1.5:
                e.refuse(503, "ServiceUnavailable")
            else:
                name = e.json()["metadata"]["name"]
                self.fake.calls[name] = session(name)
                e.reply(201, self.fake.calls[name])
            return True

        self.fake.before = before
        self.tc.session("tools", key="k")
        self.assertIn("k", self.fake.calls)

    def test_whether_it_is_safe_to_ask_again_follows_from_what_may_have_arrived(self) -> None:
        for code, reason, kind, is_safe in [
            (429, "TooManyRequests", Unavailable, True), (503, "ServiceUnavailable", Unavailable, False),
            (422, "Invalid", InvalidArgument, True), (403, "Forbidden", Forbidden, True),
        ]:
            def before(e: Exchange) -> bool:
                if e.command == "POST":
                    e.refuse(code, reason)
                return e.command == "POST"

            self.fake.before = before
            creates: list[Callable[[Toolcall], object]] = [lambda tc: tc.run("true"), lambda tc: tc.session("tools")]
            for create in creates:
                with self.subTest(reason), self.server.toolcall(0.2) as tc, self.assertRaises(kind) as caught:
                    create(tc)
                self.assertEqual(caught.exception.retry_safe, is_safe)

    def test_a_call_that_is_there_in_the_end_is_awaited(self) -> None:
        def before(e: Exchange) -> bool:
            if e.command == "POST":
                self.fake.lose_answer(e)
            return e.command == "POST"

        self.fake.before = before
        self.fake.ended.set()
        self.assertEqual(self.tc.run("true", key="k").phase, "Succeeded")


    def test_a_call_that_is_there_is_found_when_the_repetition_is_refused(self) -> None:
        def before(e: Exchange) -> bool:
            if e.command == "POST" and self.server.count("POST") == 1:
                self.fake.lose_answer(e)
            elif e.command == "POST":
                e.refuse(403, "Forbidden")  # A quota, which the call itself has filled.
            return e.command == "POST"

        self.fake.before = before
        self.fake.ended.set()
        self.assertEqual(self.tc.run("true", key="k").phase, "Succeeded")


class Refused(Base):
    def test_a_conflict_with_others_and_a_name_that_has_just_gone_are_asked_again(self) -> None:
        for reason in ("Conflict", "AlreadyExists"):
            def before(e: Exchange) -> bool:
                if e.command != "POST" or self.server.count("POST") > 1:
                    return False
                e.refuse(409, reason)
                return True

            self.fake.before = before
            self.server.seen.clear()
            handle = self.tc.connect("s").commands.run("true", key=f"k-{reason.lower()}", background=True)
            self.assertEqual((handle.call, self.server.count("POST")), (f"k-{reason.lower()}", 2))

    def test_a_conflict_for_as_long_as_patience_is_a_conflict(self) -> None:
        def before(e: Exchange) -> bool:
            changes = e.command in ("POST", "PATCH")
            if changes:
                e.refuse(409, "Conflict")
            return changes

        self.fake.before = before
        with self.server.toolcall(patience=0.1) as tc:
            with self.assertRaises(Conflict) as caught:
                tc.run("true", key="k")
            self.assertEqual((caught.exception.reason, caught.exception.retry_safe, caught.exception.call), ("Conflict", True, "k"))
            with self.assertRaises(Conflict):
                tc.cancel("s")
        self.assertGreater(min(self.server.count("POST"), self.server.count("PATCH")), 1)


class SameName(Base):
    def test_a_later_call_of_the_key_is_not_cancelled_or_awaited(self) -> None:
        handle = self.tc.connect("s").commands.run("true", key="k", background=True)
        self.fake.calls["k"] = call("k", SHELL, uid=OTHER_UID)
        for refusal in ((409, "Conflict"), (422, "Invalid")):
            self.fake.wrong_uid = refusal
            handle.cancel()
            self.assertEqual(self.fake.cancelled, [])
        with self.assertRaises(NotFound) as caught:
            handle.wait()
        self.assertEqual((caught.exception.reason, caught.exception.retry_safe), ("Deleted", False))
        self.tc.cancel("k")
        self.assertEqual(self.fake.cancelled, ["k"])

    def test_a_later_session_of_the_key_is_not_ended_or_ready(self) -> None:
        s = self.tc.connect("s")
        self.fake.calls["s"] = session(uid=OTHER_UID)
        s.end()
        self.assertEqual(self.fake.cancelled, [])
        with self.assertRaises(NotFound) as caught:
            s.wait_until_ready()
        self.assertEqual((caught.exception.reason, caught.exception.retry_safe), ("Deleted", True))


class Connecting(Base):
    def test_a_background_call_of_another_session_is_awaited_too(self) -> None:
        self.fake.calls["k"] = call("k", {**SHELL, "background": True, "sessionRef": {"name": "other"}})
        threading.Timer(0.3, self.fake.ended.set).start()
        handle = self.tc.connect("s").commands.connect("k")
        results: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=lambda: results.put(handle.wait()), daemon=True).start()
        self.assertEqual(results.get(timeout=5).phase, "Succeeded")


class SharedWatch(Base):
    def test_each_wait_has_an_error_of_its_own(self) -> None:
        def before(e: Exchange) -> bool:
            if not e.query.get("watch"):
                return False
            while len(self.fake.calls) < 4:
                time.sleep(0.01)
            e.refuse(401, "Unauthorized")
            return True

        self.fake.before = before
        s, failed = self.tc.connect("s"), []

        def run(key: str) -> None:
            with self.assertRaises(Unauthenticated) as caught:
                s.commands.run("true", key=key)
            failed.append((key, caught.exception.call))
            # The command may be running: only what was told of the call isn't known.
            self.assertFalse(caught.exception.retry_safe)

        threads = [threading.Thread(target=run, args=(f"k-{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(failed), [(f"k-{number}", f"k-{number}") for number in range(3)])

    def test_a_watch_that_is_refused_leaves_the_call_alone(self) -> None:
        self.fake.before = lambda e: bool(e.query.get("watch")) and self.forbidden(e)
        with self.assertRaises(Forbidden) as caught:
            self.tc.run("true", key="k")
        self.assertEqual((caught.exception.call, caught.exception.retry_safe, self.fake.cancelled), ("k", False, []))

    def forbidden(self, e: Exchange) -> bool:
        e.refuse(403, "Forbidden")
        return True

    def test_a_watch_ends_when_nobody_waits_and_with_the_client(self) -> None:
        def before(e: Exchange) -> bool:
            if not e.query.get("watch") or self.server.count("GET", "/toolcalls") > 1:
                return False
            e.begin()
            for name, each in list(self.fake.calls.items()):
                e.part({"type": "MODIFIED", "object": call(name, each["spec"], "Succeeded")})
            time.sleep(0.3)
            e.end()
            return True

        self.fake.before = before
        self.fake.ended.set()
        with self.server.toolcall() as tc:
            s = tc.connect("s")
            s.commands.run("true")
            self.expect_no_watch()
            self.assertEqual(self.server.count("GET", "/toolcalls"), 1)
            s.commands.run("true")
        self.expect_no_watch()

    def expect_no_watch(self) -> None:
        until = time.monotonic() + 5
        while any(each.name.startswith("toolcall watch spec.") for each in threading.enumerate()):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def test_a_watch_that_gave_up_begins_anew_with_all_its_patience(self) -> None:
        self.fake.calls["k"] = call("k", SHELL)
        watch = Watch(self.server.toolcall(0.4)._calls.transport, "/toolcalls", "", 0.4)
        self.fake.before = lambda e: bool(e.query.get("watch")) and self.unavailable(e)
        for _ in range(2):
            events: Events = SimpleQueue()
            began = time.monotonic()
            with watch.expecting("k", events):
                watch.begin("5")
                self.assertEqual(events.get(timeout=5)[0], "failed")
            self.assertGreater(time.monotonic() - began, 0.3)

    def unavailable(self, e: Exchange) -> bool:
        e.refuse(503, "ServiceUnavailable")
        return True


class Unsendable(Base):
    def test_what_cannot_be_sent_is_an_error_of_the_librarys_own(self) -> None:
        s = self.tc.connect("s")
        handle = s.commands.run("cat", background=True, key="k")
        works: list[Callable[[], object]] = [
            lambda: s.files.write("x", "\ud800"), lambda: handle.write("\ud800"), lambda: s.files.upload(__file__, "\ud800"),
            lambda: self.tc.artifact("k", "\ud800"), lambda: self.tc.run(tool="t", arguments={"a": object()}),
        ]
        for number, work in enumerate(works):
            with self.subTest(number), self.assertRaises(InvalidArgument) as caught:
                work()
            self.assertTrue(caught.exception.retry_safe)

    def test_an_answer_that_is_not_the_api_servers(self) -> None:
        for status, body, reason, is_safe in (
            (200, b"<html>Sign in</html>", "UnexpectedAnswer", False), (200, b"[]", "UnexpectedAnswer", False),
            (200, b"\xff", "UnexpectedAnswer", False), (200, b'{"error": "no"}', "UnexpectedAnswer", False),
            (200, b'{"metadata": {}}', "UnexpectedAnswer", False), (302, b"elsewhere", "HTTP302", True),
        ):
            self.fake.before = lambda e: e.reply(status, body) or True  # type: ignore[func-returns-value]
            creates: list[Callable[[], object]] = [lambda: self.tc.run("true", key="k"), lambda: self.tc.session("repo", key="k")]
            reads: list[Callable[[], object]] = [lambda: list(self.tc.calls()), lambda: self.tc.connect("s"), lambda: self.tc.cancel("k")]
            for work in reads:
                with self.subTest(body), self.assertRaises(ToolcallError) as caught:
                    work()
                self.assertEqual(caught.exception.reason, reason)
            for work in creates:
                with self.subTest(body), self.assertRaises(ToolcallError) as caught:
                    work()
                self.assertEqual((caught.exception.reason, caught.exception.retry_safe), (reason, is_safe))
                self.assertIn(body.decode(errors="replace"), caught.exception.message)


class Output(Base):
    def test_the_hash_of_a_whole_stream_is_compared(self) -> None:
        def log(e: Exchange) -> None:
            offset = e.query["offset"]
            sha256 = hashlib.sha256(b"abcdef").hexdigest()
            e.begin({"Toolcall-Offset": offset, "Toolcall-Bytes": "6", "Toolcall-Complete": "true", "Toolcall-Sha256": sha256})
            e.part(sent[int(offset):])
            e.end()

        self.fake.log, sent = log, b"abcdef"
        self.assertEqual([self.tc.output("k"), self.tc.artifact("k", "a")], [sent, sent])
        sent = b"abcdeX"
        self.assertEqual(self.tc.output("k", offset=2), b"cdeX")
        reads: list[Callable[[], object]] = [lambda: self.tc.output("k"), lambda: self.tc.artifact("k", "a")]
        for read in reads:
            with self.assertRaisesRegex(ToolcallError, "SHA-256") as caught:
                read()
            self.assertEqual(caught.exception.call, "k")

    def test_each_error_about_a_call_names_it(self) -> None:
        handle = self.tc.connect("s").commands.run("cat", background=True, key="k")
        del self.fake.calls["k"]
        self.fake.before = lambda e: e.path.endswith("/input") and not e.refuse(404, "NotFound")  # type: ignore[func-returns-value]
        works: list[Callable[[], object]] = [
            lambda: self.tc.output("k"), lambda: self.tc.artifact("k", "a"), handle.read, lambda: next(handle.lines()),
            lambda: handle.write("a"), lambda: self.tc.connect("s").commands.connect("k"), handle.wait,
        ]
        for number, work in enumerate(works):
            with self.subTest(number), self.assertRaises(NotFound) as caught:
                work()
            self.assertEqual(caught.exception.call, "k")


class Lists(Base):
    def test_a_list_that_takes_too_long_goes_on_where_it_was(self) -> None:
        def before(e: Exchange) -> bool:
            more = e.query.get("continue")
            if more == "old":
                rest = {"kind": "Status", "reason": "Expired", "message": "too old", "metadata": {"continue": "new"}}
                e.reply(410, rest)
            else:
                items = [call("b" if more else "a", SHELL)]
                e.reply(200, {"metadata": {} if more else {"continue": "old"}, "items": items})
            return True

        self.fake.before = before
        self.assertEqual([found.name for found in self.tc.calls(page=1)], ["a", "b"])
        self.fake.before = lambda e: e.refuse(410, "Expired") or True  # type: ignore[func-returns-value]
        with self.assertRaises(Conflict):
            list(self.tc.calls())


class Names(Base):
    def test_what_is_no_name_is_not_sent(self) -> None:
        for name in ("", "../../other/toolcalls/x", "x/log?uid=1#", "a,status.phase=Denied", "X"):
            asks: list[Callable[[str], object]] = [self.tc.cancel, self.tc.output, self.tc.connect]
            for ask in asks:
                with self.subTest(name), self.assertRaises(InvalidArgument):
                    ask(name)
        with self.assertRaises(InvalidArgument):
            self.tc.calls(session="a,status.phase=Denied")
        with self.assertRaises(InvalidArgument):
            self.tc.calls(phase="Denied,spec.sessionRef.name=a")
        with self.assertRaises(InvalidArgument):
            Toolcall("../x", api_client=self.server.api_client())
        self.assertEqual(self.server.seen, [])


if __name__ == "__main__":
    unittest.main()
