"""A watched cluster's quotas, and the topic of applied quotas, in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from connectors.kafka.log_dirs import WatchedKafka
from connectors.throttle.quotas.client import QuotaApi
from connectors.throttle.quotas.records import QuotaJournalError
from policies.decisions import Mode
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_plan import QuotaOrder
from policies.throttle.quota_settings import Entity
from policies.wire import EventReader
from tests.connectors.actuation.virtual_clock import NOON

CLUSTER = "payments"
ANY, ALICE = Entity(client_id="default"), Entity(user="alice")
KAFKA = WatchedKafka(bootstrap_servers="nowhere:9092")

_NOTES = EventReader((AppliedQuota,))


def order(factor: float, sequence: int = 1, *, valid_seconds: float = 180.0, at: datetime = NOON) -> QuotaOrder:
    """A decision that is valid for three minutes from noon."""
    until = at + timedelta(seconds=valid_seconds)
    return QuotaOrder(CLUSTER, f"id-{sequence}", sequence, factor, Mode.ACTIVE, until)


@dataclass
class Kafka:
    """A cluster that does as asked, unless it `fails` or `refuses`. Clients come and go; it stays."""

    acts: list[str] = field(default_factory=list)
    rates: dict[Entity, int] = field(default_factory=dict)
    fails: list[Exception] = field(default_factory=list)
    """For the next requests, one each."""
    refuses: dict[Entity, Exception] = field(default_factory=dict)
    own: dict[str, set[Entity]] = field(default_factory=dict)
    callbacks: dict[int, str] = field(default_factory=dict)
    looks: int = 0
    clients: int = 0
    """The number of open clients."""

    def connect(self, kafka: WatchedKafka) -> QuotaApi:
        assert kafka is KAFKA
        self.clients += 1
        return KafkaClient(self)


class KafkaClient:
    """One connection."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def describe(self) -> None:
        if self._kafka.fails:
            raise self._kafka.fails.pop(0)

    def rates(self, entities: Sequence[Entity]) -> Mapping[Entity, int | None]:
        self._kafka.looks += 1
        return {entity: self._kafka.rates.get(entity) for entity in entities}

    def entities_of(self, user: str) -> set[Entity]:
        return self._kafka.own.get(user, set())

    def alter(self, rates: Mapping[Entity, int | None]) -> Mapping[Entity, Exception]:
        self._kafka.acts.append("set")
        for entity in rates.keys() - self._kafka.refuses:
            self._kafka.rates.pop(entity, None)
            if (rate := rates[entity]) is not None:
                self._kafka.rates[entity] = rate
        return {entity: error for entity, error in self._kafka.refuses.items() if entity in rates}

    def callback_classes(self) -> Mapping[int, str]:
        return self._kafka.callbacks

    def close(self) -> None:
        self._kafka.clients -= 1


@dataclass
class Journal:
    """The applied quotas, in the order of their records."""

    acts: list[str]
    notes: list[tuple[str, AppliedQuota]] = field(default_factory=list)
    """(event id, applied quota)."""
    fails: int = 0
    """The number of further writes that fail."""

    def write(self, entries: Sequence[tuple[str, bytes]]) -> None:
        if not entries:
            return
        if self.fails:
            self.fails -= 1
            raise QuotaJournalError("no answer in time")
        self.acts.append("write")
        for key, value in entries:
            event = _NOTES.read(value)
            assert key == event.subject
            self.notes.append((event.id, event.data))

    @property
    def held(self) -> dict[str, bool]:
        """By entity, as a reader of the compacted topic sees it."""
        return {str(note.entity): note.held for _, note in self.notes}


def applied(**fields: Any) -> AppliedQuota:
    """A record that 500 kB/s were set for all clients, where no quota was before."""
    given: dict[str, Any] = {
        "cluster": CLUSTER, "user": None, "client_id": "default", "held": True, "baseline_bytes_per_second": None,
        "base_bytes_per_second": 1_000_000, "rates_bytes_per_second": (500_000,), "decision_id": "id-5", "sequence": 5,
        "factor": 0.5, "valid_until": NOON + timedelta(seconds=180), **fields,
    }  # fmt: skip
    return AppliedQuota(**given)
