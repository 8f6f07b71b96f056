"""The Spark session: started in a JVM of its own, or in the JVM of the `spark-submit` that started us."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from policies.errors import UserError
from streaming.conf import NO_PERF_DATA, PYTHON, at_launch, in_force
from streaming.local_files import make_files_without_processes
from streaming.master import is_local, is_on_this_machine
from streaming.scratch import Scratch
from streaming.settings import StreamSettings
from streaming.shipped import packed_code
from streaming.steady_workers import give_each_partition_its_worker

_launch_gateway: Any = launch_gateway  # has no types
_JVM_END_SECONDS = 10.0
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment of whom spark-submit has started: its JVM is the driver's."""
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def start_session(settings: StreamSettings, jars: Sequence[Path], log_file: Path) -> SparkSession:
    """Start the JVM, unless spark-submit has, and the session.

    Args:
        settings: those of the query.
        jars: the Kafka connector and what it needs.
        log_file: where Spark's own log goes; its directory exists. Beside it is `spark-tmp`, for what Spark and its
            Python workers would leave in /tmp when they are killed.

    Raises:
        UserError: where it runs lacks what only its user can give.
    """
    _require_startable(settings)
    if is_on_this_machine(settings.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = Scratch(log_file.parent / "spark-tmp")
    launch = at_launch(settings, jars, log_file, scratch.path)
    with log_file.with_suffix(".console").open("ab") as console, _temporary_files_in(scratch.path):
        # What JVM and Python workers print belongs in a file: the terminal is headgate's.
        launched = SparkConf(loadDefaults=False).setAll(list(launch.items()))
        gateway = _launch_gateway(launched, {"stdout": console, "stderr": console})
    gateway.scratch = scratch
    try:
        return _session(settings, gateway)
    except BaseException:
        _close(gateway)
        raise


def _session(settings: StreamSettings, gateway: Any) -> SparkSession:
    scratch: Path = gateway.scratch.path
    conf = SparkConf(_jvm=gateway.jvm)  # with all that the JVM was given, and by whom ever
    given = {**dict(conf.getAll()), **settings.spark}
    master = _master(settings, given)
    os.environ["PYSPARK_PYTHON"] = _python(master, given)
    conf.setAll([*settings.spark.items(), *in_force(settings, master, given, scratch).items()]).setMaster(master)
    make_files_without_processes(gateway.jvm, conf._jconf)
    session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    _require_connector(session)
    give_each_partition_its_worker(session.sparkContext, settings.shuffle_partitions, scratch)
    if not is_local(master):
        # The same code decides everywhere, whichever version a worker's environment may have.
        session.sparkContext.addPyFile(str(packed_code(scratch)))
    return session


def is_submitted() -> bool:
    """Whether spark-submit has started this process."""
    return _SUBMITTED in os.environ


def set_unless_said(session: SparkSession, properties: Mapping[str, str]) -> None:
    """Set properties of a session that runs already, but for what the settings file or who started us said of them."""
    given = session.sparkContext.getConf()
    for name, value in properties.items():
        if not given.contains(name):
            session.conf.set(name, value)


def stop_session(session: SparkSession) -> None:
    """Stop the session and end its JVM, also one that has died; another can be started in this process then."""
    gateway: Any = session.sparkContext._gateway
    if is_alive(session):
        session.stop()
    _close(gateway)


def _close(gateway: Any) -> None:
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    if gateway.proc is not None:  # else it is spark-submit's, and ends after us
        _end(gateway.proc)
    gateway.scratch.close()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def _end(jvm: subprocess.Popen[bytes]) -> None:
    assert jvm.stdin is not None  # noqa: S101 - Py4J gave it a pipe
    jvm.stdin.close()  # the JVM ends when this pipe does
    try:
        jvm.wait(_JVM_END_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def kill_jvm(session: SparkSession) -> None:
    """End a JVM that no longer answers; every call that waits for it fails then."""
    gateway: Any = session.sparkContext._gateway
    if gateway.proc is not None:
        gateway.proc.kill()
    elif (submitter := os.getppid()) > 1:  # spark-submit's, which waits for us
        os.kill(submitter, signal.SIGKILL)


def is_alive(session: SparkSession) -> bool:
    """Whether its JVM answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, AttributeError, OSError):
        return False


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """While the JVM is started, so that it and its Python workers inherit it."""
    mine = {"TMPDIR": str(folder), "SPARK_LAUNCHER_OPTS": NO_PERF_DATA}
    before, tempdir = {name: os.environ.get(name) for name in mine}, tempfile.tempdir
    os.environ.update(mine)
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = tempdir
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _require_startable(settings: StreamSettings) -> None:
    """Say what Spark would say in its log only.

    Raises:
        UserError: it cannot be started as it is set.
    """
    if settings.master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(os.environ):
        raise UserError("stream.master: yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR in the environment")


def _master(settings: StreamSettings, given: Mapping[str, str]) -> str:
    """Where the query runs.

    Raises:
        UserError: spark-submit and the settings say two things.
    """
    if not is_submitted():
        return settings.master
    submitted = given.get("spark.master", settings.master)
    if "master" in settings.model_fields_set and settings.master != submitted:
        raise UserError(
            f"stream.master is {settings.master}, and spark-submit was given {submitted}: leave one of them out, or "
            "take the line that `headgate decide --print-submit` prints"
        )
    return submitted


def _require_connector(session: SparkSession) -> None:
    """Of a JVM that somebody else started it is not known.

    Raises:
        UserError: it lacks the Kafka connector.
    """
    jvm: Any = session.sparkContext._jvm
    if is_submitted() and not jvm.org.apache.spark.util.Utils.classIsLoadable(_CONNECTOR):
        raise UserError(
            "spark-submit was given no jars of the Kafka connector: take the line that `headgate decide "
            "--print-submit` prints"
        )


def _python(master: str, given: Mapping[str, str]) -> str:
    """The Python of the workers: elsewhere, what Spark was told."""
    ours = sys.executable
    return ours if is_local(master) else given.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or ours
