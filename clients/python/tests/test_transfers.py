"""Files up and down, against a server that fails on purpose."""

from __future__ import annotations

import hashlib
import os
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tests.scripted import Exchange, Scripted, session
from toolcall import FileFailed, Session, Unavailable

DATA = bytes(range(256)) * 512


def tag(data: bytes) -> dict[str, str]:
    return {"ETag": f'"{hashlib.sha256(data).hexdigest()}"'}


class Transfers(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def session(self, files: Callable[[Exchange], None], patience: float = 3.0) -> tuple[Session, Scripted]:
        """A session of a server that answers requests for files so."""

        def answer(e: Exchange) -> None:
            if e.path.endswith("/proxy/files"):
                files(e)
            else:
                e.reply(200, session())

        server = self.enterContext(Scripted(answer))
        return self.enterContext(server.toolcall(patience)).connect("s"), server

    def test_an_archive_that_always_breaks_off_is_an_error(self) -> None:
        def files(e: Exchange) -> None:
            e.begin()
            e.part(DATA)
            e.cut()

        s, server = self.session(files)
        with self.assertRaisesRegex(FileFailed, "broke off"):
            s.files.download("tree", Path(self.folder, "tree.tar"), archive=True)
        self.assertLess(server.count("GET", "/proxy/files"), 10)
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_archive_that_breaks_off_once_arrives(self) -> None:
        def files(e: Exchange) -> None:
            e.begin()
            e.part(DATA)
            if server.count("GET", "/proxy/files") == 1:
                e.cut()
            else:
                e.end()

        s, server = self.session(files)
        s.files.download("tree", Path(self.folder, "tree.tar"), archive=True)
        self.assertEqual(Path(self.folder, "tree.tar").read_bytes(), DATA)

    def test_a_file_that_changes_with_each_attempt_is_an_error(self) -> None:
        def files(e: Exchange) -> None:
            e.begin({"ETag": f'"{len(server.seen)}"'})
            e.part(DATA)
            e.cut()

        s, server = self.session(files, patience=0.5)
        with self.assertRaises(Unavailable):
            s.files.download("log", Path(self.folder, "log"))

    def test_a_file_goes_on_where_it_broke_off(self) -> None:
        def files(e: Exchange) -> None:
            at = int(e.headers.get("Range", "bytes=0-")[6:-1])
            rest = DATA[at:]
            e.send_response(206 if at else 200)
            for name, value in {**tag(DATA), "Content-Length": str(len(rest))}.items():
                e.send_header(name, value)
            e.end_headers()
            e.wfile.write(rest[:40000])
            if len(rest) > 40000:
                e.cut()

        s, _ = self.session(files)
        s.files.download("data", Path(self.folder, "data"))
        self.assertEqual(Path(self.folder, "data").read_bytes(), DATA)

    def test_a_local_file_that_changes_while_it_is_sent(self) -> None:
        local = Path(self.folder, "log")
        for change, says in ((DATA + b"more", ""), (DATA[:-1] + b"!", "changed"), (DATA[:70000], "shorter")):
            local.write_bytes(DATA)

            def files(e: Exchange) -> None:
                e.reply(201, headers=tag(e.body))

            s, server = self.session(files)
            with local.open("rb") as opened, self.subTest(says):
                file = Changing(opened, lambda change=change: local.write_bytes(change))  # type: ignore[misc]
                if says:
                    with self.assertRaisesRegex(FileFailed, says):
                        s.files._transfers.put("log", file)  # type: ignore[arg-type]
                else:
                    sent = s.files._transfers.put("log", file)  # type: ignore[arg-type]
                    self.assertEqual((sent.sha256, server.seen[-1].body), (hashlib.sha256(DATA).hexdigest(), DATA))
                    self.assertEqual({each.command for each in server.seen}, {"GET", "PUT"})


class Changing:
    """A file that is changed when its sum is known: as it goes back to its start for the second time."""

    def __init__(self, file: IO[bytes], change: Callable[[], object]) -> None:
        self._file = file
        self._change = change
        self._starts = 0

    def seek(self, at: int) -> None:
        self._starts += 1
        if self._starts == 2:
            self._change()
        self._file.seek(at)

    def read(self, size: int) -> bytes:
        return self._file.read(size)


if __name__ == "__main__":
    unittest.main()
