"""Reads which topics fill the volumes that are at a limit, or full soon: at most once a minute and broker."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from policies.free_space.limits import Limit
from policies.free_space.volumes import VolumeState, fold_volumes
from policies.observations import Outcome
from policies.throttle.readings import LogDirs, ReplicaSizes, VolumeUsage
from policies.throttle.usage import VolumeContent, is_filling_up, measure_usage

INTERVAL_SECONDS = 60.0
_AFTER_FAILURE_SECONDS = 600.0
"""Such a reading is the only heavy one: a broker that cannot answer it in time is spared."""
_OLDEST_SECONDS = 300.0
"""A content that is older is not compared with: it would give an average of the past."""
_MOST_VOLUMES = 100


@dataclass(frozen=True, slots=True)
class _BrokerContent:
    """The content of a broker's volumes, by log dir."""

    at_seconds: float
    volumes: dict[str, VolumeContent]


class ReplicaSizesReader:
    """Decides when a broker's replica sizes are read, and compares each answer with the one before.

    Args:
        alert_seconds: a volume that is full sooner, at its present rate, is looked at.
        interval_seconds: the shortest time between two readings of a broker.
    """

    def __init__(
        self, limits: Sequence[Limit], alert_seconds: float, interval_seconds: float = INTERVAL_SECONDS
    ) -> None:
        self._limits = limits
        self._alert_seconds = alert_seconds
        self._interval_seconds = interval_seconds
        self._volumes: dict[int, tuple[VolumeState, ...]] = {}
        self._contents: dict[int, _BrokerContent] = {}
        self._not_before: dict[int, float] = {}

    def follow(self, reading: LogDirs, at_seconds: float) -> None:
        """Follow the trends of a broker's volumes."""
        if reading.outcome is Outcome.OK:
            known = self._volumes.get(reading.broker, ())
            self._volumes[reading.broker] = fold_volumes(known, reading.volumes, round(1000 * at_seconds))

    def keep_only(self, brokers: Sequence[int]) -> None:
        """Forget brokers that left the cluster."""
        for known in (self._volumes, self._contents, self._not_before):
            for broker in known.keys() - set(brokers):
                del known[broker]

    def is_due(self, broker: int, at_seconds: float) -> bool:
        """Return whether to read a broker's replica sizes now."""
        return at_seconds >= self._not_before.get(broker, 0.0) and any(self._list_filling(broker, at_seconds))

    def postpone(self, broker: int, at_seconds: float) -> None:
        """Leave a broker that did not answer in peace for ten minutes."""
        self._not_before[broker] = at_seconds + _AFTER_FAILURE_SECONDS

    def read(self, cluster: str, broker: int, answer: Any, at_seconds: float) -> ReplicaSizes:
        """Return the reading of a good answer."""
        self._not_before[broker] = at_seconds + self._interval_seconds
        content = _BrokerContent(at_seconds, {r.log_dir: _read_content(r) for r in answer.results if not r.error_code})
        before, self._contents[broker] = self._contents.get(broker), content
        usages = tuple(self._measure(broker, before, content))[:_MOST_VOLUMES]
        return ReplicaSizes(cluster=cluster, outcome=Outcome.OK, broker=broker, volumes=usages)

    def _measure(self, broker: int, before: _BrokerContent | None, after: _BrokerContent) -> Iterator[VolumeUsage]:
        seconds = after.at_seconds - before.at_seconds if before else 0.0
        earlier = before.volumes if before and 0.0 < seconds <= _OLDEST_SECONDS else {}
        for log_dir in self._list_filling(broker, after.at_seconds):
            if log_dir in after.volumes:
                yield measure_usage(log_dir, earlier.get(log_dir), after.volumes[log_dir], seconds)

    def _list_filling(self, broker: int, at_seconds: float) -> Iterator[str]:
        now_ms = round(1000 * at_seconds)
        for volume in self._volumes.get(broker, ()):
            is_there = volume.missing_ms is None and volume.usable_bytes >= 0
            if is_there and is_filling_up(volume, now_ms, self._limits, self._alert_seconds):
                yield volume.log_dir


def _read_content(result: Any) -> VolumeContent:
    sizes: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for topic in result.topics:
        for partition in topic.partitions:
            part = sizes[bool(partition.is_future_key)]
            part[topic.name] = part.get(topic.name, 0) + max(0, partition.partition_size)
    return VolumeContent(max(0, result.total_bytes - result.usable_bytes), *sizes)
