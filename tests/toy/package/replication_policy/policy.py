"""The replication policy: a cluster is degraded as long as too many of its partitions are under-replicated."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from msgspec import Struct

from policies.alerts import Condition
from policies.book import Step, Wanted
from policies.decisions import RepeatSchedule, Severity
from policies.observations import Observation, Outcome
from policies.units import InstantMs, millis_of, to_millis

from .decisions import ReplicationDecision, ReplicationReason, ReplicationVerdict
from .readings import UnderReplicated
from .settings import ReplicationSettings

NAME = "replication"
UNDER_REPLICATED = "partitions-under-replicated"


class LastReading(Struct, array_like=True, frozen=True):
    """The last good reading."""

    at_ms: InstantMs
    id: str
    under_replicated: int


class ReplicationState(Struct, array_like=True, frozen=True):
    """The state of one cluster."""

    reading: LastReading | None = None
    well_since_ms: InstantMs | None = None
    is_degraded: bool = False


def fold(known: LastReading | None, observations: Sequence[Observation]) -> LastReading | None:
    """Return the last good reading, whatever the order of the observations; a failed attempt changes nothing."""
    read = (
        LastReading(each.at_ms, each.id, each.reading.under_replicated)
        for each in observations
        if isinstance(each.reading, UnderReplicated) and each.reading.outcome is Outcome.OK
    )
    return max((*read, *((known,) if known else ())), key=lambda reading: (reading.at_ms, reading.id), default=None)


class ReplicationPolicy:
    """Decides for one cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: ReplicationSettings) -> None:
        self._cluster = cluster
        self._settings = settings

    def step(
        self, state: ReplicationState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[ReplicationState]:
        """Fold the readings, judge, and state what is wanted and what a person should know."""
        before = state or ReplicationState()
        reading = fold(before.reading, observations)
        reason, well_since_ms = self._judge(reading, before, to_millis(now))
        is_degraded = reason is not ReplicationReason.REPLICATED
        after = ReplicationState(reading, well_since_ms, is_degraded)
        # Two heartbeats may be late before it expires.
        schedule = RepeatSchedule(self._settings.heartbeat, valid_for=3)
        wanted = Wanted(reason, schedule, partial(_make_decision, reason, reading))
        return Step(after, {(self._cluster,): wanted}, self._find_conditions(reading), self._due_ms(after))

    def _judge(
        self, reading: LastReading | None, before: ReplicationState, now_ms: int
    ) -> tuple[ReplicationReason, int | None]:
        """An unknown cluster is degraded, and a degraded one is `ok` only after the hold."""
        if reading is None or now_ms >= reading.at_ms + millis_of(self._settings.validity):
            return ReplicationReason.UNREAD, None
        if self._is_over(reading):
            return ReplicationReason.UNDER_REPLICATED, None
        well_since_ms = before.well_since_ms or now_ms
        is_held = before.is_degraded and now_ms < well_since_ms + millis_of(self._settings.hold)
        return ReplicationReason.HOLD if is_held else ReplicationReason.REPLICATED, well_since_ms

    def _is_over(self, reading: LastReading) -> bool:
        return reading.under_replicated > self._settings.degraded_above

    def _find_conditions(self, reading: LastReading | None) -> Iterator[Condition]:
        """Silence ends no alert, because the last good reading goes on counting here."""
        if reading is not None and self._is_over(reading):
            summary = f"{reading.under_replicated} partitions of {self._cluster} are under-replicated"
            labels, reason = {"cluster": self._cluster}, "under_replicated"
            yield Condition(UNDER_REPLICATED, self._cluster, Severity.WARNING, reason, summary, labels, (reading.id,))

    def _due_ms(self, after: ReplicationState) -> Iterator[int]:
        """When time alone may change the verdict."""
        if after.well_since_ms is not None:
            yield after.well_since_ms + millis_of(self._settings.hold)
        if after.reading is not None:
            yield after.reading.at_ms + millis_of(self._settings.validity)


def _make_decision(
    reason: ReplicationReason, reading: LastReading | None, header: Mapping[str, Any]
) -> ReplicationDecision:
    count = reading.under_replicated if reading else None
    verdict = ReplicationVerdict.OK if reason is ReplicationReason.REPLICATED else ReplicationVerdict.DEGRADED
    return ReplicationDecision(
        **header,
        verdict=verdict,
        reason=reason,
        explanation=f"{header['cluster']} is {verdict}: {reason.meaning} Under-replicated: {count}.",
        evidence=(reading.id,) if reading else (),
        under_replicated=count,
    )
