"""The line for spark-submit: a shell reads it as it was meant, and it says what a JVM must know when it starts."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deploy.query import components
from deploy.query.components import submit_line
from deploy.settings.application import Settings
from policies.units import UserError

STREAM = {"master": "spark://m:7077", "checkpoint_dir": "hdfs://n:8020/headgate", "driver_memory": "3g"}


IMAGE = {"spark.kubernetes.container.image": "example.org/headgate:1", "spark.kubernetes.namespace": "headgate"}
CLUSTERS: dict[str, dict[str, Any]] = {
    "standalone": STREAM,
    "several masters": {**STREAM, "master": "spark://m1:7077,m2:7077"},
    "yarn": {**STREAM, "master": "yarn", "spark": {"spark.yarn.queue": "control loops"}},
    "kubernetes": {"master": "k8s://https://api:6443", "checkpoint_dir": "s3a://bucket/headgate", "spark": IMAGE},
    "abfs": {**STREAM, "checkpoint_dir": "abfss://container@account.dfs.core.windows.net/headgate"},
}


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[str, Any]], list[str]]:
    """The words that a shell makes of the line for a `stream` block."""
    monkeypatch.setattr(components, "ensure_jars", lambda *_: (Path("/jars/a.jar"), Path("/jars/b.jar")))

    def words(stream: dict[str, Any]) -> list[str]:
        settings = Settings.model_validate({"data_dir": str(tmp_path / "data"), "stream": stream})
        return shlex.split(submit_line(settings, Path("a folder/headgate.yaml")).replace("\\\n", ""))

    return words


@pytest.fixture
def line(submitted: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    spark = {"spark.pyspark.python": "./environment/bin/python", "spark.app.name": "head gate's"}
    return submitted({**STREAM, "spark": spark})


def confs(line: list[str]) -> dict[str, str]:
    return dict(each.split("=", 1) for flag, each in pairwise(line) if flag == "--conf")


@pytest.mark.parametrize("stream", CLUSTERS.values(), ids=CLUSTERS)
def test_on_each_kind_of_cluster_the_driver_is_here_and_executors_get_jars_and_python(
    submitted: Callable[[dict[str, Any]], list[str]], stream: dict[str, Any]
) -> None:
    given = confs(submitted(stream))
    own = stream.get("spark", {})
    assert given["spark.master"] == stream["master"]
    assert given["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert given["spark.pyspark.python"] == given["spark.pyspark.driver.python"] == sys.executable
    assert "spark.submit.deployMode" not in given, "the driver is the process that reads the settings"
    assert own.items() <= given.items()
    assert not [name for name in given if name.startswith("spark.sql.streaming")], "said by the query, not by the line"


def test_it_names_jars_memory_python_and_whatever_else_the_settings_say(line: list[str]) -> None:
    assert line[0] == "spark-submit"
    given = confs(line)
    expected = {
        "spark.app.name": "head gate's", "spark.driver.memory": "3g",
        "spark.driver.extraClassPath": "/jars/a.jar:/jars/b.jar",
        "spark.pyspark.python": "./environment/bin/python", "spark.pyspark.driver.python": sys.executable,
    }  # fmt: skip
    assert expected.items() <= given.items()


def test_it_runs_a_file_that_python_finds_headgate_from(line: list[str], tmp_path: Path) -> None:
    program, *arguments = line[-4:]
    assert arguments == ["decide", "--settings", str(Path("a folder/headgate.yaml").absolute())]
    shown = subprocess.run([sys.executable, program, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("headgate ")


def test_without_a_settings_file_there_is_none() -> None:
    with pytest.raises(UserError, match="--print-submit needs --settings"):
        submit_line(Settings(), None)
