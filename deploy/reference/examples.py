"""One real event of each type: what the code itself makes of a tiny scenario."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from policies.observations import Observation, Outcome, Reading
from policies.throttle import KafkaCluster, LogDirs, ThrottleSettings
from policies.throttle.readings import BrokerMember, VolumeReading
from policies.units import to_millis
from policies.wire import BadRecordError, observation_event
from streaming.dead_letters import Record, dead_letter
from streaming.host import PolicyHost, outputs, reading_reader

_START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
_GIGABYTE = 10**9
_CLUSTER = "payments"


class Example(NamedTuple):
    """A record as it would lie in Kafka."""

    topic: str
    """Without its prefix."""
    key: str
    event: dict[str, Any]


def examples() -> dict[str, Example]:
    """By event type: the first of each that the scenario gives."""
    found: dict[str, Example] = {}
    for example in (*_observed(), *_decided(), _buried()):
        found.setdefault(example.event["type"], example)
    return found


def _readings() -> Sequence[tuple[str, datetime, Reading]]:
    """Three brokers; a volume of the last fills by a tenth of a gigabyte a minute. What the pages show stands first."""
    members = tuple(BrokerMember(broker=broker, rack=rack) for broker, rack in ((1, "a"), (2, "b"), (3, "c")))
    filling = [(f"reading-{minute}", _at(minute), _log_dirs(3, 4.3 - minute / 10)) for minute in range(4)]
    return (
        ("members-3", _at(3), KafkaCluster(cluster=_CLUSTER, outcome=Outcome.OK, brokers=members)),
        *reversed(filling),
        *((f"roomy-{broker}", _at(3), _log_dirs(broker, 60)) for broker in (1, 2)),
    )


def _at(minutes: int) -> datetime:
    return _START + timedelta(minutes=minutes)


def _log_dirs(broker: int, usable_gigabytes: float) -> LogDirs:
    usable_bytes = round(usable_gigabytes * _GIGABYTE)
    volume = VolumeReading(log_dir="/data/a", total_bytes=100 * _GIGABYTE, usable_bytes=usable_bytes)
    return LogDirs(cluster=_CLUSTER, outcome=Outcome.OK, broker=broker, volumes=(volume,))


def _observed() -> Iterator[Example]:
    for id_, time, reading in _readings():
        event = observation_event(reading, id=id_, source="headgate/collector/kafka", time=time)
        yield Example("observed.log-dirs", reading.cluster, json.loads(event))


def _decided() -> Iterator[Example]:
    limits = {"soft": {"available_bytes_below": "5GB"}, "hard": {"available_bytes_below": "1GB"}}
    host = PolicyHost({"throttle": ThrottleSettings.model_validate(limits)})
    observations = [Observation(id_, time, reading) for id_, time, reading in _readings()]
    _, step = host.step("throttle", _CLUSTER, None, observations, max(o.at for o in observations))
    for topic, key, value in outputs(step):
        yield Example(topic, key, json.loads(value))


def _buried() -> Example:
    record = Record("headgate.observed.log-dirs", 0, 42, to_millis(_START), b'{"specversion":"1.0","id":"x"')
    try:
        reading_reader().read(record.value or b"")
    except BadRecordError as error:
        topic, key, value = dead_letter(record, error)
        return Example(topic, key, json.loads(value))
    raise AssertionError("a record cut short can be read")
