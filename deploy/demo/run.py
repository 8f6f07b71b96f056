"""Runs the demo: its servers, the whole loop as `headgate run` runs it, producers, and the story."""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

import connectors.kafka.log_dirs
from connectors.collection import PollMetrics
from connectors.component import Component
from connectors.exporter.exporter import VERSION
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.log_dirs import LogDirsCollector
from connectors.kafka.publisher import Publisher, observations_to
from connectors.kafka.topic_admin import create_topics
from deploy.console.logs import set_up_logging
from deploy.console.terminal import Terminal, sentence_console
from deploy.demo.load import AuditFollower, QuotaFollower
from deploy.demo.servers import DemoVolume, Servers, running_servers, small_volume
from deploy.demo.story import (
    NEXT,
    DemoFailedError,
    DemoSizes,
    Director,
    Screen,
    Shutdown,
    describe_volume,
    temporary_folder,
)
from deploy.java.jars import fetch_jars
from deploy.java.jvm import find_java
from deploy.processes.parts import Actuators, Connections, exporting
from deploy.processes.running import new_registry, publishing, run_components, serving
from deploy.query.components import SparkSessions, query_components
from deploy.settings.application import Settings
from deploy.settings.folders import default_cache_dir
from policies.decisions import Decision
from policies.observations import Reading
from policies.registry import AUDIT, observed_topic
from policies.throttle import LogDirs
from policies.throttle.readings import QuotaApplication
from policies.units import UserError

CLUSTER = "demo"

_MEGABYTE = 1_000_000
SIZES = DemoSizes(total=200 * _MEGABYTE, soft=140 * _MEGABYTE, hard=80 * _MEGABYTE, load=8 * _MEGABYTE)

_SPACE_BYTES = 350 * _MEGABYTE
"""Free space that the demo needs, with a margin, if its volume is only a folder."""


class DemoSettings(Settings):
    """Settings that ignore the environment, because variables there configure other clusters than the demo's."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings passes all of these
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only the arguments of the constructor."""
        return (init_settings,)


def run_demo(*, mounts: bool) -> int:
    """Run the demo and return the exit status.

    Args:
        mounts: whether this process has a mount namespace of its own.

    Raises:
        UserError: Java, jars or space are missing, or a server does not start.
        DemoFailedError: the story did not reach its end.
    """
    screen = Screen(sentence_console(), SIZES)
    plot = "a fill, a throttle, a stop and a recovery, on brokers of its own"
    status = run_story(screen, plot, partial(_run_story, mounts=mounts, screen=screen))
    if status == 0:
        screen.tell(NEXT)
    return status


@dataclass(frozen=True)
class Workplace:
    """What a demo works with."""

    folder: Path
    jars_dir: Path
    jars: tuple[Path, ...]
    """The jars of the loop's Kafka."""
    shutdown: Shutdown

    def settings(self, **given: Any) -> Settings:
        """Return settings of a loop whose data are here, and which nobody else needs to find."""
        given |= {"data_dir": self.folder / "data", "jars_dir": self.jars_dir, "http": {"port": 0}}
        return DemoSettings(**given)


def run_story(terminal: Terminal, plot: str, story: Callable[[Workplace], bool]) -> int:
    """Run a story in a temporary folder and return the exit status; keep its log if it fails.

    Args:
        plot: what the story shows, for its first line.
        story: runs until it ends or a signal comes; returns whether it has ended.
    """
    find_java()
    terminal.step(f"headgate {VERSION}: {plot}")
    shutdown = Shutdown()
    with temporary_folder() as folder, (folder / "demo.log").open("w") as log:
        set_up_logging(to=log)
        jars_dir = Path(os.environ.get("HEADGATE_JARS_DIR") or default_cache_dir())
        jars, _ = fetch_jars(("kafka", "spark"), jars_dir, terminal.step)
        try:
            is_over = story(Workplace(folder, jars_dir, jars, shutdown))
        except DemoFailedError as error:
            kept = Path(tempfile.gettempdir()) / "headgate-demo.log"
            shutil.copyfile(log.name, kept)
            raise DemoFailedError(f"{error} Its log: {kept}") from None
    terminal.step("stopped; only the fetched jars are left on this machine")
    return 0 if is_over else shutdown.status or 1


def _run_story(place: Workplace, *, mounts: bool, screen: Screen) -> bool:
    """Run servers and loop until the story ends or a signal comes; return whether the story has ended."""
    with ExitStack() as stack:
        volume = stack.enter_context(small_volume(place.folder / "disk", SIZES.total, mounts=mounts))
        _require_space(volume)
        screen.step(describe_volume(volume))
        sessions = stack.enter_context(closing(SparkSessions(place.settings())))
        servers = stack.enter_context(running_servers(place.folder, volume, place.jars))
        servers.create_topic()
        screen.step(f"a broker on that disk ready on {servers.watched.bootstrap_servers}")
        screen.step(f"a broker for Headgate's own topics ready on {servers.loop.bootstrap_servers}")
        settings = _settings(place, servers)
        quota = QuotaFollower(servers.watched.bootstrap_servers)
        director = Director(SIZES, servers, volume, lambda: quota.quota, screen)

        def watch(registry: CollectorRegistry, publisher: Publisher) -> Sequence[Component]:
            return (_collector(settings, registry, publisher, volume), Component("quota follower", quota.run))

        follow = partial(AuditFollower, kind=QuotaApplication, on_sentence=screen.show_action)
        return run_loop(settings, sessions, "throttle", director, screen, follow, watch, place.shutdown)


class Plot(Protocol):
    """Directs the load of a demo, and tells its story."""

    @property
    def is_over(self) -> bool:
        """Whether the story has ended."""

    def start_producers(self) -> None:
        """Start the load, once the loop is ready."""

    def show_decision(self, decision: Decision, caught_up: bool) -> None:
        """Take a new decision of the loop."""

    def run(self, stop: Event, over: Callable[[], None]) -> None:
        """Tell the story until its end or until `stop` is set; call `over` at the end."""


def run_loop(
    settings: Settings,
    sessions: SparkSessions,
    policy: str,
    director: Plot,
    terminal: Terminal,
    follow: Callable[[KafkaConnection, str], AuditFollower],
    watch: Callable[[CollectorRegistry, Publisher], Sequence[Component]],
    shutdown: Shutdown,
) -> bool:
    """Run the loop of one policy until the story ends or a signal comes; return whether the story has ended.

    `follow` makes the follower of the actuator's reports, `watch` the collector and what else the story needs.
    """

    def is_alone(*_cluster: str) -> bool:
        return True  # no other process decides or acts in the demo

    with ExitStack() as stack:
        create_topics(settings.loop_kafka(), settings.topics)
        terminal.step("starting the loop: collector, Spark query, actuator")
        registry = new_registry()
        publisher = stack.enter_context(publishing(settings, registry))
        publish = publisher.publish
        connections = stack.enter_context(Connections(settings))
        audit = follow(settings.loop_kafka(), settings.topics.topic(AUDIT))
        export = exporting(settings, registry, director.show_decision)
        actuators = Actuators(settings, registry, publisher, connections)
        components = [
            Component("demo", lambda stop: director.run(stop, shutdown.stop.set)),
            *watch(registry, publisher),
            *query_components(settings, registry, sessions, publisher, is_alone),
            *actuators.components_of(policy, frozenset({CLUSTER}), registry, publish, publish, is_alone),
            *export.components,
            Component("audit follower", audit.run),
        ]
        server = stack.enter_context(serving(settings, registry, components, export.site))
        terminal.step(f"while it runs, the status page is at {settings.http.url(server.port)}/")
        shutdown.in_order = True
        run_components(components, shutdown.stop, on_ready=director.start_producers)
        return director.is_over


def _settings(place: Workplace, servers: Servers) -> Settings:
    """The settings of a loop that watches the one broker and sets quotas, as a user would write them, but faster."""
    entity = {"client_id": "default", "base": SIZES.load}
    watched = {"bootstrap_servers": servers.watched.bootstrap_servers, "poll_interval": "500ms", "timeout": "500ms"}
    limits = {
        "soft": {"available_bytes_below": SIZES.soft},
        "hard": {"available_bytes_below": SIZES.hard},
        "min_hold": "5s",
    }
    return place.settings(
        kafka={"bootstrap_servers": servers.loop.bootstrap_servers},
        clusters={CLUSTER: {"kafka": watched, "quotas": {"entities": [entity]}}},
        policies={"throttle": limits},
    )


def _collector(settings: Settings, registry: CollectorRegistry, publisher: Publisher, volume: DemoVolume) -> Component:
    """The collector; if the volume is only a folder, its readings have the size and free space that the demo counts."""
    topic = settings.topics.topic(observed_topic(LogDirs))
    publish = observations_to(publisher.publish, topic, connectors.kafka.log_dirs.SOURCE)
    if not volume.is_disk:
        publish = _with_counted_space(publish, volume)
    collector = LogDirsCollector(CLUSTER, settings.clusters[CLUSTER].kafka, publish, PollMetrics(registry))
    return Component("collector", collector.run)


def _with_counted_space(publish: Callable[[Reading], None], volume: DemoVolume) -> Callable[[Reading], None]:
    """Replace the size and free space of the disk that holds the folder by those of the volume."""

    def publish_counted(reading: Reading) -> None:
        if isinstance(reading, LogDirs):
            size = {"total_bytes": volume.total_bytes, "usable_bytes": volume.free_bytes()}
            reading = reading.model_copy(update={"volumes": tuple(v.model_copy(update=size) for v in reading.volumes)})
        publish(reading)

    return publish_counted


def _require_space(volume: DemoVolume) -> None:
    found = os.statvfs(volume.folder)
    if not volume.is_disk and found.f_bavail * found.f_frsize < _SPACE_BYTES:
        raise UserError(
            f"{volume.folder.parent.parent} has less than {_SPACE_BYTES // _MEGABYTE} MB free, which the demo needs: "
            "set TMPDIR to another folder"
        )
