"""Files up and down, against a server that fails on purpose."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tests.scripted import Exchange, Scripted, call, session
from toolcall import Denied, FileFailed, Forbidden, InvalidArgument, NotFound, Session, ToolcallError, Unavailable
from toolcall.langchain.actions import Actions

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

    def test_a_file_that_is_too_large_for_one_answer_comes_in_parts(self) -> None:
        large = os.urandom((40 << 20) + 5)
        most, changed = 9 << 20, False

        def files(e: Exchange) -> None:
            first, _, last = e.headers.get("Range", "bytes=0-")[6:].partition("-")
            at, end = int(first), min(int(last or len(large)) + 1, len(large))
            if e.headers.get("If-Match", tag(large)["ETag"]) != tag(large)["ETag"] or changed and at:
                e.refuse(412, "FileChanged")
            elif end - at > most:
                e.refuse(413, "FileTooLarge")
            else:
                e.send_response(206)
                for name, value in {**tag(large), "Content-Length": str(end - at), "Content-Range": f"bytes {at}-{end - 1}/{len(large)}"}.items():
                    e.send_header(name, value)
                e.end_headers()
                e.wfile.write(large[at:end])

        s, server = self.session(files)
        self.assertEqual(s.files.read("large", format="bytes"), large)
        self.assertEqual(sum(each.path.endswith("/files") for each in server.seen), 2 + 6)
        most = 1
        with self.assertRaises(FileFailed) as raised:
            s.files.read("large", format="bytes")
        self.assertEqual(raised.exception.reason, "FileTooLarge")
        most, changed = 9 << 20, True
        with self.assertRaises(FileFailed) as raised:
            s.files.read("large", format="bytes")
        self.assertEqual(raised.exception.reason, "FileChanged")

    def suspended(self, cwd: str, phase: str, reason: str) -> tuple[Session, list[Any]]:
        """A suspended session whose calls end so, and their actions. After one, it takes files."""
        actions: list[Any] = []

        def answer(e: Exchange) -> None:
            if e.path.endswith("/proxy/files"):
                e.reply(201, headers=tag(e.body)) if actions else e.refuse(409, "Conflict")
            elif e.query.get("watch"):
                e.begin()
                e.hold()
            elif e.command == "POST":
                spec = e.json()["spec"]
                actions.append(spec["file"])
                e.reply(201, call(e.json()["metadata"]["name"], spec, phase, reason=reason, message="no"))
            else:
                e.reply(200, session(phase="Suspended"))

        return self.enterContext(self.enterContext(Scripted(answer)).toolcall()).connect("s", cwd=cwd), actions

    def test_a_suspended_session_is_resumed_whatever_its_directory(self) -> None:
        local = Path(self.folder, "a")
        local.write_bytes(DATA)
        for cwd, path, reason in [
            ("/not/there/yet", "/not/there/yet/.", "FileNotFound"), ("/a/file", "/a/file/.", "NotDirectory"),
            ("/root", "/root/.", "PathNotAllowed"), ("", ".", "WorkingDirNotFound"),
        ]:
            with self.subTest(reason):
                s, actions = self.suspended(cwd, "Failed", reason)
                self.assertTrue(s.files.upload(local).created)
                self.assertEqual(actions, [{"operation": "Stat", "path": path}])

    def test_a_suspended_session_that_no_call_resumes(self) -> None:
        local = Path(self.folder, "a")
        local.write_bytes(DATA)
        for phase, reason, kind in (("Denied", "DeniedByRule", Denied), ("Failed", "EnvironmentNotFound", NotFound)):
            with self.subTest(reason), self.assertRaises(kind):
                self.suspended("/workspace", phase, reason)[0].files.upload(local)

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


    def tree(self) -> Path:
        """A local directory with what a directory may have."""
        tree = Path(self.folder, "tree")
        (tree / "sub" / "empty").mkdir(parents=True)
        (tree / "sub" / "run.sh").write_bytes(DATA)
        (tree / "sub" / "run.sh").chmod(0o755)
        (tree / "ü\n").write_text("odd")
        (tree / "here").symlink_to("sub/run.sh")
        return tree

    def test_a_directory_up_and_down(self) -> None:
        kept: list[bytes] = []

        def files(e: Exchange) -> None:
            self.assertEqual((e.query["archive"], e.query["path"]), ("tar", "tree"))
            if e.command == "PUT":
                kept.append(e.body)
            e.reply(200, kept[0] if e.command == "GET" else b"")

        s, _ = self.session(files)
        tree, copy = self.tree(), Path(self.folder, "copy")
        s.files.upload_dir(tree)
        s.files.download_dir("tree", copy)
        found = {str(p.relative_to(copy)): (os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else None)
                 for p in copy.rglob("*")}
        self.assertEqual(found, {"sub": None, "sub/empty": None, "sub/run.sh": DATA, "ü\n": b"odd", "here": "sub/run.sh"})
        self.assertEqual((copy / "sub" / "run.sh").stat().st_mode & 0o777, 0o755)
        with self.assertRaises(FileFailed) as raised:
            s.files.download_dir("tree", copy)
        self.assertEqual(raised.exception.reason, "FileExists")
        self.assertEqual(sorted(os.listdir(self.folder)), ["copy", "tree"])

    def test_an_archive_that_leads_out_of_its_directory(self) -> None:
        def member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
            made = tarfile.TarInfo(name)
            made.type, made.linkname = kind, to
            return made

        link, folder = tarfile.SYMTYPE, tarfile.DIRTYPE
        outside = Path(self.folder, "outside")
        for members in (
            [member("../outside")],
            [member(str(outside))],
            [member("a/../../outside")],
            [member("a", link, "..")],
            [member("a", link, str(outside))],
            [member("d/e/f", folder), member("d/e/f/up", link, "../../.."), member("d/e/f/out", link, "up/../outside")],
            [member("a", tarfile.LNKTYPE, "/etc/passwd")],
            [member("a", tarfile.CHRTYPE)],
            [member("a", tarfile.FIFOTYPE)],
            [member("a", link, "b"), member("b", folder), member("b/c", link, "../.."), member("b/c/outside")],
            [member("a", link, "../.."), member("a/evil", link, "anything")],
            [member("a", link, "../.."), member("./a//new/evil", link, "anything")],
            [member("a/evil", link, "anything"), member("a", link, "../..")],
            [member("b", folder), member("a", link, "b"), member("a/evil", link, "anything")],
            [member("a", link, "b"), member("b", link, "..")],
            [member("a", link, "b"), member("a", link, "..")],
        ):
            made = io.BytesIO()
            with tarfile.open(fileobj=made, mode="w") as archive:
                for each in members:
                    archive.addfile(each)
            s, _ = self.session(lambda e, data=made.getvalue(): e.reply(200, data))  # type: ignore[misc]
            with self.subTest([(m.name, m.linkname) for m in members]), self.assertRaises((Forbidden, FileFailed)):
                s.files.download_dir("tree", Path(self.folder, "copy"))
            self.assertEqual(os.listdir(self.folder), [])

    def test_a_link_over_others_that_stays_inside_arrives(self) -> None:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for name, to in (("out", "up/../../file"), ("up", "d/e"), ("loop", "loop"), ("d/e/here", "../../file")):
                member = tarfile.TarInfo(name)
                member.type, member.linkname = tarfile.SYMTYPE, to
                archive.addfile(member)
        s, _ = self.session(lambda e: e.reply(200, made.getvalue()))
        copy = Path(self.folder, "copy")
        s.files.download_dir("tree", copy)
        self.assertEqual(sorted(os.listdir(copy)), ["d", "loop", "out", "up"])

    def test_a_directory_with_what_leads_out_of_it_is_not_sent(self) -> None:
        s, server = self.session(lambda e: e.reply(200))
        odd: list[Callable[[Path], object]] = [lambda p: p.symlink_to("/etc/passwd"), lambda p: p.symlink_to(".."), os.mkfifo]
        for number, make in enumerate(odd):
            tree = Path(self.folder, f"tree-{number}")
            tree.mkdir()
            make(tree / "odd")
            with self.assertRaisesRegex(Forbidden, "odd"):
                s.files.upload_dir(tree)
        self.assertEqual(server.count("PUT"), 0)

    def test_an_archive_without_its_end_is_not_whole(self) -> None:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("a"))
        s, _ = self.session(lambda e: e.reply(200, made.getvalue()[:tarfile.BLOCKSIZE]))
        with self.assertRaisesRegex(FileFailed, "no end"):
            s.files.download_dir("tree", Path(self.folder, "copy"))
        self.assertEqual(os.listdir(self.folder), [])

    def test_errors_of_local_files_are_the_librarys_own(self) -> None:
        s, _ = self.session(lambda e: e.reply(200, DATA, tag(DATA)))
        file = Path(self.folder, "file")
        file.write_text("x")
        os.mkfifo(Path(self.folder, "pipe"))
        cases: list[tuple[Callable[[], object], type[ToolcallError], str]] = [
            (lambda: s.files.upload(Path(self.folder, "nope")), NotFound, "FileNotFound"),
            (lambda: s.files.upload(self.folder), FileFailed, "IsDirectory"),
            (lambda: s.files.upload(Path(self.folder, "pipe")), FileFailed, "FileError"),
            (lambda: s.files.upload_dir(file), FileFailed, "NotDirectory"),
            (lambda: s.files.upload_dir(Path(self.folder, "nope")), NotFound, "FileNotFound"),
            (lambda: s.files.download("a", Path(self.folder, "nope", "a")), NotFound, "FileNotFound"),
            (lambda: s.files.download("a", self.folder), FileFailed, "IsDirectory"),
            (lambda: s.files.download_dir("a", Path(self.folder, "nope", "a")), NotFound, "FileNotFound"),
            (lambda: s.files.upload(self.folder + "/a\0b"), InvalidArgument, "InvalidArgument"),
            (lambda: s.files.upload_dir(self.folder + "/a\0b"), InvalidArgument, "InvalidArgument"),
            (lambda: s.files.upload(self.folder + "/\ud800"), InvalidArgument, "InvalidArgument"),
            (lambda: s.files.download("a", self.folder + "/a\0b"), InvalidArgument, "InvalidArgument"),
            (lambda: s.files.download_dir("a", self.folder + "/a\0b"), InvalidArgument, "InvalidArgument"),
        ]
        for work, kind, reason in cases:
            with self.subTest(reason), self.assertRaisesRegex(kind, self.folder) as raised:
                work()
            self.assertEqual((raised.exception.reason, raised.exception.retry_safe), (reason, True))
        self.assertEqual(sorted(os.listdir(self.folder)), ["file", "pipe"])


class Directories(unittest.TestCase):
    """Calls on files, which end as soon as they are created. said: what the status has."""

    def setUp(self) -> None:
        self.said: dict[str, Any] = {}
        # What is said of the calls after the first, one after the other.
        self.after: list[dict[str, Any]] = []
        self.specs: list[dict[str, Any]] = []
        self.server = self.enterContext(Scripted(self.answer))
        self.s = self.enterContext(self.server.toolcall()).connect("s")

    def answer(self, e: Exchange) -> None:
        if e.path.endswith("/proxy/files"):
            e.reply(200, DATA, tag(DATA) if e.command == "GET" else tag(e.body))
        elif e.query.get("watch"):
            e.begin()
            e.hold()
        elif e.command == "POST":
            made = e.json()
            self.specs.append(made["spec"])
            said = {"stdout": '{"path": "/image"}'} if made["spec"]["file"]["operation"] == "Stat" else self.said
            # Before the answer: the next call may follow at once.
            if self.after:
                self.said = self.after.pop(0)
            e.reply(201, call(made["metadata"]["name"], made["spec"], **{"phase": "Succeeded", **said}))
        else:
            e.reply(200, session())

    def test_a_relative_cwd_counts_from_the_images_directory_as_it_does_for_commands(self) -> None:
        self.s.cwd = "src"
        self.s.files.move("a", "b")
        self.s.files.read("/c", format="bytes")
        self.s.files.read("c", format="bytes")
        self.assertEqual([(spec["file"]["operation"], spec.get("workingDir")) for spec in self.specs], [("Stat", "."), ("Move", None)])
        self.assertEqual((self.specs[1]["file"]["path"], self.specs[1]["file"]["destination"]), ("/image/src/a", "/image/src/b"))
        self.assertEqual([each.query["path"] for each in self.server.seen if each.path.endswith("/files")], ["/c", "/image/src/c"])
        self.assertEqual(self.s.placed({})["workingDir"], "src")
        for cwd, path in (("", "a"), ("/w", "/w/a"), ("~/w", "~/w/a")):
            self.s.cwd = cwd
            self.s.files.mkdir("a")
            self.assertEqual(self.specs[-1]["file"]["path"], path)

    def test_lines_are_counted_from_one(self) -> None:
        works: list[Callable[[], object]] = [lambda: self.s.files.read("a", offset=0), lambda: self.s.files.read_lines("a", offset=0)]
        for work in works:
            with self.assertRaisesRegex(InvalidArgument, "at least 1"):
                work()

    def test_a_list_says_whether_there_is_more(self) -> None:
        actions = Actions(self.s, "thread")
        for is_cut in (False, True):
            self.said = {"stdout": '{"path": "a", "type": "File"}\n', "file": {"truncated": is_cut}}
            self.assertEqual([self.s.files.list().truncated, self.s.files.glob("*").truncated], [is_cut, is_cut])
            more = "\n… there is more: narrow the search" if is_cut else ""
            self.assertEqual(actions.list_files("."), "a" + more)
            self.said["stdout"] = '{"path": "a", "lineNumber": 1, "line": "x"}\n'
            self.assertTrue(self.s.files.grep("x").truncated is is_cut)
            self.assertEqual(actions.search_files("x", ".", None), "a:1:x" + more)

    def test_a_model_is_told_why_a_file_has_no_lines(self) -> None:
        actions = Actions(self.s, "thread")
        cases: list[tuple[dict[str, Any], str]] = [
            ({"stdout": "\ufffdPNG\0", "output": "a is a binary file", "file": {"binary": True, "nextOffset": 9}}, "a is a binary file"),
            ({"stdout": "", "output": "a has 3 lines: nothing is at offset 9"}, "a has 3 lines: nothing is at offset 9"),
            ({"stdout": "one\n", "output": "one"}, "one\n"),
        ]
        for said, text in cases:
            self.said = said
            self.assertEqual(actions.read_file("a", 1, 10), text)
        self.assertEqual(self.s.files.read("a", offset=1), "one\n")

    def test_a_line_that_is_too_long_takes_nothing_of_those_before_it(self) -> None:
        self.said = {"stdout": "one\n", "output": "one", "file": {"lines": 1, "truncated": True, "nextOffset": 2}}
        too_long = {"phase": "Failed", "reason": "FileTooLarge", "message": "Line 2 is longer", "stdout": "", "file": {}}
        whole = self.said
        self.after = [too_long, whole]
        lines = self.s.files.read_lines("a")
        self.assertEqual((lines.text, lines.note), ("one\n", "Line 2 is longer"))
        self.after = [too_long]
        self.assertEqual(Actions(self.s, "thread").read_file("a", 1, 9), "one\n\nLine 2 is longer")

    def test_a_head_is_not_taken_for_the_whole(self) -> None:
        self.said = {"stdout": "\ufffdPNG", "output": "a is a binary file", "file": {"binary": True, "truncated": True}}
        with self.assertRaises(FileFailed):
            self.s.files.read("a", offset=1, limit=5)
        self.assertTrue(self.s.files.read_lines("a", limit=5).binary)


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
