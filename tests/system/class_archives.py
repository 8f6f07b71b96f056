"""Archives of the classes that servers load: a JVM maps one, instead of reading and checking each class anew.

With it they need half the processor time until they are ready, and nearly every test here waits for one of them. They
are made once a machine, beside the jars (420 MB), by one run of all: `python -m tests.system.class_archives`. Without
them all goes as it does elsewhere; one that does not fit, after an upgrade of Java, the JVM leaves aside by itself.
"""

import hashlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyspark

from deploy.embedded import kafka as embedded
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from deploy.java.jvm import find_java
from policies.errors import UserError
from tests.system import server
from tests.system.bookkeeper import init_cluster
from tests.system.loop import Headgate, await_ready, write_settings
from tests.system.processes import command_line, is_running
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_jars import ensure_pulsar_jars, pulsar_folder
from tests.system.pulsar_topics import create_namespace, produce
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

_SPARK_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's own name for flags of the JVM that `spark-submit` starts."""
_QUIET = "-Xlog:cds=off"


_SERVERS = {
    "zookeeper": "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    "bookie": "org.apache.bookkeeper.server.Main",
    "bookie-shell": "org.apache.bookkeeper.bookie.BookieShell",
    "pulsar": "org.apache.pulsar.PulsarBrokerStarter",
    "pulsar-set-up": "org.apache.pulsar.PulsarClusterMetadataSetup",
}
"""What `tests.system.server` starts, by the name of its archive: its main class."""


@cache
def use() -> None:
    """Have this process and those it starts take what archives there are; once is enough."""
    for name, main_class in _SERVERS.items():
        if (archive := _archive(name)).exists():
            server.more_flags[main_class] = (f"-XX:SharedArchiveFile={archive}", _QUIET)
    if (spark := _archive("spark")).exists():
        os.environ[_SPARK_OPTIONS] = f"-XX:SharedArchiveFile={spark} {_QUIET}"
    if (kafka := _archive("kafka")).exists():
        embedded._JVM_FLAGS = (*embedded._JVM_FLAGS, f"-XX:SharedArchiveFile={kafka}", _QUIET)


def make() -> None:
    """Make those that are missing; nothing where Java or the jars are not to be had, which the tests then say."""
    with suppress(UserError):
        find_java()
        ensure_jars("spark", default_cache_dir())
        jars = ensure_jars("kafka", default_cache_dir())
        _make(("spark", "kafka"), lambda folder: _run_both(folder, jars, folder / "spark.jsa", folder / "kafka.jsa"))
        bookkeeper = ensure_jars("bookkeeper", default_cache_dir())
        pulsar = ensure_pulsar_jars(default_cache_dir().parent)
        _make(tuple(_SERVERS), lambda folder: _run_servers(folder, bookkeeper, pulsar))


def _make(names: Sequence[str], run: Callable[[Path], None]) -> None:
    """Make archives by what leaves them, `NAME.jsa` each, in a folder that it is given."""
    if all(_archive(name).exists() for name in names):
        return
    print(f"making archives of the classes of {', '.join(names)} (once)", flush=True)  # noqa: T201
    home = _archive(names[0]).parent
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        run(Path(folder))
        for name in names:
            if (new := Path(folder) / f"{name}.jsa").exists():
                new.replace(_archive(name))


def _archive(name: str) -> Path:
    """Where the archive is for this Java and these jars; the JVM compares them once more."""
    spark = Path(pyspark.__file__).parent / "jars"
    if name in _SERVERS:
        folders = [default_cache_dir() / "bookkeeper", pulsar_folder(default_cache_dir().parent) / "jars"]
    else:
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


def _run_servers(folder: Path, bookkeeper: Sequence[Path], pulsar: Sequence[Path]) -> None:
    """A Pulsar that has taken and given a record; those it is made of end in order."""
    server.more_flags.update({kind: _writes(folder / f"{name}.jsa") for name, kind in _SERVERS.items()})
    try:
        with PulsarCluster(folder / "pulsar", pulsar, bookkeeper, bookies=1) as cluster:
            init_cluster(folder / "init", bookkeeper, f"{cluster.zookeeper.servers}/other")
            cluster.add_broker(ensemble_size=1)
            create_namespace(cluster, "t/ns")
            produce(cluster, "t/ns/topic", 1)
            for each in (*cluster.brokers, *cluster.bookies, cluster.zookeeper):
                each.stop(grace_seconds=120)
    finally:
        server.more_flags.clear()


def _writes(archive: Path) -> tuple[str, ...]:
    return (f"-XX:ArchiveClassesAtExit={archive}", _QUIET)


def _is_java(pid: int) -> bool:
    return b"java" in command_line(pid)[:200]


if __name__ == "__main__":
    make()
