"""The line for spark-submit: a shell reads it as it was meant, and it says what a JVM must know when it starts."""

import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deploy import submitting
from deploy.settings import Settings
from deploy.submitting import submit_line
from policies.errors import UserError

STREAM = {"master": "spark://m:7077", "checkpoint_dir": "hdfs://n:8020/headgate", "driver_memory": "3g"}


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(submitting, "fetched_jars", lambda *_: (Path("/jars/a.jar"), Path("/jars/b.jar")))
    stream = {**STREAM, "spark": {"spark.pyspark.python": "./environment/bin/python", "spark.app.name": "head gate's"}}
    settings = Settings.model_validate({"data_dir": str(tmp_path / "data"), "stream": stream})
    return shlex.split(submit_line(settings, Path("a folder/headgate.yaml")).replace("\\\n", ""))


def test_it_names_jars_memory_python_and_whatever_else_the_settings_say(line: list[str]) -> None:
    assert line[0] == "spark-submit"
    given = dict(each.split("=", 1) for flag, each in pairwise(line) if flag == "--conf")
    expected = {
        "spark.master": "spark://m:7077",
        "spark.app.name": "head gate's",
        "spark.jars": "/jars/a.jar,/jars/b.jar",
        "spark.driver.memory": "3g",
        "spark.driver.extraClassPath": "/jars/a.jar:/jars/b.jar",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": sys.executable,
    }
    assert expected.items() <= given.items()


def test_it_runs_a_file_that_python_finds_headgate_from(line: list[str], tmp_path: Path) -> None:
    program, *arguments = line[-4:]
    assert arguments == ["decide", "--settings", str(Path("a folder/headgate.yaml").absolute())]
    shown = subprocess.run([sys.executable, program, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("headgate ")


def test_without_a_settings_file_there_is_none() -> None:
    with pytest.raises(UserError, match="--print-submit needs --settings"):
        submit_line(Settings(), None)
