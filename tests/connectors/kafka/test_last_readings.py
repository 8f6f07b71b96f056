"""The last readings before a start, from a tail that plays what a test wants."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from threading import Event
from types import SimpleNamespace
from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from connectors.kafka import history
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.history import last_readings
from connectors.kafka.tail import Record
from policies.observations import Reading
from policies.sessions.readings import MemberHealth, SessionState, ZkSession
from policies.units import UserError
from policies.wire import observation_event

NOW = datetime(2026, 11, 21, tzinfo=UTC)
KAFKA = KafkaConnection(bootstrap_servers="127.0.0.1:9092")


def reading(state: SessionState, member: str = "b1:8080") -> ZkSession:
    return ZkSession(cluster="payments", member=member, session="0x1", state=state)


class Played:
    """In place of `Tail`."""

    records: tuple[bytes, ...] = ()
    ends = True
    failure: UserError | None = None
    problem: str | None = "Kafka does not answer"

    def __init__(self, _: KafkaConnection, histories: Mapping[str, timedelta | None], client_id: str) -> None:
        if self.failure is not None:
            raise self.failure
        assert (histories, client_id) == ({"observed": timedelta(hours=1)}, "headgate-recall")
        self.left = list(self.records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    @property
    def caught_up(self) -> bool:
        return self.ends and not self.left

    def poll(self, _: float) -> list[Record]:
        return [Record("observed", None, self.left.pop(0), 0)] if self.left else []


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> type[Played]:
    class Now(Played):
        pass

    monkeypatch.setattr(history, "Tail", Now)
    return Now


def encoded(readings: Iterable[Reading]) -> tuple[bytes, ...]:
    return tuple(observation_event(each, id="id", source="headgate/test", time=NOW) for each in readings)


def found(**more: Any) -> list[ZkSession]:
    return last_readings(KAFKA, "observed", ZkSession, timedelta(hours=1), more.get("stop", Event()))


def test_of_each_thing_the_last_reading_counts_and_other_records_do_not(played: type[Played]) -> None:
    first, second = reading(SessionState.CONNECTED), reading(SessionState.EXPIRED)
    other = reading(SessionState.CLOSED, "b2")
    health = MemberHealth(cluster="payments", member="b1:8080")
    played.records = (*encoded([first, health, second]), b"nonsense", *encoded([other]))
    assert found() == [second, other]


def test_what_there_is_counts_when_not_all_can_be_read_in_time(
    played: type[Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(history, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    played.records, played.ends = encoded([reading(SessionState.CONNECTED)]), False
    with capture_logs() as lines:
        assert len(found()) == 1
    assert [line["detail"] for line in lines] == ["Kafka does not answer"]


def test_a_connection_that_cannot_be_used_is_no_reason_not_to_begin(played: type[Played]) -> None:
    played.failure = UserError("no such file")
    with capture_logs() as lines:
        assert found() == []
    assert [line["detail"] for line in lines] == ["no such file"]


def test_it_ends_when_it_is_told_to(played: type[Played]) -> None:
    played.ends, stop = False, Event()
    stop.set()
    assert found(stop=stop) == []
