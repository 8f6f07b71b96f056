"""The command `headgate switch precheck`: reads live data once and judges it. It writes nothing."""

import json
import time
from dataclasses import dataclass, replace
from typing import Any

import typer
from msgspec import structs

from connectors.switching.cluster_sessions import ClusterSessions
from connectors.switching.precheck_snapshot import SnapshotResult, take_snapshot
from connectors.switching.registry import Registry
from connectors.switching.registry_view import RegistryView
from connectors.zookeeper.json_znodes import ZnodeError
from deploy.commands.console import SafeConsole
from deploy.settings.application import Settings
from deploy.switch.clusters import bookkeeper_clusters
from deploy.switch.precheck_view import report_lines
from policies.errors import UserError
from policies.switching.clusters import ClusterSnapshot
from policies.switching.precheck.findings import find_remedy
from policies.switching.precheck.report import PrecheckReport, precheck, to_reading
from policies.switching.readings import SwitchPrecheck


@dataclass(frozen=True, slots=True)
class Checked:
    """A precheck with the readings that it judged."""

    cluster: str
    """The broker cluster."""
    report: PrecheckReport
    taken: SnapshotResult

    @property
    def reading(self) -> SwitchPrecheck:
        """The report as the loop would publish it."""
        return to_reading(self.report, self.cluster)


def run_precheck(settings: Settings, cluster: str, target: str, *, as_json: bool, explained: bool) -> bool:
    """Check whether a broker cluster may switch to a BookKeeper cluster, and print the report.

    Returns:
        Whether the target is ready.

    Raises:
        UserError: the settings do not have the clusters' addresses, or not usable ones.
    """
    checked = check(settings, cluster, target)
    if as_json:
        typer.echo(json.dumps(plain_report(checked)))
    else:
        console = SafeConsole()
        for line in report_lines(checked.reading, checked.taken, explained=explained):
            console.print(line, highlight=False)
    return checked.report.ready


def check(settings: Settings, cluster: str, target: str) -> Checked:
    """Read both clusters and all references, and judge them. Raises as `run_precheck` does."""
    brokers, clusters = bookkeeper_clusters(settings, cluster)
    rules = settings.policies.switching.for_cluster(cluster).rules
    with ClusterSessions(cluster, brokers, clusters) as sessions:
        try:
            metadata = sessions.find_metadata(target)
        except UserError as error:
            raise UserError(f"--target: {error}") from None
        view, trouble = RegistryView(), tuple[str, ...]()
        try:
            view = Registry(sessions.brokers).read()  # its clusters override those of the settings
        except ZnodeError as error:
            trouble = (f"the registry: {error}",)
        taken = take_snapshot(
            sessions.brokers,
            sessions.find_metadata(view.committed() or clusters.source),
            metadata,
            view.bootstrap or clusters.bootstrap,
            rules,
            sessions.leave_out,
            {*sessions.names, *(each.name for each in view.clusters)},
        )
    taken = drop_impostors(taken, view, trouble)
    return Checked(cluster, precheck(taken.snapshot, rules, time.time_ns() // 1_000_000), taken)


def drop_impostors(taken: SnapshotResult, view: RegistryView, trouble: tuple[str, ...] = ()) -> SnapshotResult:
    """Mark a cluster as unknown if another identity answers at its address than is registered."""
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


def plain_report(checked: Checked) -> dict[str, Any]:
    """Return a precheck for a program."""
    report = checked.report
    return {
        "cluster": checked.cluster,
        **structs.asdict(report),
        "hits": {hit.value: structs.asdict(hits) for hit, hits in report.hits.items()},
        "findings": [{**structs.asdict(each), "remedy": find_remedy(each)} for each in report.findings],
        "staying": [structs.asdict(each) for each in report.staying],
        "references": len(checked.taken.snapshot.references),
        "problems": checked.taken.problems,
    }
