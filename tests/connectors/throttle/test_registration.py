"""The doctor finds what keeps the quota actuator from starting, before it is started."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.kafka.log_dirs import WatchedKafka
from connectors.kafka.quotas import BrokerQuotas, BrokerQuotaSettings
from connectors.throttle import registration
from connectors.throttle.quotas.worker import Released
from policies.errors import UserError
from policies.observations import Outcome
from policies.throttle.quota_entities import DEFAULT, Entity
from policies.throttle.quota_settings import QuotaSettings

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


RELEASED = {
    "one is put back": ((Released({"user=bob": None}, {}),), None, ["a: user=bob has no quota again"], ""),
    "nothing is known": ((Released({}, {}),), None, ["a: no record of Headgate is there"], ""),
    "one is refused": ((Released({}, {"user=bob": "why"}),), None, [], "Not put back on a: user=bob: why"),
    "confirmed": (
        (Released({}, {}, {"user=CN=a,O=b": MB}), Released({}, {})), "user=CN=a,O=b",
        ["a: user=CN=a,O=b has 1.0 MB/s, which counts as its original", "b: no record"], "",
    ),
    "found nowhere": ((Released({}, {}),), "client-id=default", [], "no watched cluster has such a quota"),
    "no entity": ((), "user=a,user=b", [], "not an entity such as user=alice"),
}  # fmt: skip


@pytest.mark.parametrize(("results", "forget", "printed", "refusal"), RELEASED.values(), ids=RELEASED)
def test_release_prints_what_it_did_and_ends_with_an_error_if_anything_is_left(
    results: tuple[Released, ...], forget: str | None, printed: list[str], refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = {name: SimpleNamespace(release=lambda *_, r=r: r) for name, r in zip("ab", results, strict=False)}
    monkeypatch.setattr(registration, "_make_quota_workers", lambda *_, **__: workers)
    released = registration.release_quotas(SimpleNamespace(), forget)  # type: ignore[arg-type]
    if refusal:
        with pytest.raises(UserError, match=refusal):
            list(released)
        return
    assert [s.startswith(p) for s, p in zip(released, printed, strict=True)] == [True] * len(printed)
