"""The programs that the pages show do what the pages say, as an agent's own process."""

from __future__ import annotations

import os
import subprocess
import unittest
from pathlib import Path

from tests.bed import bed, full_only, on_cluster

HERE = Path(__file__).resolve().parents[1]
SAID = """\
hello from /workspace

Took 0.Xs
Good evening, Ada
step 1
step 2
step 3
typed
exit code 3
denied: ShellCommandNotAllowed
"""


@full_only
@on_cluster
class Examples(unittest.TestCase):
    def test_the_quick_start(self) -> None:
        with bed("py-example") as b:
            env = {**os.environ, "KUBECONFIG": b.kubeconfig, "PYTHONPATH": str(HERE / "src")}
            command = ["/usr/bin/python3", str(HERE / "examples" / "quickstart.py"), "tools"]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.stderr, "")
            self.assertRegex(done.stdout, "^" + SAID.replace("0.Xs", r"\d+\.\ds") + "$")
            sessions = [c["spec"]["sessionRef"]["name"] for c in b.calls() if "sessionRef" in c["spec"]]
            self.assertEqual(len(set(sessions)), 1)


if __name__ == "__main__":
    unittest.main()
