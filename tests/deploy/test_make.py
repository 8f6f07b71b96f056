"""What `make run` and `make demo` say when they end: where the command is, which is on no PATH."""

import os
import shutil
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

HEADGATE = """#!/bin/sh
trap 'echo stopped in order; exit 3' INT
echo "called with $*"
while :; do sleep 0.05; done
"""


@pytest.fixture
def environment_folder(tmp_path: Path) -> Path:
    """As `make` leaves a virtual environment, but with a `headgate` that only waits for Ctrl-C."""
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    for name, text in (("bin/headgate", HEADGATE), ("bin/python", "#!/bin/sh\n"), (".runtime", "")):
        file = folder / name
        file.write_text(text)
        file.chmod(0o755)
    return folder


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("target", "command"), [("run", "up"), ("demo", "demo")])
def test_after_ctrl_c_it_says_where_the_command_is(target: str, command: str, environment_folder: Path) -> None:
    making = subprocess.Popen(
        ["make", target, f"VENV={environment_folder}"],
        cwd=ROOT,
        # It may be that `make` runs these tests.
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background has it ignored, and who ignores it cannot be told to stop.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with making, ExitStack() as stack:
        stack.callback(_end, making)
        assert making.stdout is not None
        assert making.stdout.readline() == f"called with {command}\n"
        os.killpg(making.pid, signal.SIGINT)  # as a terminal does: to make, its shell and headgate
        said = making.stdout.read()
        making.wait()
    assert "stopped in order\n" in said
    assert f"headgate is at {environment_folder}/bin/headgate; to call it by its name: . " in said
    assert making.returncode != 0


def _end(making: "subprocess.Popen[str]") -> None:
    """Whatever the test found, nothing of it goes on."""
    if making.poll() is None:
        os.killpg(making.pid, signal.SIGKILL)
