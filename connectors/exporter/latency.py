"""Latency from an observation to the decision it caused, broken down by stage."""

from collections import OrderedDict
from datetime import datetime
from typing import Any, NamedTuple

from prometheus_client import Histogram

from policies.decisions import Decision
from policies.units import to_millis

REMEMBERED_OBSERVATIONS = 20_000
"""Decisions follow within a second. At 300 observations a second this limit covers a minute."""

_WAITING_DECISIONS = 1000

# Fine where a healthy loop is (150-500 ms end to end), coarse elsewhere.
_BOUNDS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class _Decided(NamedTuple):
    """The times of a decision."""

    policy: str
    decided_ms: int
    published_ms: int


class DecisionLatency:
    """Joins each decision with the observation that caused it, in either order.

    All times come from the records, so the time at which this process reads them does not matter.
    """

    def __init__(self) -> None:
        self.histogram = Histogram(
            "headgate_decision_latency_seconds",
            "Latency of decisions that a new observation caused, by stage: from the reading to its append in Kafka, "
            "from there to the batch that decided, from there to the decision's append.",
            ("policy", "stage"),
            buckets=_BOUNDS_SECONDS,
            registry=None,
        )
        self._recent: OrderedDict[str, tuple[int | None, int]] = OrderedDict()
        self._waiting: OrderedDict[str, _Decided] = OrderedDict()

    def observe(self, id: str, time: datetime | None, appended_ms: int) -> None:  # noqa: A002
        """Add an observation: its event's id and time, and its append time. The first one of an id counts."""
        self._recent.setdefault(id, (None if time is None else to_millis(time), appended_ms))
        _limit(self._recent, REMEMBERED_OBSERVATIONS)
        if (decided := self._waiting.pop(id, None)) is not None:
            self._join(id, decided)

    def decide(self, decision: Decision, published_ms: int) -> None:
        """Add a decision that its first evidence caused, and its append time."""
        if not decision.evidence:
            return
        decided = _Decided(decision.policy, to_millis(decision.decided_at), published_ms)
        cause = decision.evidence[0]
        if cause in self._recent:
            self._join(cause, decided)
        else:
            # Topics are read in parallel, so a decision may arrive before its cause.
            self._waiting[cause] = decided
            _limit(self._waiting, _WAITING_DECISIONS)

    def _join(self, cause: str, decided: _Decided) -> None:
        read_ms, observed_ms = self._recent[cause]
        if read_ms is not None:
            self._count(decided.policy, "observed_to_appended", observed_ms - read_ms)
        self._count(decided.policy, "appended_to_decided", decided.decided_ms - observed_ms)
        self._count(decided.policy, "decided_to_published", decided.published_ms - decided.decided_ms)

    def _count(self, policy: str, stage: str, milliseconds: int) -> None:
        # Not below 0: `decided_at` is the start of the batch, which may be some milliseconds before the append of a
        # record in it. The clocks of collector, loop and broker differ, too.
        self.histogram.labels(policy, stage).observe(max(0, milliseconds) / 1000)


def _limit(remembered: OrderedDict[str, Any], size: int) -> None:
    if len(remembered) > size:
        remembered.popitem(last=False)
