"""`headgate disks`: the bookies by placement group, from live data and by the policy's own judge."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import typer
from prometheus_client import CollectorRegistry
from rich.table import Table

from connectors.bookie_disks.collector import BookieDisksCollector
from connectors.bookie_disks.registration import WatchedBookieDisks
from connectors.collection import PollMetrics
from deploy.console.terminal import SafeConsole
from deploy.policy_commands.placement import read_cluster
from deploy.settings.application import Settings
from policies.bookie_disks.fold import fold
from policies.bookie_disks.judge import GroupVerdict, judge_bookies, judge_group
from policies.bookie_disks.policy import describe_bookie
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksCluster, list_groups
from policies.observations import Observation, Outcome, Reading
from policies.units import UserError, counted, human_bytes, to_millis


def show_disks(settings: Settings, cluster: str, *, as_json: bool) -> None:
    """Read the cluster once, and print its groups. No hold of the loop counts here."""
    readings = _read(settings, cluster)
    bad = [r for r in readings if r.outcome is not Outcome.OK]
    if not any(isinstance(r, BookieDisks) and r.outcome is Outcome.OK for r in readings):
        raise UserError("\n".join(f"{r.subject()}: cannot be read ({r.outcome.value}, {r.detail})" for r in bad))
    block: BookieDisksSettings = settings.policy_settings()["bookie_disks"].for_cluster(cluster)  # type: ignore[assignment]
    verdicts = list(judge_now(readings, block, datetime.now(UTC)))
    if as_json:
        typer.echo(json.dumps([_as_json(verdict) for verdict in verdicts]))
        return
    console = SafeConsole()
    for verdict in verdicts:
        group = verdict.group
        console.print(
            f"group {group.name}: factor {verdict.raw_factor:.2f} ({verdict.raw_reason.value}), "
            f"{counted(group.count, 'namespace')}, ensembles of {group.ensemble}",
            soft_wrap=True,
        )
        console.print(_make_table(verdict))
    for reading in bad:
        console.print(f"{reading.subject()}: not read ({reading.outcome.value}, {reading.detail})")


def judge_now(readings: list[Reading], settings: BookieDisksSettings, now: datetime) -> Iterator[GroupVerdict]:
    """Judge each group by these readings alone."""
    seen = [Observation(f"{number}", now, reading) for number, reading in enumerate(readings)]
    known = fold(BookieDisksCluster(), seen)
    bookies = judge_bookies(known, settings, to_millis(now))
    for group in list_groups(known.placement, settings):
        yield judge_group(group, bookies, known, settings, to_millis(now), None)


def _read(settings: Settings, cluster: str) -> list[Reading]:
    sources = settings.watched(cluster)
    watched, pulsar = sources.setting(WatchedBookieDisks), sources.pulsar
    if watched is None or pulsar is None:
        raise UserError(f"clusters.{cluster}.bookie_disks: is not set, so the disks of its bookies are not watched")
    readings: list[Reading] = []
    metrics = PollMetrics(CollectorRegistry())
    with closing(BookieDisksCollector(cluster, watched, pulsar, readings.append, metrics)) as collector:
        collector.poll_once()
    has_groups = sources.bookies is not None or sources.pulsar_bookies is not None
    return [*readings, *(read_cluster(settings, cluster) if has_groups else ())]


def _make_table(verdict: GroupVerdict) -> Table:
    table = Table()
    for column in ("bookie", "fullest dir", "free", "of", "factor", ""):
        table.add_column(column, overflow="fold")
    for bookie in verdict.known:
        decides = "decides" if bookie is verdict.decisive else ""
        mode = "read-only " if bookie.state.is_read_only else ""
        fullest = ("", "", "")
        if bookie.tightest is not None:
            state = bookie.tightest.state
            fullest = (state.log_dir, human_bytes(state.usable_bytes), human_bytes(state.total_bytes))
        table.add_row(bookie.name, *fullest, f"{bookie.factor:.2f}", f"{mode}{decides}")
    return table


def _as_json(verdict: GroupVerdict) -> dict[str, Any]:
    return {
        "group": verdict.group.name,
        "factor": verdict.raw_factor,
        "reason": verdict.raw_reason.value,
        "ensemble": verdict.group.ensemble,
        "namespaces": verdict.group.count,
        "decides": verdict.decisive.name if verdict.decisive else None,
        "bookies": [describe_bookie(bookie) for bookie in verdict.known],
    }
