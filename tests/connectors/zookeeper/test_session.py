"""A session: what its errors mean, an outcome and a line that helps; and its sockets."""

import socket
import ssl
import threading
from pathlib import Path

import pytest
from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from connectors.http.tls import Tls
from connectors.zookeeper.session import (
    KazooHandler,
    NotConnectedError,
    UnreadError,
    describe_zookeeper_error,
    outcome_of,
)
from policies.observations import Outcome
from policies.units import UserError
from tests.cases import for_each

REFUSED = ConnectionRefusedError(111, "Connection refused")
MISTRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed")

ERRORS: dict[str, tuple[BaseException, Outcome, str]] = {
    "an ACL": (exceptions.NoAuthError(), Outcome.UNAUTHORIZED, "its ACL does not let us read it"),
    "a login": (exceptions.AuthFailedError(), Outcome.UNAUTHORIZED, "the server refuses our credentials"),
    "an unknown request": (exceptions.UnimplementedError(), Outcome.UNSUPPORTED, "the server does not know"),
    "a lost connection": (exceptions.ConnectionLoss(), Outcome.UNREACHABLE, "the connection was lost"),
    "a lost session": (exceptions.SessionExpiredError(), Outcome.UNREACHABLE, "our session has ended"),
    "a closed client": (exceptions.ConnectionClosedError("x"), Outcome.UNREACHABLE, "our session has ended"),
    "no answer": (KazooTimeoutError(), Outcome.TIMEOUT, "no answer in time"),
    "no answer, in our words": (TimeoutError("no answer within 5 s"), Outcome.TIMEOUT, "no answer within 5 s"),
    "no connection in time": (TimeoutError(110, "Connection timed out"), Outcome.TIMEOUT, "Connection timed out"),
    "nobody there": (REFUSED, Outcome.UNREACHABLE, "Connection refused"),
    "no such name": (socket.gaierror(-2, "Name or service not known"), Outcome.UNREACHABLE, "Name or service"),
    "a certificate": (MISTRUSTED, Outcome.ERROR, "certificate verify failed"),
    "a user's mistake": (UserError("tls.ca_file: x."), Outcome.ERROR, "tls.ca_file: x."),
    "anything else": (exceptions.MarshallingError(), Outcome.ERROR, "Marshalling"),
    "a node": (UnreadError("/c/bookies", exceptions.NoAuthError()), Outcome.UNAUTHORIZED, "/c/bookies: its ACL"),
    "no names": (NotConnectedError({}), Outcome.UNREACHABLE, "no server's name resolves to an address"),
    "one server": (NotConnectedError({"zk:1": REFUSED}), Outcome.UNREACHABLE, "zk:1: Connection refused"),
    "the most telling server first": (
        NotConnectedError({"zk1:1": REFUSED, "zk2:1": MISTRUSTED}),
        Outcome.ERROR,
        "zk2:1: certificate verify failed; zk1:1: Connection refused",
    ),
}


@for_each(("error", "outcome", "detail"), ERRORS.values(), ids=ERRORS)
def test_an_error_has_an_outcome_and_a_detail(error: BaseException, outcome: Outcome, detail: str) -> None:
    assert outcome_of(error) is outcome
    assert describe_zookeeper_error(error).startswith(detail)


def test_a_detail_is_one_short_line() -> None:
    detail = describe_zookeeper_error(UserError("a\nb " * 200))
    assert "\n" not in detail
    assert len(detail) <= 200


# The sockets of a client, where kazoo's own handling would hang.


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
