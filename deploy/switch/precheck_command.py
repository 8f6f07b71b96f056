"""Answers `headgate switch precheck`: from live data, read once, writing nothing."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer
from msgspec import structs

from connectors.bookkeeper.settings import BookKeeperClusters
from connectors.switching.cluster_sessions import ClusterSessions
from connectors.switching.precheck_snapshot import SnapshotResult, take_snapshot
from connectors.zookeeper.connection import ZooKeeperConnection
from deploy.console import SafeConsole
from deploy.settings import Settings, WatchedCluster
from deploy.switch.precheck_view import report_lines
from policies.errors import UserError
from policies.switching.precheck.findings import explain
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
        taken = take_snapshot(
            sessions.brokers,
            sessions.metadata_of(clusters.source),
            metadata,
            clusters.bootstrap,
            rules,
            sessions.leave_out,
        )
    return Checked(cluster, precheck(taken.snapshot, rules, time.time_ns() // 1_000_000), taken)


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
        yield {**structs.asdict(finding), "remedy": explain(finding)}
