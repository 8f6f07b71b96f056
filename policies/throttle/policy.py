"""The throttle policy: one factor for a whole cluster whose disks fill up.

Because of replication, producers on one broker fill the disk of another; so the whole cluster slows down.
Rules: docs/design/throttle.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from weakref import ref

from policies.book import Step
from policies.free_space.alerts import follow_actuator, follow_growth_before
from policies.free_space.volumes import VolumeBounds, keep_within_bounds
from policies.observations import Observation, Reading
from policies.throttle import NAME
from policies.throttle.alerts import find_conditions, find_effect_conditions, follow_volumes, is_in_force
from policies.throttle.emit import want
from policies.throttle.fold import ThrottleCommand, describe_result, fold
from policies.throttle.judge import BrokerVerdict, ClusterVerdict, judge_brokers, judge_cluster
from policies.throttle.quota_state import QuotaState
from policies.throttle.readings import LogDirs, VolumeReading
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import ThrottleState
from policies.units import millis_of, to_millis

BOUNDS = VolumeBounds(most_servers=10_000, servers="brokers", volumes="log dirs")
"""A membership names at most 10,000 brokers."""


class ThrottlePolicy:
    """Decides the factor of one cluster."""

    name = NAME

    def __init__(self, cluster: str, settings: ThrottleSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._validity_ms = millis_of(settings.validity)
        self._verdicts: Mapping[int, BrokerVerdict] = {}
        """The verdicts of the last step, as long as the caller keeps its state. They save time and change no result."""
        self._last: ref[ThrottleState] | None = None

    def step(
        self, state: ThrottleState | None, observations: Sequence[Observation], now: datetime
    ) -> Step[ThrottleState]:
        """Fold the observations, judge brokers and cluster, and state the factor and the conditions that hold now."""
        before = state or ThrottleState(to_millis(now))
        members = frozenset(before.cluster.membership.brokers if before.cluster.membership else ())
        kept, refused = keep_within_bounds(BOUNDS, before.cluster.brokers, members, observations, _find_volumes)
        known, known_before = fold(before.cluster, kept), before.cluster
        if known_before.cluster_id not in (None, known.cluster_id):  # adopted: nothing is known of the one before
            before = ThrottleState(to_millis(now))
        stopped_by = before.gate.stopped_by if before.gate is not None else ()
        brokers = judge_brokers(known, self._settings, now, stopped_by=stopped_by, before=self._verdicts)
        verdict = judge_cluster(brokers, before)
        answers = {
            seen.id: describe_result(seen.reading, known_before, brokers.known)
            for seen in kept
            if isinstance(seen.reading, ThrottleCommand)
        }
        effect, quotas = follow_actuator(before.effect, kept, QuotaState, brokers.now_ms, self._validity_ms)
        limiting = verdict.limiting()
        growths_before = follow_growth_before(before.growths_before, limiting, is_slowed=is_in_force(quotas))
        growths = follow_volumes(before.growths, growths_before, quotas, limiting, brokers.find_usage)
        of_quotas = find_effect_conditions(
            self._cluster, effect, quotas, growths, growths_before, brokers.find_usage, brokers.now_ms
        )
        conditions, held = find_conditions(self._cluster, verdict, before.held)
        after = ThrottleState(
            started_ms=before.started_ms,
            gate=verdict.move.gate,
            cluster=brokers.known,
            limiting=verdict.decisive.key if verdict.decisive is not None else None,
            held=held,
            forgotten=verdict.forgotten,
            effect=effect,
            growths=growths,
            growths_before=growths_before,
        )
        self._verdicts, self._last = brokers.brokers, ref(after, self._forget)
        return Step(
            after,
            {(self._cluster,): want(verdict, answers)},
            (*conditions, *of_quotas),
            _due_ms(verdict, after),
            refused,
        )

    def __reduce__(self) -> tuple[type["ThrottlePolicy"], tuple[str, ThrottleSettings]]:
        """A copy in another process starts without verdicts."""
        return type(self), (self._cluster, self._settings)

    def _forget(self, _: object) -> None:
        # The verdicts refer to the decoded brokers: kept longer than the state, they would defeat its cache's limit.
        self._verdicts = {}


def _find_volumes(reading: Reading) -> tuple[int, Sequence[VolumeReading]] | None:
    return (reading.broker, reading.volumes) if isinstance(reading, LogDirs) else None


def _due_ms(verdict: ClusterVerdict, after: ThrottleState) -> Iterator[int]:
    """When time alone may change something (milliseconds since the epoch); some may be past."""
    settings = verdict.brokers.settings
    yield after.started_ms + millis_of(settings.validity)
    yield from (forgotten.forgotten_ms + millis_of(settings.departed_hold) for forgotten in verdict.forgotten)
    yield from (ms for ms in (verdict.move.rises_at_ms, verdict.brokers.next_ms) if ms is not None)
