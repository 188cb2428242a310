"""The packages that pack.sh makes: whole, the same each time, and good to import without this checkout."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

from tests.bed import full_only

HERE = Path(__file__).resolve().parents[1]
SOURCES = {str(p.relative_to(HERE / "src")) for p in (HERE / "src").rglob("*.py")} | {"toolcall/py.typed"}


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
            [metadata] = [n for n in names if n.endswith("/METADATA")]
            text = wheel.read(metadata).decode()
        self.assertIn("License: Apache-2.0", text)
        self.assertIn("Requires-Python: >=3.11", text)
        self.assertEqual([line for line in text.splitlines() if line.startswith("Requires-Dist: ") and "extra" not in line],
                         ["Requires-Dist: kubernetes (>=22.6)"])

    def test_the_source_distribution_has_the_licence_and_every_module(self) -> None:
        with tarfile.open(self.only("*.tar.gz")) as archive:
            names = {name.removeprefix("./").partition("/")[2] for name in archive.getnames()}
        self.assertEqual(SOURCES - {n.removeprefix("src/") for n in names}, set())
        self.assertIn("LICENSE", names)

    def test_the_wheel_can_be_imported(self) -> None:
        target = self.folder / "installed"
        with zipfile.ZipFile(self.only("*.whl")) as wheel:
            wheel.extractall(target)
        program = "import toolcall, sys; toolcall.AsyncToolcall; print(toolcall.__file__, 'kubernetes' in sys.modules)"
        done = subprocess.run(
            ["/usr/bin/python3", "-c", program], env={"PYTHONPATH": str(target)}, cwd="/", capture_output=True, text=True,
            check=True,
        )
        self.assertEqual(done.stdout.split(), [str(target / "toolcall" / "__init__.py"), "False"])


if __name__ == "__main__":
    unittest.main()
