"""Rate, remaining time and next step of a switch, computed from its records alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from policies.switching.decisions import SwitchRecord
from policies.switching.state import FAILED, MOVED, LedgerStage, SwitchStage

_RECENT_SECONDS = 60.0
"""The time over which the rate is measured, if the records reach back so far."""

_DONE: Mapping[SwitchStage, frozenset[LedgerStage]] = {
    SwitchStage.BUILD: frozenset(LedgerStage) - {LedgerStage.PENDING, LedgerStage.COPYING},
    SwitchStage.PROMOTE: MOVED | FAILED,
    SwitchStage.CLEANUP: frozenset(LedgerStage) - {LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT},
    SwitchStage.ROLLBACK: frozenset({LedgerStage.REVERTED, LedgerStage.PROMOTED_VIA_ROLLOVER}) | FAILED,
}
"""The stages of ledgers that are finished, by stage of the switch."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The progress of a stage."""

    percent: float
    ledgers_per_second: float
    seconds_left: float | None
    """None: there is no progress."""


def compute_pace(record: SwitchRecord, history: Sequence[SwitchRecord], now: datetime) -> Pace | None:
    """Return the pace of the present stage; None for a stage without work on ledgers.

    Args:
        record: the latest record.
        history: earlier records; without one of this stage, the rate counts from the stage's beginning.
        now: the present time.
    """
    total = sum(record.ledgers.values())
    if record.verdict not in _DONE or not total:
        return None
    done = _count_done(record)
    rate = _measure_rate(record, done, history, now)
    left = (total - done) / rate if rate > 0 else None
    return Pace(100 * done / total, rate, 0.0 if done == total else left)


def _count_done(record: SwitchRecord) -> int:
    return sum(count for stage, count in record.ledgers.items() if stage in _DONE[record.verdict])


def _measure_rate(record: SwitchRecord, done: int, history: Sequence[SwitchRecord], now: datetime) -> float:
    recent = [
        each
        for each in history
        if (each.verdict, each.attempt, each.epoch) == (record.verdict, record.attempt, record.epoch)
        and (now - each.decided_at).total_seconds() <= _RECENT_SECONDS
        and each.decided_at < record.decided_at
    ]
    if recent:
        first = min(recent, key=lambda each: each.sequence)
        seconds = (record.decided_at - first.decided_at).total_seconds()
        return max(0, done - _count_done(first)) / seconds
    if record.stage_since is None:
        return 0.0
    seconds = (record.decided_at - record.stage_since).total_seconds()
    return done / seconds if seconds > 0 else 0.0


def next_step(record: SwitchRecord, now: datetime) -> str:
    """Return the next step of the switch, and what it waits for."""
    if record.standstill is not None:
        return f"nothing until that ends: {record.standstill.ends_with}"
    if record.verdict is SwitchStage.TRIGGERED and record.brokers.acked == record.brokers.live:
        return "waits until both id generators are read again"
    if record.verdict is SwitchStage.HOLD:
        return _describe_hold(record, now)
    step = _STEPS.get(record.verdict)
    if step is None:
        return "an operator starts a switch, after a precheck" if record.registry else "register the clusters"
    left = sum(record.ledgers.values()) - _count_done(record) if record.verdict in _DONE else 0
    return step.format(left=left, source=record.source, target=record.target)


def _describe_hold(record: SwitchRecord, now: datetime) -> str:
    ways = ["`rollback`"] if record.rollback_until is not None and now < record.rollback_until else []
    ways += ["`cleanup`"] if record.cleanup_from is not None and now >= record.cleanup_from else []
    return f"waits for an operator: {' or '.join([*ways, '`end`'])}"


_STEPS: Mapping[SwitchStage, str] = {
    SwitchStage.TRIGGERED: "waits for the acks of all live brokers",
    SwitchStage.LIVE_DUAL_READ: "waits for the inventory of all references",
    SwitchStage.BUILD: "{left} more ledgers are copied, then references are attributed to {target}",
    SwitchStage.PROMOTE: "{left} more ledgers are attributed to {target}; then it can be taken back for a while",
    SwitchStage.CLEANUP: "{left} more ledgers are deleted from {source}, then the registry is written",
    SwitchStage.DONE: "nothing; once no reference names {source}, `close-client` and `unregister` remove it",
    SwitchStage.DONE_WITH_FAILURES: "waits for an operator: `--failed` lists what stays behind, `start` tries it again",
    SwitchStage.ROLLBACK: "{left} more ledgers are attributed to {source} again",
    SwitchStage.ROLLED_BACK: "Headgate's copies are deleted from {target} when the window is over",
    SwitchStage.ROLLED_BACK_WITH_FAILURES: "waits for an operator: `rollback` tries again what was not taken back",
    SwitchStage.REJECTED: "nothing; no broker moved",
    SwitchStage.ABORTED: "nothing; an operator ended it",
}
