"""A cluster without the policy that fills in who creates a call: the client says so itself, once it is asked to."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

from tests.scripted import Exchange, Scripted, call
from tests.test_calls import Calls
from toolcall import Forbidden

MESSAGE = "toolcalls.toolcall.dev \"x\" is forbidden: denied request: spec.requestedBy must be the user of the request. No"


class Asking(Calls):
    """A server that takes calls of `user` alone. review: answers the question who that is."""

    def __init__(self) -> None:
        super().__init__()
        self.user: dict[str, Any] = {"username": "me", "groups": ["b", "a"], "extra": {"credential": ["1"]}}
        self.review: Callable[[Exchange], None] = self.say_who_asks
        self.ended.set()

    def answer(self, e: Exchange) -> None:
        if e.path.endswith("/selfsubjectreviews"):
            self.review(e)
        else:
            super().answer(e)

    def say_who_asks(self, e: Exchange) -> None:
        """Answers a review."""
        e.reply(201, {"status": {"userInfo": self.user}})

    def create(self, e: Exchange) -> None:
        made = e.json()
        if made["spec"].get("requestedBy") == self.user:
            name = made["metadata"]["name"]
            self.calls[name] = call(name, made["spec"])
            e.reply(201, self.calls[name])
        else:
            e.reply(403, {"kind": "Status", "reason": "Forbidden", "message": MESSAGE})


class TestRequester(unittest.TestCase):
    def test_who_asks_is_said_where_the_cluster_asks_for_it(self) -> None:
        cluster = Asking()
        with Scripted(cluster.answer) as server, server.toolcall() as tc:
            for reviews, posts in ((1, 2), (1, 3)):
                tc.run("true")
                self.assertEqual((server.count("POST", "/selfsubjectreviews"), server.count("POST", "/toolcalls")), (reviews, posts))
            cluster.user = {**cluster.user, "extra": {"credential": ["2"]}}
            tc.run("true")
            self.assertEqual(server.count("POST", "/selfsubjectreviews"), 2)

    def test_nothing_is_asked_where_admission_says_who_asks(self) -> None:
        cluster = Calls()
        cluster.ended.set()
        with Scripted(cluster.answer) as server, server.toolcall() as tc:
            tc.run("true")
            self.assertEqual(server.count("POST", "/selfsubjectreviews"), 0)

    def test_another_refusal_stays_one(self) -> None:
        class Refusing(Asking):
            def create(self, e: Exchange) -> None:
                e.refuse(403, "Forbidden")

        with Scripted(Refusing().answer) as server, server.toolcall() as tc:
            with self.assertRaises(Forbidden):
                tc.run("true")
            self.assertEqual(server.count("POST", "/selfsubjectreviews"), 0)

    def test_a_review_that_says_nothing_leaves_the_refusal(self) -> None:
        cluster = Asking()
        with Scripted(cluster.answer) as server, server.toolcall() as tc:
            for answer in ({"error": "no"}, {"status": "no"}):
                cluster.review = lambda e, answer=answer: e.reply(201, answer)  # type: ignore[misc]
                with self.assertRaises(Forbidden) as raised:
                    tc.run("true")
                self.assertTrue(raised.exception.retry_safe)

    def test_the_second_refusal_is_the_last(self) -> None:
        cluster = Asking()
        with Scripted(cluster.answer) as server, server.toolcall() as tc:
            cluster.review = lambda e: e.reply(201, {"status": {"userInfo": {"username": "somebody else"}}})
            with self.assertRaises(Forbidden) as raised:
                tc.run("true")
            self.assertTrue(raised.exception.retry_safe)
            self.assertEqual(server.count("POST", "/toolcalls"), 2)

    def test_a_question_without_an_answer_is_asked_again(self) -> None:
        cluster, failures = Asking(), iter([True])

        def review(e: Exchange) -> None:
            if next(failures, False):
                e.refuse(503, "ServiceUnavailable")
            else:
                cluster.say_who_asks(e)

        cluster.review = review
        with Scripted(cluster.answer) as server, server.toolcall() as tc:
            tc.run("true")
            self.assertEqual(len(cluster.calls), 2)


if __name__ == "__main__":
    unittest.main()
