"""A watched cluster's quotas in memory; each of its brokers may be late."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from connectors.kafka.cluster_client import KafkaBroker
from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import BrokerQuotas, BrokerQuotaSettings, QuotaClient
from policies.decisions import Mode
from policies.free_space.orders import FactorOrder
from policies.throttle.quota_events import AppliedQuota
from policies.throttle.quota_originals import Original
from policies.throttle.quota_settings import Entity
from policies.wire import EventReader
from tests.connectors.actuation.virtual_clock import NOON

CLUSTER = "payments"
ANY, ALICE = Entity(client_id="default"), Entity(user="alice")
KAFKA = WatchedKafka(bootstrap_servers="nowhere:9092")

NOTES = EventReader((AppliedQuota,))


def order(factor: float, sequence: int = 1, *, valid_seconds: float = 180.0, at: datetime = NOON) -> FactorOrder:
    """A decision that is valid for three minutes from noon."""
    until = at + timedelta(seconds=valid_seconds)
    return FactorOrder(CLUSTER, CLUSTER, f"id-{sequence}", sequence, factor, Mode.ACTIVE, at, until)


@dataclass
class Kafka:
    """A cluster that does as asked, unless it `fails` or `refuses`. Clients come and go; it stays."""

    acts: list[dict[Entity, int | None]] = field(default_factory=list)
    """The rates of each request."""
    rates: dict[Entity, int] = field(default_factory=dict)
    originals: dict[Entity, Original] = field(default_factory=dict)
    fails: list[Exception] = field(default_factory=list)
    """For the next readings, one each."""
    loses: list[Exception] = field(default_factory=list)
    """For the next requests, whose change arrives all the same."""
    refuses: dict[Entity, Exception] = field(default_factory=dict)
    brokers: dict[int, BrokerQuotaSettings] = field(default_factory=lambda: {1: BrokerQuotaSettings()})
    late_seconds: dict[int, float] = field(default_factory=dict)
    """By broker, how old its answers are."""
    now: Callable[[], float] = lambda: 0.0
    looks: int = 0
    asked: list[int] = field(default_factory=list)
    """The broker of each reading."""
    clients: int = 0
    """The number of open clients."""
    _past: list[tuple[float, BrokerQuotas]] = field(default_factory=list)

    def connect(self, kafka: WatchedKafka) -> QuotaClient:
        assert kafka is KAFKA
        self.clients += 1
        return KafkaClient(self)

    def set_by_hand(self, entity: Entity, rate: int | None) -> None:
        """Set a quota as an operator does, without a record."""
        self.keep_past()
        self.rates.pop(entity, None)
        if rate is not None:
            self.rates[entity] = rate

    def keep_past(self) -> None:
        """Keep the present state for late brokers; call it before each change."""
        self._past.append((self.now(), BrokerQuotas(0, dict(self.rates), dict(self.originals))))

    def shown_by(self, broker: int) -> BrokerQuotas:
        """What a broker shows: the state before the first change that it has not received yet."""
        since = self.now() - self.late_seconds.get(broker, 0.0)
        missed = (state for at, state in self._past if at > since)
        present = BrokerQuotas(0, dict(self.rates), dict(self.originals))
        return replace(next(missed, present), broker=broker)


class KafkaClient(QuotaClient):
    """One connection."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def describe(self) -> tuple[KafkaBroker, ...]:
        return tuple(KafkaBroker(number, "h", 9092, None, fenced=False) for number in sorted(self._kafka.brokers))

    def read(self) -> BrokerQuotas:
        kafka = self._kafka
        if kafka.fails:
            raise kafka.fails.pop(0)
        kafka.looks += 1
        numbers = sorted(kafka.brokers)
        kafka.asked.append(numbers[kafka.looks % len(numbers)])
        return kafka.shown_by(kafka.asked[-1])

    def alter(
        self, rates: Mapping[Entity, int | None], originals: Mapping[Entity, Original | None] | None = None
    ) -> dict[Entity, Exception]:
        kafka, originals = self._kafka, originals or {}
        kafka.acts.append(dict(rates))
        kafka.keep_past()
        for entity in {*rates, *originals} - kafka.refuses.keys():
            if entity in rates:
                kafka.rates.pop(entity, None)
            if (rate := rates.get(entity)) is not None:
                kafka.rates[entity] = rate
            kafka.originals.pop(entity, None)
            if (original := originals.get(entity)) is not None:
                kafka.originals[entity] = original
        if kafka.loses:
            raise kafka.loses.pop(0)
        return {entity: error for entity, error in kafka.refuses.items() if entity in rates}

    def broker_settings(self) -> dict[int, BrokerQuotaSettings]:
        return self._kafka.brokers

    def close(self) -> None:
        self._kafka.clients -= 1


def applied(**fields: Any) -> AppliedQuota:
    """A record that 500 kB/s were set for all clients, where no quota was before."""
    given: dict[str, Any] = {
        "cluster": CLUSTER, "user": None, "client_id": "default", "held": True, "baseline_bytes_per_second": None,
        "base_bytes_per_second": 1_000_000, "rates_bytes_per_second": (500_000,), "decision_id": "id-5", "sequence": 5,
        "factor": 0.5, "valid_until": NOON + timedelta(seconds=180), **fields,
    }  # fmt: skip
    return AppliedQuota(**given)
