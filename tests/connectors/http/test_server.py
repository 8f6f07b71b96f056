"""A server whose port somebody else has says so by the name of the setting, and one that was closed leaves its port."""

import asyncio
import errno
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from connectors.http import server as http_server
from connectors.http.access import HttpAccess, require_free_port
from connectors.http.server import HttpServer
from policies.units import UserError
from tests.certificates import write_both

LOOPBACK = "127.0.0.1"


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def serving(port: int = 0, host: str = LOOPBACK, serve: Any = app, access: HttpAccess | None = None) -> HttpServer:
    tls = (access or HttpAccess()).tls()
    return HttpServer(serve, host, port, setting="metrics.port", tls=tls)


def get(port: int, path: str = "/", host: str = LOOPBACK) -> bytes:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_closed_it_leaves_its_port_to_the_next_also_where_clients_are_connected() -> None:
    server = serving()
    with socket.create_connection((LOOPBACK, server.port), 30) as silent:
        silent.sendall(b"GET /")
        server.close()
        server.close()
        with serving(server.port) as successor:
            assert get(successor.port) == b"ok"


@pytest.mark.parametrize(
    ("host", "client"), [("", LOOPBACK), ("0.0.0.0", LOOPBACK), ("::1", "::1"), ("::", "::1"), ("::", LOOPBACK)]
)
def test_the_kind_of_address_follows_the_host(host: str, client: str) -> None:
    if ":" in host and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    with serving(host=host) as server:
        assert get(server.port, host=client) == b"ok"


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
    ],
    ids=["a privileged port", "another machine's address"],
)
def test_any_other_reason_is_told_as_well(monkeypatch: pytest.MonkeyPatch, error: Exception, says: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(UserError, match=says):
        require_free_port(LOOPBACK, 9, "metrics.port")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_CONNECTION_SECONDS", 0.3)


def drip(connection: socket.socket) -> None:
    for _ in range(1500):
        connection.sendall(b"x")
        time.sleep(0.02)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("first", ["", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["a new one", "one that was answered"])
def test_a_connection_that_sends_a_byte_now_and_then_is_ended(first: str) -> None:
    with serving() as server, socket.create_connection((LOOPBACK, server.port), 30) as slow:
        slow.sendall(f"{first}GET / HTTP/1.1\r\n".encode())
        with pytest.raises(ConnectionError):
            drip(slow)
        assert get(server.port) == b"ok"


@pytest.mark.usefixtures("impatient")
def test_a_client_that_does_not_read_is_ended() -> None:
    """Its answer is larger than what the system buffers, and stays in memory until then."""
    body = b"x" * 50_000_000

    async def large(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    with serving(serve=large) as server, socket.create_connection((LOOPBACK, server.port), 30) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        slow.recv(1)
        while server.connections:
            time.sleep(0.02)


@pytest.mark.usefixtures("impatient")
def test_a_handshake_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http_server, "_HANDSHAKE_SECONDS", 0.3)
    both = write_both(tmp_path)
    access = HttpAccess(cert_file=both, key_file=both)
    with serving(access=access) as server, socket.create_connection((LOOPBACK, server.port), 30) as silent:
        assert silent.recv(1) == b""
        assert ssl.get_server_certificate((LOOPBACK, server.port))


@contextmanager
def connected(port: int, count: int, sending: bytes = b"") -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection((LOOPBACK, port), 30)) for _ in range(count)]
        for client in clients:
            with suppress(ConnectionError):  # there were too many
                client.sendall(sending)
        yield clients


@pytest.mark.parametrize(
    "sending", [b"", b"GET /", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["silent", "half", "unread"]
)
def test_a_client_that_keeps_many_connections_open_starves_nobody_else(sending: bytes) -> None:
    with serving() as server, connected(server.port, 400, sending):
        for _ in range(20):
            assert get(server.port) == b"ok"


def test_of_those_the_oldest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 3)
    with serving() as server, connected(server.port, 3) as (first, *others):
        assert get(server.port) == b"ok"
        assert first.recv(1) == b""
        for each in others:
            each.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert each.recv(1000).startswith(b"HTTP/1.1 200")


def test_where_all_wait_for_an_answer_a_new_one_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 3)
    ends = threading.Event()

    async def slow_but_health(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/-/healthy":
            await asyncio.to_thread(ends.wait, 30)
        await app(scope, receive, send)

    with serving(serve=slow_but_health) as server, connected(server.port, 10, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
        answers = [get(server.port, "/-/healthy") for _ in range(10)]
        ends.set()  # the server waits for its threads
    assert answers == 10 * [b"ok"]


def test_those_that_wait_for_no_answer_give_way_to_the_answer_that_is_being_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scrape takes a while, and clients that send nothing come from the same address all the time."""
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 3)
    monkeypatch.setattr(http_server, "_REQUEST_SECONDS", 0.0)
    begun, goes_on = threading.Event(), threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        assert await asyncio.to_thread(goes_on.wait, 30)
        await app(scope, receive, send)

    with serving(serve=slow) as server, ThreadPoolExecutor(1) as pool:
        scrape = pool.submit(get, server.port)
        assert begun.wait(30)
        with connected(server.port, 20) as silent:
            assert silent[0].recv(1) == b"", "it was closed for another one"
            goes_on.set()
            assert scrape.result(30) == b"ok"
