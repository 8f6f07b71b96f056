"""What responses and errors of Kafka become as readings."""

import threading
from datetime import timedelta
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.protocol.admin import DescribeLogDirsResponse
from prometheus_client import CollectorRegistry

from connectors.collection import PollMetrics, ticks
from connectors.kafka.cluster_client import KafkaBroker
from connectors.kafka.connection import WatchedKafka
from connectors.kafka.log_dirs import LogDirsCollector, ReplicaSizesReader, log_dirs_reading
from policies.free_space.limits import Limit
from policies.observations import Outcome, Reading
from policies.throttle.readings import KafkaReading, LogDirs, VolumeReading
from tests.cases import for_each

KAFKA_STORAGE_ERROR = 56


def response(version: int, *results: dict[str, Any], error_code: int = 0) -> Any:
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    made = [result(**{"topics": [], "error_code": 0, **fields}) for fields in results]
    return DescribeLogDirsResponse(version=version, error_code=error_code, results=made)


A = {"log_dir": "/a", "total_bytes": 9, "usable_bytes": 7}
GOOD = VolumeReading(log_dir="/a", total_bytes=9, usable_bytes=7)


ANSWERS: dict[str, tuple[Any, Outcome, str, list[VolumeReading]]] = {
    "sizes": (response(5, A), Outcome.OK, "", [GOOD]),
    "cordoned": (response(5, {**A, "is_cordoned": True}), Outcome.OK, "", [GOOD.model_copy(update={"cordoned": True})]),
    "a version before cordoning": (response(4, A), Outcome.OK, "", [GOOD]),
    "a failed disk beside a good one": (
        response(5, {"log_dir": "/b", "error_code": KAFKA_STORAGE_ERROR, "total_bytes": 0, "usable_bytes": 0}, A),
        Outcome.OK,
        "",
        [VolumeReading(log_dir="/b", error="KAFKA_STORAGE_ERROR"), GOOD],
    ),
    "odd sizes": (
        response(5, {"log_dir": "/a", "total_bytes": -(2**62), "usable_bytes": -5}),
        Outcome.OK,
        "",
        [VolumeReading(log_dir="/a")],
    ),
    "an odd name loses no other reading": (response(5, {**A, "log_dir": ""}), Outcome.ERROR, "log_dir", []),
    "no sizes": (response(3, {"log_dir": "/a"}), Outcome.UNSUPPORTED, "older than Kafka 3.3", []),
    "refused": (response(3, error_code=31), Outcome.UNAUTHORIZED, "ClusterAuthorizationFailed", []),
}


@for_each(("answer", "outcome", "detail", "volumes"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_becomes_a_reading(answer: Any, outcome: Outcome, detail: str, volumes: list[VolumeReading]) -> None:
    reading = log_dirs_reading("payments", 3, answer)
    assert (reading.subject(), reading.outcome, [*reading.volumes]) == ("payments/3", outcome, volumes)
    assert detail in (reading.detail or "")


def test_an_answer_is_awaited_no_longer_than_until_the_next_poll() -> None:
    assert WatchedKafka(bootstrap_servers="a:1", poll_interval=timedelta(seconds=2)).timeout_seconds == 2.0


class Kafka:
    """Two brokers, of which the second fills; and the time, which passes only while somebody waits."""

    def __init__(self) -> None:
        self.now, self.cluster_id = 0.0, "id-1"
        self.looked: list[tuple[float, tuple[int, ...]]] = []
        self.described: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now = max(self.now + seconds, self.now)
        return self.now > 120

    def describe(self) -> tuple[KafkaBroker, ...]:
        self.described.append(self.now)
        return tuple(KafkaBroker(number, "127.0.0.1", 9, None, fenced=False) for number in (1, 2))

    def log_dirs(self, brokers: list[int], *, replicas: bool = False) -> list[tuple[int, Any]]:
        if replicas:
            return []
        self.looked.append((self.now, tuple(brokers)))
        free = {1: 900, 2: max(0, 900 - round(8 * self.now))}
        return [(b, response(5, {"log_dir": "/a", "total_bytes": 1000, "usable_bytes": free[b]})) for b in brokers]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("shortest", "closer"), [("1s", True), ("10s", False), ("1m", False)])
def test_a_broker_near_a_limit_is_read_between_the_polls_and_no_other(
    monkeypatch: pytest.MonkeyPatch, shortest: str, closer: bool
) -> None:
    kafka, readings, registry = Kafka(), list[Reading](), CollectorRegistry()
    monkeypatch.setattr("connectors.kafka.log_dirs.time", kafka)
    monkeypatch.setattr("connectors.kafka.log_dirs.ClusterClient", lambda *_: kafka)
    monkeypatch.setattr(
        "connectors.kafka.log_dirs.ticks", partial(ticks, clock=kafka.monotonic, draw=lambda _low, _high: 0.0)
    )
    settings = WatchedKafka.model_validate({"bootstrap_servers": "kafka:9092", "poll_interval_min": shortest})
    collector = LogDirsCollector(
        "payments", settings, readings.append, PollMetrics(registry), [Limit(available_bytes_below=300)]
    )
    collector.run(cast("threading.Event", SimpleNamespace(wait=kafka.wait)))
    assert kafka.described == [10.0 * n for n in range(13)]
    between = [(at, brokers) for at, brokers in kafka.looked if at % 10]
    assert {brokers for _, brokers in between} == ({(2,)} if closer else set())
    assert [r.broker for r in readings if isinstance(r, LogDirs)].count(1) == 13
    assert {r.cluster_id for r in readings if isinstance(r, KafkaReading)} == {"id-1"}
    shown = registry.get_sample_value("headgate_poll_interval_seconds", {"cluster": "payments"})
    assert shown is not None
    if closer:
        near = [at for at, _ in kafka.looked if 65 <= at <= 75]  # at its limit at 75 s
        assert max(after - before for before, after in pairwise(near)) <= 1.5
    else:
        assert shown == 10.0


# When a broker's replica sizes are read, and the reading that becomes of two answers.


MB, TOTAL = 10**6, 1000 * 10**6


def log_dirs(**usable: int) -> LogDirs:
    volumes = (VolumeReading(log_dir=f"/{name}", total_bytes=TOTAL, usable_bytes=free) for name, free in usable.items())
    return LogDirs(cluster="payments", broker=1, outcome=Outcome.OK, volumes=tuple(volumes))


def answer(usable: int, **topics: list[int]) -> Any:
    """DescribeLogDirs of /a with the sizes of each topic's partitions, and of /b, which failed."""
    topic = DescribeLogDirsResponse.DescribeLogDirsResult.DescribeLogDirsTopic
    made = [
        topic(
            name=name,
            partitions=[
                topic.DescribeLogDirsPartition(
                    partition_index=number, partition_size=size, offset_lag=0, is_future_key=name == "moved"
                )
                for number, size in enumerate(sizes)
            ],
        )
        for name, sizes in topics.items()
    ]
    failed = {"log_dir": "/b", "error_code": KAFKA_STORAGE_ERROR, "total_bytes": -1, "usable_bytes": -1}
    return response(5, {"log_dir": "/a", "topics": made, "total_bytes": TOTAL, "usable_bytes": usable}, failed)


@pytest.fixture
def reader() -> ReplicaSizesReader:
    return ReplicaSizesReader([Limit(available_bytes_below=300 * MB)], alert_seconds=1800.0)


def test_a_broker_is_asked_once_a_minute_while_a_volume_is_at_a_limit(reader: ReplicaSizesReader) -> None:
    assert not reader.is_due(1, 0.0)
    reader.follow(log_dirs(a=301 * MB), 0.0)
    assert not reader.is_due(1, 0.0)
    reader.follow(log_dirs(a=900 * MB, b=300 * MB), 0.0)
    assert reader.is_due(1, 0.0)
    reader.read("payments", 1, answer(300 * MB), 0.0)
    assert (reader.is_due(1, 59.9), reader.is_due(1, 60.0)) == (False, True)
    reader.postpone(1, 60.0)
    assert (reader.is_due(1, 659.0), reader.is_due(1, 660.0)) == (False, True), "left in peace"
    reader.keep_only([2])
    assert not reader.is_due(1, 660.0)


def test_a_broker_that_is_full_soon_is_asked_before_it_is_at_a_limit(reader: ReplicaSizesReader) -> None:
    due = []
    for second in range(0, 100, 10):
        reader.follow(log_dirs(a=900 * MB - second * MB), float(second))
        due.append(reader.is_due(1, float(second)))
    assert due[0] is False
    assert due[-1] is True


def test_two_answers_give_growth_by_topic_and_of_what_is_not_kafkas(reader: ReplicaSizesReader) -> None:
    reader.follow(log_dirs(a=300 * MB), 0.0)
    first = reader.read("payments", 1, answer(300 * MB, orders=[100 * MB, 100 * MB], clicks=[50 * MB]), 0.0)
    assert first.subject() == "payments/1"
    (usage,) = first.volumes
    assert (usage.log_dir, usage.kafka_bytes, usage.other_bytes) == ("/a", 250 * MB, 450 * MB)
    assert {each.bytes_per_second for each in usage.topics} == {None}
    reader.follow(log_dirs(a=200 * MB), 50.0)
    second = reader.read("payments", 1, answer(200 * MB, orders=[140 * MB, 100 * MB], clicks=[70 * MB]), 50.0)
    (usage,) = second.volumes
    rates = {each.topic: (each.bytes_per_second, each.share) for each in usage.topics}
    assert rates == {"orders": (0.8 * MB, 0.4), "clicks": (0.4 * MB, 0.2)}
    assert (usage.other_bytes_per_second, usage.other_share) == (0.8 * MB, 0.4)


@pytest.mark.parametrize(("later", "has_rates"), [(300.0, True), (301.0, False)])
def test_an_old_answer_is_not_compared_with(reader: ReplicaSizesReader, later: float, has_rates: bool) -> None:
    reader.follow(log_dirs(a=300 * MB), 0.0)
    reader.read("payments", 1, answer(300 * MB, orders=[MB]), 0.0)
    (usage,) = reader.read("payments", 1, answer(200 * MB, orders=[2 * MB]), later).volumes
    assert (usage.topics[0].bytes_per_second is not None) is has_rates
