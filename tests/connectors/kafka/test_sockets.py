"""Sockets for kafka-python: a refusal right before the end is heard, and a handshake that hangs is ended."""

import socket
import ssl
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from connectors.kafka import cluster_client
from connectors.kafka.cluster_client import PROXY_URL, Handshakes, _DataBeforeEofSocket, _DirectSocket, with_sockets


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A broker's end, and ours as kafka-python gets it."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours = _DataBeforeEofSocket(socket.AF_INET, socket.SOCK_STREAM)
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


def test_plain_options_only_get_our_sockets() -> None:
    options, handshakes = with_sockets({"bootstrap_servers": ["k:9092"]})
    assert options == {"bootstrap_servers": ["k:9092"], "proxy_url": PROXY_URL}
    assert handshakes.began == {}


def test_kafka_python_finds_the_sockets_by_the_scheme_of_the_address() -> None:
    assert _DirectSocket.SCHEMES == ("headgate",)
    with _DirectSocket(PROXY_URL).socket(socket.AF_INET) as made:
        assert isinstance(made, _DataBeforeEofSocket)


@pytest.fixture
def handshaking(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ssl.SSLSocket, Handshakes, SimpleNamespace]]:
    """A handshake that waits for a broker which says nothing, and the clock."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(cluster_client, "time", SimpleNamespace(monotonic=lambda: clock.now))
    context = ssl.create_default_context()
    _, handshakes = with_sockets({"ssl_context": context})
    ours = pair[1]
    ours.settimeout(0)
    wrapped = context.wrap_socket(ours, server_hostname="k", do_handshake_on_connect=False)
    with wrapped:
        with pytest.raises(ssl.SSLWantReadError):
            wrapped.do_handshake()
        yield wrapped, handshakes, clock


def test_a_handshake_that_hangs_fails_once_it_is_too_old(
    handshaking: tuple[ssl.SSLSocket, Handshakes, SimpleNamespace],
) -> None:
    wrapped, handshakes, clock = handshaking
    clock.now = 5.0
    handshakes.end_older_than(5.0)
    with pytest.raises(ssl.SSLWantReadError):
        wrapped.do_handshake()
    clock.now = 5.1
    handshakes.end_older_than(5.0)
    with pytest.raises(TimeoutError, match="timed out"):
        wrapped.do_handshake()
    assert (handshakes.began, handshakes.ended) == ({}, set())
    assert wrapped.fileno() == -1, "kafka-python would leave it to the garbage collector"


def test_a_handshake_that_the_broker_ends_is_no_time_out(
    pair: tuple[socket.socket, socket.socket], handshaking: tuple[ssl.SSLSocket, Handshakes, SimpleNamespace]
) -> None:
    wrapped, handshakes, _ = handshaking
    handshakes.end_older_than(5.0)
    pair[0].close()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - which one, OpenSSL decides
        wrapped.do_handshake()
    assert not isinstance(caught.value, TimeoutError)
    assert handshakes.began == {}


def test_what_is_at_a_handshake_when_the_client_ends_is_closed(
    handshaking: tuple[ssl.SSLSocket, Handshakes, SimpleNamespace],
) -> None:
    wrapped, handshakes, _ = handshaking
    handshakes.close()
    assert wrapped.fileno() == -1
    assert handshakes.began == {}
