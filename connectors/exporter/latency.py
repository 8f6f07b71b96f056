"""Latency from an observation to the decision it caused, broken down by stage."""

from collections import OrderedDict
from datetime import datetime
from typing import Any, NamedTuple

from connectors.metric_families import Histogram
from policies.decisions import Decision
from policies.units import to_millis

REMEMBERED_OBSERVATIONS = 20_000
"""Decisions follow within a second; at 300 observations a second this still reaches back a minute."""

_WAITING_DECISIONS = 1000

# Fine where the loop is when it is well (150-500 ms from end to end), coarse where it is not.
_BOUNDS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class _Decided(NamedTuple):
    """What is left to measure of a decision."""

    policy: str
    decided_ms: int
    published_ms: int


class DecisionLatency:
    """Joins decisions with the observation that caused them, whichever of the two is read first.

    All instants are of the records: when this process reads them does not matter.
    """

    def __init__(self) -> None:
        self.histogram = Histogram(
            "headgate_decision_latency_seconds",
            "Decisions caused by a new observation: from its reading to its append in Kafka, from there to the batch "
            "that decided, from there to the decision's append.",
            ("policy", "stage"),
            _BOUNDS_SECONDS,
        )
        self._recent: OrderedDict[str, tuple[int | None, int]] = OrderedDict()
        self._waiting: OrderedDict[str, _Decided] = OrderedDict()

    def observed(self, id: str, time: datetime | None, appended_ms: int) -> None:  # noqa: A002
        """Take an observation: its event's id and time, and when Kafka appended it (repeats count as the first)."""
        self._recent.setdefault(id, (None if time is None else to_millis(time), appended_ms))
        _shorten(self._recent, REMEMBERED_OBSERVATIONS)
        if (decided := self._waiting.pop(id, None)) is not None:
            self._join(id, decided)

    def decided(self, decision: Decision, published_ms: int) -> None:
        """Take a decision that its first evidence caused, and its append time; without evidence there is no latency."""
        if not decision.evidence:
            return
        decided = _Decided(decision.policy, to_millis(decision.decided_at), published_ms)
        cause = decision.evidence[0]
        if cause in self._recent:
            self._join(cause, decided)
        else:
            # Topics are read side by side, so a decision may overtake its cause.
            self._waiting[cause] = decided
            _shorten(self._waiting, _WAITING_DECISIONS)

    def _join(self, cause: str, decided: _Decided) -> None:
        read_ms, observed_ms = self._recent[cause]
        if read_ms is not None:
            self._add(decided.policy, "observed_to_appended", observed_ms - read_ms)
        self._add(decided.policy, "appended_to_decided", decided.decided_ms - observed_ms)
        self._add(decided.policy, "decided_to_published", decided.published_ms - decided.decided_ms)

    def _add(self, policy: str, stage: str, milliseconds: int) -> None:
        # Clamped: `decided_at` is the start of the batch, which may lie some milliseconds before the append of a record
        # that it still took in; and the clocks of collector, loop and broker are not the same.
        self.histogram.add((policy, stage), max(0, milliseconds) / 1000)


def _shorten(remembered: OrderedDict[str, Any], limit: int) -> None:
    if len(remembered) > limit:
        remembered.popitem(last=False)
