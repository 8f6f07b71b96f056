"""The Spark session and its tuning. Each setting says what it buys; the figures are in docs/performance.md."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streaming.scratch import Scratch
from streaming.settings import StreamSettings

_launch_gateway: Any = launch_gateway  # has no types
_JVM_END_SECONDS = 10.0
_LONGEST_SOCKET_FOLDER = 64
"""Characters: a socket's name has 43 more, and the system allows 107."""

_STATE = "spark.sql.streaming.stateStore"

_TUNING = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    # State in RocksDB; a commit writes only what changed, not a snapshot.
    f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    # Can't be changed later: Avro lets the state's schema evolve.
    f"{_STATE}.encodingFormat": "avro",
    # Rename instead of create-with-checks: saves a directory listing and a checksum file a commit.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # No batch without records: else one runs at each trigger for the timers, a whole core while nothing happens. A tick
    # makes one when a timer is due (`policies/timers.py`).
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    # Python workers over a socket file instead of TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # State and offsets are for our own user alone.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    # Keep what a stack trace or a plan could show of a password out of logs.
    "spark.redaction.regex": "(?i)secret|password|token|jaas|truststore|keystore",
}

_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""With no executors elsewhere nothing needs to listen for them."""

_JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss8m", "-Djava.net.preferIPv4Stack=true")
_NO_PERF_DATA = "-XX:-UsePerfData"  # a file in /tmp, which a killed JVM leaves there


def start_session(settings: StreamSettings, jars: Sequence[Path], log_file: Path) -> SparkSession:
    """Start the JVM and the session.

    Args:
        settings: those of the query.
        jars: the Kafka connector and what it needs.
        log_file: where Spark's own log goes; its directory exists. Beside it is `spark-tmp`, for what Spark and its
            Python workers would leave in /tmp when they are killed.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = Scratch(log_file.parent / "spark-tmp")
    conf = SparkConf(loadDefaults=False).setAll(list(_options(settings, jars, log_file, scratch.path).items()))
    with log_file.with_suffix(".console").open("ab") as console, _temporary_files_in(scratch.path):
        # What JVM and Python workers print belongs in a file: the terminal is headgate's.
        gateway = _launch_gateway(conf, {"stdout": console, "stderr": console})
    gateway.scratch = scratch
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def stop_session(session: SparkSession) -> None:
    """Stop the session and end its JVM, also one that has died; another can be started in this process then."""
    gateway: Any = session.sparkContext._gateway
    if is_alive(session):
        session.stop()
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when this pipe does
    try:
        gateway.proc.wait(_JVM_END_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
    gateway.scratch.close()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def kill_jvm(session: SparkSession) -> None:
    """End a JVM that no longer answers; every call that waits for it fails then."""
    gateway: Any = session.sparkContext._gateway
    gateway.proc.kill()


def is_alive(session: SparkSession) -> bool:
    """Whether its JVM answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, AttributeError, OSError):
        return False


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """While the JVM is started, so that it and its Python workers inherit it."""
    mine = {"TMPDIR": str(folder), "SPARK_LAUNCHER_OPTS": _NO_PERF_DATA}
    before, tempdir = {name: os.environ.get(name) for name in mine}, tempfile.tempdir
    os.environ.update(mine)
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = tempdir
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _options(settings: StreamSettings, jars: Sequence[Path], log_file: Path, scratch: Path) -> dict[str, str]:
    log4j = Path(__file__).with_name("log4j2-spark.properties")
    flags = (
        *_JVM_FLAGS,
        _NO_PERF_DATA,
        f"-Djava.io.tmpdir={scratch}",
        f"-XX:ErrorFile={log_file.with_suffix('.crash')}",
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Dheadgate.spark.log={log_file}",
    )
    return {
        **_TUNING,
        "spark.master": settings.master,
        "spark.app.name": "headgate",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.driver.memory": settings.driver_memory,
        **(_local(scratch) if settings.master.startswith("local") else {}),
        # On the class path at once: `spark.jars` would copy each jar into a temporary folder first.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(flags),
    }


def _local(scratch: Path) -> dict[str, str]:
    """What holds where all of Spark is in one process beside ours."""
    if len(str(scratch)) > _LONGEST_SOCKET_FOLDER:
        sockets = {"spark.python.unix.domain.socket.enabled": "false"}  # TCP, with a secret
    else:
        sockets = {"spark.python.unix.domain.socket.dir": str(scratch)}
    # Whoever speaks to the driver needs the secret of this run; only where it is alone Spark makes that itself.
    return {**_LOOPBACK, "spark.authenticate": "true", "spark.local.dir": str(scratch), **sockets}
