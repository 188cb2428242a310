"""What a newcomer meets: a server that isn't there, a token that isn't accepted, a session that doesn't become ready, labels, lines."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import tempfile
import threading
import time
import unittest
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

from kubernetes import client

from tests.scripted import NAMESPACE, Exchange, Scripted, session
from tests.test_calls import Calls
from toolcall import (
    AsyncToolcall, Forbidden, InvalidArgument, NotStarted, SessionOptions, Toolcall, Unauthenticated, Unavailable, interrupts, transport,
)


class Connecting(unittest.TestCase):
    def test_a_server_that_never_answered_is_asked_for_a_short_time(self) -> None:
        silent = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        self.enterContext(mock.patch.object(transport, "UNREACHED_SECONDS", 0.2))
        for port in (silent.getsockname()[1], self.free_port()):
            configuration = client.Configuration()
            configuration.host = f"http://127.0.0.1:{port}"
            with Toolcall(NAMESPACE, api_client=client.ApiClient(configuration), patience=60) as tc:
                with self.assertRaisesRegex(Unavailable, f"no answer for 0 s: the API server at {configuration.host} can't be reached"):
                    tc.connect("s")

    def free_port(self) -> int:
        """A port on which nobody listens."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port: int = server.getsockname()[1]
            return port

    def test_a_server_that_answered_once_is_asked_for_as_long_as_patience_lasts(self) -> None:
        answers = iter([True, False, False, True])
        with Scripted(lambda e: e.reply(200, session()) if next(answers) else e.cut()) as server, server.toolcall() as tc:
            tc.connect("s")
            with mock.patch.object(transport, "UNREACHED_SECONDS", 0.0):
                self.assertEqual(tc.connect("s").name, "s")

    def test_a_token_that_is_not_accepted(self) -> None:
        def token(claims: dict[str, Any]) -> str:
            return "Bearer h." + base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=") + ".s"

        with Scripted(lambda e: e.refuse(401, "Unauthorized")) as server:
            for given, says in ((token({"exp": 1700000000}), "expired at 2023-11-14T22:13:20Z"), (token({"exp": 4102444800}), "expires at 2100-"),
                                (token({}), "credentials$"), ("Bearer opaque", "credentials$")):
                api = server.api_client()
                api.default_headers["authorization"] = given
                with Toolcall(NAMESPACE, api_client=api) as tc, self.assertRaisesRegex(Unauthenticated, says) as raised:
                    tc.run("true")
                self.assertEqual((raised.exception.reason, raised.exception.retry_safe), ("Unauthorized", True))
                self.assertIn(server.url, raised.exception.message)

    def test_a_kubeconfig_that_cannot_be_used(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "config")
            path.write_text("no: kubeconfig")
            with mock.patch.dict("os.environ", KUBECONFIG=str(path)), self.assertRaisesRegex(InvalidArgument, str(path)):
                Toolcall()

    def test_a_namespace_is_that_of_the_context_or_default_and_an_empty_one_is_refused(self) -> None:
        context: dict[str, Any] = {"cluster": "c", "user": "u"}
        kubeconfig: dict[str, Any] = {
            "current-context": "k", "contexts": [{"name": "k", "context": context}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}],
        }
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", KUBECONFIG=f"{folder}/config"):
            for namespace in ("default", "agents"):
                Path(folder, "config").write_text(json.dumps(kubeconfig))
                with Toolcall() as tc:
                    self.assertEqual(tc.namespace, namespace)
                context["namespace"] = "agents"
            with self.assertRaisesRegex(InvalidArgument, "namespace ''"):
                Toolcall("")


class Opening(unittest.TestCase):
    def setUp(self) -> None:
        self.status: dict[str, Any] = {"phase": "Pending", "reason": "TooManySessions", "message": "the environment has 2 of 2"}
        self.made: dict[str, Any] = {}
        self.refusals: list[str] = []
        self.may_not_end = False
        self.is_away = False
        self.server = self.enterContext(Scripted(self.answer))
        self.tc = self.enterContext(self.server.toolcall())

    def answer(self, e: Exchange) -> None:
        if e.query.get("watch"):
            e.begin()
            e.hold()
        elif e.command == "POST" and self.refusals:
            e.refuse(409, self.refusals.pop())
        elif e.command == "POST":
            self.made = e.json()
            self.made["metadata"].update(uid="u", resourceVersion="5", creationTimestamp="2026-01-01T00:00:00Z")
            e.reply(201, self.made)
        elif e.command == "PATCH" and self.may_not_end:
            e.refuse(403, "Forbidden")
        elif e.command == "GET" and self.is_away:
            e.refuse(503, "ServiceUnavailable")
        else:
            e.reply(200, {**self.made, "status": self.status})

    def test_a_session_that_is_not_ready_in_time_says_why_and_is_ended(self) -> None:
        with self.assertRaisesRegex(NotStarted, r"isn't ready after 0.1 s: the environment has 2 of 2") as raised:
            self.tc.session("repo", wait=0.1)
        self.assertEqual((raised.exception.reason, raised.exception.retry_safe), ("TooManySessions", True))
        self.assertEqual(self.server.count("PATCH"), 1)

    def test_one_that_cannot_be_ended_does_not_hide_why_it_was_left(self) -> None:
        def enter(error: BaseException | None) -> None:
            with self.tc.session("repo"):
                if error is not None:
                    raise error

        async def enter_async(error: BaseException) -> None:
            async with AsyncToolcall(NAMESPACE, api_client=self.server.api_client()) as tc, tc.session("repo"):
                raise error

        self.may_not_end = True
        with self.assertRaises(NotStarted) as raised:
            self.tc.session("repo", wait=0.1)
        self.status = {"phase": "Ready"}
        with self.assertRaises(KeyboardInterrupt) as left:
            enter(KeyboardInterrupt())
        with self.assertRaises(ZeroDivisionError) as awaited:
            asyncio.run(enter_async(ZeroDivisionError()))
        for error in (raised.exception, left.exception, awaited.exception):
            self.assertRegex(error.__notes__[0], "couldn't be ended.*Forbidden")
        with self.assertRaises(Forbidden):
            enter(None)

    def test_one_that_cannot_be_awaited_is_ended_unless_it_has_a_key(self) -> None:
        self.is_away = True
        keys: list[SessionOptions] = [{}, {"key": "desk"}]
        with self.server.toolcall(patience=0.1) as tc:
            for options in keys:
                with self.assertRaises(Unavailable):
                    tc.session("repo", **options)
                self.assertEqual(self.server.count("PATCH"), 1)

    def test_one_with_a_key_stays_for_the_next_attempt(self) -> None:
        self.status = {}
        with self.assertRaisesRegex(NotStarted, "see that it runs"):
            self.tc.session("repo", wait=0.1, key="desk")
        self.assertEqual(self.server.count("PATCH"), 0)

    def test_one_that_is_given_up_is_ended_unless_it_has_a_key(self) -> None:
        keys: list[SessionOptions] = [{}, {"key": "desk"}]
        for options in keys:
            interrupt = interrupts.Interrupt()
            threading.Timer(0.2, interrupt.set).start()
            with interrupts.under(interrupt), self.assertRaises(interrupts.Interrupted):
                self.tc.session("repo", **options)
            self.assertEqual(self.server.count("PATCH"), 1)

    def test_one_whose_request_conflicts_with_others_is_asked_for_again(self) -> None:
        self.status, self.refusals = {"phase": "Ready"}, ["Conflict"]
        self.assertEqual(self.tc.session("repo", key="desk").name, "desk")
        self.assertEqual(self.server.count("POST"), 2)

    def test_a_session_says_when_it_ends_at_the_latest(self) -> None:
        self.status = {"phase": "Ready"}
        s = self.tc.session("repo", max_lifetime=60)
        self.assertEqual((s.created, s.expires), tuple(datetime(2026, 1, 1, 0, minute, tzinfo=timezone.utc) for minute in (0, 1)))

    def test_labels_and_annotations(self) -> None:
        self.status = {"phase": "Ready"}
        self.tc.session("repo", labels={"conversation": "c-1"}, annotations={"why": "a question"})
        self.assertEqual((self.made["metadata"]["labels"], self.made["metadata"]["annotations"]), ({"conversation": "c-1"}, {"why": "a question"}))
        calls = Calls()
        calls.ended.set()
        with Scripted(calls.answer) as server, server.toolcall() as tc:
            tc.run("true", labels={"conversation": "c-1"})
            [made] = [json.loads(each.body) for each in server.seen if each.command == "POST"]
            self.assertEqual(made["metadata"]["labels"], {"conversation": "c-1"})
            with self.assertRaisesRegex(InvalidArgument, "labels has n"):
                tc.run("true", labels={"n": 1})  # type: ignore[dict-item]

    def test_a_time_that_cannot_be_meant(self) -> None:
        wrong: list[Any] = [0, -1, float("inf"), float("nan"), None, "5"]
        for wait in wrong:
            with self.assertRaises(InvalidArgument):
                self.tc.session("repo", wait=wait)
        with self.assertRaises(InvalidArgument):
            self.tc.run("true", timeout=wrong[-1])


class Lines(unittest.TestCase):
    """A background call's output, of which the bytes from 4 to 14 aren't kept, and which grows while it is read."""

    def setUp(self) -> None:
        self.fake = Calls()
        self.data = b"one\n" + b"." * 10 + b"caf\xc3\xa9\r\nno end"
        self.length = 20
        self.fake.log = self.log
        self.server = self.enterContext(Scripted(self.fake.answer))
        self.expected = ["one", "[10 bytes were not kept]", "café", "no end"]

    def log(self, e: Exchange) -> None:
        at, end = int(e.query["offset"]), len(self.data)
        if 4 <= at < 14:
            causes = [{"reason": "NextOffset", "message": "14"}]
            e.reply(410, {"kind": "Status", "reason": "OutputNotKept", "message": "x", "details": {"causes": causes}})
            return
        self.length = end if at >= self.length else self.length
        part = self.data[at : 4 if at < 4 else self.length]
        e.begin({"Toolcall-Offset": str(at), "Toolcall-Bytes": str(end), "Toolcall-Complete": str(self.length == end).lower()})
        e.part(part) if part else None
        e.end()

    def test_each_when_it_is_complete(self) -> None:
        with self.server.toolcall() as tc:
            handle = tc.connect("s").commands.run("serve", background=True)
            self.assertEqual(list(handle.lines()), self.expected)

    def test_awaited(self) -> None:
        async def read() -> list[str]:
            async with AsyncToolcall(NAMESPACE, api_client=self.server.api_client()) as tc:
                handle = await (await tc.connect("s")).commands.run("serve", background=True)
                return [line async for line in handle.lines()]

        self.assertEqual(asyncio.run(read()), self.expected)


if __name__ == "__main__":
    unittest.main()
