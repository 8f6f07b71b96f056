"""Why quotas of a cluster must not, or need not, be set."""

import pytest
from kafka.errors import ClusterAuthorizationFailedError, NodeNotReadyError
from pydantic import ByteSize
from structlog.testing import capture_logs

from connectors.kafka.quotas import BrokerQuotaSettings
from connectors.throttle.quotas.found import Obstacles, find_obstacles, read_broker_settings
from policies.throttle.quota_entities import DEFAULT, Entity
from policies.throttle.quota_plan import QuotaReason
from policies.throttle.quota_settings import QuotaEntity, QuotaSettings
from tests.connectors.throttle.quotas.test_worker import ALICE, ANY, Kafka, KafkaClient

EVERY_USER = Entity(user=DEFAULT)
CALLBACK = BrokerQuotaSettings("com.example.Own")


def settings(*entities: Entity, exclude: tuple[str, ...] = ()) -> QuotaSettings:
    given = tuple(QuotaEntity(user=each.user, client_id=each.client_id, base=ByteSize(1_000_000)) for each in entities)
    return QuotaSettings(entities=given, exclude=exclude)


def test_without_an_obstacle_there_is_no_reason_and_no_sentence() -> None:
    found = find_obstacles(settings(ANY, ALICE), (), {1: BrokerQuotaSettings()})
    assert found == Obstacles()
    assert (found.find_reason(ANY), list(found.explain())) == (None, [])


def test_brokers_with_a_callback_ignore_every_entity() -> None:
    found = find_obstacles(settings(ANY), (), {2: CALLBACK, 1: CALLBACK, 3: BrokerQuotaSettings()})
    assert (found.find_reason(ANY), found.find_reason(ALICE)) == (QuotaReason.QUOTA_CALLBACK,) * 2
    (sentence,) = found.explain()
    assert sentence.startswith("broker 1, 2 has client.quota.callback.class=com.example.Own")
    assert "take it out of the broker's configuration" in sentence


def test_an_excluded_user_without_a_quota_of_their_own_would_be_caught() -> None:
    found = find_obstacles(settings(EVERY_USER, ALICE, exclude=("carol",)), (), {})
    assert found.find_reason(EVERY_USER) is QuotaReason.EXCLUDED_USER
    assert found.find_reason(ALICE) is None
    (sentence,) = found.explain()
    assert "entity user=<default> would slow down the excluded user carol" in sentence
    assert "--entity-name carol" in sentence


def test_an_excluded_user_with_a_quota_of_their_own_is_not() -> None:
    found = find_obstacles(settings(EVERY_USER, exclude=("carol",)), {Entity(user="carol")}, {})
    assert found.find_reason(EVERY_USER) is None


class Guarded(KafkaClient):
    """Brokers that answer a question for their configuration with an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(Kafka())
        self._error = error

    def broker_settings(self) -> dict[int, BrokerQuotaSettings]:
        raise self._error


def test_a_refused_question_is_no_obstacle_and_is_logged() -> None:
    with capture_logs() as logs:
        assert read_broker_settings(Guarded(ClusterAuthorizationFailedError())) == {}
    assert ["a quota callback would not be noticed" in entry["event"] for entry in logs] == [True]


def test_brokers_that_do_not_answer_are_no_verdict() -> None:
    with pytest.raises(NodeNotReadyError):
        read_broker_settings(Guarded(NodeNotReadyError()))
