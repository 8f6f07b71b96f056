"""`.ci/run` with a `make` that only tells how its targets end: what is red, and what the last line counts."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci/run"
MAKE = """#!/bin/sh
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
        file.write_text(MAKE if name == "make" else f"#!/bin/sh\necho {tmp_path}\n")
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
