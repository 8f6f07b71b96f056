"""The command `headgate placement`: shows from live data where a cluster's namespaces may place their data."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import typer
from prometheus_client import CollectorRegistry

from connectors.collection.poll_metrics import PollMetrics
from connectors.isolation.registration import open_collector
from deploy.commands.console import SafeConsole
from deploy.policy_commands.isolation import require_namespace
from deploy.policy_commands.placement_view import (
    bookie_table,
    broker_lines,
    overview,
    policies_for,
    policy_lines,
    summary,
)
from deploy.processes.connections import Connections
from deploy.settings.application import Settings
from policies.bookie_readings import BookieAffinity, BrokerIsolation
from policies.errors import UserError
from policies.isolation import IsolationSettings
from policies.isolation.fold import fold
from policies.isolation.judge.placements import PlacementJudgement, judge_placement
from policies.isolation.messages import explain_placement
from policies.isolation.settings import RuleSet
from policies.isolation.state import BookieClusterState, Cohort, split_broker_groups
from policies.isolation.what_if import HypotheticalChange, apply_changes
from policies.observations import Observation, Outcome, Reading


@dataclass(frozen=True)
class PlacementQuery:
    """The options of the command."""

    cluster: str
    namespace: str | None = None
    """None for all namespaces."""
    ensemble_size: int | None = None
    rules: RuleSet | None = None
    changes: tuple[HypotheticalChange, ...] = ()


def show_placement(settings: Settings, query: PlacementQuery, *, as_json: bool) -> None:
    """Read the cluster once, and print where its namespaces may place their data.

    Raises:
        UserError: the cluster's bookies are not watched or cannot be read, or the namespace is not valid.
    """
    if query.namespace is not None:
        require_namespace(query.namespace)
    readings = read_cluster(settings, query.cluster)
    state = state_from(settings, query.cluster, readings)
    policies = next((r.broker_policies for r in readings if isinstance(r, BookieAffinity)), None)
    block: IsolationSettings = settings.policies.isolation
    own = block.for_cluster(query.cluster)
    in_force = own if query.rules is None else own.model_copy(update={"rules": query.rules})
    membership = apply_changes(state.membership(), query.changes)
    broker_groups, cohorts = split_broker_groups(state.cohorts)
    judged = []
    for cohort in _wanted_cohorts(cohorts, query.namespace):
        # Rules of the command line replace the namespace's own flag, too.
        strict, size = cohort.strict if query.rules is None else None, query.ensemble_size or cohort.ensemble_size
        asked = msgspec.structs.replace(cohort, strict=strict, ensemble_size=size)
        judged.append(judge_placement(asked, membership, in_force, broker_groups=broker_groups))
    if as_json:
        typer.echo(json.dumps([_as_json(query.cluster, j, n, policies) for j in judged for n in j.namespaces]))
        return
    console = SafeConsole()
    if query.namespace is None:
        console.print(overview(query.cluster, judged))
    else:
        console.print(bookie_table(judged[0], membership, in_force))
    names = [name for j in judged for name in j.namespaces]
    brokers = broker_lines(names[0], policies) if query.namespace is not None else policy_lines(names, policies)
    for line in (*summary(judged, membership), *brokers):
        console.print(line)


def state_from(settings: Settings, cluster: str, readings: Sequence[Reading]) -> BookieClusterState:
    """Fold readings of a cluster into its state.

    Raises:
        UserError: a reading has failed.
    """
    unread = (r for r in readings if r.outcome not in (Outcome.OK, Outcome.ABSENT))
    failed = [f"{r.event_type}: {r.outcome.value}, {r.detail}" for r in unread]
    if failed:
        raise UserError("\n".join(f"clusters.{cluster}: cannot be read ({line})" for line in failed))
    now = datetime.now(UTC)
    seen = [Observation(str(number), now, reading) for number, reading in enumerate(readings)]
    block: IsolationSettings = settings.policies.isolation
    # A command reads once, so it believes what it reads: an absent node, too.
    own = block.for_cluster(cluster).model_copy(update={"confirm_after": timedelta(0)})
    return fold(BookieClusterState(), seen, own)


def read_cluster(settings: Settings, cluster: str) -> list[Reading]:
    """Read a cluster once, with the collectors that the loop has.

    Raises:
        UserError: the settings do not name the cluster, or do not watch its bookies.
    """
    watched, readings, metrics = settings.watched(cluster), list[Reading](), PollMetrics(CollectorRegistry())
    with Connections(settings) as connections:
        collector = open_collector(cluster, watched, connections, metrics, lambda _: readings.append)
        if collector is None:
            raise UserError(f"clusters.{cluster}.bookies: is not set, so its bookies are not watched")
        collector.poll_once()
        collector.poll_affinity_once()
    return readings


def _wanted_cohorts(cohorts: tuple[Cohort, ...], namespace: str | None) -> Iterable[Cohort]:
    if namespace is None:
        return cohorts
    for cohort in cohorts:
        if namespace in cohort.namespaces:
            return [msgspec.structs.replace(cohort, namespaces=(namespace,))]
    return [Cohort((), (), None, None, (namespace,))]  # a namespace without affinity


def _as_json(
    cluster: str, judged: PlacementJudgement, namespace: str, policies: Sequence[BrokerIsolation] | None
) -> dict[str, Any]:
    """Return the fields of `headgate.placement.v1`, and the brokers that serve the namespace, null if unknown."""
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
        "broker_policies": None
        if policies is None
        else [own.model_dump(mode="json") for own in policies_for(namespace, policies)],
    }
