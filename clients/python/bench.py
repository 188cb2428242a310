"""Measures what the client adds: to a call of a session, `s.commands.run("true")`, and to the import of the Kubernetes client.

usage: KUBECONFIG=… /usr/bin/python3 bench.py [CALLS]

Run it in clients/python, with KUBECONFIG of an administrator, on a quiet machine: it makes a namespace as the tests do.
With CALLS=0 it measures the import alone, without a cluster. The call itself is a bare request over a kept connection, with
one watch that is open for all calls. Calls of the client and bare ones alternate in one session, so that both see the same
cluster.
"""

from __future__ import annotations

import json
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

sys.path.insert(0, "src")

from tests.bed import bed  # noqa: E402
from toolcall import Session, Toolcall  # noqa: E402

WARM_UP = 20
IMPORTS = 15


class Bare:
    """Calls over the connections alone: what the API server, the operator and the network take, with no client's share."""

    def __init__(self, api_client: Any, namespace: str, session: Session) -> None:
        self._pool = api_client.rest_client.pool_manager
        self._url = f"{api_client.configuration.host}/apis/toolcall.dev/v1alpha1/namespaces/{namespace}/toolcalls"
        self._headers = {"Content-Type": "application/json"}
        api_client.update_params_for_auth(self._headers, [], ["BearerToken"])
        self._spec = {"shell": {"command": "true"}, "sessionRef": {"name": session.name, "uid": session.uid}}
        self._ended: SimpleQueue[str] = SimpleQueue()
        query = {"watch": "true", "fieldSelector": f"spec.sessionRef.name={session.name}"}
        watch = self._pool.request("GET", self._url, fields=query, headers=self._headers, preload_content=False)
        Thread(target=self._read, args=(watch,), daemon=True).start()

    def run(self) -> None:
        """Creates a call and waits for its end."""
        name = "bare-" + secrets.token_hex(8)
        body = {"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolCall", "metadata": {"name": name}, "spec": self._spec}
        answer = self._pool.request("POST", self._url, body=json.dumps(body), headers=self._headers)
        if answer.status != 201:
            raise RuntimeError(f"the API server answered {answer.status}: {answer.data[:500]!r}")
        while self._ended.get(timeout=60) != name:
            pass

    def _read(self, watch: Any) -> None:
        rest = b""
        for chunk in watch.stream(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for event in map(json.loads, lines):
                conditions = event["object"].get("status", {}).get("conditions", [])
                if any(c["type"] == "Finished" and c["status"] == "True" for c in conditions):
                    self._ended.put(event["object"]["metadata"]["name"])


def timed(what: Callable[[], object]) -> float:
    """How long something takes, in milliseconds."""
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1000


def show(name: str, milliseconds: list[float]) -> float:
    """Prints a row, and returns its median."""
    milliseconds.sort()
    p90, p99 = (milliseconds[int(len(milliseconds) * q)] for q in (0.9, 0.99))
    median = statistics.median(milliseconds)
    print(f"{name:46} p50 {median:7.1f}   p90 {p90:7.1f}   p99 {p99:7.1f} ms   n {len(milliseconds)}")
    return median


def aim(name: str, milliseconds: float, most: int) -> None:
    """Prints a figure that has an aim."""
    print(f"{name:46} {milliseconds:11.2f} ms   aim: at most {most}")


def compare(session: Session, bare: Bare, count: int) -> None:
    """Measures both kinds of calls in turns."""
    through: list[float] = []
    alone: list[float] = []
    for _ in range(WARM_UP + count):
        through.append(timed(lambda: session.commands.run("true")))
        alone.append(timed(bare.run))
    difference = show("s.commands.run('true')", through[WARM_UP:]) - show("the call itself", alone[WARM_UP:])
    aim("s.commands.run('true') above the call, p50", difference, 4)


def imports() -> None:
    """Measures the import of the Kubernetes client and of this package with asyncio after it, each time in a new process."""
    program = (
        "import sys, time; sys.path.insert(0, 'src'); a = time.perf_counter(); "
        "import kubernetes.client, kubernetes.config; "
        "b = time.perf_counter(); import toolcall; toolcall.AsyncToolcall; c = time.perf_counter(); "
        "print((b - a) * 1000, (c - b) * 1000)"
    )
    runs = [subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True) for _ in range(IMPORTS)]
    base, ours = zip(*(map(float, run.stdout.split()) for run in runs), strict=True)
    show("import of the Kubernetes client", list(base))
    aim("import of toolcall beyond it, p50", show("import of toolcall after it", list(ours)), 150)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    if count > 0:
        with bed("py-bench") as b:
            tc = Toolcall(b.namespace, api_client=b.agent())
            with tc.session("tools") as s:
                compare(s, Bare(b.agent(), b.namespace, s), count)
    imports()


if __name__ == "__main__":
    main()
