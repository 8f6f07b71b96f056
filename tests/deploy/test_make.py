"""`make run` and `make demo` say where the command is; `.ci/run` says what is red, and counts what was flaky."""

import json
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


RUN = Path(__file__).parents[2] / ".ci/run"
FAKE_MAKE = """#!/bin/sh
echo "make $*"
mkdir -p .pytest_cache/v/cache
[ -f "fails-$1" ] || exit 0
cp "fails-$1" .pytest_cache/v/cache/lastfailed
exit 2
"""
INSTALLED = ("prometheus", "prometheus-alertmanager", "chromium-headless-shell", "helm", "go")
ONE, TWO, THREE = (f"tests/system/test_{name}.py::test_it[{name}]" for name in ("one", "two", "three"))
ALL = ["make check", "make test", "make artifacts", "make system"]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci/run")
    (tmp_path / "bin").mkdir()
    for name in (*INSTALLED, "make"):
        file = tmp_path / "bin" / name
        file.write_text(FAKE_MAKE if name == "make" else f"#!/bin/sh\necho {tmp_path}\n")
        file.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("failing", "status", "made", "last"),
    [
        ({}, 0, ALL, "flaky: 0"),
        ({"system": [ONE]}, 0, [*ALL, "make again"], "flaky: 1: test_one.py::test_it[one]"),
        ({"test": [ONE], "system": [TWO]}, 0, None, "flaky: 2: test_one.py::test_it[one] test_two.py::test_it[two]"),
        ({"test": [ONE], "system": [TWO, THREE]}, 1, None, None),
        ({"system": [ONE, TWO, THREE]}, 1, ALL, None),
        ({"system": [ONE], "again": [ONE]}, 2, [*ALL, "make again"], "flaky: 1: test_one.py::test_it[one]"),
        ({"test": ["tests/policies/test_units.py::test_it"]}, 1, ALL[:2], "flaky: 0"),
        ({"system": []}, 1, ALL, "flaky: 0"),
        ({"check": []}, 2, ALL[:1], "flaky: 0"),
    ],
    ids=["all pass", "one", "one in each", "three in both", "three", "again", "a unit test", "no test", "the checks"],
)
def test_two_tests_on_servers_may_pass_when_they_run_once_more_and_nothing_else_may(
    clone: Path, failing: dict[str, list[str]], status: int, made: list[str] | None, last: str | None
) -> None:
    for target, tests in failing.items():
        (clone / f"fails-{target}").write_text(json.dumps(dict.fromkeys(tests, True), indent=2))
    environment = {**os.environ, "PATH": f"{clone / 'bin'}:{os.environ['PATH']}"}
    run = subprocess.run([clone / ".ci/run"], env=environment, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    assert run.returncode == status, run.stdout + run.stderr
    assert made in (None, [line for line in lines if line.startswith("make")])
    assert last in (None, lines[-1])
