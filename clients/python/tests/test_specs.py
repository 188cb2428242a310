"""What options become: pure functions, without a cluster."""

import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolcall.errors import InvalidArgument
from toolcall.specs import (
    RunOptions, is_same_session, call_spec, check_options, is_same, join_path, key_of, metadata_of, name_for, session_spec, whole_seconds,
)


class CallSpec(unittest.TestCase):
    def test_a_command_line(self) -> None:
        self.assertEqual(call_spec("make test", {}), {"shell": {"command": "make test"}})

    def test_a_program_with_arguments(self) -> None:
        spec = call_spec(None, {"program": "ls", "args": ["-l", "a b"]})
        self.assertEqual(spec, {"structured": {"binary": "ls", "args": ["-l", "a b"]}})

    def test_code(self) -> None:
        spec = call_spec(None, {"code": "print(1)", "language": "python"})
        self.assertEqual(spec, {"code": {"language": "python", "source": "print(1)"}})
        for asks in (True, False):
            spec = call_spec(None, {"code": "print(1)", "language": "python", "network_access": asks})
            self.assertEqual(spec, {"code": {"language": "python", "source": "print(1)", "networkAccess": asks}})

    def test_a_tool_as_the_model_called_it(self) -> None:
        spec = call_spec(None, {"tool": "bash", "arguments": {"command": "ls"}})
        self.assertEqual(spec, {"tool": {"name": "bash", "arguments": {"command": "ls"}}})

    def test_a_mapping_that_is_none(self) -> None:
        works: list[Callable[[], object]] = [
            lambda: call_spec("true", {"env": ["A=1"]}),  # type: ignore[typeddict-item]
            lambda: metadata_of("k", {"labels": ["a"]}),  # type: ignore[misc, arg-type]
        ]
        for work in works:
            with self.assertRaisesRegex(InvalidArgument, "of the type list: give a mapping"):
                work()

    def test_an_empty_command_is_sent_so_that_the_policy_answers(self) -> None:
        self.assertEqual(call_spec("", {}), {"shell": {"command": ""}})

    def test_everything_else(self) -> None:
        options: RunOptions = {
            "env": {"B": "2", "A": "1"}, "cwd": "src", "stdin": "in", "timeout": 1.2, "collect": ["*.png"],
            "network_hosts": ("a.example.com", "*.b.example.com"),
        }
        self.assertEqual(call_spec("true", options), {
            "shell": {"command": "true"}, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "workingDir": "src", "stdin": "in", "timeoutSeconds": 2, "collect": ["*.png"],
            "network": {"hosts": ["a.example.com", "*.b.example.com"]},
        })

    def test_what_cannot_be_meant(self) -> None:
        for command, options, says in [
            (None, {}, "exactly one"),
            ("true", {"program": "true"}, "a command and program are there"),
            ("true", {"args": ["x"]}, "args belongs to program"),
            (None, {"code": "1"}, "language"),
            ("true", {"language": "python"}, "language belongs to code"),
            ("true", {"network_access": True}, "network_access belongs to code"),
            (None, {"tool": "bash", "language": "python"}, "language belongs to code"),
            ("true", {"arguments": {}}, "arguments belongs to tool"),
            (None, {"tool": "bash", "arguments": '{"command":"ls"}'}, "arguments is of the type str"),
            (None, {"tool": "bash", "arguments": [("command", "ls")]}, "arguments is of the type list"),
            (None, {"tool": "bash", "arguments": None}, "arguments is of the type NoneType"),
            ("true", {"timeout": 0}, "timeout"),
            ("true", {"network_hosts": []}, r"network_hosts is \[\]: give hosts.*or leave it out"),
            ("true", {"network_hosts": ["a.example.com", ""]}, r"network_hosts is \['a.example.com', ''\]"),
            ("true", {"timeout": float("inf")}, "timeout"),
            (None, {"program": "ls", "args": "-l"}, "args is a list of strings"),
            ("true", {"collect": "*.png"}, "collect is a list of strings"),
            ("true", {"network_hosts": "a.example.com"}, "network_hosts is a list of strings"),
            ("true", {"env": {"A": 1}}, "variable A has a value of the type int"),
            ("true", {"env": {1: "A"}}, "name of the type int"),
        ]:
            with self.subTest(says), self.assertRaisesRegex(InvalidArgument, says):
                call_spec(command, options)  # type: ignore[arg-type]
        with self.assertRaisesRegex(InvalidArgument, "labels has a with a value of the type int"):
            metadata_of("k", {"labels": {"a": 1}})  # type: ignore[misc, arg-type]

    def test_an_option_that_is_not_known(self) -> None:
        with self.assertRaisesRegex(TypeError, "unknown option 'time'.*timeout"):
            check_options({"time": 1}, RunOptions)

    def test_a_session(self) -> None:
        spec = session_spec("repo", {"env": {"A": "1"}, "workspace": "1Gi", "idle_timeout": 0, "cwd": "src"})
        self.assertEqual(spec, {
            "environmentRef": {"name": "repo"}, "env": [{"name": "A", "value": "1"}], "workspace": {"size": "1Gi"},
            "idleTimeoutSeconds": 0,
        })
        self.assertEqual(session_spec(None, {}), {})


class Keys(unittest.TestCase):
    def test_a_key_is_the_name(self) -> None:
        for key in ("step-7", "a", "a.b-c", "7", "a" * 253):
            self.assertEqual(name_for(key, "call"), key)

    def test_without_a_key_no_two_names_are_the_same(self) -> None:
        names = {name_for(None, "call") for _ in range(1000)}
        self.assertEqual(len(names), 1000)
        self.assertRegex(names.pop(), "^call-[0-9a-f]{16}$")

    def test_what_is_no_name(self) -> None:
        for key in (7, "", "Step", "a_b", "-a", "a-", "a..b", "a.-b", "a-.b", "a" * 254, "ä", "a\n"):
            with self.subTest(key), self.assertRaisesRegex(InvalidArgument, "key .* letters"):
                name_for(key, "call")  # type: ignore[arg-type]

    def test_key_of_makes_valid_keys_that_differ(self) -> None:
        keys = [key_of("call_1"), key_of("call_2"), key_of("a", "bc"), key_of("ab", "c"), key_of("abc"), key_of("a", "")]
        self.assertEqual(len(set(keys)), len(keys))
        for key in keys:
            self.assertEqual(name_for(key, "call"), key)
        self.assertEqual(key_of("call_1"), keys[0])
        # The TypeScript library makes the same.
        self.assertEqual(key_of("thread-1", "call_1"), "key-d81145f660644023112eb62dc8454420b3b95a21")
        self.assertEqual(key_of("é\U0001f600", "x"), "key-d774e92051a1ccb6585c3e1a142ca9c7c88e793c")
        for wrong in ((), ("\ud800",)):
            with self.assertRaises(InvalidArgument):
                key_of(*wrong)


class Secrets(unittest.TestCase):
    def test_the_value_of_a_variable_is_not_in_the_error(self) -> None:
        with self.assertRaisesRegex(InvalidArgument, "TOKEN .* bytes") as caught:
            call_spec("true", {"env": {"TOKEN": b"secret"}})  # type: ignore[dict-item]
        self.assertNotIn("secret", str(caught.exception))


class Sameness(unittest.TestCase):
    def test_what_admission_adds_is_no_argument(self) -> None:
        stored = {"shell": {"command": "true"}, "requestedBy": {"username": "me"}, "cancel": True, "background": False}
        self.assertTrue(is_same(stored, {"shell": {"command": "true"}}))

    def test_each_other_argument_makes_another_call(self) -> None:
        base = call_spec("true", {"env": {"A": "1"}, "timeout": 30})
        for other in (
            call_spec("false", {"env": {"A": "1"}, "timeout": 30}), call_spec("true", {"env": {"A": "2"}, "timeout": 30}),
            call_spec("true", {"env": {"A": "1"}}), call_spec("true", {"env": {"A": "1"}, "timeout": 30, "stdin": "x"}),
            call_spec("true", {"env": {"A": "1"}, "timeout": 30, "network_hosts": ["a.example.com"]}),
            {**base, "sessionRef": {"name": "s"}}, {**base, "background": True},
        ):
            with self.subTest(other):
                self.assertFalse(is_same(base, other))
                self.assertFalse(is_same(other, base))

    def test_arguments_are_compared_as_they_are_stored(self) -> None:
        def tool(**arguments: Any) -> dict[str, Any]:
            return {"tool": {"name": "t", "arguments": arguments}}

        self.assertTrue(is_same(tool(a=[1, 2], b={"1": "\ufffd\U0001f600"}), tool(a=(1, 2), b={1: "\ud800\ud83d\ude00"})))
        self.assertTrue(is_same(tool(a=1), tool(a=1.0)))
        self.assertFalse(is_same(tool(a=1), tool(a=True)))
        self.assertFalse(is_same(tool(a=[0]), tool(a=[False])))

    def test_what_the_api_server_adds_to_a_session_does_not_count(self) -> None:
        stored = {
            "environmentRef": {"name": "repo"}, "workspace": {"size": "1Gi", "retain": "Delete"}, "maxCalls": 10000,
            "idleTimeoutSeconds": 900, "maxLifetimeSeconds": 28800, "maxConcurrentCalls": 1, "ttlSecondsAfterEnded": 3600,
            "requestedBy": {"username": "me"}, "end": True,
        }
        wanted = {"environmentRef": {"name": "repo"}, "workspace": {"size": "1Gi"}}
        self.assertTrue(is_same_session(stored, wanted))
        self.assertTrue(is_same_session(stored, {**wanted, "idleTimeoutSeconds": 900}))
        for seconds in (0, 5):
            self.assertFalse(is_same_session(stored, {**wanted, "idleTimeoutSeconds": seconds}))
        self.assertFalse(is_same_session(stored, {**wanted, "environmentRef": {"name": "other"}}))

    def test_what_somebody_else_set_in_a_session_does(self) -> None:
        wanted = {"environmentRef": {"name": "repo"}}
        settings: list[dict[str, Any]] = [
            {"env": [{"name": "A", "value": "1"}]}, {"workspace": {"size": "1Gi"}}, {"maxConcurrentCalls": 2},
            {"idleTimeoutSeconds": 5}, {"skillRef": {"name": "x"}},
        ]
        for setting in settings:
            with self.subTest(setting):
                self.assertFalse(is_same_session({**wanted, **setting}, wanted))


class Paths(unittest.TestCase):
    def test_below_the_directory(self) -> None:
        self.assertEqual(join_path("src", "a"), "src/a")
        self.assertEqual(join_path("src", "/a"), "/a")
        self.assertEqual(join_path("", "a"), "a")
        self.assertEqual([join_path("src", p) for p in ("~", "~/a", "~a")], ["~", "~/a", "src/~a"])
        for wrong in ("", "a\0b", Path("a")):
            with self.assertRaises(InvalidArgument):
                join_path("src", wrong)  # type: ignore[arg-type]

    def test_whole_seconds(self) -> None:
        self.assertEqual([whole_seconds(s) for s in (0.1, 1, 1.0, 1.01, 60)], [1, 1, 1, 2, 60])


if __name__ == "__main__":
    unittest.main()
