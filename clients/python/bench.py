"""Measures what the client adds to a call: session calls of `true` through it, beside a raw create and watch.

usage: KUBECONFIG=… /usr/bin/python3 bench.py [CALLS]

Run it in clients/python, with KUBECONFIG of an administrator, on a quiet machine: it makes a namespace as the tests do.
Raw calls and those of the client alternate in the same session, so that both see the same cluster. Figures are
milliseconds from the create until the end was seen.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, "src")

from kubernetes import client, watch  # noqa: E402
from tests.bed import bed  # noqa: E402
from toolcall import Session, Toolcall  # noqa: E402

KIND = {"group": "toolcall.dev", "version": "v1alpha1", "plural": "toolcalls"}


def raw(api: Any, session: Session, namespace: str) -> None:
    """A call as a program without this client makes it: a create, then a watch until its condition Finished."""
    name = "raw-" + secrets.token_hex(6)
    spec = {"shell": {"command": "true"}, "sessionRef": {"name": session.name, "uid": session.uid}}
    body = {"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolCall", "metadata": {"name": name}, "spec": spec}
    made = api.create_namespaced_custom_object(namespace=namespace, body=body, **KIND)
    events = watch.Watch()
    for event in events.stream(
        api.list_namespaced_custom_object, namespace=namespace, field_selector="metadata.name=" + name,
        resource_version=made["metadata"]["resourceVersion"], **KIND,
    ):
        conditions = event["object"].get("status", {}).get("conditions", [])
        if any(c["type"] == "Finished" and c["status"] == "True" for c in conditions):
            events.stop()


def timed(what: Callable[[], object]) -> float:
    """How long something takes, in milliseconds."""
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1000


def line(name: str, figures: list[float]) -> str:
    """A row of the table."""
    figures.sort()
    p99 = figures[int(len(figures) * 0.99)]
    return f"{name:36} p50 {statistics.median(figures):7.2f}   p99 {p99:7.2f}   ({len(figures)})"


async def many(namespace: str, agent: Any, session: str, calls: int) -> float:
    """Calls a second through AsyncToolcall, 16 at once."""
    from toolcall import AsyncToolcall

    tc = AsyncToolcall(namespace, api_client=agent)
    attached = await tc.connect(session)
    gate = asyncio.Semaphore(16)

    async def one() -> None:
        async with gate:
            await attached.commands.run("true")

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(calls)))
    return calls / (time.perf_counter() - began)


def imports() -> tuple[float, float]:
    """Milliseconds to import the Kubernetes client, and what this package adds with asyncio: the least of 7 each."""
    program = (
        "import sys, time; sys.path.insert(0, 'src'); a = time.perf_counter(); "
        "import kubernetes.client, kubernetes.config; "
        "b = time.perf_counter(); import toolcall; toolcall.AsyncToolcall; c = time.perf_counter(); print(b - a, c - b)"
    )
    runs = [subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True) for _ in range(7)]
    base, ours = zip(*(map(float, run.stdout.split()) for run in runs), strict=True)
    return min(base) * 1000, min(ours) * 1000


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with bed("py-bench") as b:
        tc = Toolcall(b.namespace, api_client=b.agent())
        api = client.CustomObjectsApi(b.agent())
        with tc.session("tools", max_concurrent_calls=4) as s:
            for _ in range(5):
                s.commands.run("true")
                raw(api, s, b.namespace)
            ours: list[float] = []
            theirs: list[float] = []
            inside: list[float] = []
            for _ in range(count):
                ours.append(timed(lambda: inside.append((s.commands.run("true").duration or 0) * 1000)))
                theirs.append(timed(lambda: raw(api, s, b.namespace)))
            rate = asyncio.run(many(b.namespace, b.agent(), s.name, count))
    print(line("s.commands.run('true')", ours))
    print(line("raw create and watch", theirs))
    print(f"{'difference of the medians':36}     {statistics.median(ours) - statistics.median(theirs):7.2f}")
    print(line("the process itself", inside))
    print(f"{'AsyncToolcall, 16 at once':36}     {rate:7.1f} calls/s")
    base, added = imports()
    print(f"{'import of the Kubernetes client':36}     {base:7.0f}")
    print(f"{'import of this package, after it':36}     {added:7.0f}")


if __name__ == "__main__":
    main()
