"""What a call or a session asks for, as the API's spec: pure functions from options to objects.

Nothing here sends anything. Bad input is InvalidArgument, which says what was wrong and what would be right; an option that isn't
known is TypeError.
"""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from .errors import invalid

JSON = dict[str, Any]

# Fields of a stored spec that admission, a cancellation or an end sets, and no client's arguments.
_NOT_ARGUMENTS = frozenset({"requestedBy", "cancel", "end", "suspend"})
# What the API server sets in a session that doesn't say it.
_SESSION_DEFAULTS = {
    "idleTimeoutSeconds": 900, "maxLifetimeSeconds": 28800, "maxConcurrentCalls": 1, "maxCalls": 10000,
    "ttlSecondsAfterEnded": 3600,
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_KEY_LENGTH = 253
_SURROGATE = re.compile("[\ud800-\udfff]")


class RunOptions(TypedDict, total=False):
    """What can be said about a call besides its command line. Exactly one action: a command, a program, code, or a tool.

    program: a program to start without a shell, with `args`, a list of strings.
    code: a snippet in `language`, e.g. "python"; network_access: whether it asks for the network, which a policy can deny.
    tool: the name of a tool as a model called it, with `arguments`, a JSON object; the operator knows what it means.
    env: variables of this call alone, name to value.
    cwd: the directory to start in; a relative one is below that of the session or of the image.
    stdin: the text that the command reads; without it, standard input is empty. A background call without it takes
        `write`.
    timeout: seconds after which the command is stopped, rounded up; at most what the policy allows. A background call
        has no limit unless it sets one.
    key: makes the call idempotent. It becomes the ToolCall's name: lower-case letters, digits, "-" and ".", at most 253.
        `key_of` makes one of any text.
    check: True raises NonZeroExit for another exit code than 0.
    on_stdout, on_stderr: called with each piece of text as the command writes it, in order, by the thread that called
        `run` (in AsyncToolcall on the event loop; a coroutine function is awaited). An exception cancels the call.
    collect: globs of files that are kept when the command has ended.
    network_hosts: hosts that the call may reach, each covered by what the policy's network allows: names, "*." and a
        name, addresses or CIDRs, without ports; without it, all that the policy allows.
    labels, annotations: of the ToolCall, name to value, so that kubectl finds it. Not among the arguments of a key.
    """

    program: str
    args: Sequence[str]
    code: str
    language: str
    network_access: bool
    tool: str
    arguments: Mapping[str, Any]
    env: Mapping[str, str]
    cwd: str
    stdin: str
    timeout: float
    key: str
    check: bool
    on_stdout: Callable[[str], object]
    on_stderr: Callable[[str], object]
    collect: Sequence[str]
    network_hosts: Sequence[str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class SessionOptions(TypedDict, total=False):
    """What can be said about a session besides its environment.

    cwd: the directory of the client's own: calls start in it and paths of files are below it.
    env: variables of all calls of the session, name to value.
    key: the session's name, as for a call: a second session of the same key and arguments is the same session.
    workspace: the size of a volume for the files, e.g. "10Gi"; without it they are lost with the pod.
    idle_timeout, max_lifetime: seconds; the session ends, or is suspended if it has a volume, after so long without a
        call, and ends after so long in all. 900 and 28800 by default.
    max_concurrent_calls: how many calls run at the same time, 1 (the default) to 16.
    labels, annotations: of the ToolSession, as for a call.
    wait: seconds, 300 by default. A session that isn't ready by then raises NotStarted with the reason why, and is ended
        unless it has a key.
    """

    cwd: str
    env: Mapping[str, str]
    key: str
    workspace: str
    idle_timeout: int
    max_lifetime: int
    max_concurrent_calls: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    wait: float


def check_options(given: Mapping[str, Any], known: type) -> None:
    """Raises TypeError for an option that isn't one of the TypedDict `known`, which type checkers see before."""
    names = set(known.__annotations__)
    wrong = sorted(set(given) - names)
    if wrong:
        raise TypeError(f"unknown option {wrong[0]!r}: the options are {', '.join(sorted(names))}")


def key_of(*parts: str) -> str:
    """A valid key made of any texts, e.g. a conversation's and a model's tool call's id: the same texts, the same key."""
    if not parts:
        raise invalid("key_of needs at least one text, such as the id of a model's tool call")
    # The length before each text keeps ("ab", "c") and ("a", "bc") apart.
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return "key-" + hashlib.sha256(as_utf8("a text of the key", whole)).hexdigest()[:40]


def as_utf8(what: str, text: str) -> bytes:
    """The bytes of a text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{what} has half of a surrogate pair, which UTF-8 doesn't have: leave it out") from error


def name_for(key: str | None, prefix: str) -> str:
    """The name of a new object: the key, or a random one that nobody else has."""
    if key is None:
        return f"{prefix}-{secrets.token_hex(8)}"
    if not _is_name(key):
        raise invalid(
            f"key {key!r} can't be the name of an object: use lower-case letters, digits, '-' and '.', at most "
            f"{_KEY_LENGTH}, beginning and ending with a letter or digit; key_of makes a key of any text"
        )
    return key


def named(what: str, name: str) -> str:
    """A name that goes into a path or a selector, e.g. of a "call", unless it can't be the name of an object."""
    if not _is_name(name):
        raise invalid(
            f"{what} {name!r} can't be the name of an object: it has lower-case letters, digits, '-' and '.', at most "
            f"{_KEY_LENGTH}, and begins and ends with a letter or digit"
        )
    return name


def _is_name(text: str) -> bool:
    is_wrong = not isinstance(text, str) or len(text) > _KEY_LENGTH or ".." in text or ".-" in text or "-." in text
    return not is_wrong and _NAME.fullmatch(text) is not None


def call_spec(command: str | None, options: RunOptions) -> JSON:
    """The spec of a call that runs a command line, or what `options` say. Where it runs isn't part of it."""
    spec: JSON = _action(command, options)
    if options.get("env"):
        spec["env"] = env_list(options["env"])
    if options.get("cwd"):
        spec["workingDir"] = options["cwd"]
    if options.get("stdin"):
        spec["stdin"] = options["stdin"]
    if options.get("timeout") is not None:
        spec["timeoutSeconds"] = whole_seconds(options["timeout"])
    if options.get("collect"):
        spec["collect"] = _strings("collect", options["collect"])
    if options.get("network_hosts") is not None:
        spec["network"] = {"hosts": host_list(options["network_hosts"])}
    return spec


def _action(command: str | None, options: RunOptions) -> JSON:
    given = ["a command"] if command is not None else []
    given += [name for name in ("program", "code", "tool") if name in options]
    if len(given) != 1:
        found = "none is there" if not given else f"{' and '.join(given)} are there"
        raise invalid(f"give exactly one of a command, program, code and tool: {found}")
    _check_belongings(given[0], options)
    if command is not None:
        return {"shell": {"command": command}}
    if "program" in options:
        args = _strings("args", options.get("args", ()))
        return {"structured": {"binary": options["program"], **({"args": args} if args else {})}}
    if "tool" in options:
        arguments = options.get("arguments", {})
        if not isinstance(arguments, Mapping):
            raise invalid(f"arguments is of the type {type(arguments).__name__}: give an object; one that is text as JSON is parsed before")
        return {"tool": {"name": options["tool"], "arguments": dict(arguments)}}
    code: JSON = {"language": options["language"], "source": options["code"]}
    if options.get("network_access") is not None:
        code["networkAccess"] = options["network_access"]
    return {"code": code}


def _check_belongings(action: str, options: RunOptions) -> None:
    for option, owner in (("args", "program"), ("language", "code"), ("network_access", "code"), ("arguments", "tool")):
        if option in options and action != owner:
            raise invalid(f"{option} belongs to {owner}, and this call has {action}: give {owner}, or leave {option} out")
    if action == "code" and "language" not in options:
        raise invalid("code needs its language, e.g. code='print(1)', language='python'")


def session_spec(environment: str | None, options: SessionOptions) -> JSON:
    """The spec of a session."""
    spec: JSON = {}
    if environment:
        spec["environmentRef"] = {"name": environment}
    if options.get("env"):
        spec["env"] = env_list(options["env"])
    if options.get("workspace"):
        spec["workspace"] = {"size": options["workspace"]}
    if options.get("idle_timeout") is not None:
        spec["idleTimeoutSeconds"] = options["idle_timeout"]
    if options.get("max_lifetime") is not None:
        spec["maxLifetimeSeconds"] = options["max_lifetime"]
    if options.get("max_concurrent_calls") is not None:
        spec["maxConcurrentCalls"] = options["max_concurrent_calls"]
    return spec


def metadata_of(name: str, options: RunOptions | SessionOptions) -> JSON:
    """The metadata of an object that is created."""
    metadata: JSON = {"name": name}
    for field, texts in (("labels", options.get("labels")), ("annotations", options.get("annotations"))):
        for key, value in _mapping(field, texts or {}).items():
            if not isinstance(value, str):
                raise invalid(f"{field} has {key} with a value of the type {type(value).__name__}: values are strings")
        if texts:
            metadata[field] = dict(texts)
    return metadata


def env_list(env: Mapping[str, str]) -> list[JSON]:
    """Variables as the API has them, sorted, so that the same variables make the same spec."""
    for name, value in _mapping("env", env).items():
        if not isinstance(name, str):
            raise invalid(f"a variable has a name of the type {type(name).__name__}: names are strings")
        if not isinstance(value, str):
            # Not the value: it may be a secret.
            raise invalid(f"variable {name} has a value of the type {type(value).__name__}: values are strings")
    return [{"name": name, "value": env[name]} for name in sorted(env)]


def host_list(hosts: Sequence[str]) -> list[str]:
    """Hosts that a call narrows its network to. None would narrow nothing, which nobody means who gives a list."""
    given = _strings("network_hosts", hosts)
    if not given or not all(given):
        raise invalid(
            f"network_hosts is {hosts!r}: give hosts, e.g. ['packages.example.com'], or leave it out for all that the "
            "policy allows"
        )
    return given


def _mapping(option: str, given: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise invalid(f"{option} is of the type {type(given).__name__}: give a mapping of names to values")
    return given


def _strings(option: str, given: Sequence[str]) -> list[str]:
    # A string is a sequence of strings too: its characters, which nobody means.
    if isinstance(given, str):
        raise invalid(f"{option} is a list of strings, not one string")
    return list(given)


def whole_seconds(seconds: float) -> int:
    """A time limit as the API has it: whole seconds, rounded up, at least 1."""
    if not isinstance(seconds, (int, float)) or not seconds > 0 or math.isinf(seconds):
        raise invalid(f"timeout is {seconds!r}: give a number of seconds above 0, or leave it out for the policy's")
    return math.ceil(seconds)


def is_same(stored: JSON, wanted: JSON) -> bool:
    """Whether a stored spec has the same arguments as one that a client made."""
    return _is_equal(_arguments(stored), _arguments(as_stored(wanted)))


def _arguments(spec: JSON) -> JSON:
    # Not False: 0 is equal to it, and an argument.
    given = {name: value for name, value in spec.items() if name not in _NOT_ARGUMENTS and value is not False}
    return {name: value for name, value in given.items() if value not in (None, [], "")}


def as_stored(spec: JSON) -> JSON:
    """A spec as the API server keeps it: tuples are lists, keys are texts, and half of a surrogate pair is U+FFFD."""
    text = json.dumps(json.loads(json.dumps(spec)), ensure_ascii=False)
    stored: JSON = json.loads(_SURROGATE.sub("\ufffd", text))
    return stored


def _is_equal(one: Any, other: Any) -> bool:
    """As ==, except that True isn't 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def is_same_session(stored: JSON, wanted: JSON) -> bool:
    """Whether a stored session has the same arguments; what the API server adds by default doesn't count."""
    return _is_equal(_session_arguments(stored), _session_arguments(as_stored(wanted)))


def _session_arguments(spec: JSON) -> JSON:
    given = {name: value for name, value in _arguments(spec).items() if _SESSION_DEFAULTS.get(name) != value}
    if "workspace" in given:
        given["workspace"] = {"retain": "Delete", **given["workspace"]}
    return given


def join_path(base: str, path: str) -> str:
    """A path below the client's own directory; an absolute one, and one in the home directory, stays as it is."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise invalid(f"path is {path!r}: give a path without NUL characters, e.g. 'notes.txt'")
    return posixpath.join(base, path) if base and not is_in_home(path) else path


def is_in_home(path: str) -> bool:
    """Whether a path is in the home directory of the session's processes."""
    return path == "~" or path.startswith("~/")
