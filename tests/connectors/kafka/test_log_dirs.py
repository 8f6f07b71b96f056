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
from connectors.kafka.log_dirs import LogDirsCollector, ReplicaSizesReader, cluster_reading, log_dirs_reading
from policies.free_space.limits import Limit
from policies.observations import Outcome, Reading
from policies.throttle.readings import BrokerMember, KafkaReading, LogDirs, VolumeReading

KAFKA_STORAGE_ERROR = 56
CLUSTER_AUTHORIZATION_FAILED = 31


def response(version: int, *results: dict[str, Any], error_code: int = 0) -> Any:
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    made = [result(**{"topics": [], "error_code": 0, **fields}) for fields in results]
    return DescribeLogDirsResponse(version=version, error_code=error_code, results=made)


def test_volumes_are_read_with_their_sizes() -> None:
    answer = response(
        5,
        {"log_dir": "/a", "total_bytes": 100, "usable_bytes": 7, "is_cordoned": True},
        {"log_dir": "/b", "total_bytes": 200, "usable_bytes": 0},
    )
    reading = log_dirs_reading("payments", 3, answer)
    assert (reading.subject(), reading.outcome, reading.detail) == ("payments/3", Outcome.OK, None)
    assert reading.volumes == (
        VolumeReading(log_dir="/a", total_bytes=100, usable_bytes=7, cordoned=True),
        VolumeReading(log_dir="/b", total_bytes=200, usable_bytes=0),
    )


def test_a_version_before_cordoning_is_never_cordoned() -> None:
    reading = log_dirs_reading("payments", 3, response(4, {"log_dir": "/a", "total_bytes": 9, "usable_bytes": 7}))
    assert reading.volumes == (VolumeReading(log_dir="/a", total_bytes=9, usable_bytes=7),)


def test_a_failed_disk_is_a_volume_with_its_error_and_without_sizes() -> None:
    failed = {"log_dir": "/a", "error_code": KAFKA_STORAGE_ERROR, "total_bytes": 0, "usable_bytes": 0}
    fine = {"log_dir": "/b", "total_bytes": 9, "usable_bytes": 8}
    reading = log_dirs_reading("payments", 3, response(5, failed, fine))
    assert reading.outcome is Outcome.OK
    assert reading.volumes[0] == VolumeReading(log_dir="/a", error="KAFKA_STORAGE_ERROR")
    assert reading.volumes[1].readable


def test_an_odd_answer_of_one_broker_loses_no_other_reading() -> None:
    negative = response(5, {"log_dir": "/a", "total_bytes": -(2**62), "usable_bytes": -5})
    assert log_dirs_reading("payments", 3, negative).volumes == (VolumeReading(log_dir="/a"),)
    nameless = log_dirs_reading("payments", 3, response(5, {"log_dir": "", "total_bytes": 9, "usable_bytes": 5}))
    assert (nameless.outcome, nameless.volumes) == (Outcome.ERROR, ())
    assert "log_dir" in (nameless.detail or "")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_broker_that_tells_no_sizes_is_unsupported(version: int) -> None:
    reading = log_dirs_reading("payments", 3, response(version, {"log_dir": "/a"}))
    assert (reading.outcome, reading.volumes) == (Outcome.UNSUPPORTED, ())
    assert "3.3" in (reading.detail or "")


@pytest.mark.parametrize("version", [3, 5])
def test_a_refusal_is_not_an_empty_success(version: int) -> None:
    reading = log_dirs_reading("payments", 3, response(version, error_code=CLUSTER_AUTHORIZATION_FAILED))
    assert (reading.outcome, reading.volumes) == (Outcome.UNAUTHORIZED, ())


def test_members_are_read_with_rack_and_fencing() -> None:
    reading = cluster_reading(
        "payments", (KafkaBroker(1, "h", 1, "a", fenced=False), KafkaBroker(2, "h", 2, None, fenced=True))
    )
    assert reading.outcome is Outcome.OK
    assert reading.brokers == (BrokerMember(broker=1, rack="a"), BrokerMember(broker=2, fenced=True))


def test_settings_are_flat_and_have_pinned_defaults() -> None:
    settings = WatchedKafka.model_validate({"bootstrap_servers": "a:1"})
    assert (settings.poll_interval, settings.timeout) == (timedelta(seconds=10), timedelta(seconds=5))
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

    def log_dirs(self, brokers: tuple[KafkaBroker, ...]) -> list[tuple[int, Any]]:
        self.looked.append((self.now, tuple(broker.broker for broker in brokers)))
        free = {1: 900, 2: max(0, 900 - round(8 * self.now))}
        return [
            (b.broker, response(5, {"log_dir": "/a", "total_bytes": 1000, "usable_bytes": free[b.broker]}))
            for b in brokers
        ]

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


def test_a_broker_with_room_is_not_asked(reader: ReplicaSizesReader) -> None:
    assert not reader.is_due(1, 0.0)
    reader.follow(log_dirs(a=301 * MB), 0.0)
    assert not reader.is_due(1, 0.0)


def test_a_broker_with_a_volume_at_a_limit_is_asked_once_a_minute(reader: ReplicaSizesReader) -> None:
    reader.follow(log_dirs(a=900 * MB, b=300 * MB), 0.0)
    assert reader.is_due(1, 0.0)
    reader.read("payments", 1, answer(300 * MB), 0.0)
    assert not reader.is_due(1, 59.9)
    assert reader.is_due(1, 60.0)


def test_a_broker_that_is_full_soon_is_asked_before_it_is_at_a_limit(reader: ReplicaSizesReader) -> None:
    due = []
    for second in range(0, 100, 10):
        reader.follow(log_dirs(a=900 * MB - second * MB), float(second))
        due.append(reader.is_due(1, float(second)))
    assert due[0] is False
    assert due[-1] is True


def test_a_broker_that_does_not_answer_is_left_in_peace(reader: ReplicaSizesReader) -> None:
    reader.follow(log_dirs(a=MB), 0.0)
    reader.postpone(1, 0.0)
    assert not reader.is_due(1, 599.0)
    assert reader.is_due(1, 600.0)


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


def test_a_broker_that_left_is_forgotten(reader: ReplicaSizesReader) -> None:
    reader.follow(log_dirs(a=MB), 0.0)
    reader.keep_only([2])
    assert not reader.is_due(1, 0.0)


def test_replicas_that_are_moved_here_from_another_log_dir_are_apart(reader: ReplicaSizesReader) -> None:
    reader.follow(log_dirs(a=300 * MB), 0.0)
    reader.read("payments", 1, answer(300 * MB, orders=[10 * MB], moved=[0]), 0.0)
    (usage,) = reader.read("payments", 1, answer(240 * MB, orders=[16 * MB], moved=[54 * MB]), 60.0).volumes
    assert [(each.topic, each.is_moved, each.size_bytes) for each in usage.topics] == [
        ("moved", True, 54 * MB),
        ("orders", False, 16 * MB),
    ]
    assert [each.share for each in usage.topics] == [pytest.approx(0.9), pytest.approx(0.1)]
    assert usage.kafka_bytes == 70 * MB
