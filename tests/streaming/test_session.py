"""The folder of what Spark keeps while it runs: for us alone, gone with its run, or at the next start after a kill."""

import fcntl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streaming.session import Scratch, zip_code

SHORT = "/srv/headgate/spark-tmp/run-12345678"
_HOLD = """
import sys
from pathlib import Path
from streaming.session import Scratch
scratch = Scratch(Path(sys.argv[1]))
(scratch.path / ".a.sock").touch()
print(scratch.path, flush=True)
sys.stdin.read()
"""


def test_it_is_for_our_own_user_alone_and_goes_when_it_is_closed(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "spark-tmp")
    assert [path.stat().st_mode & 0o777 for path in (scratch.path, scratch.path.parent)] == [0o700, 0o700]
    (scratch.path / "blockmgr").mkdir()
    scratch.close()
    scratch.close()
    assert not scratch.path.exists()


def test_what_a_killed_run_left_goes_at_the_next_start_and_what_lives_stays(tmp_path: Path) -> None:
    parent = tmp_path / "spark-tmp"
    command = [sys.executable, "-c", _HOLD, str(parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        others = Path(held.stdout.readline().strip())
        mine = Scratch(parent)
        assert (others / ".a.sock").exists()
        held.kill()
        held.wait()
    later = Scratch(parent)
    assert not others.exists()
    assert mine.path.exists()
    for scratch in (mine, later):
        scratch.close()


def test_a_folder_without_a_lock_was_left_by_a_start_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "run-x").mkdir()
    Scratch(tmp_path).close()
    assert not (tmp_path / "run-x").exists()


def test_two_starts_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    """The lock of the parent is held while a new folder has none of its own yet."""
    with (tmp_path / "lock").open("w") as lock, ThreadPoolExecutor(1) as starter:
        fcntl.flock(lock, fcntl.LOCK_EX)
        starting = starter.submit(Scratch, tmp_path)
        with pytest.raises(TimeoutError):
            starting.result(0.3)
        lock.close()
        starting.result().close()


# --- The code sent to executors: alone it is enough to decide, and the same code gives the same bytes.


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
