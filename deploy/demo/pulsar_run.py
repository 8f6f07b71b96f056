"""`headgate demo --pulsar`: real bookies on small disks fill up; publishing is slowed until there is space again."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

import connectors.bookie_disks.collector
from connectors.bookie_disks.collector import BookieDisksCollector, WatchedBookieDisks
from connectors.collection.poll_metrics import PollMetrics
from connectors.component import Component
from connectors.exporter.version import VERSION
from connectors.kafka.publisher import Publisher, observations_to
from deploy.commands.terminal import Terminal
from deploy.demo.ending import Shutdown, temporary_folder
from deploy.demo.followers import AuditFollower
from deploy.demo.pulsar_load import pulsar_clients
from deploy.demo.pulsar_servers import CLUSTER, ENSEMBLE, PulsarServers, running_pulsar
from deploy.demo.pulsar_story import LOAD_BYTES_PER_SECOND, SOFT_USED, PulsarDirector
from deploy.demo.run import DemoSettings, keep_log_of_failure, run_loop
from deploy.demo.volume import small_volume
from deploy.embedded.kafka import EmbeddedKafka
from deploy.java.jars import default_cache_dir, fetch_jars
from deploy.java.jvm import find_java
from deploy.java.pulsar_jars import ensure_pulsar_jars, pulsar_folder
from deploy.processes.logs import set_up_logging
from deploy.query.spark_sessions import SparkSessions
from deploy.settings.application import Settings
from policies.bookie_disks import BookieDisks
from policies.bookie_disks.publish_events import PublishApplication
from policies.errors import UserError
from policies.registry import observed_topic
from policies.units import human_bytes

_BOOKIES = 3
_DISK_BYTES = 160_000_000
_FLOOR = 200_000
_LIMITS = {"soft": {"available_ratio_below": 1 - SOFT_USED}, "hard": {"available_ratio_below": 0.25}}
"""Lower than the default: 4 MB/s fill such a disk from 0.88 to 0.90 within a second, before a limit has its effect."""

_NEXT = "docs/bookie-disks.md has the measurements without Headgate, and the settings for your own clusters."


def run_pulsar_demo(*, mounts: bool) -> int:
    """Run the demo and return the exit status.

    Args:
        mounts: whether this process has a mount namespace of its own.

    Raises:
        UserError: Java, Maven, jars or disks are missing, or a server does not start.
        DemoFailedError: the story did not reach its end.
    """
    find_java()
    if not mounts:
        raise UserError("The demo of Pulsar needs small disks, and this system does not allow mounting any: be root.")
    shutdown, terminal = Shutdown(), Terminal()
    terminal.step(f"headgate {VERSION}: bookies that fill up, slowed publishing and a recovery, on servers of its own")
    with temporary_folder() as folder, (folder / "demo.log").open("w") as log:
        set_up_logging(to=log)
        jars_dir = Path(os.environ.get("HEADGATE_JARS_DIR") or default_cache_dir())
        jars, _ = fetch_jars(("kafka", "spark"), jars_dir, terminal.step)
        if not pulsar_folder(jars_dir.parent).exists():
            terminal.step("fetching 156 MB of Pulsar's jars with Maven, once; this takes about a minute")
        pulsar_jars = ensure_pulsar_jars(jars_dir.parent)
        with ExitStack() as stack:
            stack.enter_context(keep_log_of_failure(folder / "demo.log"))
            disks = [
                stack.enter_context(small_volume(folder / f"disk-{number}", _DISK_BYTES, mounts=True))
                for number in range(_BOOKIES)
            ]
            terminal.step(f"{_BOOKIES} disks of {human_bytes(_DISK_BYTES)} in memory (tmpfs), for this process alone")
            kafka = stack.enter_context(_running_kafka(folder / "loop", jars))
            servers = stack.enter_context(running_pulsar(folder, pulsar_jars, [disk.folder for disk in disks]))
            terminal.step(f"ZooKeeper, {_BOOKIES} bookies and a Pulsar broker ready on {servers.admin_url}")
            gateway = stack.enter_context(pulsar_clients(pulsar_jars))
            director = PulsarDirector(servers, gateway, disks, terminal)
            settings = _make_settings(folder, jars_dir, kafka, servers)
            is_over = _run_story(settings, director, terminal, shutdown)
    terminal.step("stopped; only the fetched jars are left on this machine")
    if is_over:
        terminal.step(_NEXT)
    return 0 if is_over else shutdown.status or 1


@contextmanager
def _running_kafka(folder: Path, jars: tuple[Path, ...]) -> Iterator[EmbeddedKafka]:
    kafka = EmbeddedKafka(folder, jars, heap_mebibytes=192)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop(grace_seconds=0)


def _make_settings(folder: Path, jars_dir: Path, kafka: EmbeddedKafka, servers: PulsarServers) -> Settings:
    """Make the settings of a loop that watches the bookies and sets publish rates, with short intervals."""
    entry = next(iter(servers.bookie_urls.values()))
    cluster = {
        "pulsar": {"admin_url": servers.admin_url},
        "bookie_disks": {"bookie_url": entry, "urls": servers.bookie_urls, "poll_interval": "500ms"},
        "publish": {"by": "namespace", "base": LOAD_BYTES_PER_SECOND, "floor_bytes_per_second": _FLOOR},
    }
    given: dict[str, Any] = {
        "data_dir": folder / "data",
        "jars_dir": jars_dir,
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "clusters": {CLUSTER: cluster},
        "policies": {"bookie_disks": {"ensemble": ENSEMBLE, "min_hold": "5s", **_LIMITS}},
        "http": {"port": 0},
        "canary": False,
    }
    return DemoSettings(**given)


def _run_story(settings: Settings, director: PulsarDirector, terminal: Terminal, shutdown: Shutdown) -> bool:
    """Run the loop until the story ends or a signal comes; return whether the story has ended."""

    def watch(registry: CollectorRegistry, publisher: Publisher) -> Sequence[Component]:
        topic = settings.topics.topic(observed_topic(BookieDisks))
        publish = observations_to(publisher.publish, topic, connectors.bookie_disks.collector.SOURCE)
        cluster = settings.clusters[CLUSTER]
        watched, pulsar = cluster.setting(WatchedBookieDisks), cluster.pulsar
        assert watched is not None and pulsar is not None  # noqa: S101, PT018 - both are set above
        collector = BookieDisksCollector(CLUSTER, watched, pulsar, publish, PollMetrics(registry))
        return (Component("collector", collector.run),)

    follow = partial(AuditFollower, kind=PublishApplication, on_sentence=terminal.step)
    with closing(SparkSessions(settings)) as sessions:
        return run_loop(settings, sessions, "bookie_disks", director, terminal, follow, watch, shutdown)
