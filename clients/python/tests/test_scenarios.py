"""Runs clients/scenarios/*.yaml against a real cluster, as an agent with few rights.

It runs when TOOLCALL_SCENARIOS=1, with KUBECONFIG of an administrator. The files' README describes them. With
TOOLCALL_ASYNC=1 every operation goes through AsyncToolcall.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import signal
import tempfile
import threading
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from tests.bed import ROOT, Bed, bed, on_cluster
from toolcall import Cancelled, Toolcall, ToolcallError
from toolcall.aio import AsyncSession, AsyncToolcall

SCENARIOS = ROOT / "clients" / "scenarios"


class Loader(yaml.SafeLoader):
    """Reads YAML 1.2, as the other library does: there, `on` is a text."""


Loader.yaml_implicit_resolvers = {
    letter: [(tag, expression) for tag, expression in resolvers if tag != "tag:yaml.org,2002:bool" or letter in "tTfF"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Blocking:
    """Runs operations through Toolcall."""

    def __init__(self, bed: Bed) -> None:
        self.client: Any = Toolcall(bed.namespace, api_client=bed.agent())

    def do(self, what: Callable[[], Any]) -> Any:
        return what()

    def lines(self, handle: Any) -> list[str]:
        return list(handle.lines())

    def cancel_after(self, seconds: float, what: Callable[[], Any]) -> Any:
        """Presses Ctrl-C: SIGINT comes to this process while its main thread waits."""
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        # A shell that starts the tests in the background has them ignore it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer.start()
        try:
            return what()
        except KeyboardInterrupt:
            raise Cancelled("CancelRequested", "Ctrl-C") from None
        finally:
            timer.cancel()
            signal.signal(signal.SIGINT, before)


class Awaited:
    """Runs operations through AsyncToolcall, on an event loop of another thread."""

    def __init__(self, bed: Bed) -> None:
        self.client: Any = AsyncToolcall(bed.namespace, api_client=bed.agent())
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def do(self, what: Callable[[], Any]) -> Any:
        async def awaited() -> Any:
            return await what()

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    def lines(self, handle: Any) -> list[str]:
        async def read() -> list[str]:
            return [line async for line in handle.lines()]

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result()

    def cancel_after(self, seconds: float, what: Callable[[], Any]) -> Any:
        async def cancelled() -> Any:
            task = asyncio.ensure_future(what())
            asyncio.get_running_loop().call_later(seconds, task.cancel)
            try:
                return await task
            except asyncio.CancelledError:
                raise Cancelled("CancelRequested", "the task was cancelled") from None

        return asyncio.run_coroutine_threadsafe(cancelled(), self._loop).result()


class Heard:
    """What the callbacks of a call heard."""

    def __init__(self) -> None:
        self.pieces: dict[str, list[str]] = {"stdout": [], "stderr": []}

    def take(self, stream: str) -> Callable[[str], object]:
        return self.pieces[stream].append

    def fields(self) -> dict[str, Any]:
        stdout, stderr = ("".join(self.pieces[stream]) for stream in ("stdout", "stderr"))
        return {
            "live_stdout": stdout, "live_stderr": stderr, "live_chunks": sum(len(p) for p in self.pieces.values()),
            "live_stdout_sha256": hashlib.sha256(stdout.encode()).hexdigest(),
        }


class Runner:
    """Runs one file."""

    def __init__(self, bed: Bed, way: Blocking | Awaited, scenario: dict[str, Any]) -> None:
        self.bed = bed
        self.way = way
        self.do: Callable[[Callable[[], Any]], Any] = way.do
        self.environment: str = scenario.get("environment", "tools")
        self.kept: dict[str, Any] = {}
        self.heard: dict[int, Heard] = {}
        self.suffix = secrets.token_hex(4)
        self.folder = tempfile.mkdtemp()

    def step(self, step: dict[str, Any]) -> None:
        """Runs a step and compares what comes of it."""
        try:
            got = self.operate(step)
        except ToolcallError as error:
            if "error" not in step:
                raise
            self.compare_error(step, error)
            return
        if "error" in step:
            raise AssertionError(f"{step['do']}: want the error {step['error']}, got {got!r}")
        if "as" in step:
            self.kept[step["as"]] = got
        expect(self.fields(got), step.get("expect", {}))

    def operate(self, step: dict[str, Any]) -> Any:
        name, options = step["do"], dict(step.get("with", {}))
        on: Any = self.kept.get(step.get("on", ""))
        if name in ("repeat", "cancel_after", "decide", "kill_operator"):
            return getattr(self, f"do_{name}")(options)
        if name.startswith("files."):
            return self.do_files(on.files, name.removeprefix("files."), options)
        if name.startswith("handle."):
            return self.do_handle(on, name.removeprefix("handle."), options)
        method = {"run": self.do_run, "commands.run": self.do_run, "session": self.do_session, "end": self.do_end,
                  "output": self.do_output}[name]
        return method(on, options)

    def do_run(self, on: Any, options: dict[str, Any]) -> Any:
        heard, command = Heard(), options.pop("command", None)
        for stream in ("stdout", "stderr"):
            if options.pop(f"on_{stream}", False):
                options[f"on_{stream}"] = heard.take(stream)
        if on is None:
            options.setdefault("environment", self.environment)
        run = (self.way.client if on is None else on.commands).run
        got = self.do(lambda: run(command, **options))
        self.heard[id(got)] = heard
        self.kept[f"#{id(got)}"] = got  # Keeps the id its own.
        return got

    def do_session(self, on: Any, options: dict[str, Any]) -> Any:
        return self.do(lambda: self.opened(options))

    def opened(self, options: dict[str, Any]) -> Any:
        return self.way.client.session(options.pop("environment", self.environment), **options)

    def do_end(self, on: Any, options: dict[str, Any]) -> Any:
        return self.do(on.end)

    def do_output(self, on: Any, options: dict[str, Any]) -> Any:
        data = self.do(lambda: self.way.client.output(on, **options))
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "text": data.decode(errors="replace")}

    def do_files(self, files: Any, name: str, options: dict[str, Any]) -> Any:
        local = os.path.join(self.folder, "local")
        if name == "upload":
            data = bytes((31 * i + i // 256) % 256 for i in range(options["size"]))
            Path(local).write_bytes(data)
            self.do(lambda: files.upload(local, options["path"]))
        elif name == "download":
            self.do(lambda: files.download(options["path"], local))
        elif name == "upload_dir":
            for path, text in options["content"].items():
                file = Path(self.folder, "up", path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return self.do(lambda: files.upload_dir(Path(self.folder, "up"), options["path"]))
        elif name == "download_dir":
            down = Path(tempfile.mkdtemp())
            self.do(lambda: files.download_dir(options["path"], down))
            return {"value": [f"{p.relative_to(down)}: {p.read_text()}" for p in sorted(down.rglob("*")) if p.is_file()]}
        else:
            got = self.do(lambda: getattr(files, name)(**options))
            return {"value": got} if isinstance(got, (str, list)) else got
        data = Path(local).read_bytes()
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def do_handle(self, handle: Any, name: str, options: dict[str, Any]) -> Any:
        if name == "lines":
            return {"value": self.way.lines(handle)}
        if name == "write":
            return self.do(lambda: handle.write(options["text"], eof=options.get("eof", False)))
        got = self.do(lambda: getattr(handle, name)(**options))
        if name == "wait":
            self.heard[id(got)] = self.heard[id(handle)]
            self.kept[f"#{id(got)}"] = got
        return got

    def do_cancel_after(self, options: dict[str, Any]) -> Any:
        self.do = lambda what: self.way.cancel_after(options["seconds"], what)
        try:
            self.step(options["step"])
        finally:
            self.do = self.way.do

    def do_decide(self, options: dict[str, Any]) -> Any:
        step = options.pop("step")
        with ThreadPoolExecutor(1) as pool:
            deciding = pool.submit(self.bed.decide, **options)
            self.step(step)
            deciding.result()

    def do_repeat(self, options: dict[str, Any]) -> Any:
        with ThreadPoolExecutor(options.get("parallel", 1)) as pool:
            for future in [pool.submit(self.step, options["step"]) for _ in range(options["times"])]:
                future.result()

    def do_kill_operator(self, options: dict[str, Any]) -> Any:
        self.bed.kill_operator()

    def fields(self, got: Any) -> dict[str, Any]:
        """The fields of a returned object that a file can ask for."""
        if got is None or isinstance(got, dict):
            return got or {}
        names = [name for name in dir(got) if not name.startswith("_")]
        found = {name: getattr(got, name) for name in names if not callable(getattr(got, name))}
        return {**found, **(self.heard[id(got)].fields() if id(got) in self.heard else {})}

    def compare_error(self, step: dict[str, Any], error: ToolcallError) -> None:
        classes = [kind.__name__ for kind in type(error).__mro__]
        if not any(matches(name, step["error"]) for name in classes):
            raise AssertionError(f"{step['do']}: want the error {step['error']}, got {error!r}") from error
        if "message" in step and not matches(error.message, step["message"]):
            raise AssertionError(f"want the message {step['message']}, got {error.message!r}")
        result = {"stdout": error.result.stdout, "stderr": error.result.stderr} if error.result else {}
        expect({**self.fields(error), **result}, step.get("error_fields", {}))


def expect(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compares each field that is wanted; a dot leads into a field or an index."""
    for path, matcher in wanted.items():
        got: Any = fields
        for part in path.split("."):
            got = reach(got, part)
        if not matches(got, matcher):
            raise AssertionError(f"{path}: want {matcher!r}, got {str(got)[:2000]!r}")


def reach(thing: Any, part: str) -> Any:
    """A field or an element; None where there is none."""
    if part.isdigit():
        return thing[int(part)] if int(part) < len(thing) else None
    return thing.get(part) if isinstance(thing, dict) else getattr(thing, part, None)


def matches(got: Any, matcher: Any) -> bool:
    """Whether a value is as a matcher says."""
    if not isinstance(matcher, dict):
        return bool(got == matcher)
    [(kind, wanted)] = matcher.items()
    kinds: dict[str, Callable[[], object]] = {
        "contains": lambda: wanted in got,
        "matches": lambda: re.search(wanted, got) is not None,
        "at_least": lambda: got >= wanted,
        "absent": lambda: (got is None) == wanted,
        "one_of": lambda: got in wanted,
        "length": lambda: len(got) == wanted,
    }
    return bool(kinds[kind]())


@on_cluster
class Scenarios(unittest.TestCase):
    """One test for each file is added below."""

    bed: Bed
    way: Blocking | Awaited

    @classmethod
    def setUpClass(cls) -> None:
        cls.bed = cls.enterClassContext(bed("py-scenarios"))
        cls.way = Awaited(cls.bed) if os.environ.get("TOOLCALL_ASYNC") == "1" else Blocking(cls.bed)
        cls.addClassCleanup(cls.way.client.close)

    def run_file(self, path: Path) -> None:
        scenario = yaml.load(path.read_text(), Loader=Loader)
        runner = Runner(self.bed, self.way, scenario)
        for number, step in enumerate(scenario["steps"], 1):
            try:
                runner.step(json.loads(json.dumps(step).replace("${run}", runner.suffix)))
            except Exception as error:
                error.add_note(f"{path.name} ({scenario['name']}), step {number}: {step}")
                raise


def _test_of(path: Path) -> Callable[[Scenarios], None]:
    return lambda self: self.run_file(path)


for _path in sorted(SCENARIOS.glob("*.yaml")):
    setattr(Scenarios, "test_" + _path.stem.replace("-", "_"), _test_of(_path))

if __name__ == "__main__":
    unittest.main()
