"""What Spark is told: by whom, where several say something, and what of it nobody else may say."""

import re
import shlex
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest

from streaming.conf import SMALL_BATCH_TUNING, TUNING, launch_properties, session_properties
from streaming.session import set_defaults
from streaming.settings import FIXED_PROPERTIES, StreamSettings
from tests.cases import for_each

LOG = Path("/srv/headgate/spark.log")
RUN = Path("/srv/headgate/spark-tmp/run-1")
JARS = (Path("/jars/a.jar"), Path("/jars/b.jar"))
ELSEWHERE = {"master": "spark://m:7077", "checkpoint_dir": "hdfs://n:8020/headgate"}
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


def settings(**given: object) -> StreamSettings:
    return StreamSettings.model_validate(given)


def test_executors_elsewhere_get_the_jars_and_one_process_needs_no_copies() -> None:
    assert "spark.jars" not in launch_properties(settings(), JARS, LOG, RUN)
    assert launch_properties(settings(**ELSEWHERE), JARS, LOG, RUN)["spark.jars"] == "/jars/a.jar,/jars/b.jar"


def test_what_small_batches_want_gives_way_to_who_said_otherwise() -> None:
    said, *others = SMALL_BATCH_TUNING
    session = MagicMock()
    session.sparkContext.getConf().contains = {said}.__contains__
    set_defaults(session, SMALL_BATCH_TUNING)
    assert session.conf.set.call_args_list == [call(name, SMALL_BATCH_TUNING[name]) for name in others]


def test_spark_draws_no_bar_that_it_would_draw_in_a_shell() -> None:
    assert launch_properties(settings(), JARS, LOG)["spark.ui.showConsoleProgress"] == "false"


def test_what_the_file_adds_to_ours_comes_after_it_and_what_else_it_says_counts() -> None:
    added = {"spark.jars": "/own.jar", "spark.driver.extraClassPath": "/conf", "spark.driver.extraJavaOptions": "-Dx=1"}
    options = launch_properties(settings(**ELSEWHERE, spark={**added, "spark.executor.cores": 4}), JARS, LOG, RUN)
    assert options["spark.jars"] == "/jars/a.jar,/jars/b.jar,/own.jar"
    assert options["spark.driver.extraClassPath"] == "/jars/a.jar:/jars/b.jar:/conf"
    assert re.search(f"-Djava.io.tmpdir={RUN} .*-Dx=1$", options["spark.driver.extraJavaOptions"])
    assert options["spark.executor.cores"] == "4"


@for_each("name", FIXED_PROPERTIES)
def test_what_decisions_rest_on_is_ours_whoever_says_otherwise(name: str) -> None:
    assert session_properties(settings(), "local[2]", {name: "other"}, RUN)[name] == FIXED_PROPERTIES[name]


@for_each("name", [*TUNING, MANAGER])
def test_our_tuning_gives_way_to_whoever_started_us(name: str) -> None:
    assert name in session_properties(settings(), "local[2]", {}, RUN)
    assert name not in session_properties(settings(), "local[2]", {name: "other"}, RUN)


@for_each(
    ("folder", "fits"),
    [(str(RUN), True), ("/srv/" + "x" * 55, True), ("/srv/" + "x" * 56, False), ("/home/Anna/run", False)],
    ids=["short", "as long as Spark takes", "too long for a socket", "Python looks for it in small letters"],
)
def test_sockets_are_never_in_the_folder_of_all(folder: str, fits: bool) -> None:
    options = session_properties(settings(), "local[2]", {}, Path(folder))
    assert options.get("spark.python.unix.domain.socket.dir") == (folder if fits else None)
    assert options.get("spark.python.unix.domain.socket.enabled", "false") == str(fits).lower()
    assert options["spark.local.dir"] == folder
    assert (options["spark.authenticate"], options["spark.driver.bindAddress"]) == ("true", "127.0.0.1")
    launch = launch_properties(settings(), JARS, LOG, Path(folder))
    assert f"-Djava.io.tmpdir={folder}" in launch["spark.driver.extraJavaOptions"]


def test_executors_elsewhere_have_their_own_folders_secret_and_way_to_the_driver() -> None:
    given = settings(**ELSEWHERE)
    options = {**launch_properties(given, JARS, LOG, RUN), **session_properties(given, given.master, {}, RUN)}
    ours_alone = {"spark.local.dir", "spark.authenticate", "spark.driver.host", "spark.python.unix.domain.socket.dir"}
    assert not ours_alone & options.keys()


@for_each(
    ("folder", "manager"),
    [
        (None, "FileSystemBasedCheckpointFileManager"),
        ("/srv/checkpoint", "FileSystemBasedCheckpointFileManager"),
        ("hdfs://n:8020/headgate", "FileContextBasedCheckpointFileManager"),
        ("abfss://c@a.dfs.core.windows.net/headgate", "FileContextBasedCheckpointFileManager"),
        ("s3a://bucket/headgate", "FileContextBasedCheckpointFileManager"),
        ("gs://bucket/headgate", None),
    ],
)
def test_the_storage_of_the_checkpoint_decides_how_its_files_appear(folder: str | None, manager: str | None) -> None:
    chosen = session_properties(settings(checkpoint_dir=folder), "local[2]", {}, RUN).get(MANAGER)
    assert (chosen or "").rpartition(".")[2] == (manager or "")


@pytest.mark.parametrize("name", ["My Data", "Zoë's data", 'a "b" c', "back\\slash dir"])
def test_a_folder_may_have_blanks_quotes_and_other_letters(name: str) -> None:
    """Spark's launcher splits the flags by blanks outside of quotes; a backslash escapes within double quotes."""
    log = Path("/srv") / name / "spark.log"
    flags = launch_properties(StreamSettings(), [], log, Path("/run") / name)["spark.driver.extraJavaOptions"]
    found = shlex.split(flags)
    assert f"-Dheadgate.spark.log={log}" in found
    assert f"-Djava.io.tmpdir=/run/{name}" in found
