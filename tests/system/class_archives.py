"""Archives of the classes that Spark and Kafka load: a JVM maps one, instead of reading and checking each class anew.

With it both need half the processor time until they are ready, and nearly every test here waits for one of them. They
are made once a machine, beside the jars (240 MB), by one run of both: `python -m tests.system.class_archives`. Without
them all goes as it does elsewhere; one that does not fit, after an upgrade of Java, the JVM leaves aside by itself.
"""

import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

from deploy import embedded
from deploy.embedded import EmbeddedKafka
from deploy.jars import default_cache_dir, ensure_jars
from deploy.jvm import find_java
from policies.errors import UserError
from tests.system.loop import Headgate, await_ready, command_line, is_running, write_settings
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

_SPARK_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's own name for flags of the JVM that `spark-submit` starts."""
_QUIET = "-Xlog:cds=off"


def use() -> None:
    """Have this process and those it starts take what archives there are."""
    if (spark := _archive("spark")).exists():
        os.environ[_SPARK_OPTIONS] = f"-XX:SharedArchiveFile={spark} {_QUIET}"
    if (kafka := _archive("kafka")).exists():
        embedded._JVM_FLAGS = (*embedded._JVM_FLAGS, f"-XX:SharedArchiveFile={kafka}", _QUIET)


def make() -> None:
    """Make those that are missing; nothing where Java or the jars are not to be had, which the tests then say."""
    try:
        find_java()
        jars = ensure_jars("kafka", default_cache_dir())
        ensure_jars("spark", default_cache_dir())
    except UserError:
        return
    archives = [_archive("spark"), _archive("kafka")]
    if all(archive.exists() for archive in archives):
        return
    print("making archives of Spark's and Kafka's classes (once)", flush=True)  # noqa: T201
    archives[0].parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archives[0].parent) as folder:
        made = [Path(folder) / archive.name for archive in archives]
        _run_both(Path(folder), jars, *made)
        for new, archive in zip(made, archives, strict=True):
            if new.exists():
                new.replace(archive)


def _archive(name: str) -> Path:
    """Where the archive is for this Java and these jars; the JVM compares them once more."""
    spark = Path(pyspark.__file__).parent / "jars"
    folders = [default_cache_dir() / name, *([spark] if name == "spark" else [])]
    jars = sorted(f"{jar} {jar.stat().st_size}" for folder in folders for jar in folder.glob("*.jar"))
    of = hashlib.sha256("\n".join([str(Path(shutil.which("java") or "").resolve()), *jars]).encode())
    return default_cache_dir().parent / "class-archives" / f"{name}-{of.hexdigest()[:16]}.jsa"


def _run_both(folder: Path, jars: Sequence[Path], spark: Path, kafka: Path) -> None:
    """A loop that is ready has loaded what every loop does; each JVM writes its archive when it ends in order."""
    broker = EmbeddedKafka(folder / "broker", jars, jvm_flags=_writes(kafka))
    broker.start()
    try:
        port = free_port()
        settings = {
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            "data_dir": str(folder / "data"),
            "http": {"port": port},
            "clusters": {"c": {"kafka": {"bootstrap_servers": broker.bootstrap_servers, "poll_interval": "500ms"}}},
            "policies": {"throttle": {"hard": {"available_bytes_below": 1}}},
        }
        file = write_settings(folder / "headgate.yaml", **settings)
        flags = {_SPARK_OPTIONS: " ".join(_writes(spark))}
        with Headgate(["run", "-s", str(file)], folder / "run.log", flags) as headgate:
            await_ready(headgate, port)
            (jvm,) = [pid for pid in headgate.children() if _is_java(pid)]
            os.kill(headgate.process.pid, signal.SIGKILL)  # its JVM then ends in order, in its own time
            headgate.process.wait()
            eventually("Spark's classes are archived", lambda: not is_running(jvm))
    finally:
        broker.stop(grace_seconds=120)


def _writes(archive: Path) -> tuple[str, ...]:
    return (f"-XX:ArchiveClassesAtExit={archive}", _QUIET)


def _is_java(pid: int) -> bool:
    return b"java" in command_line(pid)[:200]


if __name__ == "__main__":
    make()
