"""A TCP proxy in front of the API server that breaks connections: the TLS inside is between the client and the server.

It knows nothing of HTTP. An answer is lost by passing a request on and cutting the connection at the first bytes that come
back for it.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

_BYTES = 1 << 14


class Proxy:
    """Listens on a port of 127.0.0.1 and passes everything on to `server`, an address like https://10.0.0.1:6443."""

    def __init__(self, server: str) -> None:
        split = urlsplit(server)
        self._target = (split.hostname or "", split.port or 443)
        self._lock = threading.Lock()
        self._to_lose = 0
        self._chance = 0.0
        self._random = random.Random(7)
        self._connections: set[socket.socket] = set()
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self, count: int) -> None:
        """Cuts the next `count` connections when the server answers on them; the answers are lost."""
        with self._lock:
            self._to_lose = count

    def cut_at_random(self, chance: float) -> None:
        """Cuts a connection with this probability each time the server sends something, before it is passed on."""
        with self._lock:
            self._chance = chance

    def cut_all(self) -> None:
        """Cuts every connection that there is."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            self._cut(connection)

    def close(self) -> None:
        """Takes no more connections and cuts those that there are."""
        self._cut(self._listener)
        self.cut_all()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            for side in (near, far):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(near)
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, answers: bool) -> None:
        began = time.monotonic()
        try:
            while data := source.recv(_BYTES):
                # The first moments of a connection are its handshake, which is no answer.
                if answers and time.monotonic() - began > 0.02 and self._is_lost():
                    self.cuts += 1
                    break
                to.sendall(data)
        except OSError:
            pass
        finally:
            with self._lock:
                self._connections.discard(source)
                self._connections.discard(to)
            self._cut(source)
            self._cut(to)

    def _is_lost(self) -> bool:
        with self._lock:
            if self._to_lose > 0:
                self._to_lose -= 1
                return True
            return self._chance > 0 and self._random.random() < self._chance

    def _cut(self, connection: socket.socket) -> None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        connection.close()


def through(bed: Any, proxy: Proxy) -> Any:
    """An ApiClient of the agent that connects through the proxy, and still checks whose certificate it sees."""
    client = bed.agent(proxy.url)
    client.configuration.assert_hostname = urlsplit(bed.agent().configuration.host).hostname
    return type(client)(client.configuration)
