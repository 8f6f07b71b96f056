"""The client of a watched cluster's quotas, over a connection that is renewed when necessary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import QuotaClient
from policies.throttle.quota_plan import Rate
from policies.throttle.quota_settings import Entity


class QuotaApi(Protocol):
    """See `QuotaClient`. All but `close` raise one of its `FAILURES` if there is no usable answer."""

    def describe(self) -> object:
        """Find a broker that answers."""

    def rates(self, entities: Sequence[Entity]) -> Mapping[Entity, Rate]:
        """Return each entity's own rate."""

    def entities_of(self, user: str) -> set[Entity]:
        """Return the entities of one user that have a rate."""

    def alter(self, rates: Mapping[Entity, Rate]) -> Mapping[Entity, Exception]:
        """Set or remove entities' rates. Returns the refused ones with the reasons."""

    def callback_classes(self) -> Mapping[int, str]:
        """Return the brokers with a quota callback, which ignore quotas, and its class."""

    def close(self) -> None:
        """Close the connection."""


def connect(kafka: WatchedKafka) -> QuotaApi:
    """Return a client of a real cluster."""
    return QuotaClient(kafka, kafka.timeout_seconds)


class QuotaConnection:
    """Keeps a client as long as it answers.

    Args:
        kafka: the cluster. A new client is made when a certificate or a password has changed on disk.
        connect: makes a client.
    """

    def __init__(self, kafka: WatchedKafka, connect: Callable[[WatchedKafka], QuotaApi]) -> None:
        self._kafka = kafka
        self._connect = connect
        self._client: QuotaApi | None = None
        self._fingerprint = ""

    def client(self) -> QuotaApi:
        """Return a client that has just had an answer. Raises one of the client's `FAILURES`."""
        fingerprint = self._kafka.fingerprint()
        if fingerprint != self._fingerprint:
            self.close()
        if self._client is None:
            self._client, self._fingerprint = self._connect(self._kafka), fingerprint
        self._client.describe()
        return self._client

    def close(self) -> None:
        """Close the client; the next call of `client` makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
