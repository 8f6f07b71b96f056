"""Latency from an observation to the decision it caused, broken down by stage."""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from prometheus_client import Histogram

from connectors.views import MAX_RECENT_DECISIONS, Family, Sample
from policies.decisions import Decision
from policies.effects import InForce
from policies.units import to_millis

# Metrics of the values that actuators have set, and of pauses.

EFFECT_VALUE = Family(
    "headgate_in_force_value",
    "The value that an actuator has set for a target, by its reports: bytes a second and broker for quotas.",
    ("policy", "cluster", "target"),
)
EFFECT_SINCE = Family(
    "headgate_in_force_since_timestamp_seconds", "When that value was set.", ("policy", "cluster", "target")
)
EFFECT_FAILING = Family(
    "headgate_in_force_failing_since_timestamp_seconds",
    "Since when an actuator has failed to carry a decision out; absent if none fails.",
    ("policy", "cluster"),
)
PAUSED_UNTIL = Family(
    "headgate_paused_until_timestamp_seconds",
    "When the pause of a policy ends; absent if it acts.",
    ("policy", "cluster"),
)
EFFECTS = (EFFECT_VALUE, EFFECT_SINCE, EFFECT_FAILING, PAUSED_UNTIL)
MOST_TARGETS = 50
"""Limit of the targets of one policy and cluster that have series of their own."""


def effect_samples(each: InForce) -> Iterator[Sample]:
    """Yield the samples of one policy and cluster."""
    about = (each.policy, each.cluster)
    for effect in [effect for effect in each.effects if effect.is_held][:MOST_TARGETS]:
        if effect.number is not None:
            yield Sample(EFFECT_VALUE, (*about, effect.target), effect.number)
        if effect.since is not None:
            yield Sample(EFFECT_SINCE, (*about, effect.target), effect.since.timestamp())
    if each.failing_since is not None:
        yield Sample(EFFECT_FAILING, about, each.failing_since.timestamp())
    if each.pause is not None and each.pause.quiet_until is not None:
        yield Sample(PAUSED_UNTIL, about, each.pause.quiet_until.timestamp())


# The last decisions that changed anything, for the status page.


class RecentDecisions:
    """Keeps the last decisions, and of similar steps only the last: thousands of ledgers would displace all others."""

    def __init__(self) -> None:
        self._decisions: list[Decision] = []

    def add(self, decision: Decision) -> None:
        """Add a decision. History arrives out of order, because its topics are read one after the other."""
        if decision.is_step:
            similar = [each for each in self._decisions if each.is_step and _kind(each) == _kind(decision)]
            if any(each.decided_at > decision.decided_at for each in similar):
                return
            self._decisions = [each for each in self._decisions if not any(each is old for old in similar)]
        insort(self._decisions, decision, key=lambda each: each.decided_at)
        del self._decisions[:-MAX_RECENT_DECISIONS]

    def newest_first(self) -> list[Decision]:
        """Return them in the order of the page."""
        return self._decisions[::-1]


def _kind(step: Decision) -> tuple[str, str, str, str]:
    return step.policy, step.cluster, step.verdict, step.reason


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
            "from there to the batch that decided, from there to the decision's append. Of factors, lower ones count.",
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
