"""Spark's configuration. Each setting says what it is good for; the figures are in docs/performance.md.

Precedence, highest first: properties that decisions depend on (`RESTS_ON`), the settings file, the launcher
(`spark-submit --conf`, spark-defaults.conf), our tuning (`TUNING`).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from streaming.checkpoint_place import FILE_MANAGERS
from streaming.master import is_local, is_on_this_machine

if TYPE_CHECKING:
    from streaming.settings import StreamSettings

PYTHON = "spark.pyspark.python"
"""The property that says which Python executors run."""

_STATE = "spark.sql.streaming.stateStore"
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LONGEST_SOCKET_FOLDER = 60
"""Characters: a socket's name has 43 more, and Spark refuses what comes to more than macOS allows."""

RESTS_ON = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        # State in RocksDB; a commit writes only what changed, not a snapshot.
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        # Can't be changed later: Avro lets the state's schema evolve.
        f"{_STATE}.encodingFormat": "avro",
        # No batch without records: else one runs at each trigger for the timers, a whole core while nothing happens. A
        # tick makes one when a timer is due (`policies/timers.py`).
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
)
"""What nobody else may say: a checkpoint, and what is decided when, rests on it."""

TUNING = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        # State and offsets are for our own user alone.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # Keep what a stack trace or a plan could show of a password out of logs.
        "spark.redaction.regex": "(?i)secret|password|token|jaas|truststore|keystore",
    }
)
"""What others may say otherwise."""

OF_SMALL_BATCHES = MappingProxyType(
    {
        # A plan is made anew for each batch. To write Java for it, and to look up what that was compiled to, costs more
        # than the few thousand rows of a batch do without.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Nor is each plan written out at length for a page that nobody serves, or checked after each rule: it is one
        # plan, the same each time.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.lightweightPlanChangeValidation": "false",
    }
)
"""What others may say otherwise, of the query alone: a join of a million rows is better off with Spark's own."""

OF_ONE_PROCESS = MappingProxyType({"spark.python.daemon.module": "streaming.worker_daemon"})
"""What others may say otherwise, where our code is at hand before Spark sends it."""

_LOOPBACK = MappingProxyType({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
"""With no executors elsewhere nothing needs to listen for them."""

NAMED_ELSEWHERE = MappingProxyType(
    {
        "spark.master": "stream.master",
        "spark.driver.memory": "stream.driver_memory",
        "spark.sql.shuffle.partitions": "stream.shuffle_partitions",
        "spark.submit.deployMode": "how Headgate is started: as a process, or by spark-submit",
    }
)
"""Properties that have a setting of their own."""

_ADDED_TO = {"spark.jars": ",", "spark.driver.extraClassPath": os.pathsep, "spark.driver.extraJavaOptions": " "}
"""Properties that both we and the settings file say something of, and what is between."""

_JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # With one compiler there are 48 MiB for what it makes, less than the query comes to in minutes: from then on some
    # of it is always thrown away, and made again.
    "-XX:ReservedCodeCacheSize=160m",
    # Classes come to 150 MiB: to get there from 21 takes a full collection a step.
    "-XX:MetaspaceSize=192m",
    "-Xss8m",
    "-Djava.net.preferIPv4Stack=true",
)
NO_PERF_DATA = "-XX:-UsePerfData"  # a file in /tmp, which a killed JVM leaves there


def at_launch(
    settings: "StreamSettings",
    jars: Sequence[Path],
    log_file: Path,
    scratch: Path | None = None,
) -> dict[str, str]:
    """What the driver's JVM has to know when it is started.

    Args:
        settings: those of the query.
        jars: the Kafka connector and what it needs.
        log_file: where Spark's own log goes.
        scratch: where the JVM may leave files while it runs; None: where it does by itself.
    """
    log4j = Path(__file__).with_name("log4j2-spark.properties")
    flags = (
        *_JVM_FLAGS,
        NO_PERF_DATA,
        *(() if scratch is None else (f"-Djava.io.tmpdir={scratch}",)),
        f"-XX:ErrorFile={log_file.with_suffix('.crash')}",
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Dheadgate.spark.log={log_file}",
    )
    options = {
        "spark.master": settings.master,
        "spark.app.name": "headgate",
        "spark.driver.memory": settings.driver_memory,
        # On the class path at once: `spark.jars` would copy each jar into a temporary folder first.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(flags),
        # Said so early, as Spark takes us for a shell, where somebody looks at a bar that is drawn five times a second.
        "spark.ui.showConsoleProgress": "false",
    }
    if not is_local(settings.master):
        options["spark.jars"] = ",".join(map(str, jars))  # executors get them from the driver
    for name, value in settings.spark.items():
        ours = options.get(name) if name in _ADDED_TO else None
        options[name] = f"{ours}{_ADDED_TO[name]}{value}" if ours else value
    return options


def in_force(settings: "StreamSettings", master: str, given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """What the session is told beside what its JVM was.

    Args:
        settings: those of the query.
        master: where it runs.
        given: what whoever started us, or the settings file, said.
        scratch: where Spark may leave files while it runs.
    """
    place = settings.checkpoint
    manager = FILE_MANAGERS["file"] if place is None else place.file_manager
    here = _LOOPBACK if is_on_this_machine(master) else {}
    alone = OF_ONE_PROCESS if is_local(master) else {}
    proposed = {**TUNING, **alone, **here, **({} if manager is None else {_FILE_MANAGER: manager})}
    return {
        **{name: value for name, value in proposed.items() if name not in given},
        **RESTS_ON,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        **(_local(scratch) if is_local(master) else {}),
    }


def _local(scratch: Path) -> dict[str, str]:
    """What holds where all of Spark is in one process beside ours."""
    sockets = {
        # Python workers over a socket file instead of TCP, which would need a secret.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(scratch),
    }
    return {
        **_LOOPBACK,
        # Whoever speaks to the driver needs the secret of this run; only where it is alone Spark makes that itself.
        "spark.authenticate": "true",
        "spark.local.dir": str(scratch),
        **(sockets if _may_hold_sockets(str(scratch)) else {}),
    }


def _may_hold_sockets(folder: str) -> bool:
    """Whether Spark's Python workers find sockets there: they look for a state's socket in small letters."""
    return len(folder) <= _LONGEST_SOCKET_FOLDER and folder == folder.lower()
