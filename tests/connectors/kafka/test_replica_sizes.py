"""When a broker's replica sizes are read, and the reading that becomes of two answers."""

from typing import Any

import pytest
from kafka.protocol.admin import DescribeLogDirsResponse

from connectors.kafka.log_dirs import ReplicaSizesReader
from policies.free_space.limits import Limit
from policies.observations import Outcome
from policies.throttle.readings import LogDirs, VolumeReading

MB, TOTAL = 10**6, 1000 * 10**6


def log_dirs(**usable: int) -> LogDirs:
    volumes = (VolumeReading(log_dir=f"/{name}", total_bytes=TOTAL, usable_bytes=free) for name, free in usable.items())
    return LogDirs(cluster="payments", broker=1, outcome=Outcome.OK, volumes=tuple(volumes))


def answer(usable: int, **topics: list[int]) -> Any:
    """DescribeLogDirs of /a with the sizes of each topic's partitions, and of /b, which failed."""
    response = DescribeLogDirsResponse
    parts = [
        response.DescribeLogDirsResult.DescribeLogDirsTopic(
            name=name,
            partitions=[
                response.DescribeLogDirsResult.DescribeLogDirsTopic.DescribeLogDirsPartition(
                    partition_index=number, partition_size=size, offset_lag=0, is_future_key=name == "moved"
                )
                for number, size in enumerate(sizes)
            ],
        )
        for name, sizes in topics.items()
    ]
    made = [
        response.DescribeLogDirsResult(
            error_code=0, log_dir="/a", topics=parts, total_bytes=TOTAL, usable_bytes=usable, is_cordoned=False
        ),
        response.DescribeLogDirsResult(
            error_code=56, log_dir="/b", topics=[], total_bytes=-1, usable_bytes=-1, is_cordoned=False
        ),
    ]
    return DescribeLogDirsResponse(version=5, error_code=0, results=made)


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
