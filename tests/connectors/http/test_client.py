"""Servers that drip, flood or compress do not hold a request beyond its deadline, nor fill the memory."""

import asyncio
import gzip
import os
import resource
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from connectors.http import client as http_client
from connectors.http.client import ENDS_AT, bounded_client
from connectors.http.rest import AdminError, Names, RestClient, outcome_of
from connectors.http.tls import Tls, ssl_context_for
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from tests.certificates import write_both

TIMEOUT_SECONDS = 0.3
HOUR_SECONDS = 3600.0
OK = b"HTTP/1.1 200 OK\r\n"

Behaviour = Callable[[socket.socket], None]


@contextmanager
def server(behave: Behaviour) -> Iterator[str]:
    """A server that treats each connection so, on a thread of its own; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=treat, args=(connection,), daemon=True).start()

        def treat(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                connection.recv(65_536)
                behave(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def dripping(text: bytes) -> Behaviour:
    """One byte every fiftieth of a second, without end: only a deadline ends the request."""

    def drip(connection: socket.socket) -> None:
        for byte in chain(text, repeat(ord("x"))):
            connection.sendall(bytes([byte]))
            time.sleep(0.02)

    return drip


def informing(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
        time.sleep(0.02)


def flooding(connection: socket.socket) -> None:
    connection.sendall(OK + b"Content-Length: 600000000\r\n\r\n")
    while True:
        connection.sendall(b"x" * 65_536)


def compressed(connection: socket.socket) -> None:
    body = gzip.compress(bytes(10_000_000))
    connection.sendall(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def asked(url: str, timeout_seconds: float = 60.0, max_answer_bytes: int = 1_000_000) -> bytes:
    with bounded_client(ssl_context_for(url, None), timeout_seconds, max_answer_bytes=max_answer_bytes) as client:
        return client.get(url).content


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(dripping(OK), id="headers"),
        pytest.param(dripping(OK + b"Content-Length: 2000\r\n\r\n"), id="a body of known length"),
        pytest.param(dripping(OK + b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n"), id="a body in chunks"),
        pytest.param(informing, id="interim answers"),
    ],
)
def test_a_server_that_drips_is_left_at_the_deadline(behave: Behaviour) -> None:
    with server(behave) as url, pytest.raises(httpx.TimeoutException):
        asked(url, TIMEOUT_SECONDS)


@pytest.mark.parametrize(("behave", "says"), [(flooding, r"longer than 0\.9\d+ MiB"), (compressed, "compressed")])
def test_an_answer_beyond_the_limit_is_not_read_nor_one_that_may_expand(behave: Behaviour, says: str) -> None:
    with server(behave) as url, pytest.raises(httpx.DecodingError, match=says):
        asked(url)


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "-", "_", "."])
def test_a_host_that_no_name_server_knows_cannot_be_reached(host: str) -> None:
    with pytest.raises(httpx.ConnectError):
        asked(f"http://{host}:9/")


def test_a_server_that_is_not_there_is_told_as_the_system_says_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(httpx.ConnectError, match=r"^Connection refused$"):
        asked(f"http://127.0.0.1:{port}/")


def test_a_good_answer_is_read_also_on_a_connection_that_was_kept() -> None:
    def twice(connection: socket.socket) -> None:
        answer = OK + b"Content-Length: 2\r\n\r\nok"
        connection.sendall(answer)
        connection.recv(65_536)
        connection.sendall(answer)

    with server(twice) as url, bounded_client(ssl_context_for(url, None), 30.0, base_url=url) as client:
        assert [client.get("/").text, client.get("/").text] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("timeout_seconds", "ends_in"), [(HOUR_SECONDS, TIMEOUT_SECONDS), (TIMEOUT_SECONDS, HOUR_SECONDS)]
)
def test_the_earlier_of_two_deadlines_counts(timeout_seconds: float, ends_in: float) -> None:
    with (
        server(dripping(OK)) as url,
        bounded_client(ssl_context_for(url, None), timeout_seconds) as client,
        pytest.raises(httpx.ReadTimeout),
    ):
        client.get(url, extensions={ENDS_AT: time.monotonic() + ends_in})


def test_a_connection_that_breaks_off_is_told() -> None:
    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with server(reset) as url, pytest.raises(httpx.ReadError, match="Connection reset by peer"):
        asked(url)


def test_what_breaks_tls_after_its_handshake_is_an_error_of_the_request(tmp_path: Path) -> None:
    both = write_both(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(both)
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            connection = context.wrap_socket(listening.accept()[0], server_side=True)
            with connection:
                connection.recv(65_536)
                os.write(connection.fileno(), b"no record of TLS" * 4)

        pool.submit(serve)
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        verify = Tls(ca_file=both).ssl_context()
        with bounded_client(verify, 30.0) as client, pytest.raises(httpx.ReadError, match="SSL"):
            client.get(url)


def test_a_request_that_no_connection_took_was_not_sent() -> None:
    """So a write that ended there may be repeated: `was_not_done`."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        with ExitStack() as waiting:
            for _ in range(4):  # beyond its backlog nothing is accepted
                client = waiting.enter_context(socket.socket())
                client.settimeout(0)
                client.connect_ex(("127.0.0.1", port))
            with pytest.raises(httpx.ConnectTimeout):
                asked(f"http://127.0.0.1:{port}/", TIMEOUT_SECONDS)


def test_a_call_of_the_admin_rest_ends_in_its_time_retries_and_redirects_included() -> None:
    tries: list[None] = []

    def slowly_away(connection: socket.socket) -> None:
        tries.append(None)
        time.sleep(0.8 * TIMEOUT_SECONDS)  # and no answer: worth another try, if there were time

    with server(slowly_away) as url:
        admin = AdminApi(PulsarAdmin.model_validate({"admin_url": url, "timeout": f"{TIMEOUT_SECONDS * 1000:.0f}ms"}))
        with pytest.raises(httpx.RequestError):
            admin.tenants()
        admin.close()
    assert len(tries) <= 2, "the second one ends with the time of the call"


def numbers_for_names() -> bytes:
    return b"[" + b",".join([b"1"] * 4_000_000) + b"]"


def numbers_for_objects() -> bytes:
    return b"{" + b",".join(b'"%d":1' % n for n in range(300_000)) + b"}"


@pytest.mark.parametrize(
    ("long", "shape"),
    [(numbers_for_names, TypeAdapter(Names)), (numbers_for_objects, TypeAdapter(dict[str, dict[str, str]]))],
    ids=["numbers for names", "numbers for objects"],
)
def test_a_long_answer_in_another_shape_is_told_in_a_line_without_listing_all_that_is_wrong(
    long: Callable[[], bytes], shape: TypeAdapter[Any]
) -> None:
    body = long()

    def build() -> httpx.Client:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body))
        return bounded_client(ssl_context_for("http://b:1", None), 60.0, base_url="http://b:1", transport=transport)

    before = peak_bytes()
    with pytest.raises(AdminError) as caught:
        RestClient(build, 60.0).get("/", shape)
    assert len(str(caught.value)) < 200
    assert outcome_of(caught.value).value == "error"
    assert peak_bytes() - before < 20 * len(body)


def peak_bytes() -> int:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_threads_that_ask_first_at_once_share_one_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    both, make_loop = threading.Barrier(2), asyncio.new_event_loop

    def make_when_both_are_here() -> asyncio.AbstractEventLoop:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return make_loop()

    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    monkeypatch.setattr(http_client, "_event_loop", cache(http_client._event_loop.__wrapped__))
    monkeypatch.setattr(asyncio, "new_event_loop", make_when_both_are_here)
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(lambda: http_client._run(running())) for _ in range(2)]
        loops = {each.result() for each in asking}
    for loop in loops:
        loop.call_soon_threadsafe(loop.stop)
        while loop.is_running():
            time.sleep(0.001)
        loop.close()
    assert len(loops) == 1
