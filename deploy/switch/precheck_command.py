"""The command `headgate switch precheck`: judges live data, read once. It writes nothing."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import typer
from msgspec import structs

from connectors.bookkeeper.settings import BookKeeperClusters
from connectors.switching.cluster_sessions import ClusterSessions
from connectors.switching.precheck_snapshot import SnapshotResult, take_snapshot
from connectors.switching.registry import Registry, RegistryError
from connectors.switching.registry_view import RegistryView
from connectors.zookeeper.connection import ZooKeeperConnection
from deploy.commands.console import SafeConsole
from deploy.settings.application import Settings, WatchedCluster
from deploy.switch.precheck_view import report_lines
from policies.errors import UserError
from policies.switching.clusters import ClusterSnapshot
from policies.switching.precheck.findings import find_remedy
from policies.switching.precheck.report import PrecheckReport, precheck


@dataclass(frozen=True, slots=True)
class Checked:
    """A precheck, and what it rests on."""

    cluster: str
    """The broker cluster."""
    report: PrecheckReport
    taken: SnapshotResult


def run_precheck(settings: Settings, cluster: str, target: str, *, as_json: bool, explained: bool) -> bool:
    """Check whether a broker cluster may switch to a BookKeeper cluster, and print the report.

    Returns:
        Whether it is ready.

    Raises:
        UserError: the settings do not say where the clusters are, or what they say cannot be used.
    """
    checked = check(settings, cluster, target)
    if as_json:
        typer.echo(json.dumps(plain_report(checked)))
    else:
        console = SafeConsole()
        for line in report_lines(checked.report, checked.taken, explained=explained):
            console.print(line, highlight=False)
    return checked.report.ready


def check(settings: Settings, cluster: str, target: str) -> Checked:
    """Read everything now, and judge it; raises as `run_precheck` does."""
    brokers, clusters = named(settings, cluster)
    rules = settings.policies.switching.for_cluster(cluster).rules
    with ClusterSessions(cluster, brokers, clusters) as sessions:
        try:
            metadata = sessions.metadata_of(target)
        except UserError as error:
            raise UserError(f"--target: {error}") from None
        view, trouble = _registered(sessions)
        taken = take_snapshot(
            sessions.brokers,
            sessions.metadata_of(view.committed() or clusters.source),
            metadata,
            view.bootstrap or clusters.bootstrap,
            rules,
            sessions.leave_out,
            {*sessions.names, *(each.name for each in view.clusters)},
        )
    taken = as_registered(taken, view, trouble)
    return Checked(cluster, precheck(taken.snapshot, rules, time.time_ns() // 1_000_000), taken)


def _registered(sessions: ClusterSessions) -> tuple[RegistryView, tuple[str, ...]]:
    """The registry: what it says of clusters goes before the settings. And what is wrong with it."""
    try:
        return Registry(sessions.brokers).read(), ()
    except RegistryError as error:
        return RegistryView(), (f"the registry: {error}",)


def as_registered(taken: SnapshotResult, view: RegistryView, trouble: tuple[str, ...] = ()) -> SnapshotResult:
    """What was read, where it is what is registered; another cluster at an address is one that is not known."""
    seen, problems = taken.snapshot, [*trouble, *taken.problems]
    for field in ("source", "target"):
        cluster: ClusterSnapshot = getattr(seen, field)
        entry = view.cluster(cluster.name)
        found = (cluster.instance_id, (cluster.root or "").rstrip("/"))
        if entry is not None and cluster.instance_id and found != (entry.instance_id, entry.root.rstrip("/")):
            problems.append(
                f"{cluster.name}: {found[0]}{found[1]} answers, but {entry.instance_id}{entry.root} is registered"
            )
            unknown: dict[str, Any] = {field: structs.replace(cluster, instance_id=None, root=None)}
            seen = replace(seen, **unknown)
    complete = seen.references_complete and not trouble
    return SnapshotResult(replace(seen, references_complete=complete), tuple(problems))


def watched_cluster(settings: Settings, cluster: str) -> WatchedCluster:
    """The settings of a broker cluster.

    Raises:
        UserError: there are none.
    """
    if cluster not in settings.clusters:
        known = ", ".join(settings.clusters) or "none"
        raise UserError(f"--cluster: the settings name no cluster {cluster}; they name {known}")
    return settings.clusters[cluster]


def named(settings: Settings, cluster: str) -> tuple[ZooKeeperConnection, BookKeeperClusters]:
    """The ZooKeeper of a cluster's brokers, and the BookKeeper clusters they may write to.

    Raises:
        UserError: the settings do not say so.
    """
    watched = watched_cluster(settings, cluster)
    if watched.bookkeeper is None or watched.zookeeper is None:
        raise UserError(f"clusters.{cluster}.bookkeeper: is not set, so it is not known between which to switch")
    return watched.zookeeper, watched.bookkeeper


def plain_report(checked: Checked) -> dict[str, Any]:
    """A precheck for programs."""
    report = checked.report
    return {
        "cluster": checked.cluster,
        **structs.asdict(report),
        "hits": {hit.value: structs.asdict(hits) for hit, hits in report.hits.items()},
        "findings": list(_plain_findings(report)),
        "staying": [structs.asdict(each) for each in report.staying],
        "references": len(checked.taken.snapshot.references),
        "problems": checked.taken.problems,
    }


def _plain_findings(report: PrecheckReport) -> Iterator[dict[str, Any]]:
    for finding in report.findings:
        yield {**structs.asdict(finding), "remedy": find_remedy(finding)}
