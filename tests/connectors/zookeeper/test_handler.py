"""The sockets of a client, where kazoo's own handling would hang."""

import socket
import ssl
import threading
from pathlib import Path

import pytest

from connectors.http.tls import Tls
from connectors.zookeeper.session import KazooHandler


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
            # Nothing more comes on the wire, so a wait for the wire alone would return an empty list.
            assert handler.select([connection], [], [], 0.05)[0] == [connection]
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
