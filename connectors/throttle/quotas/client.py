"""The client of a watched cluster's quotas, over a connection that is renewed when necessary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from connectors.kafka.cluster_client import KafkaBroker
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import BrokerQuotas, BrokerQuotaSettings, QuotaClient
from policies.throttle.quota_originals import Original, Rate
from policies.throttle.quota_settings import Entity


class QuotaApi(Protocol):
    """See `QuotaClient`. All but `close` raise one of its `FAILURES` if there is no usable answer."""

    def describe(self) -> Sequence[KafkaBroker]:
        """Return the registered brokers."""

    def read(self) -> BrokerQuotas:
        """Read all quotas from one broker, from another one each time."""

    def alter(
        self, rates: Mapping[Entity, Rate], originals: Mapping[Entity, Original | None]
    ) -> Mapping[Entity, Exception]:
        """Set or remove rates, with the records of the originals. Returns the refused entities with the reasons."""

    def broker_settings(self) -> Mapping[int, BrokerQuotaSettings]:
        """Return how each broker that answers enforces quotas."""

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
        self.brokers = 0
        """The number of brokers in service when this connection was made."""

    def client(self) -> QuotaApi:
        """Return a client; a new one has just had an answer. Raises one of the client's `FAILURES`."""
        fingerprint = self._kafka.fingerprint()
        if fingerprint != self._fingerprint:
            self.close()
        if self._client is None:
            self._client, self._fingerprint = self._connect(self._kafka), fingerprint
            self.brokers = sum(not broker.fenced for broker in self._client.describe())
        return self._client

    def close(self) -> None:
        """Close the client; the next call of `client` makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
