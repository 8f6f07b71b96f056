"""The watched cluster's quotas for the actuator, over a connection that is renewed when necessary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import QuotaClient
from policies.throttle.quota_plan import Rate
from policies.throttle.quota_settings import Entity


class QuotaApi(Protocol):
    """See `QuotaClient`; all but `close` raise one of its `FAILURES` when there is no good answer."""

    def describe(self) -> object:
        """Find a broker that answers."""

    def rates(self, entities: Sequence[Entity]) -> Mapping[Entity, Rate]:
        """What each entity has itself."""

    def entities_of(self, user: str) -> set[Entity]:
        """The entities of one user that have a rate."""

    def alter(self, rates: Mapping[Entity, Rate]) -> Mapping[Entity, Exception]:
        """Give entities these rates, or take theirs away; those for which it was refused, with why."""

    def callback_classes(self) -> Mapping[int, str]:
        """The brokers that heed no quotas, and the class that has its own idea of them."""

    def close(self) -> None:
        """Give up the connection."""


def connect(kafka: WatchedKafka) -> QuotaApi:
    """A client of a real cluster."""
    return QuotaClient(kafka, kafka.timeout_seconds)


class QuotaConnection:
    """A client, as long as it answers.

    Args:
        kafka: the cluster; connected anew when a certificate or a password has changed on disk.
        connect: makes a client.
    """

    def __init__(self, kafka: WatchedKafka, connect: Callable[[WatchedKafka], QuotaApi]) -> None:
        self._kafka = kafka
        self._connect = connect
        self._client: QuotaApi | None = None
        self._fingerprint = ""

    def client(self) -> QuotaApi:
        """A client that has just had an answer. Raises one of the client's `FAILURES`."""
        fingerprint = self._kafka.fingerprint()
        if fingerprint != self._fingerprint:
            self.close()
        if self._client is None:
            self._client, self._fingerprint = self._connect(self._kafka), fingerprint
        self._client.describe()
        return self._client

    def close(self) -> None:
        """Give it up; the next one is made anew."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
