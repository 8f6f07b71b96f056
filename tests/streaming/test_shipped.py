"""The code sent to executors: alone it is enough to decide, and the same code gives the same bytes."""

import subprocess
import sys
from pathlib import Path

from streaming.session import zip_code

_WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from policies.registry import POLICIES
from streaming.operator import PolicyOperator
from streaming.host import PolicyHost
PolicyOperator(PolicyHost(), "headgate")
loaded = [m for n, m in sys.modules.items() if n.partition(".")[0] in ("policies", "streaming", "connectors", "deploy")]
assert all(m.__file__.startswith(sys.argv[1]) for m in loaded), loaded
print(*POLICIES)
"""


def test_an_executor_without_headgate_decides_with_it(tmp_path: Path) -> None:
    packed = zip_code(tmp_path)
    worker = subprocess.run(
        [sys.executable, "-c", _WORKER, str(packed)], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert worker.returncode == 0, worker.stderr
    assert {"throttle", "isolation", "sessions", "switching"} <= set(worker.stdout.split())


def test_the_same_code_gives_the_same_bytes(tmp_path: Path) -> None:
    first = zip_code(tmp_path).read_bytes()
    assert zip_code(tmp_path).read_bytes() == first
