"""A server whose port somebody else has says so by the name of the setting, and one that was closed leaves its port."""

import errno
import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import pytest

from connectors.http import server as http_server
from connectors.http.server import HttpServer, begin_answer
from policies.units import UserError


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/fails":
            raise RuntimeError("a bug")
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Nothing."""


def serving(port: int = 0, host: str = "127.0.0.1") -> HttpServer:
    return HttpServer(Handler, host, port, name="test", setting="metrics.port")


def get(port: int, path: str = "/", host: str = "127.0.0.1") -> bytes:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_it_serves_from_the_moment_it_is_made() -> None:
    with serving() as server:
        assert get(server.port) == b"ok"


def test_a_request_that_breaks_off_ends_nothing() -> None:
    with serving() as server:
        with pytest.raises(http.client.RemoteDisconnected):
            get(server.port, "/fails")
        assert get(server.port) == b"ok"


def test_closed_it_leaves_its_port_to_the_next() -> None:
    server = serving()
    server.close()
    server.close()
    with serving(server.port) as successor:
        assert get(successor.port) == b"ok"


def test_it_is_closed_at_once_and_not_when_it_looks_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_CHECK_SECONDS", 3600.0)
    closing = threading.Thread(target=serving().close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()


@pytest.mark.parametrize(("host", "family"), [("", socket.AF_INET), ("::1", socket.AF_INET6)], ids=["all", "IPv6"])
def test_the_kind_of_address_follows_the_host(host: str, family: socket.AddressFamily) -> None:
    if family is socket.AF_INET6 and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    with serving(host=host) as server:
        assert get(server.port, host=host or "127.0.0.1") == b"ok"


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_port_in_use_is_told_by_the_settings_name() -> None:
    with serving() as server, pytest.raises(UserError, match=rf"metrics\.port: port {server.port} of 127.* in use"):
        serving(server.port)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.EACCES, "Permission denied"), "needs rights this process has not: set a port above 1023"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign"), "cannot listen on port 9 of 127.0.0.1: Cannot assign"),
        (OverflowError("port must be 0-65535"), "cannot listen on port 9 of 127.0.0.1: port must be 0-65535"),
    ],
    ids=["a privileged port", "another machine's address", "no port at all"],
)
def test_any_other_reason_is_told_as_well(monkeypatch: pytest.MonkeyPatch, error: Exception, says: str) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(http_server._Server, "server_bind", refuse)
    with pytest.raises(UserError, match=says):
        serving(9)


def drip(connection: socket.socket) -> None:
    for _ in range(1500):
        connection.sendall(b"x")
        time.sleep(0.02)


def test_who_sends_a_byte_now_and_then_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_CONNECTION_SECONDS", 0.3)
    with serving() as server, socket.create_connection(("127.0.0.1", server.port), 30) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            drip(slow)
        assert get(server.port) == b"ok"


def test_a_client_that_keeps_many_connections_open_starves_nobody_else() -> None:
    with serving() as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        for _ in range(20):
            assert get(server.port) == b"ok"
        for each in idle:
            each.close()


def test_of_those_the_oldest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 3)
    with serving() as server:
        first, *others = idle = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(3)]
        assert get(server.port) == b"ok"
        assert first.recv(1) == b""
        for each in others:
            each.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert each.recv(1000).startswith(b"HTTP/1.0 200")
        for each in idle:
            each.close()


def test_of_one_address_those_that_are_silent_give_way_to_the_answer_that_is_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scrape takes a while, and clients that send nothing come from the same address all the time."""
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 3)
    monkeypatch.setattr(http_server, "_REQUEST_SECONDS", 0.0)
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(Handler):
        def do_GET(self) -> None:
            begin_answer(self.server, self.connection)
            begun.set()
            assert goes_on.wait(30)
            super().do_GET()

    with HttpServer(Slow, "127.0.0.1", 0, name="test", setting="metrics.port") as server, ThreadPoolExecutor(1) as pool:
        scrape = pool.submit(get, server.port)
        assert begun.wait(30)
        silent = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(20)]
        assert silent[0].recv(1) == b"", "it was closed for another one"
        goes_on.set()
        assert scrape.result(30) == b"ok"
        for each in silent:
            each.close()
