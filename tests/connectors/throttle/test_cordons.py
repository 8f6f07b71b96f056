"""Volumes at a limit that still get new partitions, and the command that cordons them."""

import pytest

from connectors.throttle.cordons import judge_cordons
from policies.free_space.limits import Limit
from policies.observations import Outcome
from policies.throttle.readings import LogDirs, VolumeReading

LIMIT = Limit(available_bytes_below=100)


def reading(broker: int, *volumes: tuple[str, int, bool]) -> LogDirs:
    """Each volume is (log dir, free of 1000 bytes or -1 if it cannot be read, whether it is cordoned)."""
    made = (VolumeReading(log_dir=d, total_bytes=1000, usable_bytes=free, cordoned=c) for d, free, c in volumes)
    return LogDirs(cluster="payments", broker=broker, outcome=Outcome.OK, volumes=tuple(made))


@pytest.mark.parametrize(
    ("volumes", "limit", "detail"),
    [
        pytest.param([("/a", 101, False)], LIMIT, "0 volumes cordoned", id="room"),
        pytest.param([("/a", 100, True)], LIMIT, "1 volume cordoned", id="cordoned"),
        pytest.param([("/a", -1, False)], LIMIT, "0 volumes cordoned", id="cannot be read"),
        pytest.param([("/a", 0, False)], None, "0 volumes cordoned", id="no limit"),
    ],
)
def test_there_is_nothing_to_do(volumes: list[tuple[str, int, bool]], limit: Limit | None, detail: str) -> None:
    found = judge_cordons("kafka:9092", {1: reading(1, *volumes)}, limit)
    assert (found.outcome, found.remedies) == (Outcome.OK, ())
    assert found.detail.startswith(detail)


def test_each_broker_gets_one_command_that_keeps_what_is_cordoned_already() -> None:
    readings = {
        2: reading(2, ("/a", 100, False), ("/b", 50, False), ("/c", 900, True), ("/d", 900, False)),
        1: reading(1, ("/a", 7, False)),
    }
    found = judge_cordons("kafka:9092", readings, LIMIT)
    assert found.outcome is Outcome.ERROR
    assert found.detail == "broker 1 /a is at its limit and still gets new partitions (and 2 more)"
    command = "kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type brokers --entity-name"
    assert found.remedies == (
        f"{command} 1 --add-config 'cordoned.log.dirs=[/a]' (Kafka 4.3 or newer)",
        f"{command} 2 --add-config 'cordoned.log.dirs=[/a,/b,/c]' (Kafka 4.3 or newer)",
    )
