"""`make demo-pulsar`: real bookies on small disks fill up; publishing is slowed until there is space again."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from connectors.component import Component
from deploy.console.terminal import sentence_console
from deploy.demo.run import DemoFailedError, Workplace, following_reports, run_story
from deploy.demo.story import Screen
from deploy.embedded.kafka import EmbeddedKafka
from deploy.processes.running import stop_on_signals
from deploy.processes.stack import run_whole
from deploy.query.components import SparkSessions
from deploy.settings.application import Settings
from policies.bookie_disks.readings import PublishApplication
from policies.units import UserError, human_bytes
from tests.system.disks import small_disk, why_not_mountable
from tests.system.pulsar import PulsarCluster
from tests.system.pulsar_demo_story import LOAD_BYTES_PER_SECOND, NAMESPACE, SOFT_USED, PulsarDirector
from tests.system.pulsar_jars import ensure_pulsar_jars, pulsar_folder
from tests.system.pulsar_load import pulsar_clients
from tests.system.pulsar_topics import call, create_namespace

_CLUSTER = "demo"
_BOOKIES = 3
"""Each ledger is striped over all of them, so that their disks fill evenly."""
_DISK_MEBIBYTES = 152
_FLOOR = 200_000
_LIMITS = {"soft": {"available_ratio_below": 1 - SOFT_USED}, "hard": {"available_ratio_below": 0.25}}
"""Lower than the default: 4 MB/s fill such a disk from 0.88 to 0.90 within a second, before a limit has its effect."""

_NEXT = "docs/bookie-disks.md has the measurements without Headgate, and the settings for your own clusters."


def main() -> int:
    """Run the demo and return the exit status."""
    try:
        return _run_demo()
    except (UserError, DemoFailedError, AssertionError) as error:  # the last is of a server that does not start
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def _run_demo() -> int:
    if (why := why_not_mountable()) is not None:
        raise UserError(f"The demo of Pulsar needs small disks: {why}.")
    terminal = Screen(sentence_console())
    plot = "bookies that fill up, slowed publishing and a recovery, on servers of its own"
    status = run_story(terminal, plot, partial(_run_story, terminal=terminal))
    if status == 0:
        terminal.step(_NEXT)
    return status


def _run_story(place: Workplace, *, terminal: Screen) -> bool:
    """Run servers and loop until the story ends or a signal comes; return whether the story has ended."""
    cache_dir = place.jars_dir.parent
    if not pulsar_folder(cache_dir).exists():
        terminal.step("fetching 156 MB of Pulsar's jars with Maven, once; this takes about a minute")
    pulsar_jars = ensure_pulsar_jars(cache_dir)
    with ExitStack() as stack:
        disks = [
            stack.enter_context(small_disk(place.folder / f"disk-{number}", mebibytes=_DISK_MEBIBYTES))
            for number in range(_BOOKIES)
        ]
        size = human_bytes(_DISK_MEBIBYTES * 1024 * 1024)
        terminal.step(f"{_BOOKIES} disks of {size} in memory (tmpfs)")
        kafka = EmbeddedKafka(place.folder / "loop", place.jars, heap_mebibytes=192)
        stack.callback(kafka.stop, grace_seconds=0)  # none of its data is kept
        kafka.start()
        servers = stack.enter_context(PulsarCluster(place.folder, pulsar_jars, pulsar_jars, bookies=0))
        urls = _start_servers(servers, disks)
        terminal.step(f"ZooKeeper, {_BOOKIES} bookies and a Pulsar broker ready on {servers.admin_url}")
        gateway = stack.enter_context(pulsar_clients(pulsar_jars))
        stop = stop_on_signals()
        director = PulsarDirector(servers, gateway, disks, terminal, stop)
        settings = _make_settings(place, kafka, servers.admin_url, urls)
        more = (Component("demo", director.run), following_reports(settings, PublishApplication, terminal.step))
        sessions = stack.enter_context(closing(SparkSessions(settings)))
        run_whole(settings, terminal, sessions, stop, lambda _: more)
        return director.is_over


def _start_servers(servers: PulsarCluster, disks: Sequence[Path]) -> dict[str, str]:
    """Start a bookie on each disk, and a broker; return the HTTP server of each bookie, by its id."""
    urls = {}
    for disk in disks:
        bookie, url = servers.add_http_bookie(
            ledgerDirectories=disk / "ledgers", diskUsageThreshold="0.95", diskUsageWarnThreshold="0.90",
            diskCheckInterval=500, gcWaitTime=1000, logSizeLimit=4 * 1024 * 1024,
        )  # fmt: skip
        urls[bookie.bookie_id] = url
    copies = {f"managedLedgerDefault{which}Quorum": 2 for which in ("Write", "Ack")}
    # Small ledgers, so that a deleted topic leaves whole entry logs without data.
    small = {"managedLedgerMaxEntriesPerLedger": 10, "backlogQuotaDefaultLimitGB": -1, "allowAutoTopicCreation": "true"}
    servers.add_broker(ensemble_size=_BOOKIES, properties=copies | small)
    create_namespace(servers, NAMESPACE)
    for_ever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    call(servers, "POST", f"/admin/v2/namespaces/{NAMESPACE}/retention", for_ever)
    return urls


def _make_settings(place: Workplace, kafka: EmbeddedKafka, admin_url: str, bookie_urls: dict[str, str]) -> Settings:
    """Make the settings of a loop that watches the bookies and sets publish rates, with short intervals."""
    entry = next(iter(bookie_urls.values()))
    cluster = {
        "pulsar": {"admin_url": admin_url},
        "bookie_disks": {"bookie_url": entry, "urls": bookie_urls, "poll_interval": "500ms"},
        "publish": {"by": "namespace", "base": LOAD_BYTES_PER_SECOND, "floor_bytes_per_second": _FLOOR},
    }
    return place.settings(
        kafka={"bootstrap_servers": kafka.bootstrap_servers},
        clusters={_CLUSTER: cluster},
        policies={"bookie_disks": {"ensemble": _BOOKIES, "min_hold": "5s", **_LIMITS}},
    )


if __name__ == "__main__":
    sys.exit(main())
