"""Runs the demo: its servers, the whole loop as `headgate run` runs it, producers, and the script of the demo."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

import connectors.kafka.log_dirs
from connectors.collection.poll_metrics import PollMetrics
from connectors.component import Component
from connectors.kafka.log_dirs import LogDirsCollector
from connectors.kafka.publisher import Publisher, observations_to
from connectors.kafka.topic_admin import create_topics
from connectors.version import VERSION
from deploy.commands.console import sentence_console
from deploy.demo.ending import Ending, own_folder
from deploy.demo.followers import AuditFollower, QuotaFollower
from deploy.demo.part import DemoFailedError, DemoPart
from deploy.demo.screen import Screen
from deploy.demo.servers import Servers, running_servers
from deploy.demo.story import DemoSizes
from deploy.demo.volume import DemoVolume, small_volume
from deploy.demo.words import NEXT, how_it_is_limited
from deploy.java.jars import default_cache_dir, fetch_jars
from deploy.java.jvm import find_java
from deploy.processes.act import Actuators
from deploy.processes.connections import Connections
from deploy.processes.exporting import exporting
from deploy.processes.logs import set_up_logging
from deploy.processes.running import new_registry, publishing, run_parts, serving
from deploy.query.components import query_parts
from deploy.query.spark_sessions import SparkSessions
from deploy.settings.application import Settings
from policies.errors import UserError
from policies.observations import Reading
from policies.registry import AUDIT, topic_of
from policies.throttle import LogDirs

CLUSTER = "demo"

_MEGABYTE = 1_000_000
SIZES = DemoSizes(total=250 * _MEGABYTE, soft=150 * _MEGABYTE, hard=80 * _MEGABYTE, load=8 * _MEGABYTE)

_SPACE_BYTES = 400 * _MEGABYTE
"""What the folder of a volume that is no disk of its own must have, with room to spare."""


class DemoSettings(Settings):
    """Settings without the environment: what is set there is for other clusters than the demo's."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings passes all of these
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given here, and nothing else."""
        return (init_settings,)


def run_demo(*, mounts: bool, picture: Path | None) -> int:
    """Play it, and give the exit status.

    Args:
        mounts: whether this process has mounts of its own.
        picture: a file for a picture of what there was to see.

    Raises:
        UserError: Java, jars or space are missing, or a server does not start.
        DemoFailedError: the story did not come to its end.
    """
    find_java()
    ending, screen = Ending(), Screen(sentence_console(), SIZES)
    screen.step(f"headgate {VERSION}: a fill, a throttle, a stop and a recovery, on brokers of its own")
    with own_folder() as folder, (folder / "demo.log").open("w") as log:
        set_up_logging(to=log)
        jars_dir = Path(os.environ.get("HEADGATE_JARS_DIR") or default_cache_dir())
        jars, _ = fetch_jars(("kafka", "spark"), jars_dir, screen.step)
        with small_volume(folder / "disk", SIZES.total, mounts=mounts) as volume:
            _require_space(volume)
            screen.step(how_it_is_limited(volume))
            with _log_kept(folder / "demo.log"):
                is_over = _play(folder, jars_dir, jars, volume, screen, ending)
            if is_over and picture is not None:
                screen.save_picture(picture)
    screen.step("stopped; nothing of it is left on this machine but the fetched jars")
    if is_over:
        screen.tell(NEXT)
    return 0 if is_over else ending.status or 1


@contextmanager
def _log_kept(log: Path) -> Iterator[None]:
    """Where the story fails, the log is kept and named."""
    try:
        yield
    except DemoFailedError as error:
        kept = Path(tempfile.gettempdir()) / "headgate-demo.log"
        shutil.copyfile(log, kept)
        raise DemoFailedError(f"{error} Its log: {kept}") from None


def _play(
    folder: Path, jars_dir: Path, jars: tuple[Path, ...], volume: DemoVolume, screen: Screen, ending: Ending
) -> bool:
    """Run servers and loop until the story is over or a signal came; whether it is over."""
    with ExitStack() as stack:
        sessions = SparkSessions(DemoSettings(data_dir=folder / "data", jars_dir=jars_dir))
        stack.callback(sessions.close)
        servers = stack.enter_context(running_servers(folder, volume, jars))
        servers.create_topic()
        screen.step(f"a broker on that disk ready on {servers.watched.bootstrap_servers}")
        screen.step(f"a broker for Headgate's own topics ready on {servers.loop.bootstrap_servers}")
        settings = _settings(folder, jars_dir, servers)
        create_topics(settings.loop_kafka(), settings.topics)
        screen.step("starting the loop: collector, Spark query, quota actuator")
        registry = new_registry()
        publisher = stack.enter_context(publishing(settings, registry))
        connections = stack.enter_context(Connections(settings))
        quota = QuotaFollower(servers.watched.bootstrap_servers)
        audit = AuditFollower(settings.loop_kafka(), settings.topics.topic(AUDIT), screen.carried_out)
        demo = DemoPart(SIZES, servers, volume, lambda: quota.quota, screen)
        export = exporting(settings, registry, publisher, demo.decided)
        actuators = Actuators(settings, registry, publisher, connections)
        parts = [
            Component("demo", lambda stop: demo.run(stop, ending.stop.set)),
            _collector(settings, registry, publisher, volume),
            *query_parts(settings, registry, sessions, publisher, _alone),
            *actuators.parts_of("throttle", frozenset({CLUSTER}), registry, _alone),
            *export.parts,
            Component("quota follower", quota.run),
            Component("audit follower", audit.run),
        ]
        server = stack.enter_context(serving(settings, registry, parts, export.site))
        screen.step(f"while it runs, the status page is at {settings.http.url(server.port)}/")
        ending.in_order = True
        run_parts(parts, ending.stop, on_ready=demo.open)
        return demo.is_over


def _alone(*_cluster: str) -> bool:
    """Nobody else decides or acts here."""
    return True


def _settings(folder: Path, jars_dir: Path, servers: Servers) -> Settings:
    """Those of a loop that watches the one broker, and acts. What a user would write, but for the pace."""
    entity = {"client_id": "default", "base": SIZES.load}
    watched = {"bootstrap_servers": servers.watched.bootstrap_servers, "poll_interval": "500ms", "timeout": "500ms"}
    limits = {
        "soft": {"available_bytes_below": SIZES.soft},
        "hard": {"available_bytes_below": SIZES.hard},
        "min_hold": "5s",
    }
    given: dict[str, Any] = {
        "data_dir": folder / "data",
        "jars_dir": jars_dir,
        "kafka": {"bootstrap_servers": servers.loop.bootstrap_servers},
        "clusters": {CLUSTER: {"kafka": watched, "quotas": {"entities": [entity]}}},
        "policies": {"throttle": limits},
        "http": {"port": 0},
        "canary": False,
    }
    return DemoSettings(**given)


def _collector(settings: Settings, registry: CollectorRegistry, publisher: Publisher, volume: DemoVolume) -> Component:
    """The collector; of a folder that is no disk of its own it tells what the demo counts."""
    topic = settings.topics.topic(topic_of(LogDirs))
    publish = observations_to(publisher.publish, topic, connectors.kafka.log_dirs.SOURCE)
    seen = publish if volume.is_disk else _counted(publish, volume)
    collector = LogDirsCollector(CLUSTER, settings.clusters[CLUSTER].kafka, seen, PollMetrics(registry))
    return Component("collector", collector.run)


def _counted(publish: Callable[[Reading], None], volume: DemoVolume) -> Callable[[Reading], None]:
    """With the volume's size and space in place of those of the disk that the folder lies on."""

    def counted(reading: Reading) -> None:
        if isinstance(reading, LogDirs):
            size = {"total_bytes": volume.total_bytes, "usable_bytes": volume.free_bytes()}
            reading = reading.model_copy(update={"volumes": tuple(v.model_copy(update=size) for v in reading.volumes)})
        publish(reading)

    return counted


def _require_space(volume: DemoVolume) -> None:
    found = os.statvfs(volume.folder)
    if not volume.is_disk and found.f_bavail * found.f_frsize < _SPACE_BYTES:
        raise UserError(
            f"{volume.folder.parent.parent} has less than {_SPACE_BYTES // _MEGABYTE} MB free, which the demo needs: "
            "name another folder in TMPDIR"
        )
