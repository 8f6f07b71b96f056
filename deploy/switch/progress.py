"""Rate and remaining time of a switch, computed from its records alone."""

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
    stalled_since: datetime | None = None
    """The time of the last progress, if it is longer ago than the rate is measured."""


def compute_pace(record: SwitchRecord, history: Sequence[SwitchRecord], now: datetime) -> Pace | None:
    """Return the pace of the present stage; None for a stage without work on ledgers.

    Args:
        record: the latest record.
        history: earlier records; without one of this stage, the rate counts from the stage's beginning.
    """
    total = sum(record.ledgers.values())
    if record.verdict not in _DONE or not total:
        return None
    done, same_run = _count_done(record), [each for each in history if _identify_run(each) == _identify_run(record)]
    since = _find_last_progress(record, done, same_run)
    if done < total and (now - since).total_seconds() > _RECENT_SECONDS:
        return Pace(100 * done / total, 0.0, None, since)
    rate = _measure_rate(record, done, same_run, now)
    left = (total - done) / rate if rate > 0 else None
    return Pace(100 * done / total, rate, 0.0 if done == total else left)


def _identify_run(record: SwitchRecord) -> tuple[object, ...]:
    return record.verdict, record.attempt, record.epoch


def _find_last_progress(record: SwitchRecord, done: int, same_run: Sequence[SwitchRecord]) -> datetime:
    """Return when the present count was reached, as far as the records reach back."""
    if done == 0 and record.stage_since is not None:
        return record.stage_since
    return min(each.decided_at for each in (*same_run, record) if _count_done(each) == done)


def _count_done(record: SwitchRecord) -> int:
    return sum(count for stage, count in record.ledgers.items() if stage in _DONE[record.verdict])


def _measure_rate(record: SwitchRecord, done: int, same_run: Sequence[SwitchRecord], now: datetime) -> float:
    recent = [
        each
        for each in same_run
        if (now - each.decided_at).total_seconds() <= _RECENT_SECONDS and each.decided_at < record.decided_at
    ]
    if recent:
        first = min(recent, key=lambda each: each.sequence)
        seconds = (record.decided_at - first.decided_at).total_seconds()
        return max(0, done - _count_done(first)) / seconds
    if record.stage_since is None:
        return 0.0
    seconds = (record.decided_at - record.stage_since).total_seconds()
    return done / seconds if seconds > 0 else 0.0
