"""Folds brokers: which are alive, and what each reports about itself.

Reports are levels, too: a broker follows the directive it reported last, so one that goes back has not moved any more.
"""

from msgspec.structs import replace

from policies.switching.events import BrokerSeen, MembersSeen
from policies.switching.id_marks import written
from policies.switching.readings import SwitchBroker
from policies.switching.state import NEVER, BrokerReport, LiveBrokers, SwitchingState, put


def broker_of(reading: SwitchBroker, at_ms: int) -> BrokerSeen:
    """What a broker's agent says."""
    return BrokerSeen(
        reading.broker,
        reading.sequence,
        reading.epoch,
        reading.client_init_failed,
        reading.writes,
        reading.reads,
        at_ms,
    )


def fold_members(known: LiveBrokers | None, seen: MembersSeen) -> LiveBrokers | None:
    """The live brokers; None when this was read no later than what is known."""
    if known is not None and seen.at_ms <= known.at_ms:
        return None
    since = dict(zip(known.brokers, known.since_ms or [known.at_ms] * len(known.brokers), strict=True)) if known else {}
    brokers = tuple(sorted(set(seen.brokers)))
    return LiveBrokers(brokers, seen.at_ms, tuple(since.get(b, seen.at_ms) for b in brokers))


def fold_report(state: SwitchingState, seen: BrokerSeen) -> tuple[SwitchingState | None, BrokerSeen | None]:
    """What the broker writes and reads, and which directive it follows; None when it was heard before.

    One that comes after a later one still says where the broker wrote once: ids were given there.
    """
    marks = state.marks
    for name in seen.writes:
        marks = written(marks, state.cluster(name), from_now=False)
    known = next((b for b in state.brokers if b.name == seen.broker), None)
    if known is not None and seen.sequence <= known.sequence:
        return (replace(state, marks=marks), None) if marks != state.marks else (None, None)
    report = known or BrokerReport(seen.broker, NEVER, NEVER)
    acked, failed = (NEVER, seen.epoch) if seen.failed else (seen.epoch, NEVER)
    says_the_same = (report.acked_epoch, report.failed_epoch) == (acked, failed)
    report = BrokerReport(
        seen.broker, seen.sequence, seen.at_ms, acked, failed, seen.writes, seen.reads,
        report.since_ms if says_the_same else seen.at_ms,
        seen.at_ms if _strays(state, seen) else report.strayed_ms,
    )  # fmt: skip
    return replace(state, brokers=put(state.brokers, report), marks=marks), seen


def _strays(state: SwitchingState, seen: BrokerSeen) -> bool:
    """Whether it follows the directive and writes elsewhere all the same."""
    directive = state.directive
    return directive is not None and seen.epoch == directive.epoch and bool(set(seen.writes) - {directive.target})
