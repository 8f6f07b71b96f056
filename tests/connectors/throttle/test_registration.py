"""The doctor finds what keeps the quota actuator from starting, before it is started."""

from collections.abc import Mapping
from typing import Any

import pytest

from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import BrokerQuotas, BrokerQuotaSettings
from connectors.throttle import registration
from policies.observations import Outcome
from policies.throttle.quota_settings import DEFAULT, Entity, QuotaSettings

BOB, ANY_CLIENT = Entity(user="bob"), Entity(client_id=DEFAULT)
MB = 1_000_000


class Client:
    """A cluster with these quotas, whose brokers heed them."""

    def __init__(self, rates: Mapping[Entity, int]) -> None:
        self._rates = rates

    def describe(self) -> None:
        """It answers."""

    def read(self) -> BrokerQuotas:
        return BrokerQuotas(1, self._rates)

    def broker_settings(self) -> Mapping[int, BrokerQuotaSettings]:
        return {1: BrokerQuotaSettings()}

    def close(self) -> None:
        """Nothing is open."""


def check(monkeypatch: pytest.MonkeyPatch, rates: Mapping[Entity, int], **settings: Any) -> tuple[Outcome, str, str]:
    monkeypatch.setattr(registration, "QuotaClient", lambda *_: Client(rates))
    kafka = WatchedKafka(bootstrap_servers="k:1")
    found = registration._check_quotas(kafka, QuotaSettings.model_validate(settings))
    return found.outcome, found.detail or "", "\n".join(found.remedies)


def test_excluded_users_without_a_quota_are_named_with_the_command_that_gives_them_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"entities": [{"client_id": "default", "base": "10MB"}], "exclude": ["bob"]}
    outcome, detail, remedy = check(monkeypatch, {}, **settings)
    assert (outcome, "without a quota of their own would be slowed: bob" in detail) == (Outcome.ERROR, True)
    assert remedy == (
        "kafka-configs.sh --bootstrap-server k:1 --alter --entity-type users --entity-name bob "
        "--add-config producer_byte_rate=<bytes per second>"
    )
    assert check(monkeypatch, {BOB: MB}, **settings)[0] is Outcome.OK


def test_entities_without_a_rate_at_factor_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"entities": [{"client_id": "default"}]}
    outcome, detail, remedy = check(monkeypatch, {}, **settings)
    assert (outcome, "neither a `base` nor a quota in Kafka: client-id=<default>" in detail) == (Outcome.ERROR, True)
    assert "base: 10MB" in remedy
    assert check(monkeypatch, {ANY_CLIENT: MB}, **settings)[0] is Outcome.OK
