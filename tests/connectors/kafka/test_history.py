"""Past records, from a tail that plays what a test wants: all of a time range, and the last reading of each subject."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from connectors.kafka import tail
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Record, last_readings, read_history
from policies.observations import Reading
from policies.sessions.readings import MemberHealth, SessionState, ZkSession
from policies.units import UserError, to_millis
from policies.wire import observation_event
from tests.fakes.tail import FakeTail

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
KAFKA = KafkaConnection(bootstrap_servers="127.0.0.1:9092")


@dataclass
class Played:
    """What a tail reads, and how it was made."""

    records: tuple[Record, ...] = ()
    ends: bool = True
    failure: UserError | None = None
    missing: list[str] = field(default_factory=list)
    asked: tuple[Mapping[str, timedelta | None], datetime | None] = ({}, None)

    def tail(
        self, _: KafkaConnection, histories: Mapping[str, timedelta | None], client_id: str, until: Any = None
    ) -> FakeTail:
        if self.failure is not None:
            raise self.failure
        self.asked = histories, until
        silence: list[list[Record]] = [] if self.ends else [[]] * 9
        made = FakeTail([*([each] for each in self.records), *silence])
        made.missing = self.missing
        return made


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    now, clock = Played(), count(0, 10)
    monkeypatch.setattr(tail, "Tail", now.tail)
    monkeypatch.setattr(tail, "reach", lambda _: 1)
    monkeypatch.setattr(tail, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    return now


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def put(seconds: float, topic: str = "a", partition: int = 0, offset: int = 0) -> Record:
    return Record(topic, None, b"", to_millis(at(seconds)), partition, offset)


def read(topics: list[str], since: float, to: float) -> list[Record]:
    return list(read_history(KAFKA, topics, at(since), at(to)))


def test_a_range_comes_in_the_order_of_appending_from_its_first_instant_until_before_its_last(
    played: Played,
) -> None:
    played.records = (put(1), put(4, offset=1), put(6, offset=2), put(2, partition=1), put(5, "b"), put(0, "b"))
    found = read(["a", "b"], 1, 6)
    assert found == [put(1), put(2, partition=1), put(4, offset=1), put(5, "b")]
    histories, until = played.asked
    assert until == at(6)
    assert histories.keys() == {"a", "b"}
    assert all(at(1) > datetime.now(UTC) - (each or timedelta(0)) for each in histories.values())


def test_a_topic_that_does_not_exist_is_named(played: Played) -> None:
    played.missing = ["missing"]
    with pytest.raises(UserError, match=r"^missing: "):
        read(["missing"], 0, 1)


def test_silence_in_the_middle_is_an_error_and_not_the_end(played: Played) -> None:
    played.records, played.ends = (put(1),), False
    with pytest.raises(UserError, match=r"^kafka: \d batches behind"):
        read(["a"], 0, 9)


def reading(state: SessionState, member: str = "b1:8080") -> ZkSession:
    return ZkSession(cluster="payments", member=member, session="0x1", state=state)


def encoded(readings: Iterable[Reading]) -> Iterable[bytes]:
    return (observation_event(each, id="id", source="headgate/test", time=NOON) for each in readings)


def found(stop: Event | None = None) -> list[ZkSession]:
    return last_readings(KAFKA, "observed", ZkSession, timedelta(hours=1), stop or Event())


def test_of_each_thing_the_last_reading_counts_and_other_records_do_not(played: Played) -> None:
    first, second = reading(SessionState.CONNECTED), reading(SessionState.EXPIRED)
    other = reading(SessionState.CLOSED, "b2")
    health = MemberHealth(cluster="payments", member="b1:8080")
    values = (*encoded([first, health, second]), b"nonsense", *encoded([other]))
    played.records = tuple(Record("observed", None, value, 0) for value in values)
    assert found() == [second, other]


def test_what_there_is_counts_when_not_all_can_be_read(played: Played) -> None:
    (value,) = encoded([reading(SessionState.CONNECTED)])
    played.records, played.ends = (Record("observed", None, value, 0),), False
    with capture_logs() as lines:
        assert len(found()) == 1
        played.failure = UserError("no such file")
        assert found() == []
    assert [line["detail"] for line in lines] == ["kafka: 7 batches behind", "no such file"]


def test_it_ends_when_it_is_told_to(played: Played) -> None:
    played.ends, stop = False, Event()
    stop.set()
    assert found(stop) == []
