"""Speed, remaining time and waiting reasons of a switch, computed from its records alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from policies.switching.decisions import SwitchRecord
from policies.switching.state import FAILED, LedgerStage, SwitchStage
from policies.units import human_seconds

_NAMED = 10
_RECENT_SECONDS = 60.0
"""The rate is that of so long, where records reach back so far."""

_MOVED = frozenset(
    {LedgerStage.PROMOTED, LedgerStage.PROMOTED_VIA_ROLLOVER, LedgerStage.DELETE_INTENT, LedgerStage.CLEANED}
)
_DONE: Mapping[SwitchStage, frozenset[LedgerStage]] = {
    SwitchStage.BUILD: frozenset(LedgerStage) - {LedgerStage.PENDING, LedgerStage.COPYING},
    SwitchStage.PROMOTE: _MOVED | FAILED,
    SwitchStage.CLEANUP: frozenset(LedgerStage) - {LedgerStage.PROMOTED, LedgerStage.DELETE_INTENT},
    SwitchStage.ROLLBACK: frozenset({LedgerStage.REVERTED, LedgerStage.PROMOTED_VIA_ROLLOVER}) | FAILED,
}
"""By stage, where a ledger is that the stage has nothing more to do with."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a stage goes on."""

    percent: float
    ledgers_per_second: float
    seconds_left: float | None
    """None: it does not go on at all."""


def pace_of(record: SwitchRecord, history: Sequence[SwitchRecord], now: datetime) -> Pace | None:
    """How fast the ledgers of a stage come to its end; None for a stage that works on none.

    Args:
        record: the latest one.
        history: earlier ones; without any of this stage the rate is that since the stage began.
        now: the moment.
    """
    total = sum(record.ledgers.values())
    if record.verdict not in _DONE or not total:
        return None
    done = _done(record)
    rate = _rate(record, done, history, now)
    left = (total - done) / rate if rate > 0 else None
    return Pace(100 * done / total, rate, 0.0 if done == total else left)


def _done(record: SwitchRecord) -> int:
    return sum(count for stage, count in record.ledgers.items() if stage in _DONE[record.verdict])


def _rate(record: SwitchRecord, done: int, history: Sequence[SwitchRecord], now: datetime) -> float:
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
        return max(0, done - _done(first)) / seconds
    if record.stage_since is None:
        return 0.0
    seconds = (record.decided_at - record.stage_since).total_seconds()
    return done / seconds if seconds > 0 else 0.0


def next_step(record: SwitchRecord, now: datetime) -> str:
    """What the switch does next, and what or whom it waits for."""
    if record.contested:
        return "nothing until a person resolved what somebody else wrote, see CONTESTED above"
    if record.halted:
        return "nothing until a person lets it go on or takes it back, see HALTED above"
    if record.paused:
        return f"nothing until `headgate switch resume --cluster {record.cluster}`"
    if record.blocked:
        return f"it goes on once this is no longer so: {record.blocked}"
    step = _STEPS.get(record.verdict)
    if step is None:
        return _before(record, now)
    return step.format(record=record, left=_left(record), source=record.source, target=record.target)


def _before(record: SwitchRecord, now: datetime) -> str:
    if record.verdict is SwitchStage.TRIGGERED:
        return _acks(record, now)
    if not record.registry:
        return "register the clusters"
    return "a person starts a switch, on a precheck that says ready"


def _acks(record: SwitchRecord, now: datetime) -> str:
    live, acked = record.brokers.live, record.brokers.acked
    if record.brokers.awaited:
        between = "; until then move no bundles, or unload those of who is awaited first" if acked else ""
        return f"waits for the acks of {awaited(record, now)}{between}"
    if live is None:
        return "waits until it is read which brokers are alive"
    if not live:
        return "waits for brokers: no agent of a live one is registered"
    if acked < live:
        return f"waits for the acks of {live - acked} brokers"
    return "waits until both id generators are read again"


def awaited(record: SwitchRecord, now: datetime) -> str:
    """The brokers that do not follow the directive, by name, and since when; of many the first ones."""
    late = sorted(record.brokers.awaited.items(), key=lambda item: (item[1], item[0]))
    named = [f"{name} ({human_seconds(max(0.0, (now - since).total_seconds()))})" for name, since in late[:_NAMED]]
    more = f" and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
    return f"{', '.join(named)}{more}"


def _left(record: SwitchRecord) -> int:
    return sum(record.ledgers.values()) - _done(record) if record.verdict in _DONE else 0


_STEPS: Mapping[SwitchStage, str] = {
    SwitchStage.LIVE_DUAL_READ: "waits for the inventory of all that names ledgers",
    SwitchStage.BUILD: "{left} more ledgers are copied, then references are attributed to {target}",
    SwitchStage.PROMOTE: "{left} more ledgers are attributed to {target}; then it can be taken back for a while",
    SwitchStage.HOLD: "waits for a person, who cleans up when the time has come, or rolls back before",
    SwitchStage.CLEANUP: "{left} more ledgers are deleted from {source}, then the registry says so",
    SwitchStage.DONE: "nothing; {source} is given up by close-client and unregister, once nothing names it any more",
    SwitchStage.DONE_WITH_FAILURES: "waits for a person: `--failed` says what stays behind, `start` tries it again",
    SwitchStage.ROLLBACK: "{left} more ledgers are attributed to {source} again",
    SwitchStage.ROLLED_BACK: "our copies are deleted from {target} when the window is over",
    SwitchStage.REJECTED: "nothing; no broker moved",
    SwitchStage.ABORTED: "nothing; a person ended it where it stood",
}
