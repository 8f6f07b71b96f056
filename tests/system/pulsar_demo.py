"""`make demo-pulsar`: real bookies on small disks fill up; publishing is slowed until there is space again."""

from contextlib import ExitStack
from functools import partial

from connectors.component import Component
from deploy.demo.run import Workplace, following_reports, run_story
from deploy.demo.story import LoopTerminal
from deploy.demo.volume import small_volume
from deploy.embedded.kafka import EmbeddedKafka
from deploy.processes.stack import run_whole
from deploy.query.components import started_ahead
from deploy.settings.application import Settings
from policies.bookie_disks.readings import PublishApplication
from policies.units import UserError, human_bytes
from tests.system.pulsar_demo_servers import CLUSTER, ENSEMBLE, PulsarServers, running_pulsar
from tests.system.pulsar_demo_story import LOAD_BYTES_PER_SECOND, SOFT_USED, PulsarDirector
from tests.system.pulsar_jars import ensure_pulsar_jars, pulsar_folder
from tests.system.pulsar_load import pulsar_clients

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
    if not mounts:
        raise UserError("The demo of Pulsar needs small disks, and this system does not allow mounting any: be root.")
    terminal = LoopTerminal()
    plot = "bookies that fill up, slowed publishing and a recovery, on servers of its own"
    status = run_story(terminal, plot, partial(_run_story, terminal=terminal))
    if status == 0:
        terminal.step(_NEXT)
    return status


def _run_story(place: Workplace, *, terminal: LoopTerminal) -> bool:
    """Run servers and loop until the story ends or a signal comes; return whether the story has ended."""
    cache_dir = place.jars_dir.parent
    if not pulsar_folder(cache_dir).exists():
        terminal.step("fetching 156 MB of Pulsar's jars with Maven, once; this takes about a minute")
    pulsar_jars = ensure_pulsar_jars(cache_dir)
    with ExitStack() as stack:
        disks = [
            stack.enter_context(small_volume(place.folder / f"disk-{number}", _DISK_BYTES, mounts=True))
            for number in range(_BOOKIES)
        ]
        terminal.step(f"{_BOOKIES} disks of {human_bytes(_DISK_BYTES)} in memory (tmpfs), for this process alone")
        kafka = EmbeddedKafka(place.folder / "loop", place.jars, heap_mebibytes=192)
        stack.callback(kafka.stop, grace_seconds=0)  # none of its data is kept
        kafka.start()
        servers = stack.enter_context(running_pulsar(place.folder, pulsar_jars, [disk.folder for disk in disks]))
        terminal.step(f"ZooKeeper, {_BOOKIES} bookies and a Pulsar broker ready on {servers.admin_url}")
        gateway = stack.enter_context(pulsar_clients(pulsar_jars))
        stop = place.shutdown.stop
        director = PulsarDirector(servers, gateway, disks, terminal, stop)
        settings = _make_settings(place, kafka, servers)
        more = (Component("demo", director.run), following_reports(settings, PublishApplication, terminal.step))
        sessions = stack.enter_context(started_ahead(settings))
        place.shutdown.in_order = True
        run_whole(settings, terminal, sessions, stop, lambda _: more)
        return director.is_over


def _make_settings(place: Workplace, kafka: EmbeddedKafka, servers: PulsarServers) -> Settings:
    """Make the settings of a loop that watches the bookies and sets publish rates, with short intervals."""
    entry = next(iter(servers.bookie_urls.values()))
    cluster = {
        "pulsar": {"admin_url": servers.admin_url},
        "bookie_disks": {"bookie_url": entry, "urls": servers.bookie_urls, "poll_interval": "500ms"},
        "publish": {"by": "namespace", "base": LOAD_BYTES_PER_SECOND, "floor_bytes_per_second": _FLOOR},
    }
    return place.settings(
        kafka={"bootstrap_servers": kafka.bootstrap_servers},
        clusters={CLUSTER: cluster},
        policies={"bookie_disks": {"ensemble": ENSEMBLE, "min_hold": "5s", **_LIMITS}},
    )
