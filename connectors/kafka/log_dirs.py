"""The collector of one watched Kafka cluster: reads its brokers, and the free space under their log dirs."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import structlog
from kafka import errors
from pydantic import ValidationError

from connectors.collection import Collector, PollMetrics, ticks
from connectors.kafka.cluster_client import ClusterClient, detail_of, error_in, outcome_of
from connectors.kafka.connection import WatchedKafka
from policies.free_space.limits import Limit
from policies.free_space.volumes import VolumeState, fold_volumes
from policies.observations import Outcome, Reading
from policies.throttle.readings import (
    BrokerMember,
    BrokerPace,
    KafkaCluster,
    LogDirs,
    PaceBounds,
    ReplicaSizes,
    VolumeReading,
    adapt_pace,
    stretch_intervals,
)
from policies.throttle.state import VolumeContent, is_filling_up, measure_usage

# Reads which topics fill the volumes that are at a limit, or full soon: at most once a minute and broker.

INTERVAL_SECONDS = 60.0
_AFTER_FAILURE_SECONDS = 600.0
"""Such a reading is the only heavy one: a broker that cannot answer it in time is spared."""
_OLDEST_SECONDS = 300.0
"""A content that is older is not compared with: it would give an average of the past."""
_MOST_VOLUMES = 100


class ReplicaSizesReader:
    """Decides when a broker's replica sizes are read, and compares each answer with the one before.

    It looks at volumes at a limit, and at those that are full sooner than `alert_seconds` at their present rate.
    """

    def __init__(self, limits: Sequence[Limit], alert_seconds: float) -> None:
        self._limits = limits
        self._alert_seconds = alert_seconds
        self._volumes: dict[int, tuple[VolumeState, ...]] = {}
        self._contents: dict[int, tuple[float, dict[str, VolumeContent]]] = {}
        """By broker, the time of its last reading, and its volumes by log dir."""
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
        self._not_before[broker] = at_seconds + INTERVAL_SECONDS
        volumes = {each.log_dir: _read_content(each) for each in answer.results if not each.error_code}
        before_seconds, before = self._contents.get(broker, (at_seconds, {}))
        self._contents[broker] = at_seconds, volumes
        seconds = at_seconds - before_seconds
        earlier = before if 0.0 < seconds <= _OLDEST_SECONDS else {}
        filling = [log_dir for log_dir in self._list_filling(broker, at_seconds) if log_dir in volumes]
        usages = [measure_usage(each, earlier.get(each), volumes[each], seconds) for each in filling[:_MOST_VOLUMES]]
        return ReplicaSizes(cluster=cluster, outcome=Outcome.OK, broker=broker, volumes=tuple(usages))

    def _list_filling(self, broker: int, at_seconds: float) -> Iterator[str]:
        now_ms = round(1000 * at_seconds)
        for volume in self._volumes.get(broker, ()):
            is_there = volume.missing_ms is None and volume.usable_bytes >= 0
            if is_there and is_filling_up(volume, now_ms, self._limits, self._alert_seconds):
                yield volume.log_dir


def _read_content(result: Any) -> VolumeContent:
    sizes: Counter[tuple[str, bool]] = Counter()
    for topic in result.topics:
        for partition in topic.partitions:
            sizes[topic.name, bool(partition.is_future_key)] += max(0, partition.partition_size)
    return VolumeContent(max(0, result.total_bytes - result.usable_bytes), sizes)


SOURCE = "headgate/collector/kafka"
"""The CloudEvents `source` of its readings."""

_SIZES_VERSION = 4  # the first version of DescribeLogDirs with sizes; Kafka 3.3

_log = structlog.get_logger(__name__)


class LogDirsCollector(Collector):
    """Reads one cluster repeatedly, and publishes its readings and failures.

    The nearer a volume comes to one of the limits, the more often its broker is read. If it is at a limit, or full
    within `alert_seconds`, the topics that fill it are read, too. `publish` must not block.
    """

    def __init__(
        self,
        cluster: str,
        settings: WatchedKafka,
        publish: Callable[[Reading], None],
        metrics: PollMetrics,
        limits: Sequence[Limit] = (),
        alert_seconds: float = 0.0,
    ) -> None:
        super().__init__(cluster, settings.poll_interval, publish, metrics)
        self._settings = settings
        self._client: ClusterClient | None = None
        longest = settings.poll_interval.total_seconds()
        self._bounds = PaceBounds(min(settings.poll_interval_min.total_seconds(), longest), longest)
        self._limits = limits
        self._replica_sizes = ReplicaSizesReader(limits, alert_seconds)
        self._paces: dict[int, BrokerPace] = {}

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set; no error in a poll ends it."""
        try:
            for _ in ticks(self._poll_seconds, partial(self._look_closer, stop)):
                if not self._metrics.run_poll(self._cluster, self.poll_once):
                    self.close()
        finally:
            self.close()

    def _poll(self) -> None:
        """List the cluster's brokers, then read their log dirs in parallel, and publish each answer."""
        try:
            client = self._client = self._client or ClusterClient(self._settings, self._settings.timeout_seconds)
            brokers = client.describe()
        except Exception as error:  # any failure is an observation
            failed = KafkaCluster(cluster=self._cluster, outcome=outcome_of(error), detail=detail_of(error))
            self._announce(failed)
            # The next poll starts again from the bootstrap servers.
            self.close()
        else:
            members = tuple(BrokerMember(broker=b.broker, rack=b.rack, fenced=b.fenced) for b in brokers)
            self._announce(
                KafkaCluster(cluster=self._cluster, outcome=Outcome.OK, cluster_id=client.cluster_id, brokers=members)
            )
            numbers = [broker.broker for broker in brokers]
            self._paces = {number: pace for number, pace in self._paces.items() if number in numbers}
            self._outcome_log.keep_only([(), *((number,) for number in numbers)])
            self._replica_sizes.keep_only(numbers)
            self._read(client, numbers)

    def _look_closer(self, stop: threading.Event, seconds: float) -> bool:
        """Wait until the next poll; meanwhile read brokers near a limit. Returns whether to stop."""
        end = time.monotonic() + seconds
        while self._client is not None and (due := self._due()) and due[0][0] < end:
            if stop.wait(max(0.0, due[0][0] - time.monotonic())):
                return True
            now = time.monotonic()
            brokers = [number for at, number in due if at <= now]
            if not self._metrics.run_poll(self._cluster, partial(self._read, self._client, brokers)):
                self.close()
        return stop.wait(max(0.0, end - time.monotonic()))

    def _due(self) -> list[tuple[float, int]]:
        """Return (time, broker) of the additional readings before the next poll, the earliest first."""
        longest = self._bounds.longest_seconds
        near = {n: pace.interval_seconds for n, pace in self._paces.items() if pace.interval_seconds < longest}
        held = stretch_intervals(near, self._settings.poll_requests_per_second, longest)
        self._metrics.shortest.labels(self._cluster).set(min(held.values(), default=longest))
        return sorted((self._paces[number].at_seconds + seconds, number) for number, seconds in held.items())

    def close(self) -> None:
        """Close the connections; the next poll opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _read(self, client: ClusterClient, brokers: list[int]) -> None:
        outcomes = set()
        for broker, answer in client.log_dirs(brokers):
            reading = log_dirs_reading(self._cluster, broker, answer, client.cluster_id)
            outcomes.add(reading.outcome)
            self._publish_reading(reading, broker=broker)
            self._paces[broker] = adapt_pace(
                self._paces.get(broker), time.monotonic(), reading.volumes, self._limits, self._bounds
            )
            self._replica_sizes.follow(reading, time.monotonic())
        self._read_replica_sizes(client, brokers)
        if Outcome.UNAUTHORIZED in outcomes:
            # kafka-python's client remembers a refused login, even if the broker would accept it by now.
            self.close()

    def _read_replica_sizes(self, client: ClusterClient, brokers: list[int]) -> None:
        """Read which topics fill the volumes near a limit. A failure takes nothing from the other readings."""
        reader, now = self._replica_sizes, time.monotonic()
        due = [broker for broker in brokers if reader.is_due(broker, now)]
        for broker, answer in client.log_dirs(due, replicas=True) if due else ():
            if (error := error_in(answer)) is not None:
                reader.postpone(broker, time.monotonic())
                detail = detail_of(error)
                _log.warning("replica sizes were not read", cluster=self._cluster, broker=broker, detail=detail)
            else:
                reading = reader.read(self._cluster, broker, answer, time.monotonic())
                self._publish(reading.model_copy(update={"cluster_id": client.cluster_id}))

    def _announce(self, reading: KafkaCluster) -> None:
        """Publish a reading of the cluster, which does not count as a poll, and log it if its outcome has changed."""
        self._publish(reading)
        self._outcome_log.note((), reading)


def log_dirs_reading(cluster: str, broker: int, answer: Any, cluster_id: str | None = None) -> LogDirs:
    """Make the reading of one broker from its DescribeLogDirs response or its error."""
    if (error := error_in(answer)) is not None:
        return LogDirs(cluster=cluster, broker=broker, outcome=outcome_of(error), detail=detail_of(error))
    if answer.API_VERSION < _SIZES_VERSION:
        detail = "the broker is older than Kafka 3.3 and does not tell the sizes of its volumes"
        return LogDirs(cluster=cluster, broker=broker, outcome=Outcome.UNSUPPORTED, detail=detail)
    try:
        volumes = tuple(_volume(result) for result in answer.results)
        return LogDirs(cluster=cluster, broker=broker, outcome=Outcome.OK, cluster_id=cluster_id, volumes=volumes)
    except ValidationError as odd:  # it takes nothing from the other brokers
        return LogDirs(cluster=cluster, broker=broker, outcome=Outcome.ERROR, detail=detail_of(odd))


def _volume(result: Any) -> VolumeReading:
    if result.error_code:
        return VolumeReading(log_dir=result.log_dir, error=errors.for_code(result.error_code).message)
    return VolumeReading(
        log_dir=result.log_dir,
        total_bytes=max(-1, result.total_bytes),
        usable_bytes=max(-1, result.usable_bytes),
        cordoned=bool(result.is_cordoned),
    )
