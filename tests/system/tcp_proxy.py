"""A TCP proxy on loopback whose connections a test may cut, slow down or leave half open, and heal."""

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"

_CHUNK_BYTES = 65_536


class TcpProxy:
    """Forwards each connection to `target` until it is cut; its port stays the same. Use it as a context manager.

    Args:
        target: `host:port`.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._is_cut = False
        self._delay_seconds = 0.0
        self._flows = threading.Event()
        self._flows.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        """Its own `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()
        self.cut()
        for thread in self._threads:
            thread.join(timeout=5.0)

    def cut(self) -> None:
        """End all connections at both ends, and refuse new ones until healed."""
        with self._lock:
            self._is_cut = True
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(*pair)

    def stall(self) -> None:
        """Leave connections open, old and new ones, and let nothing through until healed: the other end seems alive."""
        self._flows.clear()

    def slow(self, delay_seconds: float) -> None:
        """Hold up each piece of data by so much until healed."""
        self._delay_seconds = delay_seconds

    def heal(self) -> None:
        """Let new connections through again, and old ones that stalled go on."""
        with self._lock:
            self._is_cut = False
        self._delay_seconds = 0.0
        self._flows.set()

    @property
    def connections(self) -> int:
        """How many are forwarded now."""
        with self._lock:
            return len(self._pairs)

    def _spawn(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, name="tcp proxy", daemon=True)  # type: ignore[arg-type]
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                near, _ = self._listener.accept()
                self._forward(near)

    def _forward(self, near: socket.socket) -> None:
        try:
            far = None if self._is_cut else socket.create_connection(self._target, timeout=5.0)
        except OSError:
            far = None
        with self._lock:
            if far is None or self._is_cut:
                _end(near, *([] if far is None else [far]))
                return
            far.settimeout(None)
            self._pairs.append((near, far))
        self._spawn(self._pump, near, far)
        self._spawn(self._pump, far, near)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._flows.wait()
                time.sleep(self._delay_seconds)
                sink.sendall(data)
        with self._lock:
            self._pairs = [pair for pair in self._pairs if source not in pair]
        _end(source, sink)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        # Shut down first: another thread waits in `recv`, and would keep the connection open.
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
