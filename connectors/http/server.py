"""An HTTP server on its own thread with its own event loop: uvicorn, with a time limit for each connection."""

import asyncio
import ssl
import threading
from collections.abc import Mapping
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from connectors.http.access import listen

_CONNECTION_SECONDS = 60.0
"""Limit of a request with its answer, from the connection's beginning or from the last answer. An answer to a slow
client takes seconds; a client that sends or reads byte by byte is cut off."""
_HANDSHAKE_SECONDS = 5.0
"""Limit of a TLS handshake, whose connections are not counted yet."""
_MAX_CONNECTIONS = 64
"""For one more, the oldest connection that waits for no answer is closed, else the oldest: so a client that keeps many
open, silent or unread, loses its own; a health check is answered, and a scrape ends."""
_REQUEST_SECONDS = 0.25
"""A connection this young may not have sent its request yet."""


class HttpServer:
    """Serves an ASGI application, which logs its own faults, until it is closed. Listens and raises as `listen` does.

    The attribute `port` has the number of its port; `headers` are added to each answer.
    """

    def __init__(
        self,
        app: Any,
        host: str,
        port: int,
        *,
        name: str,
        setting: str,
        tls: ssl.SSLContext | None,
        headers: Mapping[str, str],
    ) -> None:
        self._socket = listen(host, port, setting)
        self.port = int(self._socket.getsockname()[1])
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",  # it logs each malformed request, and clients may send many
                access_log=False,
                server_header=False,
                proxy_headers=False,
                headers=list(headers.items()),
                ssl_context_factory=None if tls is None else lambda *_: tls,
            )
        )
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._server.server_state.connections)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, and return when the port is free. May be called twice."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop with a short limit for TLS handshakes, which uvicorn has no setting for."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = _HANDSHAKE_SECONDS
        return await super().create_server(*arguments, **options)


class _Connection(H11Protocol):
    """A connection that ends in time, and makes room for another one. uvicorn limits a connection only while idle."""

    begun_at = 0.0
    """The instant on the loop's clock at which it was opened, or at which its last answer was made."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._begin()
        while len(self.connections) > _MAX_CONNECTIONS:
            oldest = min(self.connections, key=self._precedence)
            self.connections.discard(oldest)
            oldest.transport.abort()

    def on_response_complete(self) -> None:
        self._limit.cancel()
        super().on_response_complete()
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limit.cancel()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self.begun_at = self.loop.time()
        self._limit = self.loop.call_later(_CONNECTION_SECONDS, self.transport.abort)

    def _precedence(self, other: Any) -> tuple[bool, float]:
        """Return the key by which the first connection to close is the least."""
        waits_for_answer = other.cycle is not None and not other.cycle.response_complete
        return waits_for_answer or other.begun_at > self.begun_at - _REQUEST_SECONDS, other.begun_at
