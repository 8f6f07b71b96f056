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
from connectors.kafka.probes import why_not_writable

LOOP = KafkaConnection(bootstrap_servers="loop-1:9092")
TOPIC = "headgate.observed.log-dirs"


def saying(operations: Iterable[AclOperation] | None) -> Callable[[], Any]:
    return lambda: SimpleNamespace(authorized_operations=operations)


def failing(code: int) -> Callable[[], Any]:
    def fail() -> Any:
        raise KafkaException(KafkaError(code))

    return fail


@pytest.mark.parametrize(
    ("answer", "may"),
    [
        pytest.param(saying([AclOperation.WRITE, AclOperation.DESCRIBE]), True, id="it may"),
        pytest.param(saying([AclOperation.ALL]), True, id="it may do all"),
        pytest.param(saying(None), True, id="the cluster does not say"),
        pytest.param(saying([AclOperation.DESCRIBE]), False, id="it may only look"),
        pytest.param(saying([]), False, id="it may nothing"),
        pytest.param(failing(KafkaError.TOPIC_AUTHORIZATION_FAILED), False, id="the topic is hidden from it"),
        pytest.param(failing(KafkaError.UNKNOWN_TOPIC_OR_PART), True, id="there is no such topic yet"),
        pytest.param(failing(KafkaError._TRANSPORT), True, id="the cluster is away, which passes"),
    ],
)
def test_a_topic_is_not_written_where_the_cluster_forbids_it(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any], may: bool
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
    why = why_not_writable(LOOP, TOPIC)
    assert (why is None) is may
    assert may or (TOPIC in str(why) and "headgate topics acls canary" in str(why))
