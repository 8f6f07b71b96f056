"""The folder of what Spark keeps while it runs: for us alone, gone with its run, or at the next start after a kill."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock

import pyspark
import pytest
from py4j.protocol import Py4JError
from structlog.testing import capture_logs

from policies.units import UserError
from streaming import session
from streaming.session import Scratch, start_session, stop_session, zip_code
from streaming.settings import StreamSettings
from streaming.spark_internals import TESTED

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


# --- What a session is started with, and how it ends; a mock stands for PySpark and the JVM.


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[MagicMock]:
    """PySpark; as its JVM starts, `inherited` becomes the environment of it."""
    mock = MagicMock()
    for name in ("SparkConf", "SparkContext", "SparkSession"):
        monkeypatch.setattr(session, name, getattr(mock, name))

    def launch(*_: object) -> object:
        mock.inherited = dict(os.environ)
        return mock.gateway

    monkeypatch.setattr(session, "_launch_gateway", launch)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    yield mock
    mock.gateway.scratch.close()


@pytest.mark.parametrize(("locale", "told"), [("C", "C.UTF-8"), ("", "C.UTF-8"), ("de_DE.utf8", None)])
def test_the_jvm_reads_names_beyond_ascii_and_no_settings(
    spark: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locale: str, told: str | None
) -> None:
    for name in ("LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("LANG", locale), ("HEADGATE_STREAM__MASTER", "local[2]")):
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    start_session(StreamSettings(), [], tmp_path / "spark.log")
    assert spark.inherited.get("LC_ALL") == told
    assert "HEADGATE_STREAM__MASTER" not in spark.inherited
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        pytest.param({}, False, id="the settings name no master"),
        pytest.param({"master": "spark://m:7077", "checkpoint_dir": "hdfs://n:8020/c"}, False, id="the same"),
        pytest.param({"master": "local[2]"}, True, id="another"),
    ],
)
def test_spark_submit_names_the_master_and_the_executors_get_the_code(
    spark: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], is_refused: bool
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    spark.SparkConf.return_value.getAll.return_value = [("spark.master", "spark://m:7077")]
    with pytest.raises(UserError, match="leave one of them out") if is_refused else nullcontext():
        started = start_session(StreamSettings.model_validate(settings), [], tmp_path / "spark.log")
        started.sparkContext.addPyFile.assert_called_once()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("setting", "version", "is_said"), [("auto", "0.1", True), ("auto", min(TESTED), False), ("off", "0.1", False)]
)
def test_it_is_said_that_internals_are_not_used_because_nobody_tested_them(
    spark: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, version: str, is_said: bool
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with capture_logs() as logs:
        start_session(StreamSettings.model_validate({"spark_internals": setting}), [], tmp_path / "spark.log")
    assert any("internals" in each["event"] for each in logs) is is_said


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_jvm_that_has_died_is_not_asked_to_stop_and_its_folder_goes(spark: MagicMock, is_dead: bool) -> None:
    is_stopped = spark.sparkContext._jsc.sc().isStopped
    is_stopped.return_value, is_stopped.side_effect = False, Py4JError("no answer") if is_dead else None
    stop_session(spark)
    assert spark.stop.called is not is_dead
    spark.sparkContext._gateway.scratch.close.assert_called_once()
