"""The state of a Kafka cluster after batches of readings, and the verdicts on its volumes at a second."""

from collections.abc import Sequence

from hypothesis import strategies as st

from policies.free_space.volumes import VolumeVerdict
from policies.observations import Observation, Outcome
from policies.throttle.fold import fold
from policies.throttle.judge import BrokerVerdicts, judge_brokers
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import KafkaClusterState, VolumeKey
from policies.units import to_millis
from tests.policies.scenario import GB, SOFT_AND_HARD, at, failed, log_dirs, members, throttle

A, B = "/data/a", "/data/b"
SETTINGS = throttle(SOFT_AND_HARD, fallback_factor=0.5)


def folded(*batches: Sequence[Observation]) -> KafkaClusterState:
    known = KafkaClusterState()
    for batch in batches:
        known = fold(known, batch)
    return known


def judged_at(known: KafkaClusterState, seconds: float, settings: ThrottleSettings = SETTINGS) -> BrokerVerdicts:
    return judge_brokers(known, settings, to_millis(at(seconds)))


def counting(
    known: KafkaClusterState, seconds: float, settings: ThrottleSettings = SETTINGS
) -> dict[VolumeKey, VolumeVerdict]:
    return {v.key: v for v in judged_at(known, seconds, settings).volumes()}


def freshness(known: KafkaClusterState, seconds: float, settings: ThrottleSettings = SETTINGS) -> dict[VolumeKey, str]:
    """The freshness of the volumes that count."""
    return {key: v.freshness.value for key, v in counting(known, seconds, settings).items()}


def polls(start: int, end: int, free: int, broker: int = 1, every: int = 10) -> list[Observation]:
    """Readings of a broker every `every` seconds, always with the same free space."""
    return [log_dirs(t, broker, free) for t in range(start, end, every)]


brokers = st.integers(1, 3)
free_bytes = st.none() | st.sampled_from([0, GB, GB + 1, 3 * GB, 5 * GB, 50 * GB])
observations = st.one_of(
    st.builds(log_dirs, st.integers(0, 40), brokers, st.dictionaries(st.sampled_from([A, B]), free_bytes, max_size=2)),
    st.builds(failed, st.integers(0, 40), brokers, st.sampled_from([o for o in Outcome if o is not Outcome.OK])),
    st.lists(brokers, max_size=3).flatmap(lambda listed: st.integers(0, 40).map(lambda s: members(s, *listed))),
)
batches = st.lists(observations, max_size=12, unique_by=lambda o: o.id)
