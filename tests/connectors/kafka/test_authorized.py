"""What a cluster says that this client may do, and what is made of it where it says no."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from connectors.kafka import probes
from connectors.kafka.connection import KafkaConnection
from connectors.kafka.probes import Authorized

LOOP = KafkaConnection(bootstrap_servers="loop-1:9092")
TOPIC = "headgate.observed.log-dirs"


def saying(operations: Iterable[AclOperation] | None) -> Callable[[], Any]:
    return lambda: SimpleNamespace(authorized_operations=operations)


def failing(code: int) -> Callable[[], Any]:
    def fail() -> Any:
        raise KafkaException(KafkaError(code))

    return fail


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        pytest.param(
            saying([AclOperation.WRITE, AclOperation.DESCRIBE]), {TOPIC: {"Write", "Describe"}}, id="it may write"
        ),
        pytest.param(
            saying([AclOperation.ALL]),
            {TOPIC: {"Read", "Write", "Describe", "DescribeConfigs", "AlterConfigs", "Create", "All"}},
            id="it may do all",
        ),
        pytest.param(saying(None), {TOPIC: None}, id="the cluster does not say"),
        pytest.param(saying([]), {TOPIC: frozenset()}, id="it may nothing"),
        pytest.param(failing(KafkaError.TOPIC_AUTHORIZATION_FAILED), {TOPIC: frozenset()}, id="it is hidden"),
        pytest.param(failing(KafkaError.UNKNOWN_TOPIC_OR_PART), {}, id="there is no such topic yet"),
    ],
)
def test_what_a_client_may_do_with_a_topic_is_what_the_cluster_says(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any], found: Any
) -> None:
    class Admin:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def describe_topics(self, _: Any, **__: Any) -> dict[str, Future[Any]]:
            future: Future[Any] = Future()
            try:
                future.set_result(answer())
            except KafkaException as error:
                future.set_exception(error)
            return {TOPIC: future}

    monkeypatch.setattr(probes, "AdminClient", Admin)
    assert Authorized(LOOP).topics([TOPIC]) == found
