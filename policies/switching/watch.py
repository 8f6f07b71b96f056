"""Live brokers that deviate from the directive in force.

Every live broker is watched in every stage: a broker that has not reported has not moved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from policies.switching.clusters import ClusterSnapshot
from policies.switching.facts import SwitchFacts
from policies.switching.state import BrokerReport, Directive, SwitchStage
from policies.units import name_some

LIVE = frozenset(
    {
        SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.HOLD, SwitchStage.CLEANUP,
        SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES,
    }
)  # fmt: skip
"""Stages that a switch reaches only after every broker has followed: a broker that deviates then is not just late."""


_NEEDS_BROKERS = (LIVE - {SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES}) | {
    SwitchStage.TRIGGERED,
    SwitchStage.ROLLBACK,
}


@dataclass(frozen=True, slots=True)
class Deviation:
    """A live broker that does not follow the directive, or follows it and writes to another cluster."""

    broker: str
    why: str
    since_ms: int
    reported: bool
    """Whether the broker's own report shows it; else no report has arrived, which may pass."""
    follows: bool = False
    """Whether the broker acked the directive in force, and writes to another cluster all the same."""
    cannot: bool = False
    """Whether the broker reports that it cannot make its client of the cluster."""


def deviations(facts: SwitchFacts) -> Iterator[Deviation]:
    """Return deviations in the order of the brokers' names; none before the first directive.

    Silence is not consent: a live broker that sent no report for `ack_timeout` does not follow any more.
    """
    state, members, directive = facts.state, facts.state.members, facts.state.directive
    if members is None or directive is None:
        return
    joined = dict(zip(members.brokers, members.since_ms, strict=False))
    reports = {report.name: report for report in state.brokers}
    for name in members.brokers:
        report, since_ms = reports.get(name), max(state.directed_ms, joined.get(name, -1))
        if report is None or report.acked_epoch != directive.epoch:
            yield _describe_late(name, report, since_ms, directive.epoch)
        elif facts.is_recent(members.at_ms) and not facts.is_recent(report.at_ms):
            yield Deviation(name, "is not heard of", max(since_ms, report.at_ms), reported=False)
        elif why := _describe_client(report, directive, state.cluster(directive.target)):
            yield Deviation(name, why, max(since_ms, report.since_ms), reported=True)
        elif elsewhere := sorted(set(report.writes) - {directive.target}):
            why = f"writes to {', '.join(elsewhere)}"
            yield Deviation(name, why, max(since_ms, report.strayed_ms), reported=True, follows=True)


def _describe_client(report: BrokerReport, directive: Directive, target: ClusterSnapshot | None) -> str:
    """Describe a client that may remember a lower ``HOB``; empty if it was opened at the directive.

    An agent that does not report when it opened its client is believed only while the target was never advanced.
    """
    if report.client_epoch is None:
        if target is None or target.raised_epoch < 0:
            return ""
        return f"does not report when it opened its client of {directive.target}, which was advanced"
    if report.client_epoch >= directive.epoch:
        return ""
    return f"writes through a client that it opened at epoch {report.client_epoch}, before the directive"


def _describe_late(name: str, report: BrokerReport | None, since_ms: int, epoch: int) -> Deviation:
    if report is None:
        return Deviation(name, "is not heard of", since_ms, reported=False)
    reported, since_ms = report.at_ms > since_ms, max(since_ms, report.since_ms)
    if report.failed_epoch == epoch:
        return Deviation(name, "cannot reach its target", since_ms, reported=reported, cannot=True)
    follows = f"follows epoch {report.acked_epoch}" if report.acked_epoch >= 0 else "follows no directive"
    writes = f" and writes to {', '.join(report.writes)}" if report.writes else ""
    return Deviation(name, follows + writes, since_ms, reported=reported)


def awaited(facts: SwitchFacts) -> tuple[Deviation, ...]:
    """Return the brokers that have not acked the directive in force, or are silent."""
    return tuple(d for d in deviations(facts) if not d.follows)


def find_unknown_since_ms(facts: SwitchFacts) -> int | None:
    """Return since when it is unknown which brokers are alive, while a switch depends on that; None if it is known."""
    switch, members = facts.state.switch, facts.state.members
    if switch is None or switch.stage not in _NEEDS_BROKERS:
        return None
    if members is None or (switch.stage is SwitchStage.TRIGGERED and members.at_ms <= switch.started_ms):
        return switch.started_ms
    if members.is_unread or not facts.is_recent(members.at_ms):
        return members.at_ms
    return None if members.brokers else max(switch.started_ms, facts.state.directed_ms)


def find_due_ms(facts: SwitchFacts) -> Iterator[int]:
    """Return the instants at which a broker or the list of brokers is overdue, or falls silent."""
    timeout_ms, members = facts.limits.ack_timeout_ms, facts.state.members
    yield from (found.since_ms + timeout_ms for found in deviations(facts))
    yield from (cluster.lower_moved_ms + timeout_ms for cluster in facts.state.clusters)
    if (since_ms := find_unknown_since_ms(facts)) is not None:
        yield since_ms + timeout_ms
    if facts.state.directive is not None and members is not None:
        yield members.at_ms + timeout_ms
        yield from (report.at_ms + timeout_ms for report in facts.state.brokers if report.name in members.brokers)


def describe_brokers(found: Sequence[Deviation]) -> str:
    """Name the first ten brokers with their deviations, and count the others."""
    return name_some([f"{d.broker} {d.why}" for d in found])
