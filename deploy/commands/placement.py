"""The command `headgate placement`: from live data, where a cluster's namespaces may place their data."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import typer
from prometheus_client import CollectorRegistry

from connectors.collection.poll_metrics import PollMetrics
from connectors.isolation.bookie_collector import BookieCollector
from connectors.isolation.pulsar_bookies import PulsarBookieCollector
from connectors.isolation.zookeeper_bookies import ZooKeeperBookieCollector
from deploy.commands.broker_policies import counted_lines, lines, plain, policies_of
from deploy.commands.console import SafeConsole
from deploy.commands.namespaces import require_namespace
from deploy.commands.placement_view import bookie_table, overview, summary
from deploy.processes.connections import Connections
from deploy.settings.application import Settings
from policies.errors import UserError
from policies.isolation import IsolationSettings
from policies.isolation.fold import fold
from policies.isolation.judge.placements import PlacementJudgement, judge_placement
from policies.isolation.membership import BookieMembership
from policies.isolation.messages import explain_placement
from policies.isolation.readings import BookieAffinity, BrokerIsolation
from policies.isolation.settings import RuleSet
from policies.isolation.state import BookieClusterState, Cohort
from policies.isolation.what_if import HypotheticalChange, apply_changes
from policies.observations import Observation, Outcome, Reading


@dataclass(frozen=True)
class PlacementQuery:
    """What is asked, and of which cluster."""

    cluster: str
    namespace: str | None = None
    """None: all of them."""
    ensemble_size: int | None = None
    rules: RuleSet | None = None
    changes: tuple[HypotheticalChange, ...] = ()


def show_placement(settings: Settings, query: PlacementQuery, *, as_json: bool) -> None:
    """Read the cluster, and print where its data may lie.

    Raises:
        UserError: the cluster's bookies are not watched or cannot be read, or that is no namespace.
    """
    if query.namespace is not None:
        require_namespace(query.namespace)
    readings = read_cluster(settings, query.cluster)
    known = known_by(settings, query.cluster, readings)
    policies = next((r.broker_policies for r in readings if isinstance(r, BookieAffinity)), None)
    block: IsolationSettings = settings.policies.isolation
    own = block.for_cluster(query.cluster)
    in_force = own if query.rules is None else own.model_copy(update={"rules": query.rules})
    membership = apply_changes(known.membership(), query.changes)
    judged = [_judged(cohort, membership, in_force, query) for cohort in _asked(known, query.namespace)]
    if as_json:
        typer.echo(json.dumps([_plain(query.cluster, j, n, policies) for j in judged for n in j.namespaces]))
        return
    console = SafeConsole()
    if query.namespace is None:
        console.print(overview(query.cluster, judged))
    else:
        console.print(bookie_table(judged[0], membership, in_force))
    names = [name for j in judged for name in j.namespaces]
    brokers = lines(names[0], policies) if query.namespace is not None else counted_lines(names, policies)
    for line in (*summary(judged, membership), *brokers):
        console.print(line)


def known_by(settings: Settings, cluster: str, readings: Sequence[Reading]) -> BookieClusterState:
    """What readings of a cluster say.

    Raises:
        UserError: something could not be read.
    """
    failed = [f"{r.event_type}: {r.outcome.value}, {r.detail}" for r in readings if r.outcome is not Outcome.OK]
    if failed:
        raise UserError("\n".join(f"clusters.{cluster}: cannot be read ({line})" for line in failed))
    now = datetime.now(UTC)
    seen = [Observation(str(number), now, reading) for number, reading in enumerate(readings)]
    block: IsolationSettings = settings.policies.isolation
    return fold(BookieClusterState(), seen, block.for_cluster(cluster))


def read_cluster(settings: Settings, cluster: str) -> list[Reading]:
    """What can be read of a cluster at this moment.

    Raises:
        UserError: its bookies are not watched.
    """
    if cluster not in settings.clusters:
        raise UserError(f"--cluster: the settings name no cluster {cluster}; they name {', '.join(settings.clusters)}")
    watched, readings, metrics = settings.clusters[cluster], list[Reading](), PollMetrics(CollectorRegistry())
    with Connections(settings) as connections:
        zookeeper, pulsar = connections.zookeeper(cluster), connections.pulsar(cluster)
        collector: BookieCollector[Any]
        if watched.bookies is not None and zookeeper is not None:
            collector = ZooKeeperBookieCollector(cluster, watched.bookies, zookeeper, readings.append, metrics)
        elif watched.pulsar_bookies is not None and pulsar is not None:
            collector = PulsarBookieCollector(cluster, watched.pulsar_bookies, pulsar, readings.append, metrics)
        else:
            raise UserError(f"clusters.{cluster}.bookies: is not set, so nothing is known of its bookies")
        collector.poll_once()
        collector.poll_affinity_once()
    return readings


def _asked(known: BookieClusterState, namespace: str | None) -> Iterable[Cohort]:
    if namespace is None:
        return known.cohorts
    for cohort in known.cohorts:
        if namespace in cohort.namespaces:
            return [Cohort(cohort.primary, cohort.secondary, cohort.strict, cohort.ensemble_size, (namespace,))]
    return [Cohort((), (), None, None, (namespace,))]  # one without affinity says nothing of itself


def _judged(
    cohort: Cohort, membership: BookieMembership, settings: IsolationSettings, query: PlacementQuery
) -> PlacementJudgement:
    strict = cohort.strict if query.rules is None else None
    size = query.ensemble_size or cohort.ensemble_size
    asked = msgspec.structs.replace(cohort, strict=strict, ensemble_size=size)
    return judge_placement(asked, membership, settings)


def _plain(
    cluster: str, judged: PlacementJudgement, namespace: str, policies: Sequence[BrokerIsolation] | None
) -> dict[str, Any]:
    """With the names that `headgate.placement.v1` has; and which brokers serve it, null where that is not known."""
    return {
        "cluster": cluster,
        "namespace": namespace,
        "verdict": judged.verdict.value,
        "reason": judged.reason.value,
        "explanation": f"{namespace} {explain_placement(judged)}.",
        "rules": judged.rules.value,
        "promise": judged.promise.value,
        "ensemble_size": judged.ensemble_size,
        "tier": judged.placed.tier.value,
        "feasible": judged.placed.feasible,
        "candidates": judged.candidates,
        "promised_candidates": judged.promised_candidates,
        "promised_feasible": judged.promised.feasible,
        "leak": judged.leak,
        "headroom": judged.placed.headroom,
        "broker_policies": None if policies is None else [plain(own) for own in policies_of(namespace, policies)],
    }
