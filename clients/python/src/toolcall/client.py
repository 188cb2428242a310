"""The client: calls in pods of their own, and sessions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from .calls import API, Calls
from .commands import Commands
from .errors import Conflict, invalid
from .results import CallInfo, Result, SessionInfo, SomeCall, call_info, session_info
from .sessions import Session, open_session
from .specs import JSON, RunOptions, SessionOptions, check_options, named
from .transport import Transport
from .watches import Watch

_POD_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_CONNECTIONS = 32
_PAGE = 200


class Toolcall:
    """Runs tool calls in a namespace.

    namespace: where; by default that of the kubeconfig's context, of the pod, or "default".
    context: of the kubeconfig, instead of the present one.
    api_client: a kubernetes.client.ApiClient to send with. By default the client takes the kubeconfig (KUBECONFIG, or
        ~/.kube/config), and without one the service account of its pod.
    patience: seconds that it goes on asking an API server that doesn't answer before it raises Unavailable; 10 at most while
        it has never answered.

    One client may be used by many threads.
    """

    def __init__(
        self, namespace: str | None = None, *, context: str | None = None, api_client: Any = None, patience: float = 300.0
    ) -> None:
        if patience <= 0:
            raise invalid(f"patience is {patience}: give a number of seconds above 0")
        found, default = (api_client, None) if api_client is not None else _connect(context)
        self.namespace = named("namespace", default or "default" if namespace is None else namespace)
        self._calls = Calls(Transport(found), self.namespace, patience)

    def close(self) -> None:
        """Ends the client's watches and closes its connections. Sessions go on until they are ended."""
        self._calls.close()

    def __enter__(self) -> Toolcall:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, command: str | None = None, *, environment: str | None = None, **options: Unpack[RunOptions]) -> Result:
        """Runs one call in a pod of its own and returns its result, as `Commands.run` does. Nothing of it is left.

        environment: the ExecutionEnvironment; the namespace's default one without it. Background calls need a session.
        """
        return Commands(_OwnPod(self._calls, environment)).run(command, **options)

    def session(self, environment: str | None = None, **options: Unpack[SessionOptions]) -> Session:
        """Creates a session and waits until it is ready; use it as a context manager, so that it ends.

        Raises NotFound when the environment isn't there, and NotStarted when its pod can't be started, or isn't ready after `wait`
        seconds.
        """
        check_options(options, SessionOptions)
        return open_session(self._calls, environment, options)

    def connect(self, name: str, cwd: str = "") -> Session:
        """A session that is there. Raises NotFound. It isn't ended unless you use it as a context manager."""
        path = f"{API}/{self.namespace}/toolsessions/{named('session', name)}"
        return Session(self._calls, self._calls.fetch(path), cwd)

    def output(
        self, call: SomeCall | str, stream: str = "stdout", offset: int = 0, limit: int | None = None
    ) -> bytes:
        """All bytes that a call wrote, also what its result leaves out: as `Commands.output`."""
        return Commands(_OwnPod(self._calls, None)).output(call, stream, offset, limit)

    def artifact(self, call: SomeCall | str, path: str) -> bytes:
        """A file that a call kept: as `Commands.artifact`."""
        return Commands(_OwnPod(self._calls, None)).artifact(call, path)

    def cancel(self, call: str) -> None:
        """Stops a call, by its name. One that has ended, or isn't there, is left as it is."""
        self._calls.cancel(call)

    def calls(self, *, session: str | None = None, phase: str | None = None, page: int = _PAGE) -> Iterator[CallInfo]:
        """The namespace's calls, read page by page as you go on: of one session, or in one phase, if you say so."""
        chosen = {"spec.sessionRef.name": named("session", session) if session else None, "status.phase": phase}
        return map(call_info, self._pages("toolcalls", chosen, page))

    def sessions(self, *, phase: str | None = None, page: int = _PAGE) -> Iterator[SessionInfo]:
        """The namespace's sessions, read page by page as you go on."""
        return map(session_info, self._pages("toolsessions", {"status.phase": phase}, page))

    def _pages(self, plural: str, chosen: Mapping[str, str | None], page: int) -> Iterator[JSON]:
        if page < 1:
            raise invalid(f"page is {page}: read at least 1 object at a time")
        phase = chosen["status.phase"]
        if phase and not phase.isalpha():
            raise invalid(f"phase is {phase!r}: it is one word, e.g. 'Running'")
        selector = ",".join(f"{field}={value}" for field, value in chosen.items() if value)
        query = {"limit": str(page), **({"fieldSelector": selector} if selector else {})}
        return self._items(f"{API}/{self.namespace}/{plural}", query)

    def _items(self, path: str, query: dict[str, str]) -> Iterator[JSON]:
        while True:
            try:
                found = self._calls.fetch(path, query)
            except Conflict as error:
                if not error.rest:
                    raise
                query = {**query, "continue": error.rest}
                continue
            yield from found["items"]
            more = found["metadata"].get("continue")
            if not more:
                return
            query = {**query, "continue": more}


class _OwnPod:
    """The place of calls that have a pod of their own."""

    def __init__(self, calls: Calls, environment: str | None) -> None:
        self.calls = calls
        self._environment = environment

    def placed(self, spec: JSON) -> JSON:
        """The spec, in the environment."""
        if not self._environment:
            return spec
        return {**spec, "environmentRef": {"name": self._environment}}

    def watching(self, name: str) -> Watch:
        """A watch of this call alone."""
        return self.calls.watch(f"metadata.name={name}")

    def watched(self, watch: Watch) -> None:
        """Ends it."""
        watch.close()

    def wait_until_ready(self, *, or_suspended: bool = False) -> None:
        """Nothing: a call waits for its pod by itself."""


def _connect(context: str | None) -> tuple[Any, str | None]:
    """An ApiClient from the kubeconfig, or from the pod's service account, and its namespace."""
    from kubernetes import client, config

    configuration = client.Configuration()
    paths = os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    if any(os.path.exists(path) for path in paths.split(os.pathsep) if path):
        try:
            config.load_kube_config(config_file=paths, context=context, client_configuration=configuration)
            namespace = _context_namespace(config, paths, context)
        except Exception as error:  # Its own, those of YAML, of files, and of programs that give credentials.
            raise invalid(f"the kubeconfig {paths} can't be used: {error}") from error
    elif os.path.exists(_POD_NAMESPACE):
        try:
            config.load_incluster_config(client_configuration=configuration)
            with open(_POD_NAMESPACE, encoding="utf-8") as file:
                namespace = file.read().strip()
        except (config.ConfigException, OSError) as error:
            raise invalid(f"the pod's service account can't be used: {error}") from error
    else:
        raise invalid(f"no kubeconfig at {paths}, and this is no pod: set KUBECONFIG, or give api_client")
    # Each call that is followed holds a connection; the client's own default is for a few requests at a time.
    configuration.connection_pool_maxsize = _CONNECTIONS
    return client.ApiClient(configuration), namespace


def _context_namespace(config: Any, paths: str, context: str | None) -> str | None:
    contexts, active = config.list_kube_config_contexts(config_file=paths)
    found = next((c for c in contexts if c["name"] == context), active)
    namespace: str | None = found["context"].get("namespace")
    return namespace
