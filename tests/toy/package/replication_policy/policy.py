"""The replication policy: a cluster is degraded as long as too many of its partitions are under-replicated."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from policies.alerts import Condition
from policies.book import Step, Wanted
from policies.decisions import RepeatSchedule, Severity
from policies.observations import Observation
from policies.units import millis_of

from .decisions import ReplicationDecision, ReplicationVerdict
from .fold import fold
from .judge import Judgement, judge
from .settings import ReplicationSettings
from .state import LastReading, ReplicationState

NAME = "replication"
UNDER_REPLICATED = "partitions-under-replicated"


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
        judged = judge(reading, before, self._settings, now)
        after = ReplicationState(reading, judged.well_since_ms, judged.verdict is ReplicationVerdict.DEGRADED)
        # Two heartbeats may be late before it expires.
        schedule = RepeatSchedule(self._settings.heartbeat, valid_for=3)
        wanted = Wanted(f"{judged.verdict}|{judged.reason}", schedule, partial(_make_decision, judged, reading))
        return Step(after, {(self._cluster,): wanted}, self._find_conditions(judged, reading), self._due_ms(after))

    def _find_conditions(self, judged: Judgement, reading: LastReading | None) -> Iterator[Condition]:
        """Silence ends no alert, for the last good reading goes on counting here."""
        if judged.is_over and reading is not None:
            summary = f"{reading.under_replicated} partitions of {self._cluster} are under-replicated"
            labels, reason = {"cluster": self._cluster}, "under_replicated"
            yield Condition(UNDER_REPLICATED, self._cluster, Severity.WARNING, reason, summary, labels, (reading.id,))

    def _due_ms(self, after: ReplicationState) -> Iterator[int]:
        """When time alone may change the verdict."""
        if after.well_since_ms is not None:
            yield after.well_since_ms + millis_of(self._settings.hold)
        if after.reading is not None:
            yield after.reading.at_ms + millis_of(self._settings.validity)


def _make_decision(judged: Judgement, reading: LastReading | None, header: Mapping[str, Any]) -> ReplicationDecision:
    count = reading.under_replicated if reading else None
    return ReplicationDecision(
        **header,
        verdict=judged.verdict,
        reason=judged.reason,
        explanation=f"{header['cluster']} is {judged.verdict}: {judged.reason.meaning} Under-replicated: {count}.",
        evidence=(reading.id,) if reading else (),
        under_replicated=count,
    )
