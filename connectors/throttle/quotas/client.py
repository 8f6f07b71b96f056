"""The client of a watched cluster's quotas, over a connection that is renewed when necessary."""

from collections.abc import Callable

from connectors.http.tls import FileStamps
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import QuotaClient


def connect(kafka: WatchedKafka) -> QuotaClient:
    """Return a client of a real cluster."""
    return QuotaClient(kafka, kafka.timeout_seconds)


class QuotaConnection:
    """Keeps a client as long as it answers.

    Args:
        kafka: the cluster. A new client is made when a certificate or a password has changed on disk.
    """

    def __init__(self, kafka: WatchedKafka, connect: Callable[[WatchedKafka], QuotaClient]) -> None:
        self._kafka = kafka
        self._connect = connect
        self._client: QuotaClient | None = None
        self._fingerprint: FileStamps = ()
        self.brokers = 0
        """The number of brokers in service, as last counted."""

    def client(self) -> QuotaClient:
        """Return a client; a new one has just had an answer. Raises one of the client's `FAILURES`."""
        fingerprint = self._kafka.fingerprint()
        if fingerprint != self._fingerprint:
            self.close()
        if self._client is None:
            self._client, self._fingerprint = self._connect(self._kafka), fingerprint
            self.count_brokers(self._client)
        return self._client

    def count_brokers(self, client: QuotaClient) -> None:
        """Count the brokers in service. Raises one of the client's `FAILURES`."""
        self.brokers = sum(not broker.fenced for broker in client.describe())

    def close(self) -> None:
        """Close the client; the next call of `client` makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
