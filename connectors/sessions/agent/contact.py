"""The last contact of a client with a ZooKeeper server, as far as the client can know: the basis of a lease.

A server ends a session that has been silent for T, the timeout that it granted. It cannot receive a request before the
client sends it, so the session of an answered request lives at least until T after the request was sent.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from connectors.zookeeper.server_status import session_name

_BEATS_PER_TIMEOUT = 6


def boot_seconds() -> float:
    """Return seconds of a clock that is never set, and that continues while the machine sleeps if possible."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def read_session(client: KazooClient) -> str | None:
    """Return the present session of a client, as `0x…`; None while it is not connected."""
    identity = client.client_id
    return None if not identity or not identity[0] else session_name(identity[0])


class NegotiatedTimeout:
    """The session timeout T in milliseconds that the server granted, which may differ from the requested one.

    Kazoo does not publish the granted timeout, so it is read from the result of its `_connect`. Make this object
    before the client connects. Otherwise `granted` stays false until its next connection, and `ms` is the requested
    timeout.

    Args:
        client: of kazoo 2.
    """

    def __init__(self, client: KazooClient) -> None:
        self.ms = int(client._session_timeout)
        self.granted = False
        connection: Any = client._connection
        connect = connection._connect

        def connect_and_note(*arguments: Any) -> Any:
            read_timeout_ms, connect_timeout_ms = connect(*arguments)
            # Kazoo's read timeout is two thirds of T.
            self.ms, self.granted = round(read_timeout_ms * 3 / 2), True
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect_and_note


@dataclass(frozen=True, slots=True)
class _Contact:
    session: str
    sent_at: float


class Heartbeat:
    """Sends a request without effect six times per T, in a thread of its own, and records the answered ones.

    Kazoo's own pings are a third of T apart, and it does not publish the times of their answers.

    Args:
        on_session: called with each new session after its first answer. If it returns False, it is called again.
    """

    def __init__(
        self,
        client: KazooClient,
        timeout: NegotiatedTimeout,
        clock: Callable[[], float],
        on_session: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._timeout = timeout
        self._clock = clock
        self._on_session = on_session
        self._greeted: str | None = None
        self._last: _Contact | None = None
        self._at_once = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ownership heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread; waits for one request at most."""
        self._closed = True
        self._at_once.set()
        if self._thread.ident is not None:
            self._thread.join()

    def beat_now(self) -> None:
        """Send the next request at once; never blocks."""
        self._at_once.set()

    def age_seconds(self, session: str) -> float | None:
        """Return an upper bound of the time since a server heard from this session; None before the first time."""
        last = self._last
        return None if last is None or last.session != session else self._clock() - last.sent_at

    def _run(self) -> None:
        while not self._closed:
            self._at_once.clear()
            self._beat()
            self._at_once.wait(self._timeout.ms / 1000 / _BEATS_PER_TIMEOUT)

    def _beat(self) -> None:
        before, sent_at = read_session(self._client), self._clock()
        if before is None:
            return
        with suppress(KazooException, KazooTimeoutError):
            self._client.exists_async("/").get(timeout=self._timeout.ms / 1000)
            # If the session has changed meanwhile, either of the two may have been heard.
            if read_session(self._client) == before:
                self._last = _Contact(before, sent_at)
                if self._greeted != before and self._on_session(before):
                    self._greeted = before
