"""Archives of the classes that servers and Spark load: with one, a JVM needs half the processor time to start.

`python -m tests.system.class_archives` makes them once per machine, beside the jars (400 MB). Tests pass without them.
A JVM ignores an archive that does not fit, for example after an upgrade of Java.
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

from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, ensure_jars
from deploy.java.jvm import find_java
from deploy.java.pulsar_jars import ensure_pulsar_jars, pulsar_folder
from policies.errors import UserError
from tests.system import server
from tests.system.bookkeeper import init_cluster
from tests.system.loop import Headgate, await_ready, write_settings
from tests.system.processes import command_line, is_running
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_topics import create_namespace, produce
from tests.system.waiting import eventually
from tests.system.zookeeper import free_port

_SPARK_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark's own variable for flags of the JVM that `spark-submit` starts."""
_QUIET = "-Xlog:cds=off"
_SERVERS = {
    "zookeeper": "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    "bookie": "org.apache.bookkeeper.server.Main",
    "bookie-shell": "org.apache.bookkeeper.bookie.BookieShell",
    "pulsar": "org.apache.pulsar.PulsarBrokerStarter",
    "pulsar-set-up": "org.apache.pulsar.PulsarClusterMetadataSetup",
}
"""Main classes of the programs that `tests.system.server` starts, by the name of their archive."""


@cache
def use() -> None:
    """Let this process and its children start JVMs from the archives that exist."""
    for name, main_class in _SERVERS.items():
        if (archive := _archive(name)).exists():
            server.more_flags[main_class] = (f"-XX:SharedArchiveFile={archive}", _QUIET)
    if (spark := _archive("spark")).exists():
        os.environ[_SPARK_OPTIONS] = f"-XX:SharedArchiveFile={spark} {_QUIET}"


def make() -> None:
    """Make the missing archives; do nothing where Java or the jars cannot be had, because the tests report that."""
    with suppress(UserError):
        find_java()
        ensure_jars("spark", default_cache_dir())
        kafka = ensure_jars("kafka", default_cache_dir())
        _make(("spark",), lambda folder: _run_loop(folder, kafka))
        bookkeeper = ensure_jars("bookkeeper", default_cache_dir())
        pulsar = ensure_pulsar_jars(default_cache_dir().parent)
        _make(tuple(_SERVERS), lambda folder: _run_servers(folder, bookkeeper, pulsar))


def _make(names: Sequence[str], run: Callable[[Path], None]) -> None:
    """Call `run` with a new folder, and keep each `NAME.jsa` that it leaves there."""
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
    """The archive's path, which names this Java and these jars by a hash; the JVM compares them again."""
    if name in _SERVERS:
        folders = [default_cache_dir() / "bookkeeper", pulsar_folder(default_cache_dir().parent) / "jars"]
    else:
        folders = [default_cache_dir() / name, Path(pyspark.__file__).parent / "jars"]
    jars = sorted(f"{jar} {jar.stat().st_size}" for folder in folders for jar in folder.glob("*.jar"))
    key = hashlib.sha256("\n".join([str(Path(shutil.which("java") or "").resolve()), *jars]).encode())
    return default_cache_dir().parent / "class-archives" / f"{name}-{key.hexdigest()[:16]}.jsa"


def _run_loop(folder: Path, jars: Sequence[Path]) -> None:
    """Run a loop until it is ready; its JVM writes the archive when it ends in order."""
    with EmbeddedKafka(folder / "broker", jars) as broker:
        port = free_port()
        settings = {
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            "data_dir": str(folder / "data"),
            "http": {"port": port},
            "clusters": {"c": {"kafka": {"bootstrap_servers": broker.bootstrap_servers, "poll_interval": "500ms"}}},
            "policies": {"throttle": {"hard": {"available_bytes_below": 1}}},
        }
        file = write_settings(folder / "headgate.yaml", **settings)
        flags = {_SPARK_OPTIONS: " ".join(_writes(folder / "spark.jsa"))}
        with Headgate(["run", "-s", str(file)], folder / "run.log", flags) as headgate:
            await_ready(headgate, port)
            (jvm,) = [pid for pid in headgate.children() if b"java" in command_line(pid)[:200]]
            os.kill(headgate.process.pid, signal.SIGKILL)  # its JVM then ends in order, in its own time
            headgate.process.wait()
            eventually("Spark's classes are archived", lambda: not is_running(jvm))


def _run_servers(folder: Path, bookkeeper: Sequence[Path], pulsar: Sequence[Path]) -> None:
    """Run a Pulsar until it has stored a record; each of its servers writes an archive when it ends in order."""
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


if __name__ == "__main__":
    make()
