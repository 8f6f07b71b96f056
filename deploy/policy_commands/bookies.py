"""The commands `headgate placement` and `disks`: they read a cluster's bookies once, and judge as the loop does."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import typer
from prometheus_client import CollectorRegistry
from rich.table import Table
from rich.text import Text

from connectors.bookie_disks.collector import BookieDisksCollector
from connectors.bookie_disks.registration import WatchedBookieDisks
from connectors.collection import PollMetrics
from connectors.isolation.collector import BookieCollector
from connectors.isolation.io import open_source
from deploy.console.terminal import SafeConsole
from deploy.processes.parts import Connections
from deploy.settings.application import Settings
from policies.bookie_disks.fold import fold as fold_disks
from policies.bookie_disks.judge import GroupVerdict, judge_bookies, judge_group
from policies.bookie_disks.policy import describe_bookie
from policies.bookie_disks.readings import BookieDisks
from policies.bookie_disks.settings import BookieDisksSettings
from policies.bookie_disks.state import BookieDisksCluster, list_groups
from policies.bookie_readings import BookieAffinity, BrokerIsolation
from policies.isolation.decisions import PlacementVerdict, Tier
from policies.isolation.fold import fold
from policies.isolation.judge import PlacementJudgement, explain_placement, judge_placement
from policies.isolation.placement import BookieMembership, Exclusion, HypotheticalChange, apply_changes, classify
from policies.isolation.policy import describe_placement
from policies.isolation.settings import IsolationSettings, RuleSet
from policies.isolation.state import BookieClusterState, Cohort, split_broker_groups
from policies.observations import Observation, Outcome, Reading
from policies.units import UserError, counted, human_bytes, to_millis

# Formats the answer of `headgate placement` as tables and sentences.

_COLOURS: Mapping[PlacementVerdict, str] = {
    PlacementVerdict.ISOLATED: "green",
    PlacementVerdict.UNCONSTRAINED: "dim",
    PlacementVerdict.ASKED_FOR: "yellow",
    PlacementVerdict.SPILLS_TO_SECONDARY: "yellow",
    PlacementVerdict.LEAKS: "bold red",
    PlacementVerdict.INFEASIBLE: "bold red",
}
_AFTER_HEADROOM: Mapping[Tier, str] = {
    Tier.PRIMARY: "the primary groups do not suffice",
    Tier.SECONDARY: "the secondary groups do not suffice",
    Tier.UNASSIGNED: "it cannot place its data",
    Tier.NONE: "",
}


def _overview(cluster: str, judged: Sequence[PlacementJudgement]) -> Table:
    """Make a table with one row for each namespace, the worst first."""
    table = Table(title=f"Placement of {cluster}", title_justify="left")
    for name in ("namespace", "verdict", "primary", "secondary", "ensemble", "candidates", "headroom", "leak"):
        table.add_column(name, justify="right" if name in ("ensemble", "candidates", "headroom") else "left")
    order = list(_COLOURS)
    rows = sorted(
        ((j, n) for j in judged for n in j.namespaces), key=lambda row: (-order.index(row[0].verdict), row[1])
    )
    for j, namespace in rows:
        table.add_row(
            namespace,
            Text(j.verdict.value, _COLOURS[j.verdict]),
            ", ".join(sorted(j.affinity.primary)),
            ", ".join(sorted(j.affinity.secondary)),
            str(j.ensemble_size),
            str(j.placed.count),
            str(j.placed.headroom),
            ", ".join(j.leak),
        )
    return table


def _bookie_table(judged: PlacementJudgement, membership: BookieMembership) -> Table:
    """Make a table with one row for each bookie: whether it is a candidate, and why."""
    title = f"{judged.namespaces[0]} by the rules `{judged.rules}`, ensemble of {judged.ensemble_size}"
    table = Table("bookie", "group", "in", "why", title=title, title_justify="left")
    tiers = classify(judged.placed, judged.rules, membership, judged.affinity)
    order: list[Tier | Exclusion] = [*Tier, *Exclusion]
    for bookie, why in sorted(tiers.items(), key=lambda row: (order.index(row[1]), row[0])):
        groups = ", ".join(sorted(g for g, members in membership.groups.items() if bookie in members)) or "-"
        if isinstance(why, Exclusion):
            table.add_row(bookie, groups, Text("out", "dim"), Text(why.value, "dim"))
        elif bookie in judged.leak:
            table.add_row(
                bookie, groups, Text("LEAK", "bold red"), f"{why.value}; the promise ({judged.promise}) forbids it"
            )
        else:
            table.add_row(bookie, groups, Text("in", "green"), why.value)
    return table


def _summary(judged: Sequence[PlacementJudgement], membership: BookieMembership) -> Iterable[Text]:
    """Summarize the judgements in a line or two."""
    if len(judged) != 1 or len(judged[0].namespaces) != 1:
        namespaces = sum(len(j.namespaces) for j in judged)
        loose = sorted(membership.writable - membership.grouped())
        bookies = counted(len(membership.writable), "writable bookie")
        yield Text(f"{counted(namespaces, 'namespace')} with affinity, {bookies}")
        if loose:
            yield Text(f"in no group: {', '.join(loose)}", "yellow")
        return
    j = judged[0]
    yield Text(f"{j.verdict.value}: {j.namespaces[0]} {explain_placement(j)}.", _COLOURS[j.verdict])
    if j.placed.headroom:
        losses = "one more loss" if j.placed.headroom == 1 else f"{j.placed.headroom} more losses"
        yield Text(f"headroom: after {losses} {_AFTER_HEADROOM[j.placed.tier]}")


def _policies_for(namespace: str, policies: Sequence[BrokerIsolation]) -> list[BrokerIsolation]:
    """Return the namespace isolation policies that brokers follow: the first match in each of Pulsar's clusters."""
    found: dict[str, BrokerIsolation] = {}
    for policy in policies:
        for pattern in policy.namespaces:
            try:
                matches = re.fullmatch(pattern, namespace) is not None
            except re.error:  # Python does not understand every regular expression of Java
                matches = pattern == namespace
            if matches:
                found.setdefault(policy.pulsar_cluster, policy)
    return list(found.values())


def _broker_lines(namespace: str, policies: Sequence[BrokerIsolation] | None) -> Iterator[Text]:
    """Describe the brokers that serve one namespace."""
    if policies is None:
        yield Text("brokers: Pulsar's namespace isolation policies could not be read", "dim")
        return
    own = _policies_for(namespace, policies)
    if not own:
        yield Text("brokers: any, no namespace isolation policy names it", "dim")
    for policy in own:
        spare = f", then {', '.join(policy.secondary)}" if policy.secondary else ""
        few = f" when fewer than {policy.min_available} of them are there" if policy.min_available is not None else ""
        yield Text(
            f"brokers: {', '.join(policy.primary) or 'none'}{spare}{few if spare else ''} "
            f"(policy {policy.name} of {policy.pulsar_cluster})"
        )


def show_placement(
    settings: Settings,
    cluster: str,
    namespace: str | None,
    ensemble_size: int | None = None,
    rules: RuleSet | None = None,
    changes: tuple[HypotheticalChange, ...] = (),
    *,
    as_json: bool,
) -> None:
    """Read the cluster once, and print where its namespaces (or one of them) may place their data.

    Ensemble size and rules replace the namespace's own, and those in the settings.
    """
    readings = _read_cluster(settings, cluster)
    state = _state_from(settings, cluster, readings)
    policies = next((r.broker_policies for r in readings if isinstance(r, BookieAffinity)), None)
    block: IsolationSettings = settings.policies.isolation
    own = block.for_cluster(cluster)
    in_force = own if rules is None else own.model_copy(update={"rules": rules})
    membership = apply_changes(state.membership(), changes)
    broker_groups, cohorts = split_broker_groups(state.cohorts)
    judged = []
    for cohort in _wanted_cohorts(cohorts, namespace):
        # Rules of the command line replace the namespace's own flag, too.
        strict, size = cohort.strict if rules is None else None, ensemble_size or cohort.ensemble_size
        asked = msgspec.structs.replace(cohort, strict=strict, ensemble_size=size)
        judged.append(judge_placement(asked, membership, in_force, broker_groups=broker_groups))
    if as_json:
        typer.echo(json.dumps([_as_json(cluster, j, n, policies) for j in judged for n in j.namespaces]))
        return
    console = SafeConsole()
    if namespace is None:
        console.print(_overview(cluster, judged))
    else:
        console.print(_bookie_table(judged[0], membership))
    brokers = () if namespace is None else _broker_lines(namespace, policies)
    for line in (*_summary(judged, membership), *brokers):
        console.print(line)


def _state_from(settings: Settings, cluster: str, readings: Sequence[Reading]) -> BookieClusterState:
    """Fold readings of a cluster into its state; raise UserError if a reading has failed."""
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


def _read_cluster(settings: Settings, cluster: str) -> list[Reading]:
    """Read a cluster once, with the collectors that the loop has; raise UserError if its bookies are not watched."""
    watched, readings, metrics = settings.watched(cluster), list[Reading](), PollMetrics(CollectorRegistry())
    with Connections(settings) as connections:
        source = open_source(cluster, watched, connections)
        if source is None:
            raise UserError(f"clusters.{cluster}.bookies: is not set, so its bookies are not watched")
        collector = BookieCollector(source, readings.append, metrics)
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
    fields = describe_placement(judged)
    own = None if policies is None else [each.model_dump(mode="json") for each in _policies_for(namespace, policies)]
    return {
        "cluster": cluster,
        "namespace": namespace,
        **fields,
        "explanation": f"{namespace} {fields['explanation']}.",
        "broker_policies": own,
    }


# The bookies by placement group.


def show_disks(settings: Settings, cluster: str, *, as_json: bool) -> None:
    """Read the cluster once, and print its groups. No hold of the loop counts here."""
    readings = _read_disks(settings, cluster)
    bad = [r for r in readings if r.outcome is not Outcome.OK]
    if not any(isinstance(r, BookieDisks) and r.outcome is Outcome.OK for r in readings):
        raise UserError("\n".join(f"{r.subject()}: cannot be read ({r.outcome.value}, {r.detail})" for r in bad))
    block: BookieDisksSettings = settings.policy_settings()["bookie_disks"].for_cluster(cluster)  # type: ignore[assignment]
    verdicts = list(judge_now(readings, block, datetime.now(UTC)))
    if as_json:
        typer.echo(json.dumps([_group_as_json(verdict) for verdict in verdicts]))
        return
    console = SafeConsole()
    for verdict in verdicts:
        group = verdict.group
        console.print(
            f"group {group.name}: factor {verdict.raw_factor:.2f} ({verdict.raw_reason.value}), "
            f"{counted(group.count, 'namespace')}, ensembles of {group.ensemble}",
            soft_wrap=True,
        )
        console.print(_disks_table(verdict))
    for reading in bad:
        console.print(f"{reading.subject()}: not read ({reading.outcome.value}, {reading.detail})")


def judge_now(readings: list[Reading], settings: BookieDisksSettings, now: datetime) -> Iterator[GroupVerdict]:
    """Judge each group by these readings alone."""
    seen = [Observation(f"{number}", now, reading) for number, reading in enumerate(readings)]
    known = fold_disks(BookieDisksCluster(), seen)
    bookies = judge_bookies(known, settings, to_millis(now))
    for group in list_groups(known.placement, settings):
        yield judge_group(group, bookies, known, settings, to_millis(now), None)


def _read_disks(settings: Settings, cluster: str) -> list[Reading]:
    sources = settings.watched(cluster)
    watched, pulsar = sources.setting(WatchedBookieDisks), sources.pulsar
    if watched is None or pulsar is None:
        raise UserError(f"clusters.{cluster}.bookie_disks: is not set, so the disks of its bookies are not watched")
    readings: list[Reading] = []
    metrics = PollMetrics(CollectorRegistry())
    with closing(BookieDisksCollector(cluster, watched, pulsar, readings.append, metrics)) as collector:
        collector.poll_once()
    has_groups = sources.bookies is not None or sources.pulsar_bookies is not None
    return [*readings, *(_read_cluster(settings, cluster) if has_groups else ())]


def _disks_table(verdict: GroupVerdict) -> Table:
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


def _group_as_json(verdict: GroupVerdict) -> dict[str, Any]:
    return {
        "group": verdict.group.name,
        "factor": verdict.raw_factor,
        "reason": verdict.raw_reason.value,
        "ensemble": verdict.group.ensemble,
        "namespaces": verdict.group.count,
        "decides": verdict.decisive.name if verdict.decisive else None,
        "bookies": [describe_bookie(bookie) for bookie in verdict.known],
    }
