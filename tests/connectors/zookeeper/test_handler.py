"""The sockets of a client, where kazoo's own handling would hang."""

import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.http.tls import Tls
from connectors.zookeeper.connection import ZooKeeperConnection
from connectors.zookeeper.handler import MAX_FRAME_BYTES, FrameLimit, KazooHandler
from connectors.zookeeper.outcomes import NotConnectedError, detail_of
from connectors.zookeeper.session import ZooKeeperSession
from tests.system.waiting import eventually


def test_what_lies_decrypted_in_a_tls_socket_counts_as_readable(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    done = threading.Event()

    def serve(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        with context.wrap_socket(plain, server_side=True) as connection:
            connection.sendall(b"onetwo")  # two answers in one TLS record
            done.wait(10)

    handler = KazooHandler("c1", Tls(ca_file=certificate), 5.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        with handler.create_connection(listener.getsockname(), hostname="127.0.0.1") as connection:
            assert connection.recv(3) == b"one"
            began = time.monotonic()
            assert handler.select([connection], [], [], 3.0)[0] == [connection]
            assert time.monotonic() - began < 1.0
            assert connection.recv(3) == b"two"
            assert handler.select([connection], [], [], 0.05)[0] == []
        done.set()
        server.join()


def test_a_file_that_went_bad_is_an_obstacle_and_an_error_of_the_system(certificate: Path) -> None:
    handler = KazooHandler("c1", Tls(ca_file=certificate), 5.0)
    certificate.write_text("no certificate")
    with pytest.raises(OSError, match=r"tls\.ca_file"):
        handler.create_connection(("127.0.0.1", 1), hostname="zk")
    assert [str(error).partition(":")[0] for error in handler.obstacles.values()] == ["tls.ca_file"]


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_answers_of_any_length_pass_however_they_come_in_pieces(answers: list[bytes], data: st.DataObject) -> None:
    now = 0.0
    limit = FrameLimit(1.0, lambda: now)
    for answer in answers:
        for part in (len(answer).to_bytes(4), answer):
            left = part
            while left:
                limit.check(len(left))
                taken = data.draw(st.integers(1, len(left)))
                limit.count(left[:taken])
                left = left[taken:]
        now += 100.0  # between two answers time does not count


def test_an_answer_must_end_in_its_time_and_be_no_longer_than_the_limit() -> None:
    now = 0.0
    limit = FrameLimit(1.0, lambda: now)
    limit.check(4)
    limit.count((MAX_FRAME_BYTES + 1).to_bytes(4))
    with pytest.raises(OSError, match="longer than 16 MiB"):
        limit.check(MAX_FRAME_BYTES + 1)
    limit.check(10)
    now = 1.1
    with pytest.raises(TimeoutError, match="no end within 1 s"):
        limit.check(10)


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        pytest.param((37).to_bytes(4), b"x", id="drips"),
        pytest.param((2_000_000_000).to_bytes(4), bytes(65_536), id="floods"),
        pytest.param((-1).to_bytes(4, signed=True), b"x", id="a length below nothing"),
    ],
)
def test_a_server_that_drips_or_floods_gives_no_session_and_is_asked_again(first: bytes, piece: bytes) -> None:
    """At 2 GB kazoo alone takes what comes; and a byte now and then it would wait for until the end."""
    accepted: list[float] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                accepted.append(time.monotonic())
                threading.Thread(target=pour, args=(connection,), daemon=True).start()

    def pour(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.sendall(first)
            while True:
                connection.sendall(piece)
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        servers = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = {"servers": servers, "session_timeout": "400ms", "timeout": "300ms"}
        session = ZooKeeperSession("c1", ZooKeeperConnection.model_validate(settings))
        try:
            with pytest.raises(NotConnectedError) as caught:
                session.client()
            assert servers in detail_of(caught.value)
            eventually("it connects anew", lambda: len(accepted) >= 2 or None)
        finally:
            session.close()
        listener.shutdown(socket.SHUT_RDWR)
