"""Spark's configuration, each property with its reason; the measurements are in docs/performance.md.

Precedence, highest first: `FIXED_PROPERTIES`, the settings file, the launcher (`spark-submit --conf`,
spark-defaults.conf), `TUNING`.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from streaming.settings import FILE_MANAGERS, FIXED_PROPERTIES, StreamSettings, is_local, is_on_this_machine

PYTHON = "spark.pyspark.python"
"""The property that names the executors' Python."""

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LONGEST_SOCKET_FOLDER = 60
"""Characters. A socket's name adds 43, and Spark refuses a path that is too long for macOS."""

TUNING = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "20",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        # Only our own user may read state and offsets.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # Keeps passwords out of logged plans and stack traces.
        "spark.redaction.regex": "(?i)secret|password|token|jaas|truststore|keystore",
    }
)
"""Defaults that users may override."""

SMALL_BATCH_TUNING = MappingProxyType(
    {
        # Each batch has a new plan. Generating Java for it, and looking up the compiled class, costs more than it saves
        # for a few thousand rows.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # The plan is the same each time: it need not be written out for a page that nobody serves, nor checked after
        # each rule.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.lightweightPlanChangeValidation": "false",
    }
)
"""Defaults for the query alone, which users may override; a join of a million rows needs Spark's own."""

_PLAIN_FLAG = re.compile(r"[^\s\"'\\]+")
_LOOPBACK = MappingProxyType({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
"""Without executors on other machines nothing needs to listen for them."""

_ADDED_TO = {"spark.jars": ",", "spark.driver.extraClassPath": os.pathsep, "spark.driver.extraJavaOptions": " "}
"""Properties to which the settings file adds, and the separator."""

_JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # One compiler has 48 MiB for compiled code by default. The query fills that in minutes; from then on code would be
    # discarded and compiled again all the time.
    "-XX:ReservedCodeCacheSize=160m",
    # Classes take 150 MiB; each growth from the default of 21 MiB costs a full collection.
    "-XX:MetaspaceSize=192m",
    "-Xss8m",
    "-Djava.net.preferIPv4Stack=true",
)
NO_PERF_DATA = "-XX:-UsePerfData"  # no file in /tmp, which a killed JVM would leave there


def launch_properties(
    settings: StreamSettings, jars: Sequence[Path], log_file: Path, scratch: Path | None = None
) -> dict[str, str]:
    """Return the properties that the driver's JVM needs at its start; `scratch` is for its temporary files."""
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
        # Not `spark.jars`, which would copy each jar into a temporary folder first.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(map(_quote, flags)),
        # Spark takes this process for a shell, and would draw a progress bar five times a second.
        "spark.ui.showConsoleProgress": "false",
    }
    if not is_local(settings.master):
        options["spark.jars"] = ",".join(map(str, jars))  # executors get them from the driver
    for name, value in settings.spark.items():
        ours = options.get(name) if name in _ADDED_TO else None
        options[name] = f"{ours}{_ADDED_TO[name]}{value}" if ours else value
    return options


def _quote(flag: str) -> str:
    """Quote a flag of the JVM as Spark's launcher reads it: paths may have blanks and quotes."""
    if _PLAIN_FLAG.fullmatch(flag):
        return flag
    escaped = flag.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def session_properties(
    settings: StreamSettings, master: str, given: Mapping[str, str], scratch: Path
) -> dict[str, str]:
    """Return the properties of the session, beyond those `given` by the launcher and the settings file."""
    place = settings.checkpoint
    manager = FILE_MANAGERS.get("file" if place is None else place.scheme)
    here = _LOOPBACK if is_on_this_machine(master) else {}
    proposed = {**TUNING, **here, **({} if manager is None else {_FILE_MANAGER: manager})}
    return {
        **{name: value for name, value in proposed.items() if name not in given},
        **FIXED_PROPERTIES,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        **(_local_properties(str(scratch)) if is_local(master) else {}),
    }


def _local_properties(folder: str) -> dict[str, str]:
    sockets = {
        # Python workers use a socket file instead of TCP, which would need a secret.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": folder,
    }
    return {
        **_LOOPBACK,
        # Clients of the driver need the secret of this run, which Spark makes itself only in local mode.
        "spark.authenticate": "true",
        "spark.local.dir": folder,
        # The workers look for the state's socket in lower case.
        **(sockets if len(folder) <= _LONGEST_SOCKET_FOLDER and folder == folder.lower() else {}),
    }
