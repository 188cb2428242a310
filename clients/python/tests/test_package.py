"""The packages that pack.sh makes: whole, the same each time, as an index takes them, and good to use without this checkout."""

from __future__ import annotations

import email
import hashlib
import re
import subprocess
import tarfile
import tempfile
import unittest
import venv
import zipfile
from pathlib import Path

from tests.bed import full_only

HERE = Path(__file__).resolve().parents[1]
SOURCES = {str(p.relative_to(HERE / "src")) for p in (HERE / "src").rglob("*.py")} | {"toolcall/py.typed"}

ADDRESSES = {
    "Homepage": "https://toolcall.dev", "Source": "https://toolcall.dev/operator",
    "Issues": "https://toolcall.dev/operator/issues",
}


@full_only
class Package(unittest.TestCase):
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for name in ("first", "second"):
            env = {"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": "1700000000"}
            subprocess.run([str(HERE / "pack.sh"), "0.1.0", str(cls.folder / name)], check=True, env=env, capture_output=True)

    def only(self, pattern: str) -> Path:
        [found] = (self.folder / "first").glob(pattern)
        return found

    def test_the_same_source_makes_the_same_bytes(self) -> None:
        sums = [
            {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (self.folder / name).iterdir()}
            for name in ("first", "second")
        ]
        self.assertEqual(len(sums[0]), 2)
        self.assertEqual(sums[0], sums[1])

    def test_the_wheel_has_every_module(self) -> None:
        with zipfile.ZipFile(self.only("*.whl")) as wheel:
            names = set(wheel.namelist())
        self.assertEqual({n for n in names if n.startswith("toolcall/")}, SOURCES)
        self.assertTrue(any(n.endswith("/LICENSE") for n in names), names)

    def test_the_metadata_is_what_an_index_shows(self) -> None:
        with zipfile.ZipFile(self.only("*.whl")) as wheel:
            [name] = [n for n in wheel.namelist() if n.endswith("/METADATA")]
            metadata = email.message_from_bytes(wheel.read(name))
        for field, want in {"Name": "toolcall", "Version": "0.1.0", "License": "Apache-2.0", "Requires-Python": ">=3.11",
                            "Description-Content-Type": "text/markdown"}.items():
            self.assertEqual(metadata[field], want)
        self.assertEqual(metadata.get_all("Project-URL"), [f"{k}, {v}" for k, v in ADDRESSES.items()])
        self.assertEqual([line for line in metadata.get_all("Requires-Dist", []) if "extra" not in line], ["kubernetes>=22.6"])
        self.assertIn("Typing :: Typed", metadata.get_all("Classifier", []))
        # An index shows the readme without the repository around it.
        self.assertEqual(re.findall(r"\]\((?!https://|#)[^)]*\)", str(metadata.get_payload())), [])
        packages = [str(p) for p in sorted((self.folder / "first").iterdir())]
        said = subprocess.run(["/usr/bin/twine", "check", "--strict", *packages], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

    def test_the_source_distribution_has_the_licence_and_every_module(self) -> None:
        with tarfile.open(self.only("*.tar.gz")) as archive:
            names = {name.removeprefix("./").partition("/")[2] for name in archive.getnames()}
        self.assertEqual(SOURCES - {n.removeprefix("src/") for n in names}, set())
        self.assertIn("LICENSE", names)

    def test_each_package_is_installed_and_its_types_are_found(self) -> None:
        program = self.folder / "program.py"
        program.write_text("from toolcall import AsyncToolcall, Toolcall\nreveal_type(Toolcall.run)\nprint(AsyncToolcall.__module__)\n")
        for pattern in ("*.whl", "*.tar.gz"):
            with self.subTest(pattern):
                home = self.folder / f"installed-{pattern[2:]}"
                python = str(home / "bin" / "python")
                venv.create(home, system_site_packages=True, with_pip=True)
                self.run_in(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", str(self.only(pattern)))
                said = self.run_in(python, "-c", "import toolcall, sys; print(toolcall.__file__, 'kubernetes' in sys.modules)")
                file, has_kubernetes = said.split()
                self.assertTrue(file.startswith(str(home)), said)
                self.assertEqual(has_kubernetes, "False")
                said = self.run_in("/usr/bin/python3", "-m", "mypy", "--strict", "--python-executable", python, str(program))
                self.assertIn("toolcall.results.Result", said)

    def run_in(self, *command: str) -> str:
        """What a command says that has to succeed, outside this checkout."""
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout


if __name__ == "__main__":
    unittest.main()
