"""Verdicts on each volume: whether it counts, and how much it lets its cluster write.

Pure: nothing is remembered and nothing is published here.
"""

from collections.abc import Container, Iterable, Iterator, Set

from policies.throttle.decisions import LimitHit
from policies.throttle.facts import BrokerFacts, Freshness, ThrottleFacts, VolumeFacts
from policies.throttle.limits import assess
from policies.throttle.settings import ThrottleSettings
from policies.throttle.state import VolumeKey
from policies.units import millis_of, to_millis


class VolumeVerdict(VolumeFacts, frozen=True, gc=False):
    """A volume that counts, and what it lets its cluster write."""

    hit: LimitHit
    factor: float
    """For a stale volume no more than the fallback."""

    @property
    def tightness(self) -> tuple[float, int, VolumeKey]:
        """Orders volumes: the one that allows least, then the fullest."""
        return (self.factor, self.state.usable_bytes, self.key)


def judge_volumes(
    facts: ThrottleFacts, stopped_by: Set[VolumeKey] = frozenset()
) -> tuple[tuple[VolumeVerdict, ...], tuple[VolumeKey, ...]]:
    """The volumes that count, and the departed ones that limited the cluster and end now.

    Args:
        facts: what is the case now.
        stopped_by: volumes that keep the cluster stopped: they limit it, whatever their factor.
    """
    counting, ended = verdicts(facts.volumes, to_millis(facts.now), facts.settings, stopped_by)
    return tuple(counting), tuple(ended)


def verdicts(
    volumes: Iterable[VolumeFacts], now_ms: int, settings: ThrottleSettings, stopped_by: Container[VolumeKey]
) -> tuple[list[VolumeVerdict], list[VolumeKey]]:
    """As `judge_volumes`, of any volumes."""
    counting: list[VolumeVerdict] = []
    ended: list[VolumeKey] = []
    for volume in volumes:
        verdict = _verdict(volume, settings)
        if verdict is None:
            continue
        if volume.departed_ms is None:
            counting.append(verdict)
        elif verdict.factor < 1.0 or volume.key in stopped_by:
            if now_ms < volume.departed_ms + millis_of(settings.departed_hold):
                counting.append(verdict)
            else:
                ended.append(volume.key)
    return counting, ended


def remembered(facts: ThrottleFacts, volumes: Iterable[VolumeVerdict]) -> frozenset[VolumeKey]:
    """The volumes to go on knowing: those that count, and those that may yet be read."""
    unread = (v.key for v in facts.volumes if v.freshness is Freshness.NEVER_READ and v.departed_ms is None)
    return frozenset((*(v.key for v in volumes), *unread))


def expiries_ms(
    brokers: Iterable[BrokerFacts], volumes: Iterable[VolumeVerdict], settings: ThrottleSettings
) -> Iterator[int]:
    """When (milliseconds) a broker or volume comes to count differently without a reading; some may have passed."""
    validity_ms, hold_ms = millis_of(settings.validity), millis_of(settings.departed_hold)
    # Its reading ages from when it was read; whether it is to be missed, from when it was a member if that is later.
    yield from (ms + validity_ms for b in brokers for ms in (b.state.read_ms, b.state.seen_ms))
    for volume in volumes:
        if volume.departed_ms is not None:
            yield volume.departed_ms + hold_ms
        elif volume.freshness is Freshness.FRESH:
            yield volume.state.read_ms + validity_ms


def _verdict(facts: VolumeFacts, settings: ThrottleSettings) -> VolumeVerdict | None:
    """What one volume would allow if it counts; None when its reading does not."""
    volume, freshness = facts.state, facts.freshness
    if freshness is Freshness.NEVER_READ or (freshness is Freshness.STALE and settings.forgets_unread):
        return None
    hit, factor = assess(volume.usable_bytes, volume.total_bytes, settings.hard, settings.soft)
    if freshness is Freshness.STALE:
        # Silence never opens a gate that a reading closed.
        factor = min(settings.fallback, factor)
    return VolumeVerdict(
        facts.key, facts.broker, volume, freshness, facts.departed_ms, facts.seconds_to_full, hit, factor
    )
