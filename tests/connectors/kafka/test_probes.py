"""What a cluster says that this client may do, and what the doctor reports about writers of the decided topics."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from connectors.kafka import probes
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.topics import TopicSettings

LOOP = KafkaConnection(bootstrap_servers="loop-1:9092")
TOPIC = "headgate.observed.log-dirs"
EVERY = {each.name.title().replace("_", "") for each in AclOperation}


@pytest.mark.parametrize(
    ("writers", "is_open", "detail"),
    [
        pytest.param(None, True, "no authorizer", id="no authorizer"),
        pytest.param({"User:*"}, True, "every user may write headgate.decided.alerts", id="all users"),
        pytest.param({"User:decide", "User:mallory"}, True, "User:decide, User:mallory may write", id="a second one"),
        pytest.param({"User:decide"}, False, "no decided topic has a second writer", id="the query alone"),
        pytest.param(set(), False, "no decided topic has a second writer", id="super users only"),
    ],
)
def test_the_doctor_warns_where_others_may_write_decisions(
    monkeypatch: pytest.MonkeyPatch, writers: set[str] | None, is_open: bool, detail: str
) -> None:
    monkeypatch.setattr(probes, "reach", lambda *_, **__: 1)
    found: Any = None if writers is None else frozenset(writers)
    monkeypatch.setattr(probes, "find_writers", lambda *_: found)
    each = probes.loop_probes(LOOP, TopicSettings(), ("decide",))
    (result,) = [probe.ask() for probe in each if probe.asks == "writers"]
    assert (result.is_open, detail in result.detail) == (is_open, True), result.detail


def saying(operations: Iterable[AclOperation] | None) -> Callable[[], Any]:
    return lambda: SimpleNamespace(authorized_operations=operations)


def failing(code: int) -> Callable[[], Any]:
    def fail() -> Any:
        raise KafkaException(KafkaError(code))

    return fail


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        pytest.param(saying([AclOperation.WRITE]), {TOPIC: {"Write"}}, id="it may write"),
        pytest.param(saying([AclOperation.ALL]), {TOPIC: EVERY}, id="it may do all"),
        pytest.param(saying(None), {TOPIC: None}, id="the cluster does not say"),
        pytest.param(saying([]), {TOPIC: frozenset()}, id="it may nothing"),
        pytest.param(failing(KafkaError.TOPIC_AUTHORIZATION_FAILED), {TOPIC: frozenset()}, id="it is hidden"),
        pytest.param(failing(KafkaError.UNKNOWN_TOPIC_OR_PART), {}, id="there is no such topic yet"),
    ],
)
def test_what_a_client_may_do_with_a_topic_is_what_the_cluster_says(answer: Callable[[], Any], found: Any) -> None:
    future: Future[Any] = Future()
    try:
        future.set_result(answer())
    except KafkaException as error:
        future.set_exception(error)
    assert probes._read_answers({TOPIC: future}) == found
