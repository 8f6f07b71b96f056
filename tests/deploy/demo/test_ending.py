"""Nothing of a demo stays, however it ends."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.demo.story import temporary_folder

DEMO = """
import sys
from deploy.demo.story import Shutdown, temporary_folder
shutdown = Shutdown()
with temporary_folder() as folder:
    (folder / "data").mkdir()
    shutdown.in_order = sys.argv[1] == "in order"
    print(folder, flush=True)
    while not shutdown.stop.wait(0.1):
        pass  # handlers run while this thread is awake
    print("in order", flush=True)
sys.exit(shutdown.status)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@contextmanager
def started(how: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", DEMO, how], stdout=subprocess.PIPE, text=True) as demo:
        try:
            yield demo
            demo.wait()
        finally:
            demo.kill()


@pytest.mark.parametrize(
    ("number", "how", "said"),
    [
        (signal.SIGINT, "in order", "in order\n"),
        (signal.SIGTERM, "in order", "in order\n"),
        (signal.SIGHUP, "at once", ""),
    ],
)
def test_a_signal_ends_it_with_its_own_status_and_the_folder_goes(
    number: signal.Signals, how: str, said: str, temporary: Path
) -> None:
    with started(how) as demo:
        assert demo.stdout is not None
        folder = Path(demo.stdout.readline().strip())
        assert folder.parent == temporary
        demo.send_signal(number)
        assert demo.stdout.read() == said
    assert demo.returncode == 128 + number
    assert not folder.exists()


def test_the_folder_of_one_that_was_killed_goes_with_the_next_and_that_of_one_that_lives_stays(temporary: Path) -> None:
    with started("in order") as killed, started("in order") as lives:
        assert killed.stdout is not None
        assert lives.stdout is not None
        left, used = Path(killed.stdout.readline().strip()), Path(lives.stdout.readline().strip())
        killed.kill()
        killed.wait()
        others = temporary / "headgate-demo-of-nobody"
        others.mkdir()
        with temporary_folder() as own:
            assert own.exists()
            assert (left.exists(), used.exists(), others.exists()) == (False, True, True)
        assert not own.exists()
        lives.send_signal(signal.SIGTERM)
    assert list(temporary.iterdir()) == [others]
