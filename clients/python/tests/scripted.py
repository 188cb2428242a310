"""An HTTP server on this machine that answers as a test says, in place of an API server that fails on purpose."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from kubernetes import client

from toolcall import Toolcall

NAMESPACE = "test"
UID = "11111111-1111-1111-1111-111111111111"
OTHER_UID = "22222222-2222-2222-2222-222222222222"


class Seen(NamedTuple):
    """A request that came: its method, its path without the query, the query and the body."""

    command: str
    path: str
    query: dict[str, str]
    body: bytes


class Exchange(BaseHTTPRequestHandler):
    """One request, and the answer to it. path: without the query; query: name to value; body: what was sent."""

    protocol_version = "HTTP/1.1"
    script: Scripted
    query: dict[str, str]
    body: bytes

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""

    def json(self) -> Any:
        """The body as an object."""
        return json.loads(self.body)

    def reply(self, status: int, body: Any = b"", headers: dict[str, str] | None = None) -> None:
        """Answers with bytes, or with an object."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def refuse(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        """Answers with a Kubernetes Status."""
        self.reply(status, {"kind": "Status", "reason": reason, "message": f"it is {reason}"}, headers)

    def begin(self, headers: dict[str, str] | None = None) -> None:
        """Begins an answer of unknown length; `part` goes on with it."""
        self.send_response(200)
        for name, value in {**(headers or {}), "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def part(self, data: Any) -> None:
        """Sends a part: bytes, or an object as one line."""
        sent = data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(sent), sent))
        self.wfile.flush()

    def end(self) -> None:
        """Ends an answer that was begun."""
        self.wfile.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """Breaks the connection."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def hold(self) -> None:
        """Stands still until the test is over, then breaks the connection."""
        self.script.over.wait(30)
        self.close_connection = True

    def _serve(self) -> None:
        split = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(split.query).items()}
        self.path = split.path
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.script.seen.append(Seen(self.command, self.path, self.query, self.body))
        try:
            self.script.answer(self)
        except OSError:
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve


class Scripted:
    """The server. answer: called with each request, in a thread of its connection; seen: all requests, in order."""

    def __init__(self, answer: Callable[[Exchange], None]) -> None:
        self.answer = answer
        self.seen: list[Seen] = []
        self.over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Exchange,), {"script": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=lambda: self._server.serve_forever(0.02), daemon=True).start()

    def api_client(self) -> Any:
        """An ApiClient that sends to it."""
        configuration = client.Configuration()
        configuration.host = self.url
        return client.ApiClient(configuration)

    def toolcall(self, patience: float = 3.0) -> Toolcall:
        """A client of it."""
        return Toolcall(NAMESPACE, api_client=self.api_client(), patience=patience)

    def count(self, method: str, end: str = "") -> int:
        """How many requests with this method had a path that ends so."""
        return sum(each.command == method and each.path.endswith(end) for each in list(self.seen))

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


def call(name: str, spec: dict[str, Any], phase: str = "Running", uid: str = UID, **status: Any) -> dict[str, Any]:
    """A ToolCall in a phase."""
    ended = phase in ("Succeeded", "Failed", "Denied", "Cancelled")
    conditions = [{"type": "Finished", "status": "True"}] if ended else []
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": "5"}, "spec": spec,
        "status": {"phase": phase, "reason": phase, "conditions": conditions, **status},
    }


def session(name: str = "s", phase: str = "Ready", uid: str = UID, **spec: Any) -> dict[str, Any]:
    """A ToolSession in a phase."""
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": "5"}, "spec": spec, "status": {"phase": phase}}
