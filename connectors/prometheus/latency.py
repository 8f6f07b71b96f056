"""How long from an observation to the decision it caused, in the stages on the way."""

from collections import OrderedDict
from datetime import datetime

from connectors.prometheus.families import Histogram
from policies.decisions import Decision
from policies.units import to_millis

REMEMBERED_OBSERVATIONS = 20_000
"""Decisions follow within a second; at 300 observations a second this still reaches back a minute."""

# Fine where the loop is when it is well (150-500 ms from end to end), coarse where it is not.
_BOUNDS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class DecisionLatency:
    """Joins decisions with the observation that caused them.

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

    def observed(self, id: str, time: datetime | None, appended_ms: int) -> None:  # noqa: A002
        """Remember an observation: its event's id and time, and when Kafka appended it (repeats count as the first)."""
        self._recent.setdefault(id, (None if time is None else to_millis(time), appended_ms))
        if len(self._recent) > REMEMBERED_OBSERVATIONS:
            self._recent.popitem(last=False)

    def decided(self, decision: Decision, appended_ms: int) -> None:
        """Count the stages of a decision that its first evidence caused, where that is remembered."""
        observation = self._recent.get(decision.evidence[0]) if decision.evidence else None
        if observation is None:
            return
        read_ms, observed_ms = observation
        decided_ms = to_millis(decision.decided_at)
        if read_ms is not None:
            self._add(decision.policy, "observed_to_appended", observed_ms - read_ms)
        self._add(decision.policy, "appended_to_decided", decided_ms - observed_ms)
        self._add(decision.policy, "decided_to_published", appended_ms - decided_ms)

    def _add(self, policy: str, stage: str, milliseconds: int) -> None:
        # Clamped: `decided_at` is the start of the batch, which may lie some milliseconds before the append of a record
        # that it still took in; and the clocks of collector, loop and broker are not the same.
        self.histogram.add((policy, stage), max(0, milliseconds) / 1000)
