"""Which live brokers do not follow the directive, since when, and how that is known.

Every live broker is watched, in every state: a broker that has not reported has not moved.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from policies.switching.facts import SwitchFacts
from policies.switching.state import BrokerReport, SwitchingState, SwitchStage

LIVE = frozenset(
    {
        SwitchStage.LIVE_DUAL_READ, SwitchStage.BUILD, SwitchStage.PROMOTE, SwitchStage.HOLD, SwitchStage.CLEANUP,
        SwitchStage.DONE, SwitchStage.DONE_WITH_FAILURES,
    }
)  # fmt: skip
"""Stages that every broker was with once: whoever is not is astray, and not only late."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A live broker that does not follow, or follows and writes elsewhere."""

    broker: str
    why: str
    since_ms: int
    said_so: bool
    """Whether it says so itself; else nothing is heard of it, which may pass."""
    follows: bool = False
    """Whether it acked the directive in force, and does otherwise."""
    cannot: bool = False
    """Whether it says that it cannot reach the cluster it is directed to."""


def deviations(state: SwitchingState) -> Iterator[Deviation]:
    """Of the live brokers, in the order of their names; none before the first directive."""
    members, directive = state.members, state.directive
    if members is None or directive is None:
        return
    joined = dict(zip(members.brokers, members.since_ms, strict=False))
    reports = {report.name: report for report in state.brokers}
    for name in members.brokers:
        report, since_ms = reports.get(name), max(state.directed_ms, joined.get(name, -1))
        if report is None or report.acked_epoch != directive.epoch:
            yield _does_not_follow(name, report, since_ms, directive.epoch)
        elif elsewhere := sorted(set(report.writes) - {directive.target}):
            why = f"writes to {', '.join(elsewhere)}"
            yield Deviation(name, why, max(since_ms, report.strayed_ms), said_so=True, follows=True)


def _does_not_follow(name: str, report: BrokerReport | None, since_ms: int, epoch: int) -> Deviation:
    if report is None:
        return Deviation(name, "is not heard of", since_ms, said_so=False)
    said_so = report.at_ms > since_ms
    if report.failed_epoch == epoch:
        return Deviation(name, "cannot reach its target", max(since_ms, report.since_ms), said_so=said_so, cannot=True)
    at = f"follows epoch {report.acked_epoch}" if report.acked_epoch >= 0 else "follows no directive"
    writes = f" and writes to {', '.join(report.writes)}" if report.writes else ""
    return Deviation(name, at + writes, max(since_ms, report.since_ms), said_so=said_so)


def awaited(state: SwitchingState) -> tuple[Deviation, ...]:
    """Those that have not followed the directive in force, as far as is known."""
    return tuple(d for d in deviations(state) if not d.follows)


def overdue(facts: SwitchFacts) -> tuple[Deviation, ...]:
    """Those that a person should know of: that say so themselves once a switch is live, or are waited for too long."""
    live = facts.state.switch is not None and facts.state.switch.stage in LIVE
    return tuple(
        d for d in deviations(facts.state)
        if (live and d.said_so) or facts.now_ms >= d.since_ms + facts.limits.ack_timeout_ms
    )  # fmt: skip


def _nobody_due_ms(state: SwitchingState, ack_timeout_ms: int) -> int | None:
    """When a switch has waited too long for any live broker to be known; None: one is, or none is waited for."""
    switch, members = state.switch, state.members
    if switch is None or switch.stage is not SwitchStage.TRIGGERED:
        return None
    is_known = members is not None and members.brokers and members.at_ms > switch.started_ms
    return None if is_known else switch.started_ms + ack_timeout_ms


def waits_end_ms(state: SwitchingState, ack_timeout_ms: int) -> Iterator[int]:
    """When brokers have been waited for too long."""
    yield from (found.since_ms + ack_timeout_ms for found in deviations(state))
    if (due_ms := _nobody_due_ms(state, ack_timeout_ms)) is not None:
        yield due_ms


def nobody_is_heard(facts: SwitchFacts) -> bool:
    """Whether a switch has waited too long for any live broker to be known."""
    due_ms = _nobody_due_ms(facts.state, facts.limits.ack_timeout_ms)
    return due_ms is not None and facts.now_ms >= due_ms


def named(found: tuple[Deviation, ...]) -> str:
    """A few of them in words, and how many more."""
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return ", ".join(f"{d.broker} {d.why}" for d in found[:10]) + more
