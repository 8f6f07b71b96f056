"""The HTTP endpoint of a bookie (`httpServerEnabled=true`), which lists registered bookies; Pulsar's REST API does not.

Recorded from a real bookie 4.17.3: the answers are `{"<bookie>": "<host or null>"}` and take 2 ms. A killed bookie
disappears from them when its session expires.
"""

import httpx
from pydantic import TypeAdapter

from connectors.pulsar.connection import PulsarAdmin, plain_client
from connectors.pulsar.rest import RestClient

_LISTED = TypeAdapter(dict[str, str | None])


class BookieHttp:
    """A bookie's HTTP endpoint; it never receives the token, which is for Pulsar.

    `settings` are those of the admin REST API; only certificates and timeout are used.
    """

    def __init__(self, url: str, settings: PulsarAdmin, transport: httpx.BaseTransport | None = None) -> None:
        self._rest = RestClient(
            lambda: plain_client(url, settings, transport), settings.fingerprint, settings.timeout_seconds
        )

    def writable(self) -> tuple[str, ...]:
        """Return registered bookies that accept new data, sorted. Raises as `RestClient.get` does."""
        return tuple(sorted(self.listed("rw")))

    def read_only(self) -> tuple[str, ...]:
        """Return registered read-only bookies, sorted. Raises as `RestClient.get` does."""
        return tuple(sorted(self.listed("ro")))

    def listed(self, kind: str, **params: str) -> dict[str, str | None]:
        """Return the registered bookies of a kind (`rw`, `ro`) with their hosts. Raises as `RestClient.get` does."""
        return self._rest.get("/api/v1/bookie/list_bookies", _LISTED, {"type": kind, **params})

    def close(self) -> None:
        """Close all connections; the next request opens new ones."""
        self._rest.close()
