"""When a ZooKeeper server last heard from this client, as far as the client can know: the basis of a lease.

A server ends a session when it has heard nothing from it for T, the timeout it granted. It cannot have heard a request
before the request was sent, so the session of an answered request lives at least until T after it was sent.
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
    """Seconds on a clock that nobody sets and that goes on while the machine sleeps, where there is such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def session_of(client: KazooClient) -> str | None:
    """The session a client has now, as `0x…`; None while it is not connected."""
    identity = client.client_id
    return None if not identity or not identity[0] else session_name(identity[0])


class NegotiatedTimeout:
    """T of a client's session in milliseconds: what the server granted, which need not be what was asked for.

    Kazoo keeps the granted timeout to itself, so it is taken from what its `_connect` returns. That needs a client
    which has not connected yet; for one that has, `granted` stays false until its next connection, and `ms` is what the
    client asks for.

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
            # Kazoo gives a server two thirds of T for an answer.
            self.ms, self.granted = round(read_timeout_ms * 3 / 2), True
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect_and_note


@dataclass(frozen=True, slots=True)
class _Contact:
    session: str
    sent_at: float


class Heartbeat:
    """Asks the server for nothing six times per T, in a thread of its own, and notes when that was answered.

    Kazoo's own pings are a third of T apart, and it does not tell when they were answered.

    Args:
        client: whose session it is about.
        timeout: T.
        clock: seconds.
        on_session: called with each new session, after its first answer; again when it says that it could not do its
            work.
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
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; bounded by one request."""
        self._closed = True
        self._at_once.set()
        if self._thread.ident is not None:
            self._thread.join()

    def beat_now(self) -> None:
        """Do not wait for the next beat; never blocks."""
        self._at_once.set()

    def age_seconds(self, session: str) -> float | None:
        """How long ago, at most, a server heard from this session; None when it never has."""
        last = self._last
        return None if last is None or last.session != session else self._clock() - last.sent_at

    def _run(self) -> None:
        while not self._closed:
            self._at_once.clear()
            self._beat()
            self._at_once.wait(self._timeout.ms / 1000 / _BEATS_PER_TIMEOUT)

    def _beat(self) -> None:
        before, sent_at = session_of(self._client), self._clock()
        if before is None:
            return
        with suppress(KazooException, KazooTimeoutError):
            self._client.exists_async("/").get(timeout=self._timeout.ms / 1000)
            # Of two sessions nobody knows which one was heard.
            if session_of(self._client) == before:
                self._last = _Contact(before, sent_at)
                if self._greeted != before and self._on_session(before):
                    self._greeted = before
