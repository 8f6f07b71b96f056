"""Each error of kafka-python has one outcome, and a detail that repeats none of its decoration."""

import gc
import socket
from contextlib import closing
from types import SimpleNamespace

import pytest
from kafka import errors
from kafka.errors import KafkaError
from kafka.net.inet import KafkaNetSocket

from connectors.collection import DETAIL_LENGTH
from connectors.kafka.cluster_client import (
    PROXY_URL,
    ClusterClient,
    DataBeforeEofSocket,
    detail_of,
    error_in,
    outcome_of,
)
from connectors.kafka.connection import KafkaConnection
from policies.observations import Outcome
from policies.units import UserError
from tests.cases import for_each

MEANINGS: dict[str, tuple[BaseException, Outcome]] = {
    "acl": (errors.TopicAuthorizationFailedError(), Outcome.UNAUTHORIZED),
    "login": (errors.SaslAuthenticationFailedError("no"), Outcome.UNAUTHORIZED),
    "mechanism": (errors.UnsupportedSaslMechanismError(), Outcome.UNAUTHORIZED),
    "version": (errors.UnsupportedVersionError(), Outcome.UNSUPPORTED),
    "our time-out": (errors.KafkaTimeoutError("no answer"), Outcome.TIMEOUT),
    "the broker's time-out": (errors.RequestTimedOutError(), Outcome.TIMEOUT),
    "no connection": (errors.KafkaConnectionError("refused"), Outcome.UNREACHABLE),
    "a connection not in time": (errors.KafkaConnectionError("connection timed out"), Outcome.TIMEOUT),
    "a handshake": (errors.KafkaConnectionError("SSL: wrong version"), Outcome.ERROR),
    "a handshake not in time": (errors.KafkaConnectionError("Handshake failed: it timed out"), Outcome.TIMEOUT),
    "a handshake in other words": (errors.KafkaConnectionError("Handshake failed"), Outcome.ERROR),
    "unknown broker": (errors.UnknownBrokerIdError(), Outcome.UNREACHABLE),
    "the client was closed": (errors.Cancelled(), Outcome.UNREACHABLE),
    "any other": (errors.KafkaStorageError(), Outcome.ERROR),
    "none of Kafka's": (UserError("tls.ca_file: x"), Outcome.ERROR),
}


@for_each(("error", "outcome"), MEANINGS.values(), ids=MEANINGS)
def test_an_error_has_one_outcome(error: BaseException, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (errors.KafkaConnectionError("refused"), "refused"),
        (errors.KafkaConnectionError("111 ECONNREFUSED"), "Connection refused"),
        (errors.KafkaConnectionError(), "KafkaConnection"),
        (errors.SaslAuthenticationFailedError("bad\n  password"), "bad password"),
        (UserError("tls.ca_file: no PEM"), "tls.ca_file: no PEM"),
        (errors.KafkaTimeoutError("x" * 999), "x" * (DETAIL_LENGTH - 1) + "…"),
    ],
    ids=["decorated", "a number", "without words", "two lines", "the user's", "long"],
)
def test_a_detail_is_one_short_line(error: BaseException, detail: str) -> None:
    assert detail_of(error) == detail


def test_an_error_code_is_an_error_with_kafkas_words_and_its_name() -> None:
    assert error_in(SimpleNamespace(error_code=0)) is None
    error = error_in(SimpleNamespace(error_code=29, error_message="not for you"))
    assert isinstance(error, errors.TopicAuthorizationFailedError)
    assert "not for you" in str(error)


# Sockets for kafka-python: a refusal right before the end is heard, and a handshake without an answer ends.


@for_each(
    ("sent", "received"),
    [
        (b"refused", [b"refused", BlockingIOError, b""]),
        (b"", [b""]),
        (b"refused, and", [b"refused", b", and", BlockingIOError, b""]),
    ],
)
def test_the_end_is_told_one_call_after_the_last_data(sent: bytes, received: list[object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, DataBeforeEofSocket() as ours:
        ours.connect(listener.getsockname())
        broker, _ = listener.accept()
        broker.sendall(sent)
        broker.close()
        for each in received:
            if each is BlockingIOError:
                with pytest.raises(BlockingIOError):
                    ours.recv(7)
            else:
                assert ours.recv(7) == each


def test_kafka_python_finds_the_sockets_by_the_scheme_of_the_address() -> None:
    with KafkaNetSocket(PROXY_URL).socket(socket.AF_INET) as made:
        assert isinstance(made, DataBeforeEofSocket)


def test_a_handshake_without_an_answer_ends_with_its_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = "{}:{}".format(*silent.getsockname())
        connection = KafkaConnection.model_validate({"bootstrap_servers": servers, "tls": {}})
        with closing(ClusterClient(connection, 0.2)) as client:
            with pytest.raises(KafkaError) as caught:
                client.describe()
            assert outcome_of(caught.value) is Outcome.TIMEOUT
            theirs, _ = silent.accept()
            with theirs:
                del caught  # its traceback holds the socket
                gc.collect()
                theirs.settimeout(5)
                while theirs.recv(65_536):
                    pass
