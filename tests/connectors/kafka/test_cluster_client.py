"""Each error of kafka-python has one outcome, and a detail that repeats none of its decoration."""

import gc
import socket
from collections.abc import Iterator
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


def test_no_error_code_is_no_error() -> None:
    assert error_in(SimpleNamespace(error_code=0)) is None


def test_an_error_code_is_an_error_with_kafkas_words_and_its_name() -> None:
    error = error_in(SimpleNamespace(error_code=29, error_message="not for you"))
    assert isinstance(error, errors.TopicAuthorizationFailedError)
    assert "not for you" in str(error)


# Sockets for kafka-python: a refusal right before the end is heard, and a handshake without an answer ends.


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A broker's end, and ours as kafka-python gets it."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours = DataBeforeEofSocket(socket.AF_INET, socket.SOCK_STREAM)
    ours.connect(listener.getsockname())
    theirs, _ = listener.accept()
    listener.close()
    with ours, theirs:
        yield theirs, ours


def test_the_end_is_told_one_call_after_the_last_data(pair: tuple[socket.socket, socket.socket]) -> None:
    broker, ours = pair
    broker.sendall(b"refused")
    broker.close()
    assert ours.recv(100) == b"refused"
    with pytest.raises(BlockingIOError):
        ours.recv(100)
    assert ours.recv(100) == b""


def test_an_end_without_data_is_told_at_once(pair: tuple[socket.socket, socket.socket]) -> None:
    broker, ours = pair
    broker.close()
    assert ours.recv(100) == b""


def test_data_after_data_is_not_held_back(pair: tuple[socket.socket, socket.socket]) -> None:
    broker, ours = pair
    broker.sendall(b"onetwo")
    assert [ours.recv(3), ours.recv(3)] == [b"one", b"two"]


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
