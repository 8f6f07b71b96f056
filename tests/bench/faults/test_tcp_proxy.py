"""The proxy does the harm it says: cut, half open, slow; and heals."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.system.tcp_proxy import LOOPBACK, TcpProxy

SECONDS = 10.0
DELAY_SECONDS = 0.2


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    """In front of a server that says everything again."""
    with socket.create_server((LOOPBACK, 0)) as server:
        threading.Thread(target=_say_again, args=(server,), daemon=True).start()
        with TcpProxy(f"{LOOPBACK}:{server.getsockname()[1]}") as proxied:
            yield proxied


def _say_again(server: socket.socket) -> None:
    try:
        while True:
            client, _ = server.accept()
            with client:
                while data := client.recv(100):
                    client.sendall(data)
    except OSError:
        return


def connected(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection((LOOPBACK, proxy.port), timeout=SECONDS)


def test_what_stalls_stays_open_says_nothing_and_goes_on_when_healed(proxy: TcpProxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.stall()
        client.sendall(b"b")
        client.settimeout(DELAY_SECONDS)
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxy.heal()
        client.settimeout(SECONDS)
        assert client.recv(1) == b"b"


def test_a_slow_one_takes_its_time_both_ways(proxy: TcpProxy) -> None:
    with connected(proxy) as client:
        proxy.slow(DELAY_SECONDS)
        began = time.monotonic()
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        assert time.monotonic() - began >= 2 * DELAY_SECONDS


def test_what_is_cut_ends_and_nobody_is_let_in_until_it_is_healed(proxy: TcpProxy) -> None:
    with connected(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        proxy.cut()
        assert client.recv(1) == b""
    with connected(proxy) as refused:
        assert refused.recv(1) == b""
    proxy.heal()
    with connected(proxy) as client:
        client.sendall(b"c")
        assert client.recv(1) == b"c"
