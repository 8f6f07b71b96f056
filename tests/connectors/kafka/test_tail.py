"""The tail where there is no broker, or one that refuses: it says so and goes on trying."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from connectors.kafka import tail
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.tail import Progress, Tail

HISTORIES = {"headgate.decided.throttle": None, "headgate.dead-letters": timedelta(0)}
NOBODY = KafkaConnection(bootstrap_servers="127.0.0.1:9")


class StubMetadataClient:
    """Knows no topics, or answers with an error for some."""

    def __init__(self, **errors: int) -> None:
        self._errors = {name.replace("_", "-"): code for name, code in errors.items()}

    def poll(self, timeout: float) -> None:
        pass

    def close(self) -> None:
        pass

    def list_topics(self, name: str, timeout: float) -> Any:
        code = self._errors.get(name.rpartition(".")[2], KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={name: SimpleNamespace(error=KafkaError(code), partitions={})})


@pytest.fixture
def quiet() -> Iterator[None]:
    logger = logging.getLogger("headgate.librdkafka")
    logger.disabled = True
    yield
    logger.disabled = False


@pytest.fixture
def following(quiet: None) -> Iterator[Tail]:
    with Tail(NOBODY, HISTORIES, "test") as following:
        yield following


def survey(following: Tail, **errors: int) -> None:
    metadata_client: Any = StubMetadataClient(**errors)
    following._metadata_client.close()
    following._metadata_client = metadata_client
    following._refresh_at = 0.0
    following.poll(0)


def test_without_a_broker_it_is_not_caught_up_and_says_why(following: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_REQUEST_SECONDS", 1.0)
    assert following.poll(0) == []
    assert not following.caught_up
    assert following.problem is not None
    assert following.problem.startswith("Kafka at 127.0.0.1:9 does not answer as it should: ")
    assert "refused" in following.problem
    assert following.backlog == "its topics have not been found yet"


def test_a_refused_topic_is_named_and_holds_readiness_back(following: Tail) -> None:
    survey(following, dead_letters=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert not following.caught_up
    assert following.problem is not None
    assert "TOPIC_AUTHORIZATION_FAILED: headgate.dead-letters: " in following.problem


def test_topics_that_do_not_exist_hold_nothing_back(following: Tail) -> None:
    survey(following, throttle=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    survey(following)
    assert following.caught_up
    assert following.problem is None


def test_a_partition_that_does_not_end_where_we_are_is_stuck_when_we_have_not_moved_between_two_looks() -> None:
    at, ends = ("t", 0), ("t", 1)
    progress = Progress({at: 5, ends: 7})
    assert progress.find_stuck({at: 9, ends: 7}) == [], "just appended, perhaps"
    progress.advance(at, 8)
    assert progress.find_stuck({at: 9, ends: 7}) == [], "we have moved"
    assert progress.find_stuck({at: 20, ends: 7}) == [at]
    progress.forget(at)
    assert progress.find_stuck({ends: 3}) == []
    assert progress.find_stuck({ends: 3}) == [ends], "fewer records than we have read: another topic of that name"
    assert progress.find_stuck({}) == [], "it does not say"
    assert progress.find_stuck({ends: 3}) == []
