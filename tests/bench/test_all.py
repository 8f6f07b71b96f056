"""One table of all benchmarks, whatever becomes of each."""

import argparse
import math
from pathlib import Path

import pytest

from bench import all as everything
from bench.turns import Figures, table
from tests.system.processes import command_line
from tests.system.waiting import eventually

WORKS = "import json; print('a line of its own'); print(json.dumps({'took, s': 1.5}))"
FAILS = "raise SystemExit('no Java')"
HANGS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; {}'])"


def measured(monkeypatch: pytest.MonkeyPatch, folder: Path, **scripts: str) -> Figures:
    for name, code in scripts.items():
        (folder / f"{name}.py").write_text(code)
    monkeypatch.setattr(everything, "HERE", folder)
    monkeypatch.setattr(everything, "SCRIPTS", dict.fromkeys(scripts, ()))
    return everything.measure(argparse.Namespace(only=list(scripts)))


def test_what_fails_is_said_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = measured(monkeypatch, tmp_path, broken=FAILS, works=WORKS)
    assert math.isnan(figures["broken: failed"])
    assert figures["works: took, s"] == 1.5
    assert "no Java" in capsys.readouterr().err
    assert "| broken: failed | nan |" in table({"now": figures})


def test_what_takes_too_long_ends_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(everything, "LONGEST_SECONDS", 1.0)
    mark = "time.sleep(3600.17)"
    figures = measured(monkeypatch, tmp_path, hangs=HANGS.format(mark))
    assert list(figures) == ["hangs: failed"]
    assert "took longer than 1 s" in capsys.readouterr().err
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    eventually("nothing of it runs", lambda: not any(mark.encode() in command_line(pid) for pid in pids))


def test_every_script_that_it_runs_is_there() -> None:
    assert [name for name in everything.SCRIPTS if not (everything.HERE / f"{name}.py").exists()] == []
