"""Sockets for kafka-python: a refusal right before the end is heard, and a handshake without an answer ends."""

import gc
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka.errors import KafkaError
from kafka.net.inet import KafkaNetSocket

from connectors.kafka.cluster_client import PROXY_URL, ClusterClient, DataBeforeEofSocket, outcome_of
from connectors.kafka.connection import KafkaConnection
from policies.observations import Outcome


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
